use super::*;

const RUN_ID: &str = "ab12ab12ab12ab12ab12ab12ab12ab12ab12ab12";
const STRICT: UrlOptions = UrlOptions {
    no_quarantine: false,
    eviction_allowed: false,
    said_durable: false,
    sentinels: false,
    never_joins: false,
    database: 0,
};

fn reporter() -> Reporter {
    Reporter::new("h:6379", None, None)
}

fn text(text: &str) -> Value {
    Value::BulkString(text.as_bytes().to_vec())
}

fn answers(memory: &str) -> Vec<Value> {
    vec![
        text(&format!(
            "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\nrun_id:{RUN_ID}\r\n"
        )),
        text("role:master\r\nconnected_slaves:0\r\nmaster_replid:ee1\r\nmaster_replid2:0000\r\n"),
        text(memory),
        text("loading:0\r\naof_enabled:1\r\n"),
        Value::Nil,
        Value::Array(vec![text("1700000000"), text("5")]),
        Value::Array(vec![text("appendfsync"), text("always")]),
        Value::Array(vec![text("no-appendfsync-on-rewrite"), text("no")]),
        Value::Array(vec![text("repl-backlog-ttl"), text("3600")]),
    ]
}

#[test]
fn a_sound_server_is_read() {
    let server = Server::read(answers("maxmemory:0"), &reporter(), STRICT).unwrap();
    assert_eq!(server.run_id, RUN_ID);
    assert_eq!(server.version, "Redis 7.0.15");
    assert_eq!(server.replication_id.as_deref(), Some("ee1"));
    assert_eq!(server.backlog_ttl_s, Some(3600));
    assert!(server.durable && server.never_promoted && !server.evicts);
    assert_eq!(server.clock_us, 1_700_000_000_000_005);
}

const SAID: UrlOptions = UrlOptions {
    said_durable: true,
    ..STRICT
};

fn forbidden() -> Value {
    redis::parse_redis_value(b"-NOPERM no\r\n").unwrap()
}

#[test]
fn without_config_a_server_is_durable_only_if_its_url_says_so() {
    let mut answers = answers("maxmemory:0");
    (answers[6], answers[7]) = (forbidden(), forbidden());
    assert!(refuse_config(&answers));
    let read = |options| Server::read(answers.clone(), &reporter(), options);
    assert!(!read(STRICT).unwrap().durable);
    assert!(read(SAID).unwrap().durable);
}

#[test]
fn the_url_does_not_override_the_server_s_own_report() {
    for (answer, value) in [
        (3, text("loading:0\r\naof_enabled:0\r\n")),
        (6, Value::Array(vec![text("appendfsync"), text("everysec")])),
        (
            7,
            Value::Array(vec![text("no-appendfsync-on-rewrite"), text("yes")]),
        ),
    ] {
        let mut answers = answers("maxmemory:0");
        answers[answer] = value;
        let read = |options| Server::read(answers.clone(), &reporter(), options);
        assert!(!read(STRICT).unwrap().durable, "{answer}");
        let refused = read(SAID).unwrap_err();
        assert_eq!(refused.trouble().kind, TroubleKind::NotDurable, "{answer}");
    }
}

#[test]
fn a_master_with_a_replica_is_not_durable() {
    let mut answers = answers("maxmemory:0");
    answers[1] = text("role:master\r\nconnected_slaves:1\r\nmaster_replid2:0000\r\n");
    assert!(!Server::read(answers, &reporter(), STRICT).unwrap().durable);
}

#[test]
fn eviction_is_refused_unless_it_is_allowed() {
    let memory = "maxmemory:1000\r\nmaxmemory_policy:volatile-lru";
    let refused = Server::read(answers(memory), &reporter(), STRICT).unwrap_err();
    assert_eq!(refused.trouble().kind, TroubleKind::Evicts);
    let lenient = UrlOptions {
        eviction_allowed: true,
        ..STRICT
    };
    assert!(
        Server::read(answers(memory), &reporter(), lenient)
            .unwrap()
            .evicts
    );
    let harmless = "maxmemory:1000\r\nmaxmemory_policy:noeviction";
    assert!(Server::read(answers(harmless), &reporter(), STRICT).is_ok());
}

#[test]
fn the_texts_of_a_server_are_safe_to_print() {
    let mut answers = answers("maxmemory:0");
    answers[0] = text(&format!("redis_version:7\u{1b}[2J\r\nrun_id:{RUN_ID}\r\n"));
    let server = Server::read(answers, &reporter(), STRICT).unwrap();
    assert_eq!(server.version, "Redis 7\\u{1b}[2J");
}

