//! The ACL lines of the operations guide on real servers: what each user may do, and may not.

use std::time::Duration;

use redis::{Connection, Value};
use ringfence::admin::LockState;
use ringfence::admin::Purpose;
use ringfence::node::redis::acl_line;
use ringfence::{AcquireError, Locks};
use ringfence_testkit::{Flavor, Server, wait_until_async};

use crate::fleet::stage::*;

const GUIDE: &str = include_str!("../../../../docs/operations.md");

/// The ACL line of the guide for `user`.
pub(crate) fn line_of(user: &str) -> &'static str {
    let begin = format!("user {user} on ");
    let mut lines = GUIDE.lines();
    let line = lines.find(|line| line.starts_with(&begin));
    line.unwrap_or_else(|| panic!("the guide has no ACL line for {user}"))
}

/// An ACL file with the users of the guide and one of another team.
pub(crate) fn users() -> String {
    let [orders, watcher, operator] = ["orders", "watcher", "operator"].map(line_of);
    let billing = orders.replace("orders", "billing");
    format!("user default off\n{orders}\n{billing}\n{watcher}\n{operator}")
}

fn server(flavor: Flavor) -> Server {
    Server::builder(flavor).acl_file(&users()).start()
}

fn log_in(server: &Server, user: &str) -> Connection {
    let url = server.url_as(user, "PASSWORD");
    redis::Client::open(url).unwrap().get_connection().unwrap()
}

async fn client(server: &Server, user: &str) -> Locks {
    connect(&server.url_as(user, "PASSWORD")).await
}

/// Runs a command whose words are separated by blanks; `_` stands for a blank inside a word.
fn run(connection: &mut Connection, line: &str) -> redis::RedisResult<Value> {
    let mut words = line.split(' ').map(|word| word.replace('_', " "));
    let mut cmd = redis::cmd(&words.next().unwrap().replace(' ', "_"));
    cmd.arg(words.collect::<Vec<_>>());
    cmd.query(connection)
}

#[track_caller]
fn denied(connection: &mut Connection, line: &str) {
    let outcome = run(connection, line);
    let words = outcome.expect_err(line).to_string();
    let denials = [
        "NoPerm",
        "NOPERM",
        "ACL failure",
        "user executing the script",
        "not allowed from script",
    ];
    assert!(denials.iter().any(|d| words.contains(d)), "{line}: {words}");
}

/// Every key with its type, its value and whether it expires.
fn contents(server: &Server) -> Vec<String> {
    let keys = server.command(&["KEYS", "*"]);
    let mut all: Vec<String> = keys
        .lines()
        .map(|key| format!("{key} {}", server.command(&["DUMP", key])))
        .collect();
    all.sort();
    all
}

#[test]
fn the_acl_lines_of_the_guide_are_those_of_the_code() {
    for (purpose, user) in [
        (Purpose::Lock, "orders"),
        (Purpose::Look, "watcher"),
        (Purpose::Init, "operator"),
    ] {
        let line = acl_line(purpose, user, "PASSWORD", "orders:");
        assert_eq!(line_of(user), line, "docs/operations.md");
    }
}

/// Commands that no user of the guide may use.
const DENIED_TO_ALL: [&str; 32] = [
    "CONFIG GET requirepass",
    "CONFIG GET *",
    "CONFIG SET requirepass x",
    "EVAL return_redis.call('CONFIG','GET','requirepass') 0",
    "ACL LIST",
    "ACL GETUSER orders",
    "ACL SETUSER orders +@all",
    "CLIENT LIST",
    "MONITOR",
    "KEYS *",
    "DBSIZE",
    "FLUSHALL",
    "FLUSHDB",
    "SHUTDOWN NOSAVE",
    "REPLICAOF NO ONE",
    "FUNCTION FLUSH",
    "SCRIPT FLUSH",
    "RENAME ringfence:born orders:x",
    "PSUBSCRIBE ringfence:wake:*",
    "SUBSCRIBE billing",
    "PUBLISH billing x",
    "SET billing:x 1",
    "DEL billing:x",
    "SET ringfence:{billing:x}:record:billing:x 1",
    "PEXPIRE ringfence:{billing:x}:record:billing:x 1",
    "ZADD ringfence:{billing:x}:queue-order:billing:x 1 m",
    "SET ringfence:{billing:x}:slot:0:billing:x 1",
    "SET application 1",
    "SET ringfence:other 1",
    "EVALSHA 0 1 billing:x",
    "EVAL return_redis.call('SET','billing:x','1') 0",
    "EVAL return_redis.call('DEL','ringfence:{billing:x}:record:billing:x') 0",
];

