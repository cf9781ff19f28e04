//! The script that writes birth records follows the rule of the ledger, on servers with different
//! replication histories and with any birth record.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use redis::Commands;
use ringfence::node::TroubleKind;
use ringfence_core::ledger::birth::{BirthVerdict, Incarnation, Present, judge, since_us};

use ringfence_testkit::{Flavor, Persistence, Server};

use super::*;
use crate::nodes::support::*;

const BORN: &str = "ringfence:born";
/// The group values, and the same with `failover=lossless`.
const GROUP: &str = "3 5000000 35000 0 5000 1000 1500";
const LOSSLESS: &str = "1 5000000 35000 2 5000 1000 1500";
const CASES: u32 = 60;

/// The birth record on a server before a handshake.
#[derive(Debug, Clone)]
struct Before {
    /// Whether the ids are those of this server or of another; `None`: no replication id.
    own_run: bool,
    own_id: Option<bool>,
    /// Zero is the database of the client.
    database: u32,
    epoch: Option<u64>,
    replicated: bool,
    durable: bool,
    /// Whether the birth is in the future: the clock was set back.
    future: bool,
}

/// The settings at the handshake.
#[derive(Debug, Clone)]
struct Settings {
    backlog_ttl_s: u64,
    synced: bool,
}

fn any_before() -> impl Strategy<Value = Option<Before>> {
    let own_id = prop_oneof![3 => Just(Some(true)), 3 => Just(Some(false)), 1 => Just(None)];
    let epoch = prop_oneof![8 => Just(None), 1 => Just(Some(7))];
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    let own_run = prop::bool::weighted(0.7);
    let database = prop_oneof![6 => Just(0), 1 => Just(1)];
    let before = (own_run, own_id, database, epoch, flags);
    let before = before.prop_map(|(own_run, own_id, database, epoch, flags)| {
        let (replicated, durable, future) = flags;
        Before {
            own_run,
            own_id,
            database,
            epoch,
            replicated,
            durable,
            future,
        }
    });
    prop::option::weighted(0.9, before)
}

impl Before {
    /// The record on a server in the state `now`.
    fn record(&self, now: &Present<String>) -> Incarnation<String> {
        let other = || "ab".repeat(20);
        Incarnation {
            run_id: if self.own_run {
                now.run_id.clone()
            } else {
                other()
            },
            replication_id: self.own_id.map(|own| match own {
                true => now.replication_id.clone().unwrap(),
                false => other(),
            }),
            database: self.database,
            epoch: self.epoch,
            replicated: self.replicated,
            durable: self.durable,
        }
    }
}

fn any_settings() -> impl Strategy<Value = Settings> {
    let ttl = prop_oneof![Just(0), Just(34), Just(35), Just(3600)];
    (ttl, any::<bool>()).prop_map(|(backlog_ttl_s, synced)| Settings {
        backlog_ttl_s,
        synced,
    })
}

fn text(record: &Incarnation<String>, since_us: u64, birth_us: u64) -> String {
    text_with(record, since_us, birth_us, 0, GROUP)
}

fn text_with(
    record: &Incarnation<String>,
    since_us: u64,
    birth_us: u64,
    sentinels: u32,
    group: &str,
) -> String {
    let id = record.replication_id.as_deref().unwrap_or("-");
    let epoch = record
        .epoch
        .map_or("-".to_owned(), |epoch| epoch.to_string());
    let (replicated, durable) = (u8::from(record.replicated), u8::from(record.durable));
    let (run_id, database) = (&record.run_id, record.database);
    format!(
        "5 {run_id} {id} {epoch} {sentinels} {replicated} {since_us} {birth_us} {durable} {database} \
         {group}"
    )
}

/// The value of `field` in the section `section` of `INFO`.
fn info_field(server: &Server, section: &str, field: &str) -> String {
    let info = server.command(&["INFO", section]);
    let mut fields = info.lines().filter_map(|line| line.trim().split_once(':'));
    let found = fields.find(|(name, _)| *name == field);
    found.expect(field).1.to_owned()
}

fn present(server: &Server, settings: &Settings) -> Present<String> {
    let replication = |field| info_field(server, "replication", field);
    let has_replicas = replication("connected_slaves") != "0";
    Present {
        unseen: false,
        run_id: info_field(server, "server", "run_id"),
        replication_id: Some(replication("master_replid")),
        database: 0,
        former_id: replication("master_replid2")
            .bytes()
            .any(|byte| byte != b'0'),
        former_id_lasts: settings.backlog_ttl_s == 0 || settings.backlog_ttl_s >= 35,
        has_replicas,
        durable: settings.synced && !has_replicas,
        epoch: None,
        lossless: false,
    }
}

