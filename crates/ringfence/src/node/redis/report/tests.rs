use super::*;

fn reporter() -> Reporter {
    Reporter::new("h:6379", Some("orders"), Some("hunter2"))
}

fn trouble_of(line: &str) -> Trouble {
    match redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap() {
        redis::Value::ServerError(error) => reporter().server_error(&error),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_server_s_error_has_the_kind_that_says_what_to_do() {
    for (line, kind) in [
        ("NOAUTH Authentication required.", TroubleKind::Denied),
        (
            "WRONGPASS invalid username-password pair",
            TroubleKind::Denied,
        ),
        (
            "NOPERM this user has no permissions to run the 'info' command",
            TroubleKind::Denied,
        ),
        (
            "LOADING Redis is loading the dataset in memory",
            TroubleKind::Loading,
        ),
        (
            "READONLY You can't write against a read only replica.",
            TroubleKind::Replica,
        ),
        ("MOVED 1 127.0.0.1:7000", TroubleKind::Cluster),
        (
            "CROSSSLOT Keys in request don't hash to the same slot",
            TroubleKind::Cluster,
        ),
        (
            "OOM command not allowed when used memory > 'maxmemory'.",
            TroubleKind::Other,
        ),
        ("ERR DB index is out of range", TroubleKind::Database),
        ("ERR what", TroubleKind::Other),
    ] {
        let trouble = trouble_of(line);
        assert_eq!(trouble.kind, kind, "{line}");
        assert!(trouble.detail.starts_with("h:6379 "), "{trouble}");
    }
    assert!(
        trouble_of("NOPERM no permissions to run the 'info' command")
            .detail
            .contains("'info'")
    );
}

#[test]
fn a_server_that_echoes_the_password_is_not_quoted_in_full() {
    let trouble = trouble_of("ERR unknown command `AUTH`, with args beginning with: `hunter2`");
    assert!(!trouble.detail.contains("hunter2"), "{trouble}");
}

#[test]
fn a_password_is_known_in_every_form_and_in_part() {
    let password = "s3c\"ret\\pass\nwörd,";
    let reporter = Reporter::new("h:6379", None, Some(password));
    let echoes = [
        password.to_owned(),
        password.replace('\n', " "),
        crate::url::encode(password),
        crate::url::encode(password).to_lowercase(),
        password.escape_debug().to_string(),
        password.escape_default().to_string(),
        // Shortened by the server, and by us.
        password[..8].to_owned(),
        format!("{}{password}", "x".repeat(QUOTE_MAX_CHARS - 10)),
        format!("{}{password}", "x".repeat(QUOTE_MAX_CHARS - 16)),
    ];
    for echo in echoes {
        let trouble = reporter.unreachable(&format!("args beginning with: `{echo}`"));
        assert!(!trouble.detail.contains("s3c"), "{echo}: {trouble}");
    }
}

#[test]
fn no_control_character_of_a_server_gets_through() {
    let what = "votes already and has 1\u{1b}[2J\u{9b}2J\n lock records";
    let trouble = reporter().trouble(TroubleKind::Other, what);
    assert!(!trouble.detail.contains(char::is_control), "{trouble:?}");
    assert!(trouble.detail.contains("\\u{9b}2J"), "{trouble}");
}

#[test]
fn a_server_that_sent_too_much_is_named() {
    let trouble = reporter().connection(&Excess::Bytes.into());
    let expected = "h:6379 sent a reply larger than 1 MiB; is this a Redis server?";
    assert_eq!(
        (&*trouble.detail, trouble.kind),
        (expected, TroubleKind::Garbage)
    );
    let trouble = reporter().connection(&Excess::Pushes.into());
    assert!(trouble.detail.starts_with("h:6379 sent more messages"));
    assert!(!trouble.is_misconfiguration(), "it may end");
}

#[test]
fn a_long_text_of_a_server_is_shortened() {
    let trouble = trouble_of(&format!("ERR \u{1b}[2J{}", "x".repeat(100_000)));
    assert!(trouble.detail.len() < 400, "{}", trouble.detail.len());
    assert!(!trouble.detail.contains('\u{1b}'), "{trouble}");
}

#[test]
fn a_server_that_is_no_longer_a_master_needs_a_new_handshake() {
    for (error_text, newborn) in [
        (
            "READONLY You can't write against a read only replica.",
            true,
        ),
        ("MASTERDOWN Link with MASTER is down", true),
        ("LOADING Redis is loading the dataset in memory", true),
        (
            "ERR Error running script (call to f_1): @user_script:5: -READONLY You can't write",
            true,
        ),
        (
            "ERR Error running script (call to f_1): @user_script:5: a mistake",
            false,
        ),
        ("OOM command not allowed", false),
        ("NOSCRIPT No matching script", false),
    ] {
        let error = redis::parse_redis_value(format!("-{error_text}\r\n").as_bytes());
        let Ok(redis::Value::ServerError(error)) = error else {
            panic!("{error:?}");
        };
        assert_eq!(is_newborn(&error), newborn, "{error_text}");
    }
}
