//! Fenced keys on Redis and Valkey: everything except the rule itself.

use std::time::Duration;

use redis::{Client, Connection, FromRedisValue, RedisResult, Script};
use ringfence::resource::Refused;
use ringfence::resource::redis::{ADMIT, FENCED, FencedCall, FencedKey, STALE_FENCE};
use ringfence_testkit::{Flavor, Server};

use crate::resource::stores::fenced;

fn connect(server: &Server) -> Connection {
    let client = Client::open(server.url()).unwrap();
    client.get_connection().unwrap()
}

fn run<T: FromRedisValue>(connection: &mut Connection, call: &FencedCall) -> RedisResult<T> {
    fenced()
        .key(call.keys())
        .arg(call.args())
        .invoke(connection)
}

#[test]
fn any_command_on_one_key_can_be_fenced() {
    for flavor in Flavor::ALL {
        let server = Server::start(flavor);
        let mut connection = connect(&server);
        let key = FencedKey::new("cart:1");
        let set = key.write(5, ["HSET", "apples", "3", "pears", "2"]);
        assert_eq!(run::<i64>(&mut connection, &set), Ok(2));
        let add = key.write(5, ["HINCRBY", "apples", "4"]);
        assert_eq!(run::<i64>(&mut connection, &add), Ok(7));
        let get = key.read(6, ["HMGET", "apples", "plums"]);
        let found: Vec<Option<String>> = run(&mut connection, &get).unwrap();
        assert_eq!(found, [Some("7".to_owned()), None]);
        let delete = key.write(6, ["DEL"]);
        assert_eq!(run::<i64>(&mut connection, &delete), Ok(1));
        // The data is deleted, but the mark of fence 6 is not.
        let error = run::<i64>(&mut connection, &set).unwrap_err();
        assert_eq!(error.code(), Some(STALE_FENCE));
        let refused = Refused { fence: 5, mark: 6 };
        assert_eq!(Refused::in_message(&error.to_string()), Some(refused));
        assert_eq!(server.command(&["EXISTS", "cart:1"]), "0");
    }
}

#[test]
fn a_failed_command_raises_the_mark_but_a_refused_one_does_not() {
    let server = Server::start(Flavor::Redis);
    let mut connection = connect(&server);
    server.command(&["SET", "x", "text"]);
    let key = FencedKey::new("x");
    let error = run::<i64>(&mut connection, &key.write(7, ["INCR"])).unwrap_err();
    assert!(error.to_string().contains("not an integer"), "{error}");
    let marks = ["HMGET", "ringfence-marks:{x}:x", "read", "write"];
    assert_eq!(server.command(&marks), "0\n7");
    run::<i64>(&mut connection, &key.write(6, ["DEL"])).unwrap_err();
    run::<String>(&mut connection, &key.read(6, ["GET"])).unwrap_err();
    assert_eq!(server.command(&marks), "0\n7");
    assert_eq!(server.command(&["GET", "x"]), "text");
}

#[test]
fn invalid_arguments_are_an_error_and_change_nothing() {
    let server = Server::start(Flavor::Redis);
    let over = (1u64 << 53).to_string();
    for (args, word) in [
        (["write", "-1", "0"], "the fence must be"),
        (["write", "1e3", "0"], "the fence must be"),
        (["write", "0x10", "0"], "the fence must be"),
        (["write", "", "0"], "the fence must be"),
        (["write", &over, "0"], "the fence must be"),
        (["wriet", "5", "0"], "the access must be"),
        (["write", "5", "1h"], "whole number of milliseconds"),
        (
            ["write", "5", "9007199254741"],
            "whole number of milliseconds",
        ),
    ] {
        let head = ["EVAL", FENCED, "2", "x", "marks"];
        let command: Vec<&str> = head.into_iter().chain(args).chain(["SET", "1"]).collect();
        let error = server.try_command(&command).unwrap_err();
        assert!(error.contains(word), "{args:?}: {error}");
        assert_eq!(server.command(&["DBSIZE"]), "0", "{args:?}");
    }
}

#[test]
fn the_user_of_the_guide_can_fence_its_own_keys_and_access_no_others() {
    let guide = include_str!("../../../../docs/resources.md");
    let mut lines = guide.lines().map(str::trim_start);
    let user = lines.find(|line| line.starts_with("user balances on "));
    let user = user.expect("docs/resources.md has no ACL line");
    for flavor in Flavor::ALL {
        let server = Server::builder(flavor).acl_file(user).start();
        let client = Client::open(server.url_as("balances", "PASSWORD")).unwrap();
        let mut connection = client.get_connection().unwrap();
        let key = FencedKey::new("balance:1");
        for key in [key.clone(), key.keep_marks(Duration::from_secs(3600))] {
            let fence = clock(&server);
            let set: String = run(&mut connection, &key.write(fence, ["SET", "150"])).unwrap();
            assert_eq!(set, "OK");
            let value: String = run(&mut connection, &key.read(fence, ["GET"])).unwrap();
            assert_eq!(value, "150");
        }
        let other = FencedKey::new("other:1").write(clock(&server), ["SET", "1"]);
        let denied = |error: redis::RedisError| error.to_string().to_uppercase().contains("NOPERM");
        assert!(denied(run::<()>(&mut connection, &other).unwrap_err()));
        for line in [
            "HSET ringfence-marks:{other:1}:other:1 write 1",
            "HMGET ringfence-marks:{other:1}:other:1 write",
            "GET other:1",
            "CONFIG GET requirepass",
            "KEYS *",
        ] {
            let mut words = line.split(' ');
            let mut cmd = redis::cmd(words.next().unwrap());
            cmd.arg(words.collect::<Vec<_>>());
            assert!(denied(cmd.exec(&mut connection).unwrap_err()), "{line}");
        }
    }
}

