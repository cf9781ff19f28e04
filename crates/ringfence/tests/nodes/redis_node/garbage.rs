//! Another program's data in place of our records: no client gets a lock that another client holds,
//! and every call is answered or refused.

use redis::Commands;
use ringfence::node::CallError;
use ringfence_core::message::{Answer, Op, ReleaseKind};
use ringfence_testkit::{Flavor, Server};

use super::*;
use crate::nodes::support::*;

const SIDE_KEYS: [&str; 6] = [
    "ringfence:{n}:record:n",
    "ringfence:{n}:queue:n",
    "ringfence:{n}:queue-order:n",
    "ringfence:{n}:queue-leases:n",
    "ringfence:{n}:readers:n",
    "ringfence:{n}:reader-labels:n",
];

/// Writes a value to `key`; `which` selects one of several types and contents.
fn put(client: &mut redis::Connection, key: &str, which: usize) {
    let _: () = match which {
        0 => client.set(key, "nonsense").unwrap(),
        1 => client.set(key, "").unwrap(),
        2 => client.set(key, vec![0xff_u8, 0, 58, 58]).unwrap(),
        3 => client.hset(key, "field", "value").unwrap(),
        4 => client.zadd(key, "member", -1e300).unwrap(),
        5 => client.zadd(key, "00000000000000000001c.1", 0).unwrap(),
        6 => client.rpush(key, "item").unwrap(),
        _ => client.sadd(key, "member").unwrap(),
    };
}

#[tokio::test]
async fn garbage_in_a_record_never_leads_to_a_grant_beside_a_holder() {
    for flavor in [Flavor::Redis, Flavor::Valkey] {
        let server = Server::start(flavor);
        let node = member(&server).await;
        let mut client = client(&server);
        for (key, which) in SIDE_KEYS
            .iter()
            .flat_map(|key| (0..8).map(move |n| (*key, n)))
        {
            let _: () = redis::cmd("DEL")
                .arg("n")
                .arg(&SIDE_KEYS)
                .exec(&mut client)
                .unwrap();
            let held = ballot(&node).await;
            let granted = call(&node, request(&["n"], ALICE, acquire(held, TTL_MS))).await;
            assert_eq!(granted.unwrap().answer, Answer::Granted);
            let _: () = client.del(key).unwrap();
            put(&mut client, key, which);
            let later = plus(ballot(&node).await, 1);
            let waits = ticket(later.get(), "c.1");
            for op in [
                acquire(later, TTL_MS),
                acquire_with_ticket(later, TTL_MS, &waits),
                refresh(&[&waits]),
                extend(later, TTL_MS),
                restore(later),
                undo(later, true),
                leave(later, ReleaseKind::Undo, Some(&waits), true),
                release(later),
                Op::Inspect,
            ] {
                let what = format!("{op:?} with {which} at {key}");
                match call(&node, request(&["n"], BOB, op)).await {
                    Ok(reply) => assert!(
                        !matches!(
                            reply.answer,
                            Answer::Granted
                                | Answer::Extended
                                | Answer::Restored
                                | Answer::Released
                        ),
                        "{what}: {reply:?}"
                    ),
                    Err(CallError::Refused(_)) => {}
                    Err(error) => panic!("{what}: {error:?}"),
                }
                let holder: Option<String> = client.get("n").unwrap();
                assert_eq!(holder.as_deref(), Some(token(ALICE).expose()), "{what}");
            }
        }
    }
}
