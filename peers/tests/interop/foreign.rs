//! Locks that do not mix are reported. Redisson keeps its locks in a hash, not in the plain key:
//! neither side can hold beside the other, and ringfence reports what is at the key. The plain
//! lock, which is a `SET NX`, is refused like any other client.

use ringfence_peers::Library;

use crate::stage::Stage;

const TTL_MS: u64 = 30_000;

/// Checks that ringfence reports a value of another type at the key.
fn names_it(stage: &Stage, kind: &str) {
    let mut ours = stage.start(Library::Ringfence).expect("a client of ours");
    let reply = ours.ask(&format!("try job {TTL_MS}"));
    assert!(reply.starts_with("error "), "{reply}");
    for word in ["`job`", kind] {
        assert!(reply.contains(word), "{word} is not in: {reply}");
    }
}

#[test]
fn a_lock_of_redisson_is_an_error_that_names_it() {
    let stage = Stage::with_nodes(3);
    let Some(mut theirs) = stage.start(Library::RedissonRedLock) else {
        return;
    };
    assert!(
        theirs.try_lock("job", TTL_MS),
        "Redisson did not get a free lock"
    );
    names_it(&stage, "hash");
    let mut plain = stage
        .start(Library::RingfencePlain)
        .expect("a client of ours");
    assert!(
        !plain.try_lock("job", TTL_MS),
        "ours got in beside Redisson"
    );
    theirs.release();

    let mut ours = stage.start(Library::Ringfence).expect("a client of ours");
    assert!(
        ours.try_lock("job", TTL_MS),
        "Redisson released, but not for ours"
    );
    let reply = theirs.ask(&format!("try job {TTL_MS}"));
    assert_ne!(reply, "held", "Redisson got in beside ours");
    ours.release();
}

/// The same without Java, with every type of key that is not a string.
#[test]
fn a_key_of_another_type_is_an_error_that_names_it() {
    for (kind, command) in [
        ("hash", ["HSET", "job", "field", "1"].as_slice()),
        ("list", &["RPUSH", "job", "1"]),
        ("set", &["SADD", "job", "1"]),
        ("zset", &["ZADD", "job", "1", "1"]),
        ("stream", &["XADD", "job", "*", "field", "1"]),
    ] {
        let stage = Stage::with_nodes(1);
        stage.fleet[0].command(command);
        names_it(&stage, kind);
        // The key is unchanged.
        assert_eq!(stage.fleet[0].command(&["TYPE", "job"]).trim(), kind);
    }
}