/// The server's clock as a fence.
fn clock(server: &Server) -> u64 {
    let time = server.command(&["TIME"]);
    let (seconds, micros) = time.split_once('\n').unwrap();
    seconds.parse::<u64>().unwrap() * 1_000_000 + micros.parse::<u64>().unwrap()
}

#[test]
fn marks_do_not_expire_unless_keep_marks_is_set() {
    let server = Server::start(Flavor::Redis);
    let mut connection = connect(&server);
    let now = clock(&server);
    let key = FencedKey::new("x");
    let marks_of_x = "ringfence-marks:{x}:x";
    run::<()>(&mut connection, &key.write(now, ["SET", "1"])).unwrap();
    assert_eq!(server.command(&["PTTL", marks_of_x]), "-1");

    let hour = key.clone().keep_marks(Duration::from_secs(3600));
    let minute_us = 60_000_000;
    run::<()>(&mut connection, &hour.write(now + minute_us, ["SET", "2"])).unwrap();
    let left_ms: u64 = server.command(&["PTTL", marks_of_x]).parse().unwrap();
    // Until the server's clock minus an hour has passed the mark.
    assert!((3_600_000..=3_660_001).contains(&left_ms), "{left_ms}");
    // A client that does not set `keep_marks` removes the expiry.
    run::<()>(&mut connection, &key.write(now + minute_us, ["SET", "3"])).unwrap();
    assert_eq!(server.command(&["PTTL", marks_of_x]), "-1");
}

#[test]
fn earlier_fences_are_refused_after_the_marks_have_expired() {
    let server = Server::start(Flavor::Redis);
    let mut connection = connect(&server);
    let keep = Duration::from_millis(300);
    let key = FencedKey::new("x").keep_marks(keep);
    let fence = clock(&server);
    run::<()>(&mut connection, &key.write(fence, ["SET", "1"])).unwrap();
    ringfence_testkit::wait_until("the marks to expire", Duration::from_secs(10), || {
        server.command(&["EXISTS", "ringfence-marks:{x}:x"]) == "0"
    });
    for late in [fence - 1, fence] {
        let error = run::<()>(&mut connection, &key.write(late, ["SET", "2"])).unwrap_err();
        let refused = Refused::in_message(&error.to_string()).unwrap();
        assert!(refused.mark > fence, "{error}");
        run::<String>(&mut connection, &key.read(late, ["GET"])).unwrap_err();
    }
    assert_eq!(server.command(&["GET", "x"]), "1");
    let fresh = clock(&server);
    run::<()>(&mut connection, &key.write(fresh, ["SET", "3"])).unwrap();
}

#[test]
fn marks_are_in_the_cluster_slot_of_their_key() {
    let server = Server::builder(Flavor::Redis).cluster_mode().start();
    for key in [
        "x",
        "balance:1",
        "balance:{1}:eur",
        "{x}",
        "a}b",
        "{}",
        "}{",
    ] {
        let call = FencedKey::new(key).read(1, ["GET"]);
        let [slot, slot_of_marks] = call
            .keys()
            .clone()
            .map(|key| server.command(&["CLUSTER", "KEYSLOT", &key]));
        assert_eq!(slot, slot_of_marks, "{:?}", call.keys());
    }
}

#[test]
fn a_user_script_can_begin_with_the_admission_check() {
    let server = Server::start(Flavor::Valkey);
    let mut connection = connect(&server);
    server.command(&["MSET", "{bank}a", "100", "{bank}b", "0"]);
    let transfer = format!(
        "{ADMIT}
         local refusal = admit(KEYS[3], 'write', ARGV[1], '0')
         if refusal then return refusal end
         redis.call('DECRBY', KEYS[1], ARGV[2])
         return redis.call('INCRBY', KEYS[2], ARGV[2])"
    );
    let script = Script::new(&transfer);
    let mut transfer = |fence: u64| -> RedisResult<i64> {
        let mut call = script.key(&["{bank}a", "{bank}b", "{bank}marks"][..]);
        call.arg(fence).arg(30).invoke(&mut connection)
    };
    assert_eq!(transfer(7), Ok(30));
    let error = transfer(6).unwrap_err();
    assert_eq!(error.code(), Some(STALE_FENCE));
    assert_eq!(transfer(8), Ok(60));
    assert_eq!(server.command(&["GET", "{bank}a"]), "40");
    // Another key of the same hash tag, guarded by the same marks.
    let key = FencedKey::new("{bank}a").marks_at("{bank}marks");
    let mut connection = connect(&server);
    run::<i64>(&mut connection, &key.read(7, ["GET"])).unwrap_err();
    assert_eq!(run::<i64>(&mut connection, &key.read(8, ["GET"])), Ok(40));
}
