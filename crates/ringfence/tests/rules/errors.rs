//! Rule 13: an error names the cause and each node's vote, in node order.

use std::error::Error;
use std::pin::pin;

use ringfence::admin::{InitError, InspectError};
use ringfence::node::{CallError, Trouble, TroubleKind};
use ringfence::votes::Votes;
use ringfence::{AcquireError, ConnectError, ExtendError};
use ringfence_core::protocol::Vote;

use crate::rules::bench::{Bench, at_once, ms, unreachable, waits};

/// The one line of an error, and its votes: a line for each node.
fn told(error: &impl Error, votes: Option<&Votes>) -> String {
    let text = error.to_string();
    assert!(!text.contains('\n'), "{text}");
    let votes = format!("{:#}", votes.expect("the nodes were asked"));
    votes.lines().fold(text, |text, line| text + "\n  " + line)
}

/// The error and its causes in one line, as programs print it: `{:#}` of `anyhow` and `eyre`.
fn with_causes(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

fn denied() -> CallError {
    let detail = "wrong user or password";
    CallError::Refused(Trouble::new(TroubleKind::Denied, detail))
}

#[tokio::test]
async fn rule_13_held_names_the_holder_and_every_vote() {
    let bench = Bench::new(3).await;
    let holder = at_once(bench.labelled("checkout").await.mutex("orders:42").lock())
        .await
        .unwrap();
    let locks = bench.client().await;
    bench.nodes[0].fail_with(Some(unreachable()));
    bench.time.step(ms(2600));
    let error = at_once(locks.mutex("orders:42").try_lock())
        .await
        .unwrap_err();
    assert_eq!(
        told(&error, error.votes()),
        "`orders:42` is held by checkout; lease ends in 7.4 s unless renewed\n  \
         a: connection refused\n  \
         b: held by checkout; lease ends in 7.4 s unless renewed\n  \
         c: held by checkout; lease ends in 7.4 s unless renewed"
    );
    let AcquireError::Held { votes, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(
        votes.holder().unwrap().id.as_deref(),
        Some(holder.token().id())
    );
    assert!(error.is_retryable() && error.is_held());
    assert_eq!(error.holder().unwrap().label.as_deref(), Some("checkout"));
}

#[tokio::test]
async fn rule_13_a_holder_without_a_label_is_called_another_client() {
    let bench = Bench::new(1).await;
    let token = ringfence_core::token::Token::parse("someone.elses").unwrap();
    let locks = bench.client().await;
    bench.occupy(0, "x", &token, 2000);
    let error = at_once(locks.mutex("x").try_lock()).await.unwrap_err();
    assert_eq!(
        told(&error, error.votes()),
        "`x` is held by another client; lease ends in 2.0 s unless renewed\n  a: held by another client; lease ends in 2.0 s unless renewed"
    );
}

#[tokio::test]
async fn rule_13_no_quorum_is_not_held() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    bench.nodes[0].hang(true);
    bench.nodes[2].fail_with(Some(unreachable()));
    let error = bench.drive(locks.mutex("x").try_lock()).await.unwrap_err();
    assert_eq!(
        told(&error, error.votes()),
        "no majority of the nodes answers for `x`\n  \
         a: no answer in time\n  \
         b: granted, and undone\n  \
         c: connection refused"
    );
    assert!(matches!(error, AcquireError::NoQuorum { .. }) && error.is_retryable());
    let votes: Vec<&str> = error
        .votes()
        .unwrap()
        .iter()
        .map(|vote| &*vote.node)
        .collect();
    assert_eq!(votes, ["a", "b", "c"]);
}

#[tokio::test]
async fn rule_13_too_late_is_not_held() {
    let bench = Bench::new(1).await;
    let locks = bench
        .builder()
        .node_timeout(ms(5000))
        .connect()
        .await
        .unwrap();
    bench.nodes[0].hold_replies(true);
    let lock = locks.mutex("x").ttl(ms(1000));
    let mut locking = pin!(lock.try_lock());
    assert!(waits(locking.as_mut()).await);
    bench.time.step(ms(950));
    bench.mend();
    let error = at_once(locking).await.unwrap_err();
    assert_eq!(
        told(&error, error.votes()),
        "`x` was granted too late to be worth holding; a longer ttl may help\n  a: granted, and undone"
    );
    assert!(matches!(error, AcquireError::Expired { .. }));
}

#[tokio::test]
async fn rule_13_a_misconfigured_majority_is_reported_at_once() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    bench.nodes[1].fail_with(Some(denied()));
    bench.nodes[2].fail_with(Some(denied()));
    let error = at_once(locks.mutex("x").lock()).await.unwrap_err();
    assert_eq!(
        told(&error, error.votes()),
        "a majority of the nodes is not fit to hold locks\n  \
         a: granted, and undone\n  \
         b: wrong user or password\n  \
         c: wrong user or password"
    );
    assert!(matches!(error, AcquireError::Misconfigured { .. }) && !error.is_retryable());
    let error = bench.drive(bench.builder().connect()).await.unwrap_err();
    assert!(
        matches!(error, ConnectError::Misconfigured { .. }),
        "{error}"
    );
    assert_eq!(
        told(&error, error.votes()),
        "a majority of the nodes is not fit to hold locks\n  \
         a: answers\n  \
         b: wrong user or password\n  \
         c: wrong user or password"
    );
}

