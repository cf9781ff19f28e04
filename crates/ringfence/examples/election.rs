//! Leader election: two candidates, one leader at a time, and an observer.
//!
//! `cargo run --example election --no-default-features --features client`

use std::time::Duration;

use ringfence::{Locks, Lost};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // In earnest "redis://a,redis://b,redis://c", and each candidate in a process of its own.
    let locks = Locks::connect("memory:").await?;
    let election = locks.election("scheduler").ttl(Duration::from_secs(5));
    let mut observer = election.observe()?;

    let first = election.clone().label("first").campaign().await?;
    let leader = observer.next_leader().await.ok_or("closed")?;
    println!("{} leads", leader.label);
    assert_eq!(leader.term, first.term());

    // The second candidate waits in the queue until the first resigns.
    let second = election.clone().label("second");
    let second = tokio::spawn(async move { second.campaign().await });
    lead(&first).await?;
    first.resign().await?;

    let second = second.await??;
    let next = observer.next_leader().await.ok_or("closed")?;
    println!("{} leads", next.label);
    assert!(next.term > leader.term, "terms only rise");
    second.resign().await?;
    Ok(())
}

/// What a leader does: its duty, until that is done or the lead is lost.
async fn lead(leadership: &ringfence::Leadership) -> Result<(), Lost> {
    tokio::select! {
        () = duty(leadership.term()) => Ok(()),
        why = leadership.lost() => Err(why),
    }
}

/// The term goes with everything that is written, so that a leader that was away is refused.
async fn duty(_term: u64) {
    tokio::time::sleep(Duration::from_millis(20)).await;
}
