//! The rules F1 to F5 of a failover, searched to the end: one lock on one endpoint, two servers
//! with asynchronous replication, three Sentinels, a holder that renews and a newcomer.
//!
//! What is real: a server runs [`ledger::apply`](ringfence_core::ledger::apply) under
//! `Rules::of_incarnation`. `birth::judge` decides about births and `Incarnation::stands_for` which
//! record counts. `SentinelGroupView` decides which master a majority of the Sentinels confirms.
//! `Cluster` decides which votes count and who is carried through, `Acquisition` and `Attempt`
//! whether there is a grant, `Hold` what a reply does to the deadline and what is restored.
//!
//! What is not, and why nothing is lost by it:
//!
//! - *Times are ages*, never dates, and the machines are made for each decision. They compare times
//!   only with each other, so a state may happen at any date, and the search has no last tick.
//! - *All clocks run alike.* Drift and jumps of clocks are the simulator's. A ballot is then the
//!   time of its attempt; only the order of the ballots of the two clients matters. So fences rise
//!   by themselves here; across clocks that differ the simulator shows it.
//! - *Sentinels* differ only by what they know. A client has every answer that helps it, however
//!   late; more answers only make more votes count, and a vote that does not count is the same as a
//!   reply that is lost. What a majority confirms depends then only on when each Sentinel had an
//!   epoch last. No Sentinel goes back to an earlier epoch.
//! - *A handshake takes less than a tick.* The Sentinels may have been asked earlier in the same
//!   tick, which is more than a real client accepts. It never goes back to an earlier epoch: two
//!   majorities share a Sentinel, and a later answer replaces an earlier one.
//! - *A client has one call under way.* A call that is given up is lost, and an attempt is not
//!   undone: its key goes when its lease ends. Late undos and releases are in the other scopes. A
//!   release arrives at once or never.
//! - *The reply to an extend* is read when the request is executed, which may be late, or it is lost.
//!   The deadline counts from the beginning of the round, so a reply that is read later only does
//!   less. The reply to an acquire may be late by itself.
//! - *An acquire is sent only under a fresh confirmation*, as the link does it. Two clients do not
//!   hold at once without that either (`sends_unconfirmed`), but then a grant that does not count
//!   may be in the way of a holder that is carried to the same server.
//! - *A replica copies everything at once*, at any moment: what it has is what its master had at some
//!   moment.

mod client;
mod happen;
mod model;
mod properties;
mod scope;
mod sentinels;
mod server;
mod setting;
mod step;
mod world;

pub(super) use properties::KEPT;
pub use scope::{FailoverScope, Weakness};

use std::thread;

use stateright::{Checker, HasDiscoveries, Model};

use super::search::{LOOK, Report, report};
use model::FailoverModel;

/// Searches all states within `scope`: to the end, or to the first mistake. `on_progress` hears now
/// and then how many states there are so far.
pub fn search_failover(
    scope: FailoverScope,
    threads: usize,
    on_progress: impl Fn(usize),
) -> Report {
    search_until(scope, HasDiscoveries::AnyFailures, threads, on_progress)
}

/// Searches `scope` until a way to break each of `properties` is known; to the end, if there is none.
pub fn search_failover_for(
    scope: FailoverScope,
    properties: &[&'static str],
    threads: usize,
) -> Report {
    let all = HasDiscoveries::AllOf(properties.iter().copied().collect());
    search_until(scope, all, threads, |_| {})
}

fn search_until(
    scope: FailoverScope,
    end: HasDiscoveries,
    threads: usize,
    on_progress: impl Fn(usize),
) -> Report {
    let model = FailoverModel::new(scope);
    let properties = model.properties();
    let checker = model.checker().threads(threads).finish_when(end);
    let checker = checker.spawn_bfs();
    while !checker.is_done() {
        on_progress(checker.unique_state_count());
        thread::sleep(LOOK);
    }
    report(&checker.join(), &properties)
}
