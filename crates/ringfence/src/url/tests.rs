//! Valid node URLs, and the error of each mistake.

use proptest::prelude::*;

use super::*;

pub(super) fn single(list: &str) -> RedisUrl {
    match parse_nodes(list).unwrap().as_slice() {
        [NodeUrl::Redis(url)] => url.clone(),
        other => panic!("{other:?}"),
    }
}

fn tcp(host: &str, port: u16) -> Address {
    Address::Tcp(host.to_owned(), port)
}

pub(super) fn refused(list: &str) -> UrlError {
    parse_nodes(list).expect_err(list)
}

#[test]
fn the_smallest_url_names_a_host() {
    let url = single("redis://Cache.Example.");
    assert_eq!(url.address, tcp("cache.example", 6379));
    assert_eq!((url.user, url.password, url.db), (None, None, 0));
    assert!(url.quarantine && !url.eviction_allowed && url.tls.is_none());
}

#[test]
fn user_and_password_are_percent_decoded() {
    let url = single("valkey://bob:p%40ss%2C%2f@h:7000/3");
    assert_eq!(url.user.as_deref(), Some("bob"));
    assert_eq!(url.password.as_deref(), Some("p@ss,/"));
    assert_eq!((url.address, url.db), (tcp("h", 7000), 3));
    let url = single("redis://:only@h");
    assert_eq!((url.user, url.password.as_deref()), (None, Some("only")));
}

#[test]
fn ipv6_addresses_are_normalised() {
    assert_eq!(single("redis://[0:0::1]:7000").address, tcp("::1", 7000));
    assert_eq!(single("redis://[::1]").address.to_string(), "[::1]:6379");
    assert_eq!(refused("redis://[::1]7000"), UrlError::Port("::1".into()));
    assert_eq!(refused("redis://[x]"), UrlError::Host("redis://"));
}

#[test]
fn the_database_is_in_the_path_or_the_query() {
    assert_eq!(single("redis://h/2").db, 2);
    assert_eq!(single("redis://h?db=2").db, 2);
    assert_eq!(single("redis://h/2?db=2").db, 2);
    for bad in [
        "redis://h/2?db=3",
        "redis://h/x",
        "redis://h?db=-1",
        "redis://h/1/2",
    ] {
        assert_eq!(refused(bad), UrlError::Database("h:6379".into()), "{bad}");
    }
}

#[test]
fn a_unix_socket_is_a_path() {
    let url = single("redis+unix:///run/redis.sock?db=1&user=u&pass=p");
    assert_eq!(url.address, Address::Unix("/run/redis.sock".into()));
    assert_eq!((url.db, url.user.as_deref()), (1, Some("u")));
    assert_eq!(url.password.as_deref(), Some("p"));
    assert_eq!(
        single("unix:///run/r").address,
        Address::Unix("/run/r".into())
    );
    assert_eq!(refused("unix://"), UrlError::Path("redis+unix://"));
    assert_eq!(refused("unix://run/r"), UrlError::Path("redis+unix://"));
}

#[test]
fn tls_takes_its_files_as_parameters() {
    let tls = single("rediss://h?ca=/ca.pem&cert=/c.pem&key=/k.pem")
        .tls
        .unwrap();
    assert_eq!(tls.ca, Some("/ca.pem".into()));
    assert_eq!(tls.identity, Some(("/c.pem".into(), "/k.pem".into())));
    assert!(single("valkeys://h").tls.is_some());
    assert!(matches!(
        refused("rediss://h?cert=/c"),
        UrlError::Value {
            parameter: "cert",
            ..
        }
    ));
    assert!(matches!(
        refused("redis://h?ca=/ca.pem"),
        UrlError::Parameter { .. }
    ));
}

#[test]
fn flags_accept_only_their_two_words() {
    assert!(!single("redis://h?quarantine=off").quarantine);
    assert!(single("redis://h?eviction=allow").eviction_allowed);
    assert!(single("redis://h?durable=yes").durable && !single("redis://h?durable=no").durable);
    assert_eq!(
        refused("redis://h?durable=always").to_string(),
        "the parameter `durable` of `h:6379` must be `yes` or `no`"
    );
    assert_eq!(
        refused("redis://h?quarantine=no").to_string(),
        "the parameter `quarantine` of `h:6379` must be `on` or `off`"
    );
}

#[test]
fn a_node_without_a_scheme_is_refused_with_what_to_write() {
    let missing = |scheme, node: &str| UrlError::SchemeMissing {
        scheme,
        node: node.to_owned(),
    };
    assert_eq!(refused("redis://a,b"), missing("redis://", "b"));
    assert_eq!(
        refused("rediss://a, b:7000,redis://c/1"),
        missing("rediss://", "b:7000")
    );
}

#[test]
fn an_embedded_node_must_be_the_only_one() {
    assert_eq!(
        parse_nodes("sqlite:a.db"),
        Ok(vec![NodeUrl::Sqlite("a.db".into())])
    );
    assert_eq!(
        parse_nodes("memory:"),
        Ok(vec![NodeUrl::Memory(String::new())])
    );
    assert_eq!(
        parse_nodes("memory:x"),
        Ok(vec![NodeUrl::Memory("x".into())])
    );
    assert_eq!(refused("sqlite:"), UrlError::Path("sqlite:"));
    assert_eq!(refused("redis://a,sqlite:b"), UrlError::Embedded("sqlite:"));
    assert_eq!(refused("memory:,redis://a"), UrlError::Embedded("memory:"));
}

