//! Extends in bundles.

use super::*;

#[tokio::test]
async fn extends_share_one_script_and_raise_ballots() {
    for flavor in [Flavor::Redis, Flavor::Valkey] {
        let server = Server::start(flavor);
        let node = member(&server).await;
        let mut client = client(&server);
        let ballot = ballot(&node).await;
        let later = plus(ballot, 5);
        answers(&node, each(&["a", "b"], &acquire(ballot, TTL_MS))).await;
        calls(&server, &[]);
        let answered = answers(&node, each(&["a", "b"], &extend(later, 2 * TTL_MS))).await;
        assert_eq!(answered, [const { Answer::Extended }; 2]);
        assert_eq!(calls(&server, &["evalsha", "pexpire", "set"]), [1, 2, 2]);
        for name in ["a", "b"] {
            let left: u64 = client.pttl(name).unwrap();
            assert!(left > TTL_MS, "{left}");
        }
        let answered = answers(&node, each(&["a", "b"], &release(ballot))).await;
        assert_eq!(
            answered,
            [const { Answer::Newer }; 2],
            "held under a higher ballot"
        );
    }
}

#[tokio::test]
async fn a_bundle_extends_only_what_its_token_holds_and_shortens_no_lease() {
    let server = Server::start(Flavor::Redis);
    let node = member(&server).await;
    let mut client = client(&server);
    let ballot = ballot(&node).await;
    let names = ["a", "theirs", "taken", "gone", "long", "b"];
    answers(&node, each(&["a", "b", "taken"], &acquire(ballot, TTL_MS))).await;
    answers(&node, each(&["long"], &acquire(ballot, 9 * TTL_MS))).await;
    let theirs = request(&["theirs"], BOB, acquire(ballot, TTL_MS));
    assert_eq!(call(&node, theirs).await.unwrap().answer, Answer::Granted);
    // The key has another token, although the record still names ours.
    let _: () = client
        .pset_ex("taken", token(BOB).expose(), TTL_MS)
        .unwrap();
    let answered = answers(&node, each(&names, &extend(ballot, 2 * TTL_MS))).await;
    for (name, answer) in names.iter().zip(answered) {
        match *name {
            "theirs" | "taken" => drop(held(answer)),
            "gone" => assert_eq!(answer, Answer::Gone),
            _ => assert_eq!(answer, Answer::Extended, "{name}"),
        }
    }
    let left = names.map(|name| client.pttl::<_, i64>(name).unwrap());
    let ttl = TTL_MS as i64;
    assert!(left[0] > ttl && left[5] > ttl, "{left:?}");
    assert!(left[1] <= ttl && left[2] <= ttl, "{left:?}");
    assert_eq!(left[3], -2, "not created again");
    assert!(left[4] > 3 * ttl, "{left:?}");
}