/// Writes the record `before`, shakes hands with `server`, and compares with the rule.
async fn check(server: &Server, node: &RedisNode, before: Option<Before>, settings: &Settings) {
    let ttl = settings.backlog_ttl_s.to_string();
    server.command(&["CONFIG", "SET", "repl-backlog-ttl", &ttl]);
    let sync = if settings.synced {
        "always"
    } else {
        "everysec"
    };
    server.command(&["CONFIG", "SET", "appendfsync", sync]);
    let now = present(server, settings);
    let record_before = before.as_ref().map(|before| before.record(&now));
    let former_us = match &before {
        Some(before) if before.future => 9_000_000_000_000_000,
        _ => 1_600_000_000_000_000,
    };
    let mut client = client(server);
    let written = record_before
        .as_ref()
        .map(|record_before| text(record_before, former_us, 5));
    match &written {
        Some(text) => client.set::<_, _, ()>(BORN, text).unwrap(),
        None => client.del::<_, ()>(BORN).unwrap(),
    }
    let joined = join(node, group()).await;
    let found: String = client.get(BORN).unwrap();
    let expected = match judge(record_before.as_ref(), &now) {
        BirthVerdict::NeedsSentinels => {
            assert_eq!(kind(joined), TroubleKind::Version);
            written.unwrap()
        }
        BirthVerdict::Keep => written.unwrap(),
        BirthVerdict::Update(record) => text(&record, former_us, 5),
        BirthVerdict::Birth(record) => {
            let clock_us = joined.unwrap().clock_us;
            let former_us = record_before.is_some().then_some(former_us);
            text(&record, since_us(clock_us, former_us), clock_us)
        }
    };
    assert_eq!(found, expected, "{before:?} {settings:?} {now:?}");
}

/// Servers with different histories: never replicated, with a replica, promoted, and both.
#[test]
fn a_handshake_follows_the_birth_rule() {
    for flavor in Flavor::ALL {
        let start = || {
            let server = Server::builder(flavor).arg("--repl-diskless-sync-delay", "0");
            server.persistence(Persistence::AofAlways).start()
        };
        let [plain, followed, promoted, both] = [start(), start(), start(), start()];
        for server in [&promoted, &both] {
            server.follow(&plain);
            server.promote();
        }
        // A server that had replicas is no longer one that was never replicated.
        let plain = (drop(plain), start()).1;
        let replicas = [start(), start()];
        replicas[0].follow(&followed);
        replicas[1].follow(&both);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .unwrap();
        for server in [&plain, &followed, &promoted, &both] {
            let mut runner = TestRunner::new(Config {
                cases: CASES,
                failure_persistence: None,
                ..Config::default()
            });
            let cases = (any_before(), any_settings());
            let run = runner.run(&cases, |(before, settings)| {
                // A node of its own: a client that has seen a replica remembers it.
                let node = runtime.block_on(async { node(&server.url()) });
                runtime.block_on(check(server, &node, before, &settings));
                Ok(())
            });
            run.unwrap();
        }
    }
}

/// The script itself, to run it as a client whose view of the server is out of date.
fn join_script() -> String {
    let info = include_str!("../../../src/node/redis/scripts/info.lua");
    let join = include_str!("../../../src/node/redis/scripts/join.lua");
    let script = format!("{info}{join}");
    let script = script.replace("$BORN_VERSION", "5");
    script.replace("$LOSSLESS", "2")
}

/// A handshake of a client that has Sentinels, or that says that failovers lose nothing.
#[derive(Debug, Clone)]
struct Word {
    /// Its user may not run `INFO`.
    unseen: bool,
    epoch: Option<u64>,
    sentinels: u32,
    lossless: bool,
}

fn any_word() -> impl Strategy<Value = Word> {
    let epoch = prop_oneof![Just(None), Just(Some(6)), Just(Some(7)), Just(Some(8))];
    let word = (any::<bool>(), epoch, 1..4u32, prop::bool::weighted(0.3));
    word.prop_map(|(unseen, epoch, sentinels, lossless)| Word {
        unseen,
        sentinels: epoch.map_or(0, |_| sentinels),
        epoch,
        lossless,
    })
}