#[test]
fn a_replica_names_its_master() {
    let mut answers = answers("maxmemory:0");
    answers[1] = text("role:slave\r\nmaster_host:h2\r\nmaster_port:6380\r\n");
    let server = Server::look(answers.clone(), &reporter()).unwrap();
    assert_eq!(server.role, Role::Replica(Some("h2:6380".to_owned())));
    let refused = Server::read(answers, &reporter(), STRICT).unwrap_err();
    assert_eq!(refused.trouble().kind, TroubleKind::Replica);
}

#[test]
fn the_birth_record_of_an_earlier_run_says_nothing_about_this_one() {
    let server = Server::read(answers("maxmemory:0"), &reporter(), STRICT).unwrap();
    for (run_id, is_own) in [(RUN_ID, true), ("cd34", false)] {
        let text = format!("5 {run_id} ee1 - 0 0 5 5 0 0 3 5000000 35000 0 5000 1000 300");
        let born = BirthRecord::parse(&text).unwrap();
        assert_eq!(server.own(Some(&born)).is_some(), is_own, "{run_id}");
    }
}

/// If the former id is missing, the time after which the server forgets it decides.
#[test]
fn the_birth_record_before_a_promotion_says_nothing_about_the_server() {
    let born = format!("5 {RUN_ID} ee0 - 0 1 5 5 0 0 3 5000000 35000 0 5000 1000 300");
    let born = BirthRecord::parse(&born).unwrap();
    let promoted = "role:master\r\nmaster_replid:ee1\r\nmaster_replid2:ee0\r\n";
    let followed = "role:master\r\nmaster_replid:ee1\r\nmaster_replid2:000\r\n";
    for (replication, ttl, is_own) in [
        (promoted, "3600", false),
        (followed, "3600", true),
        (followed, "35", true),
        (followed, "34", false),
        (followed, "0", true),
        (followed, "", false),
    ] {
        let mut answers = answers("maxmemory:0");
        answers[1] = text(replication);
        answers[8] = Value::Array(vec![text("repl-backlog-ttl"), text(ttl)]);
        let server = Server::read(answers, &reporter(), STRICT).unwrap();
        assert_eq!(
            server.own(Some(&born)).is_some(),
            is_own,
            "{replication} {ttl}"
        );
    }
}

#[test]
fn a_node_in_cluster_mode_is_refused() {
    let mut answers = answers("maxmemory:0");
    answers[0] = text(&format!(
        "redis_version:7.0.15\r\nredis_mode:cluster\r\nrun_id:{RUN_ID}\r\n"
    ));
    let refused = Server::read(answers, &reporter(), STRICT).unwrap_err();
    assert_eq!(refused.trouble().kind, TroubleKind::Cluster);
}

#[test]
fn malformed_answers_are_refused() {
    for i in 0..CONFIG_ANSWERS {
        let mut answers = answers("maxmemory:0");
        answers[i] = Value::Int(3);
        let refused = Server::read(answers, &reporter(), STRICT).unwrap_err();
        assert_eq!(refused.trouble().kind, TroubleKind::Garbage, "{i}");
    }
    let refused = Server::read(vec![Value::Okay], &reporter(), STRICT).unwrap_err();
    assert_eq!(refused.trouble().kind, TroubleKind::Garbage);
}

#[test]
fn the_texts_of_a_server_are_bounded() {
    let long = "a".repeat(100_000);
    let mut answers = answers("");
    for run_id in ["", "ab12", &long, &"x".repeat(40)] {
        answers[0] = text(&format!("redis_version:7\r\nrun_id:{run_id}\r\n"));
        let refused = Server::look(answers.clone(), &reporter()).unwrap_err();
        assert_eq!(refused.trouble().kind, TroubleKind::Garbage, "{run_id:.50}");
    }
    answers[0] = text(&format!("redis_version:{long}\r\nrun_id:{RUN_ID}\r\n"));
    answers[1] = text(&format!(
        "role:slave\r\nmaster_host:{long}\r\nmaster_port:1\r\nmaster_replid:{long}\r\n"
    ));
    answers[2] = text(&format!("maxmemory_policy:{long}\r\n"));
    answers[BORN_ANSWER] = text(&long);
    let server = Server::look(answers, &reporter()).unwrap();
    let master = match &server.role {
        Role::Replica(master) => master.as_deref().unwrap_or_default(),
        other => panic!("{other:?}"),
    };
    for kept in [&server.version, master, &server.memory.policy] {
        assert!(kept.len() < 1_000, "{}", kept.len());
    }
    assert_eq!(server.replication_id, None);
    assert!(server.born.is_some_and(|born| born.len() <= 1_000));
}