#[tokio::test]
async fn rule_13_a_new_cluster_fails_at_once_and_the_error_suggests_init() {
    let bench = Bench::uninitialised(&[0; 3]);
    let locks = bench.client().await;
    bench.pass(ms(9000)).await;
    let error = at_once(locks.mutex("x").try_lock()).await.unwrap_err();
    assert_eq!(
        told(&error, error.votes()),
        "nodes a, b, c are new or restarted and may vote in 28 s; for a new cluster run `ringfence init`, \
         or call `Builder::init` in a program, once\n  \
         a: new or restarted, may vote in 28 s\n  \
         b: new or restarted, may vote in 28 s\n  \
         c: new or restarted, may vote in 28 s"
    );
    assert!(matches!(error, AcquireError::Quarantined { .. }) && error.is_retryable());
    assert_eq!(bench.holding("x"), 0);
}

#[tokio::test]
async fn rule_13_a_single_restarted_node_loses_only_its_vote() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    bench.nodes[1].forget();
    let guard = at_once(locks.mutex("x").lock()).await.unwrap();
    assert!(matches!(guard.votes()[1].vote, Vote::Quarantined { .. }));
}

#[tokio::test]
async fn rule_13_clocks_too_far_apart_are_reported() {
    let hour = 3_600_000_000;
    let bench = Bench::skewed(&[0, hour, 2 * hour]).await;
    let error = bench
        .drive(bench.client().await.mutex("x").lock())
        .await
        .unwrap_err();
    let text = told(&error, error.votes());
    assert!(matches!(error, AcquireError::ClocksApart { .. }), "{error}");
    let first = "the nodes' clocks are too far apart for a majority to agree on `x`\n";
    assert!(text.starts_with(first), "{text}");
    assert_eq!(bench.holding("x"), 0);
}

#[tokio::test]
async fn rule_13_extend_distinguishes_unconfirmed_from_lost() {
    let bench = Bench::new(3).await;
    let guard = bench.lock_x().await;
    bench.break_first(2);
    let error = at_once(guard.extend(ms(10_000))).await.unwrap_err();
    assert!(matches!(error, ExtendError::Unconfirmed { .. }));
    assert_eq!(
        told(&error, error.votes()),
        "no majority of the nodes confirmed; the old deadline stands\n  \
         a: connection refused\n  \
         b: connection refused\n  \
         c: extended"
    );
    bench.mend();
    for node in [0, 1] {
        bench.delete(node, "x", guard.token());
    }
    let error = at_once(guard.extend(ms(10_000))).await.unwrap_err();
    assert_eq!(
        told(&error, error.votes()),
        "the lock is gone: a majority of the nodes cannot hold it any more\n  \
         a: does not hold our token\n  \
         b: does not hold our token\n  \
         c: extended"
    );
}

#[tokio::test]
async fn rule_13_errors_of_an_observer_and_of_init_list_the_reply_of_each_node() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    bench.break_first(2);
    let error = at_once(locks.election("x").leader()).await.unwrap_err();
    assert!(matches!(error, InspectError::NoQuorum { .. }));
    let votes = "\n  a: connection refused\n  b: connection refused\n  c: answers";
    assert_eq!(
        told(&error, error.votes()),
        format!("no majority of the nodes answers for `x`{votes}")
    );
    let error = at_once(bench.builder().init()).await.unwrap_err();
    assert!(matches!(error, InitError::Unreachable { .. }));
    assert_eq!(
        told(&error, error.votes()),
        format!("every node has to answer before a cluster can be initialised{votes}")
    );
    bench.mend();
    let error = at_once(bench.builder().init()).await.unwrap_err();
    assert!(matches!(error, InitError::Refused { .. }));
    assert!(
        told(&error, error.votes())
            .starts_with("this cluster is not new\n  a: the node is not new")
    );
}