/// Commands that only the operator may use.
const ALLOWED_TO_THE_OPERATOR_ONLY: [&str; 6] = [
    "GET billing:x",
    "MGET orders:x billing:x",
    "PTTL billing:x",
    "GET application",
    "GET ringfence:{billing:x}:record:billing:x",
    "EVAL_RO return_redis.call('GET','billing:x') 0",
];

/// Commands that a user with read-only rights may not use.
const DENIED_TO_THE_WATCHER: [&str; 12] = [
    "SET ringfence:born 1",
    "SET orders:x 1",
    "DEL orders:x",
    "PEXPIRE ringfence:{orders:x}:record:orders:x 1",
    "EVAL return_1 0",
    "EVALSHA 0 0",
    "EVAL_RO return_redis.call('SET','orders:x','1') 0",
    "EVAL_RO return_1 0",
    "SCRIPT LOAD return_1",
    "CLIENT TRACKING ON",
    "CLIENT TRACKING ON REDIRECT 1 BCAST",
    "PUBLISH ringfence:wake:me 1",
];

#[tokio::test]
async fn no_user_can_read_passwords_or_keys_of_others() {
    for flavor in Flavor::ALL {
        let server = server(flavor);
        let locks = client(&server, "billing").await;
        let guard = locks.mutex("billing:x").lock().await.unwrap();
        server.command(&["SET", "application", "1"]);
        let before = contents(&server);
        for user in ["orders", "watcher", "operator"] {
            let mut user = log_in(&server, user);
            for line in DENIED_TO_ALL {
                denied(&mut user, line);
            }
        }
        for user in ["orders", "watcher"] {
            let mut user = log_in(&server, user);
            for line in ALLOWED_TO_THE_OPERATOR_ONLY {
                denied(&mut user, line);
            }
        }
        // The watcher lists locks, so it sees the names of all keys, and not what is in them.
        denied(&mut log_in(&server, "orders"), "SCAN 0");
        let mut watcher = log_in(&server, "watcher");
        for line in DENIED_TO_THE_WATCHER {
            denied(&mut watcher, line);
        }
        assert_eq!(contents(&server), before);
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn an_error_for_a_name_of_another_team_names_the_node_the_right_and_the_rule() {
    for flavor in Flavor::ALL {
        let server = server(flavor);
        let locks = client(&server, "orders").await;
        round(&locks, "orders:x").await;
        let wanted = [
            address(&server),
            "denies user `orders` the keys of `billing:x`".to_owned(),
            "ACL SETUSER orders ~ringfence:{billing:* ~billing:*".to_owned(),
        ];
        let error = locks.mutex("billing:x").lock().await.unwrap_err();
        assert!(
            matches!(error, AcquireError::Misconfigured { .. }),
            "{error:?}"
        );
        says(&error, &wanted);
        let error = locks.plain_mutex("billing:x").lock().await.unwrap_err();
        says(&error, &wanted);
        let error = locks.semaphore("billing:x", 2).acquire().await.unwrap_err();
        says(&error, &wanted);
        let error = locks.rw_lock("billing:x").read().await.unwrap_err();
        says(&error, &wanted);
        let error = locks.latch("billing:x", 2).arrive().await.unwrap_err();
        says(&error, &wanted);
        says(&what_a_look_says(&locks, "billing:x").await, &wanted);
        let several = locks.multi(["orders:1", "billing:x"]).lock().await;
        says(
            &several.unwrap_err(),
            ["ACL SETUSER orders ~ringfence:{orders:* ~orders:* ~ringfence:{billing:* ~billing:*"],
        );
        // A user that takes locks may not run `init`.
        let refused = builder(&server.url_as("orders", "PASSWORD"))
            .init_by_force()
            .await;
        says(
            &refused.unwrap_err(),
            ["docs/operations.md", &address(&server)],
        );
        round(&locks, "orders:x").await;
    }
}

/// Why the only node does not show the lock `name`.
async fn what_a_look_says(locks: &Locks, name: &str) -> String {
    let seen = locks.inspect(name).await.unwrap();
    assert_eq!(seen.state, LockState::Unknown, "{seen:?}");
    seen.nodes[0].view.as_ref().unwrap_err().to_string()
}

#[tokio::test]
async fn a_read_only_user_changes_nothing_and_gets_an_error() {
    for flavor in Flavor::ALL {
        let server = server(flavor);
        let locks = client(&server, "watcher").await;
        // The server has no birth record yet, and a watcher does not write one.
        says(
            &what_a_look_says(&locks, "orders:x").await,
            ["has no birth record", "user `watcher` may only look"],
        );
        assert!(!locks.nodes().await[0].facts.as_ref().unwrap().joined);
        assert_eq!(contents(&server), [""; 0]);

        let holders = client(&server, "orders").await;
        let guard = holders.mutex("orders:x").label("me").lock().await.unwrap();
        let before = contents(&server);
        wait_until_async("the watcher to see", SOON, async || {
            locks
                .inspect("orders:x")
                .await
                .is_ok_and(|seen| seen.is_held())
        })
        .await;
        let seen = locks.inspect("orders:x").await.unwrap();
        assert_eq!(seen.label.as_deref(), Some("me"));
        let error = locks.mutex("orders:y").lock().await.unwrap_err();
        assert!(
            matches!(error, AcquireError::Misconfigured { .. }),
            "{error:?}"
        );
        let wanted = [
            address(&server),
            "lets user `watcher` only look".to_owned(),
            "`ringfence doctor orders:y`".to_owned(),
        ];
        says(&error, &wanted);
        let error = locks.plain_mutex("orders:y").lock().await.unwrap_err();
        says(&error, &wanted);
        let error = locks.latch("orders:y", 1).arrive().await.unwrap_err();
        says(&error, &wanted);
        assert_eq!(contents(&server), before);
        guard.release().await.unwrap();
    }
}

/// The hash of the script with which a client asks for its rights.
fn rights_script() -> String {
    let text = include_str!("../../src/node/redis/scripts/rights.lua");
    redis::Script::new(text).get_hash().to_owned()
}

/// A user who may only look chooses the arguments of the scripts that are loaded.
#[tokio::test]
async fn a_read_only_user_stops_no_server_with_the_arguments_of_a_loaded_script() {
    for flavor in Flavor::ALL {
        let server = server(flavor);
        round(&client(&server, "orders").await, "orders:x").await;
        let mut watcher = log_in(&server, "watcher");
        watcher.set_read_timeout(Some(PATIENCE)).unwrap();
        for words in ["-1 x", "0 x", "x x", "nan x", "2 TIME"] {
            let line = format!("EVALSHA_RO {} 0 {words}", rights_script());
            run(&mut watcher, &line).expect(&line);
        }
    }
}

#[tokio::test]
async fn a_read_only_user_is_told_that_scripts_are_missing_until_a_client_that_locks_loads_them() {
    for flavor in Flavor::ALL {
        let server = server(flavor);
        let holders = client(&server, "orders").await;
        round(&holders, "orders:x").await;
        let looking = builder(&server.url_as("watcher", "PASSWORD"));
        let looking = looking.look_only().connect().await.unwrap();
        let seen = looking.inspect("orders:x").await.unwrap();
        assert_eq!(seen.state, LockState::Free);
        server.command(&["SCRIPT", "FLUSH"]);
        let missing = [
            &*address(&server),
            "has not loaded the scripts of this version of ringfence",
            "user `watcher` may not send any",
            "connect a client of this version that may lock first",
        ];
        says(&what_a_look_says(&looking, "orders:x").await, missing);
        let late = client(&server, "watcher").await;
        says(&what_a_look_says(&late, "orders:x").await, missing);
        // The client that takes locks is connected already.
        round(&holders, "orders:x").await;
        for looking in [looking, late] {
            wait_until_async("the watcher to see", SOON, async || {
                looking.inspect("orders:x").await.unwrap().state == LockState::Free
            })
            .await;
            looking.list().collect().await.unwrap();
        }
    }
}

/// A user who may send scripts looks also where no client of this version has locked.
#[tokio::test]
async fn a_user_who_may_send_scripts_looks_although_none_is_loaded() {
    for flavor in Flavor::ALL {
        let server = server(flavor);
        round(&client(&server, "orders").await, "orders:x").await;
        let admin = "admin on >PASSWORD ~* &* +@all";
        let words = ["ACL", "SETUSER"].into_iter().chain(admin.split(' '));
        server.command(&words.collect::<Vec<_>>());
        server.command(&["SCRIPT", "FLUSH"]);
        let looking = builder(&server.url_as("admin", "PASSWORD"));
        let looking = looking.without_joining().connect().await.unwrap();
        let seen = looking.inspect("orders:x").await.unwrap();
        assert_eq!(seen.state, LockState::Free);
    }
}

/// A client need not be restarted when the rights of its user change.
#[tokio::test]
async fn rights_that_are_granted_later_take_effect_without_a_restart() {
    let server = server(Flavor::Redis);
    let holders = client(&server, "orders").await;
    round(&holders, "orders:x").await;
    let locks = client(&server, "watcher").await;
    locks.mutex("orders:x").lock().await.unwrap_err();
    let more = line_of("orders").replace("user orders", "watcher");
    let more: Vec<&str> = ["ACL", "SETUSER"]
        .into_iter()
        .chain(more.split(' '))
        .collect();
    server.command(&more);
    wait_until_async("the new rights to take effect", SOON, async || {
        locks.mutex("orders:x").lock().await.is_ok()
    })
    .await;
}

/// Takes `name` with every kind of lock.
async fn take_with_every_kind(locks: &Locks, name: &str) -> Result<(), String> {
    let failed = |what: &str, error: &dyn Told| format!("{what} {name:?}: {}", error.told());
    let ttl = Duration::from_secs(10);
    let lock = locks.mutex(name).ttl(ttl);
    let guard = lock.lock().await.map_err(|e| failed("lock", &e))?;
    let waiting = lock.clone().wait(PATIENCE);
    let waiting = tokio::spawn(async move { waiting.lock().await });
    wait_until_async("one waiter in the queue", SOON, async || {
        locks.inspect(name).await.unwrap().waiting == 1
    })
    .await;
    guard.release().await.map_err(|e| failed("release", &e))?;
    let guard = waiting.await.unwrap();
    guard
        .map_err(|e| failed("wait", &e))?
        .release()
        .await
        .unwrap();
    let shared = locks.rw_lock(name).read().await;
    let shared = shared.map_err(|e| failed("read", &e))?;
    shared.release().await.unwrap();
    let permit = locks.semaphore(name, 2).acquire().await;
    let permit = permit.map_err(|e| failed("permit", &e))?;
    permit.release().await.unwrap();
    let arrived = locks.latch(name, 1).arrive().await;
    arrived.map_err(|e| failed("latch", &e))?;
    let plain = locks.plain_mutex(name).lock().await;
    let plain = plain.map_err(|e| failed("plain", &e))?;
    plain.release().await.unwrap();
    Ok(())
}

#[tokio::test]
async fn the_patterns_of_the_guide_match_every_name_that_it_lists() {
    for flavor in Flavor::ALL {
        let server = server(flavor);
        let locks = client(&server, "orders").await;
        let names = [
            "orders:",
            "orders:é ü",
            "orders:*?[a]",
            "orders:{x",
            "orders::a/b\\",
            "orders:a}b",
        ];
        for name in names {
            take_with_every_kind(&locks, name).await.unwrap();
        }
        // The side keys of a name with a hash tag begin with the tag, not with the name.
        let error = take_with_every_kind(&locks, "orders:{42}")
            .await
            .unwrap_err();
        says(&error, ["ACL SETUSER orders ~ringfence:{"]);
        // The rows of the guide's table for such names.
        for (number, name) in ["{orders}:1", "orders:{42}:a"].iter().enumerate() {
            let row = GUIDE
                .lines()
                .find(|line| line.contains(&format!("| `{name}`")));
            let row = row.unwrap_or_else(|| panic!("no row for {name}"));
            let rules = row
                .split('`')
                .find(|part| part.starts_with("~ringfence"))
                .unwrap();
            let user = format!("user{number}");
            let line = line_of("orders")
                .replace("user orders", &user)
                .replace("~ringfence:{orders:* ~orders:*", rules);
            let words = ["ACL", "SETUSER"].into_iter().chain(line.split(' '));
            server.command(&words.collect::<Vec<_>>());
            let locks = client(&server, &user).await;
            take_with_every_kind(&locks, name).await.unwrap();
        }
    }
}

#[tokio::test]
async fn the_rules_in_an_error_are_those_that_the_user_lacks_for_the_name() {
    for flavor in Flavor::ALL {
        let server = server(flavor);
        for (number, name) in [
            "billing:x",
            "nightly",
            "{t}:x",
            "a:{t}:x",
            "a}b",
            "{}",
            "}",
            "with blank",
            "star*[?]\\",
        ]
        .iter()
        .enumerate()
        {
            let user = format!("user{number}");
            let line = line_of("orders").replace("user orders", &user);
            let words = ["ACL", "SETUSER"].into_iter().chain(line.split(' '));
            server.command(&words.collect::<Vec<_>>());
            let locks = client(&server, &user).await;
            let error = locks.mutex(name).lock().await.unwrap_err();
            let error = error.votes().unwrap().to_string();
            let (_, grant) = error.split_once("ACL SETUSER ").expect(&error);
            let words = ["ACL", "SETUSER"].into_iter().chain(grant.split(' '));
            server.command(&words.collect::<Vec<_>>());
            take_with_every_kind(&locks, name).await.unwrap();
        }
    }
}
