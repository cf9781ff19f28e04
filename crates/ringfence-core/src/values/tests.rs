//! Which values are valid, and how they are shown.

use super::*;

#[test]
fn a_name_has_1_to_1024_bytes_with_its_prefix() {
    assert_eq!(Name::new("", ""), Err(NameError::Empty));
    assert_eq!(Name::new("app:", ""), Err(NameError::Empty));
    assert!(Name::new("", &"x".repeat(1024)).is_ok());
    assert_eq!(
        Name::new("", &"x".repeat(1025)),
        Err(NameError::TooLong(1025))
    );
    assert_eq!(
        Name::new("p", &"x".repeat(1024)),
        Err(NameError::TooLong(1025))
    );
}

#[test]
fn our_own_records_cannot_be_locked() {
    assert_eq!(Name::new("", "ringfence:born"), Err(NameError::Reserved));
    assert_eq!(Name::new("ring", "fence:x"), Err(NameError::Reserved));
    assert!(Name::new("app:", "ringfence:x").is_ok());
}

#[test]
fn a_list_with_the_same_name_twice_is_refused() {
    assert_eq!(
        Name::set("", ["b", "a", "b"]),
        Err(NameError::Twice(Name::new("", "b").unwrap()))
    );
    assert_eq!(Name::set::<&str>("", []), Err(NameError::None));
    assert!(matches!(
        Name::set("", (0..129).map(|i| i.to_string())),
        Err(NameError::TooMany(129))
    ));
}

#[test]
fn the_keys_of_a_semaphore_or_latch_share_a_hash_tag_and_cannot_be_locked() {
    let parts = |name: &str| {
        let name = Name::new("", name).unwrap();
        [name.admission(), name.slot(0), name.slot(12), name.latch()]
            .map(|part| part.as_str().to_owned())
    };
    assert_eq!(parts("{x}y")[3], "ringfence:{x}:latch:{x}y");
    assert_eq!(parts("x")[0], "ringfence:{x}:admission:x");
    assert_eq!(parts("{x}y")[2], "ringfence:{x}:slot:12:{x}y");
    for (name, tag) in [
        ("x", "x"),
        ("{x}y", "x"),
        ("a}b", "ab"),
        ("}", "-"),
        ("{}", "{"),
        ("a:b", "a:b"),
        ("slot:1:{x}", "x"),
    ] {
        for part in parts(name) {
            assert_eq!(hash_tag(&part), Some(tag), "{part}");
            assert_eq!(Name(part.as_str().into()).given(), name);
            assert_eq!(Name::new("", &part), Err(NameError::Reserved));
        }
    }
}

#[test]
fn control_characters_are_shown_escaped() {
    let name = Name::new("", "a\u{1b}[2Jb").unwrap();
    assert_eq!(name.to_string(), "a\\u{1b}[2Jb");
    assert_eq!(&*name.shown(), "a\\u{1b}[2Jb");
}

#[test]
fn debug_and_display_keep_the_secret() {
    let token = Token::from_entropy([0xab; TOKEN_ENTROPY_BYTES]);
    assert_eq!(token.expose().len(), 43);
    assert_eq!(token.id(), "ababababab");
    for shown in [format!("{token:?}"), token.to_string()] {
        assert!(!shown.contains(&token.expose()[11..]), "{shown}");
    }
}

#[test]
fn only_id_dot_secret_parses() {
    let token = Token::from_entropy([7; TOKEN_ENTROPY_BYTES]);
    assert_eq!(Token::parse(token.expose()), Ok(token));
    let dead = tombstone(Token::from_entropy([7; TOKEN_ENTROPY_BYTES]).expose());
    assert_eq!(dead, "kept.0707070707");
    for bad in [
        "",
        "x",
        ".x",
        "x.",
        "a b.c",
        "a.b\n",
        &"a.".repeat(200),
        &dead,
    ] {
        assert_eq!(Token::parse(bad), Err(TokenError), "{bad:?}");
    }
}

#[test]
fn a_foreign_value_has_no_public_half() {
    assert_eq!(public_half("4f6a.secret"), None);
    assert_eq!(public_half("whole-value-is-secret"), None);
}

#[test]
fn an_optional_timestamp_needs_no_extra_memory() {
    assert_eq!(size_of::<Option<Timestamp>>(), size_of::<u64>());
}

#[test]
fn a_timestamp_that_does_not_fit_saturates() {
    let never = Timestamp::from_nanos(u64::MAX);
    assert_eq!(never + Duration::from_nanos(1), never);
    assert_eq!(Timestamp::ZERO + Duration::MAX, never);
    assert_eq!(Timestamp::ZERO - Duration::from_nanos(1), Timestamp::ZERO);
    for nanos in [0, 1, u64::MAX - 1] {
        assert_eq!(Timestamp::from_nanos(nanos).as_nanos(), nanos);
    }
    assert_eq!(
        (never - Duration::from_nanos(5)).since(never),
        Duration::ZERO
    );
    assert_eq!(never.since(never - Duration::from_nanos(5)).as_nanos(), 5);
}

#[test]
fn the_numbers_are_those_of_the_reference_implementation() {
    let mut numbers = SplitMix64::new(1_234_567);
    let first = [numbers.draw(), numbers.draw(), numbers.draw()];
    let reference = [
        6_457_827_717_110_365_317,
        3_203_168_211_198_807_973,
        9_817_491_932_198_370_423,
    ];
    assert_eq!(first, reference);
}

#[test]
fn the_key_of_a_name_or_part_is_read_back() {
    for given in ["x", "{x}y", "a}b", "}", "a:b", "slot:1:{x}", "latch"] {
        let name = Name::new("", given).unwrap();
        let parts = [name.admission(), name.slot(0), name.slot(41), name.latch()];
        for key in parts.into_iter().chain([name]) {
            assert_eq!(Name::of_key(key.as_str()), Some(key.clone()));
            assert_eq!(key.given(), given);
        }
    }
    let slot = Name::new("", "x").unwrap().slot(41);
    assert_eq!(slot.slot_number(), Some(41));
    assert_eq!(Name::of_key("x").unwrap().slot_number(), None);
}

#[test]
fn a_key_that_no_client_writes_is_no_name() {
    let long = "x".repeat(1025);
    for key in [
        "",
        &long,
        "ringfence:born",
        "ringfence:{x}:record:x",
        "ringfence:{x}:slot:01:x",
        "ringfence:{x}:slot:x",
        "ringfence:{x}:slot:4294967296:x",
        "ringfence:{x}:latch:y",
        "ringfence:{x}:latch:",
        "ringfence:{x}:latch:ringfence:{x}:latch:x",
    ] {
        assert_eq!(Name::of_key(key), None, "{key}");
    }
}