#[tokio::test]
async fn rule_13_the_votes_of_several_nodes_are_the_source_of_the_error() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    let guard = at_once(locks.mutex("held").lock()).await.unwrap();
    bench.break_first(2);
    let causes = "a, b: connection refused";
    let error = bench.drive(locks.mutex("x").try_lock()).await.unwrap_err();
    assert_eq!(
        with_causes(&error),
        format!("no majority of the nodes answers for `x`: {causes}; c: granted, and undone")
    );
    let error = bench.drive(guard.extend(ms(10_000))).await.unwrap_err();
    assert_eq!(
        with_causes(&error),
        format!(
            "no majority of the nodes confirmed; the old deadline stands: {causes}; c: extended"
        )
    );
    let answered = format!("{causes}; c: answers");
    let error = bench.drive(locks.election("x").leader()).await.unwrap_err();
    assert_eq!(
        with_causes(&error),
        format!("no majority of the nodes answers for `x`: {answered}")
    );
    let error = bench.drive(locks.latch("x", 2).wait(ms(0)).opened()).await;
    assert_eq!(
        with_causes(&error.unwrap_err()),
        format!("no majority of the nodes can tell who has arrived at `x`: {answered}")
    );
    let error = bench.drive(locks.break_lock("x").seen(1).run()).await;
    let text = with_causes(&error.unwrap_err());
    assert!(
        text.starts_with(&format!(
            "no majority of the nodes broke `x`: {causes}; c: "
        )),
        "{text}"
    );
    let error = at_once(bench.builder().init()).await.unwrap_err();
    assert_eq!(
        with_causes(&error),
        format!("every node has to answer before a cluster can be initialised: {answered}")
    );
}

#[tokio::test]
async fn rule_13_the_text_of_the_only_node_is_in_the_line_and_not_twice() {
    let bench = Bench::new(1).await;
    let locks = bench.client().await;
    let guard = at_once(locks.mutex("held").lock()).await.unwrap();
    bench.break_first(1);
    let shown = |error: &dyn Error, line: &str| {
        assert!(error.source().is_none(), "{error:?}");
        assert_eq!(with_causes(error), format!("{line}: a: connection refused"));
    };
    let error = bench.drive(locks.mutex("x").try_lock()).await.unwrap_err();
    shown(&error, "`x` cannot be locked");
    let error = bench.drive(guard.extend(ms(10_000))).await.unwrap_err();
    shown(
        &error,
        "the node did not confirm, and the old deadline stands",
    );
    let error = bench.drive(locks.election("x").leader()).await.unwrap_err();
    shown(&error, "`x` cannot be inspected");
    let latch = locks.latch("x", 2).wait(ms(0));
    let error = bench.drive(latch.opened()).await.unwrap_err();
    shown(&error, "the node cannot tell who has arrived at `x`");
    let error = at_once(bench.builder().init()).await.unwrap_err();
    shown(
        &error,
        "the node has to answer before it can be initialised",
    );
    bench.nodes[0].fail_with(Some(denied()));
    let unfit = "the node is not fit to hold locks: a: wrong user or password";
    let error = at_once(locks.mutex("x").lock()).await.unwrap_err();
    assert_eq!(with_causes(&error), unfit);
    let error = bench.drive(bench.builder().connect()).await.unwrap_err();
    assert_eq!(with_causes(&error), unfit);
}

#[tokio::test]
async fn rule_13_what_the_line_has_said_is_not_said_again_by_the_source() {
    let bench = Bench::new(3).await;
    let holder = bench.labelled("checkout").await.mutex("x");
    let _held = at_once(holder.lock()).await.unwrap();
    let error = at_once(bench.client().await.mutex("x").try_lock()).await;
    let text = with_causes(&error.unwrap_err());
    assert_eq!(text.matches("held by checkout").count(), 1, "{text}");
    let bench = Bench::uninitialised(&[0; 3]);
    let error = at_once(bench.client().await.mutex("x").try_lock()).await;
    let text = with_causes(&error.unwrap_err());
    assert_eq!(text.matches("new or restarted").count(), 1, "{text}");
}

/// What a `main` prints that returns `Result<(), Box<dyn Error>>`.
#[tokio::test]
async fn rule_13_the_debug_text_of_an_error_has_the_words_of_every_node() {
    let bench = Bench::new(3).await;
    let locks = bench.client().await;
    bench.break_first(2);
    let error = bench.drive(locks.mutex("x").try_lock()).await.unwrap_err();
    assert_eq!(
        format!("{error:?}"),
        "NoQuorum { name: \"x\", votes: [\"a: connection refused\", \"b: connection refused\", \
         \"c: granted, and undone\"] }"
    );
}

/// Nodes that do not answer come first: the others vote by themselves. And a cluster of which nodes
/// are down is not initialised.
#[tokio::test]
async fn rule_13_nodes_that_are_down_are_named_before_those_in_quarantine() {
    let bench = Bench::new(5).await;
    let locks = bench.client().await;
    bench.nodes[4].forget();
    bench.break_first(2);
    let error = at_once(locks.mutex("x").try_lock()).await.unwrap_err();
    assert_eq!(
        with_causes(&error),
        "no majority: nodes a, b have not answered; nodes e are new or restarted and may vote in 37 s: a, b: connection refused; c, d: \
         granted, and undone; e: new or restarted, may vote in 37 s"
    );
}