/// Writes the record `before`, runs the script as a client with this `word` would, and compares
/// with the rule.
fn check_word(server: &Server, before: Option<Before>, settings: &Settings, word: &Word) {
    let mut now = Present {
        epoch: word.epoch,
        lossless: word.lossless,
        ..present(server, settings)
    };
    let group = if word.lossless { LOSSLESS } else { GROUP };
    let record_before = before.as_ref().map(|before| before.record(&now));
    if word.unseen {
        let recorded = record_before.as_ref().map(|record| record.run_id.clone());
        now = Present {
            unseen: true,
            run_id: recorded.unwrap_or_else(|| "cd".repeat(20)),
            replication_id: None,
            former_id: true,
            has_replicas: true,
            durable: false,
            ..now
        };
    }
    let (former_us, known) = (1_600_000_000_000_000, 2);
    let mut client = client(server);
    let written = record_before
        .as_ref()
        .map(|record| text_with(record, former_us, 5, known, group));
    match &written {
        Some(text) => client.set::<_, _, ()>(BORN, text).unwrap(),
        None => client.del::<_, ()>(BORN).unwrap(),
    }
    let mut eval = redis::cmd("EVAL");
    eval.arg(join_script()).arg(1).arg(BORN);
    let id = now.replication_id.as_deref().unwrap_or("-");
    eval.arg(&now.run_id).arg(id);
    eval.arg(u8::from(now.durable)).arg(settings.backlog_ttl_s);
    let epoch = word.epoch.map_or("-".to_owned(), |epoch| epoch.to_string());
    eval.arg(epoch).arg(word.sentinels).arg(now.database);
    group.split(' ').for_each(|value| {
        eval.arg(value);
    });
    if word.unseen {
        client = super::client_as(server, "unseen");
    }
    let (clock, found): (String, Option<String>) = eval.query(&mut client).unwrap();
    let clock_us: u64 = clock.parse().unwrap();
    let most = word.sentinels.max(known);
    let expected = match judge(record_before.as_ref(), &now) {
        BirthVerdict::NeedsSentinels => written,
        // A larger number of Sentinels is recorded without a birth.
        BirthVerdict::Keep => {
            let record = record_before.unwrap();
            Some(text_with(&record, former_us, 5, most, group))
        }
        BirthVerdict::Update(record) => Some(text_with(&record, former_us, 5, most, group)),
        BirthVerdict::Birth(record) => {
            let former_us = record_before.is_some().then_some(former_us);
            let most = former_us.map_or(word.sentinels, |_| most);
            let since_us = since_us(clock_us, former_us);
            Some(text_with(&record, since_us, clock_us, most, group))
        }
    };
    assert_eq!(found, expected, "{before:?} {settings:?} {word:?}");
}

#[test]
fn the_script_follows_the_birth_rule_with_sentinels_and_without_losses() {
    let start = || {
        Server::builder(Flavor::Redis)
            .arg("--repl-diskless-sync-delay", "0")
            .start()
    };
    let [plain, promoted, replica] = [start(), start(), start()];
    promoted.follow(&replica);
    promoted.promote();
    // Too rare to occur by chance: a durable server that was restarted, under another epoch.
    let restarted = Before {
        own_run: false,
        own_id: Some(false),
        database: 0,
        epoch: Some(7),
        replicated: false,
        durable: true,
        future: false,
    };
    let settings = Settings {
        backlog_ttl_s: 3600,
        synced: true,
    };
    for epoch in [7, 8] {
        let word = Word {
            unseen: false,
            epoch: Some(epoch),
            sentinels: 3,
            lossless: false,
        };
        check_word(&plain, Some(restarted.clone()), &settings, &word);
    }
    for server in [&plain, &promoted] {
        let rules = ["on", ">pw", "~*", "+@all", "-info"];
        server.command(&[&["ACL", "SETUSER", "unseen"], &rules[..]].concat());
        let mut runner = TestRunner::new(Config {
            cases: 4 * CASES,
            failure_persistence: None,
            ..Config::default()
        });
        let cases = (any_before(), any_settings(), any_word());
        let run = runner.run(&cases, |(before, settings, word)| {
            check_word(server, before, &settings, &word);
            Ok(())
        });
        run.unwrap();
    }
}

#[test]
fn a_birth_is_written_only_if_the_server_is_still_the_one_that_was_examined() {
    let server = Server::start(Flavor::Redis);
    let run_id = info_field(&server, "server", "run_id");
    let id = info_field(&server, "replication", "master_replid");
    let other = "ab".repeat(20);
    let mut client = client(&server);
    let mut join = |run_id: &str, id: &str| {
        let mut eval = redis::cmd("EVAL");
        eval.arg(join_script()).arg(1).arg(BORN);
        eval.arg(run_id)
            .arg(id)
            .arg(0)
            .arg(3600)
            .arg("-")
            .arg(0)
            .arg(0);
        eval.arg(&[3, 5_000_000, 35_000, 0, 5_000, 1_000, 1_500]);
        let (_, born): (String, Option<String>) = eval.query(&mut client).unwrap();
        born
    };
    assert_eq!(join(&other, &id), None);
    assert_eq!(join(&run_id, &other), None);
    assert_eq!(join(&run_id, "-"), None);
    assert_eq!(server.command(&["EXISTS", BORN]), "0");
    assert!(join(&run_id, &id).is_some());
    // A record with an epoch of Sentinels stays, even if it was written after the examination.
    let theirs = format!("5 {other} {id} 7 3 1 5 5 0 0 {GROUP}");
    server.command(&["SET", BORN, &theirs]);
    assert_eq!(join(&run_id, &id), Some(theirs.clone()));
    assert_eq!(server.command(&["GET", BORN]), theirs);
    server.command(&["DEL", BORN]);
    server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    assert_eq!(join(&run_id, &id), None, "a replica");
}