#[test]
fn the_same_server_twice_is_refused_whatever_its_database() {
    for twice in [
        "redis://a,redis://A.:6379",
        "redis://a/1,rediss://a/2",
        "redis://[::1],redis://[0::1]",
    ] {
        assert!(matches!(refused(twice), UrlError::Twice(_)), "{twice}");
    }
    assert!(parse_nodes("redis://a,redis://a:6380").is_ok());
}

#[test]
fn each_mistake_has_its_error() {
    assert_eq!(refused(""), UrlError::Empty);
    assert_eq!(refused("redis://a,,redis://b"), UrlError::Empty);
    assert_eq!(refused("http://a"), UrlError::Scheme("http://a".into()));
    assert_eq!(refused("a:6379"), UrlError::Scheme("a:6379".into()));
    assert_eq!(
        refused("redis://a,etcd://b"),
        UrlError::Scheme("etcd://b".into())
    );
    assert_eq!(refused("redis://"), UrlError::Host("redis://"));
    for port in ["0", "65536", "x", "", "-1"] {
        assert_eq!(
            refused(&format!("redis://h:{port}")),
            UrlError::Port("h".into())
        );
    }
    assert_eq!(
        refused("redis://h?tiemout=3").to_string(),
        "unknown parameter `tiemout` for `h:6379`"
    );
}

#[test]
fn a_password_split_by_a_delimiter_is_not_shown() {
    for list in [
        "redis://u:hunter/hunter2@h",
        "redis://:hunter?hunter2@h",
        "redis://:hunter#hunter2@h",
        "redis://:hunter%zzhunter2@h",
        "redis://u:hunter,hunter2@h",
        "redis://u:12,hunter2@h",
        "redis://u:12/3,hunter2@h",
        "redis://u:12?hunter,hunter2@h",
        "redis://u@v:12?hunter2@h",
        "redis://u:p,as:hunter//x,y@h",
        "redis://u:12,hunter:hunter2@h",
        "redis://u:12,34:hunter2@h",
        "redis://u:p@ss,hunter2@h",
        "u:hunter2@h",
        "http://u:hunter2@h",
        "redis+sentinel://u:hunter,hunter2@h/s",
        "redis+sentinel://a,u:hunter2@h/s",
        "redis+sentinel://u:hunter/hunter2@h/s",
        "redis+sentinel://u:1/hunter2,b@h/s",
    ] {
        let error = refused(list);
        assert!(
            !format!("{error} {error:?}").contains("hunter"),
            "{error:?}"
        );
    }
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(list in "\\PC{0,60}") {
        let _ = parse_nodes(&list);
    }

    #[test]
    fn no_url_makes_it_panic_or_shows_the_password(
        scheme in "(redis|rediss|redis\\+sentinel|valkey|unix|redis\\+unix|sqlite|memory|x):(//)?",
        user in "[a-z%:]{0,4}",
        host in "[a-z0-9\\[\\]:.%]{0,8}",
        tail in "[/?&=#@,a-z0-9%:]{0,20}",
    ) {
        let list = format!("{scheme}{user}:sEcReT@{host}{tail}");
        match parse_nodes(&list) {
            Ok(nodes) => {
                for node in nodes {
                    if let NodeUrl::Redis(url) = node {
                        let shown = format!("{url} {url:?} {} {:?}", url.address, url.sentinel);
                        prop_assert!(!shown.contains("sEcReT"), "{}", shown);
                    }
                }
            }
            Err(error) => {
                let shown = format!("{error} {error:?}");
                prop_assert!(!shown.contains("sEcReT"), "{}", shown);
            }
        }
    }

    #[test]
    fn a_password_that_was_not_encoded_is_never_shown_in_part(
        parts in prop::collection::vec(("(sEcReT|12|)", "[,/?#%]"), 1..4),
        user in "(u|)",
        more in "(,redis://b|)",
    ) {
        let password: String = parts.iter().map(|(word, mark)| format!("{word}{mark}")).collect();
        let list = format!("redis://{user}:{password}sEcReT@h{more}");
        let shown = match parse_nodes(&list) {
            Ok(nodes) => format!("{nodes:?}"),
            Err(error) => format!("{error} {error:?}"),
        };
        prop_assert!(!shown.contains("sEcReT"), "{list}: {shown}");
    }

    #[test]
    fn the_shown_url_parses_to_the_same_without_the_password(
        host in "[a-z]{1,8}", port in 1u16.., db in 0u32..100, tls: bool,
    ) {
        let scheme = if tls { "rediss" } else { "redis" };
        let url = single(&format!("{scheme}://:pw@{host}:{port}/{db}"));
        let again = single(&url.to_string());
        prop_assert_eq!(again, RedisUrl { password: None, ..url });
    }
}

#[test]
fn a_password_to_another_machine_without_tls_is_exposed() {
    for exposed in [
        "redis://:p@db",
        "redis://u:p@10.0.0.1",
        "redis+sentinel://:p@db/s",
        "redis+sentinel://localhost,db/s?sentinel_password=p",
        "valkey://:p@[2001:db8::1]:7",
    ] {
        assert!(single(exposed).exposes_password(), "{exposed}");
    }
    for safe in [
        "redis://db",
        "redis://u@db",
        "rediss://:p@db",
        "rediss+sentinel://:p@db/s",
        "redis+sentinel://:p@localhost,127.0.0.1/s",
        "redis+unix:///s?pass=p",
        "redis://:p@localhost",
        "redis://:p@LOCALHOST.:7",
        "redis://:p@redis.localhost",
        "redis://:p@127.1.2.3",
        "redis://:p@[::1]",
        "redis://:p@[::ffff:127.0.0.1]",
    ] {
        assert!(!single(safe).exposes_password(), "{safe}");
    }
}
