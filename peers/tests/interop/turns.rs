//! While one side holds the lock, the other is refused; after the release the other can take it.

use ringfence_peers::{Library, Peer};

use crate::stage::Stage;

const TTL_MS: u64 = 30_000;

/// In both directions, for our lock with and without a fence.
fn take_turns(theirs: Library, name: &str) {
    let stage = Stage::with_nodes(if theirs.is_single() { 1 } else { 3 });
    let Some(mut theirs) = stage.start(theirs) else {
        return;
    };
    for ours in [Library::Ringfence, Library::RingfencePlain] {
        let mut ours = stage.start(ours).expect("a client of ours");
        for _ in 0..3 {
            one_turn(&mut ours, &mut theirs, name);
            one_turn(&mut theirs, &mut ours, name);
        }
    }
}

fn one_turn(holder: &mut Peer, other: &mut Peer, name: &str) {
    let (first, second) = (holder.library(), other.library());
    assert!(
        holder.try_lock(name, TTL_MS),
        "{first} was refused a free lock"
    );
    assert!(
        !other.try_lock(name, TTL_MS),
        "{second} was granted the lock while {first} held it"
    );
    holder.release();
    assert!(
        other.try_lock(name, TTL_MS),
        "{second} was refused after {first} released"
    );
    other.release();
}

#[test]
fn with_rslock() {
    take_turns(Library::Rslock, "job");
}

#[test]
fn with_redsync() {
    take_turns(Library::Redsync, "job");
}

#[test]
fn with_node_redlock() {
    take_turns(Library::Redlock, "job");
}

#[test]
fn with_node_redlock_4() {
    take_turns(Library::Redlock4, "job");
}

#[test]
fn with_redlock_py() {
    take_turns(Library::RedlockPy, "job");
}

#[test]
fn with_aioredlock() {
    take_turns(Library::Aioredlock, "job");
}

/// Its key is not the name alone: our name must include the prefix.
#[test]
fn with_pottery() {
    take_turns(Library::Pottery, "redlock:job");
}

#[test]
fn with_redis_py_on_one_node() {
    take_turns(Library::RedisPy, "job");
}

#[test]
fn with_bsm_redislock_on_one_node() {
    take_turns(Library::Redislock, "job");
}

#[test]
fn with_python_redis_lock_on_one_node() {
    take_turns(Library::PythonRedisLock, "lock:job");
}
