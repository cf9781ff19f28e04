//! The runtime of a client: sends the requests that the pure machines produce, feeds the replies to
//! them, and keeps their timers. No other code sends to a node. The rules are in `ringfence-core`.
//!
//! The thread that receives a reply feeds it to the machine ([`sender`]), so a round costs its
//! caller one wake-up and no task. One task per client, the [`keeper`], does what is due later:
//! renewals, deadlines and retries of releases. If its tokio runtime is blocked, a thread of the
//! process renews what is held ([`second`]).

pub(crate) mod acquire;
pub(crate) mod sender;

pub(crate) mod breaking;
mod clock_events;
pub(crate) mod closing;
pub(crate) mod extending;
pub(crate) mod gather;
pub(crate) mod hold;
pub(crate) mod keeper;
pub(crate) mod latch;
mod queued;
pub(crate) mod releasing;
pub(crate) mod schedule;
pub(crate) mod second;
pub(crate) mod surplus_slots;
mod ticket;
mod waiter;
pub(crate) mod waiting;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::sync::Notify;

#[cfg(test)]
use crate::clock::Clock;
use crate::entropy::Entropy;
use crate::environment::OwnerProcess;
#[cfg(test)]
use crate::node::Node;
#[cfg(test)]
use crate::protocol::Cluster;

use acquire::LocalContention;
use closing::Closing;
use hold::Policies;
use keeper::Renewals;
use schedule::Schedule;
use sender::Sender;
pub(crate) use sender::lock;
use waiting::WaitingRoom;

/// The state that all calls of one client share.
#[derive(Debug)]
pub(crate) struct ClientRuntime {
    /// The process that may use and drop this.
    pub(crate) process: OwnerProcess,
    pub(crate) sender: Sender,
    pub(crate) entropy: Entropy,
    pub(crate) schedule: Arc<Schedule>,
    pub(crate) renewals: Renewals,
    policies: Policies,
    pub(crate) room: Arc<WaitingRoom>,
    contention: LocalContention,
    pub(crate) closing: Closing,
    /// Whether the nodes were told of the group: until then they get no call.
    pub(crate) joined: AtomicBool,
}

impl ClientRuntime {
    pub(crate) fn new(sender: Sender, entropy: Entropy) -> Self {
        let schedule: Arc<Schedule> = Arc::default();
        Self {
            process: OwnerProcess::current(),
            renewals: Renewals::new(Arc::clone(&schedule)),
            policies: Policies::default(),
            room: Arc::new(WaitingRoom::new(entropy.client_id(), sender.clock.clone())),
            contention: LocalContention::default(),
            closing: Closing::default(),
            joined: AtomicBool::new(false),
            sender,
            entropy,
            schedule,
        }
    }

    /// A runtime on `nodes`, which form one group.
    #[cfg(test)]
    pub(crate) fn of_group(nodes: Vec<Arc<dyn Node>>, clock: Clock) -> Arc<Self> {
        let group = crate::group::Group::new(nodes.len());
        let drift = crate::protocol::Drift::default();
        let cluster = Cluster::new(&group, drift, &vec![true; nodes.len()]);
        let observation = crate::observation::Observation::new(&nodes, Default::default());
        let observation = observation.expect("no thread is needed");
        let sender = Sender::new(nodes, cluster, clock, observation);
        Arc::new(Self::new(sender, Entropy::default()))
    }
}

/// Waits until `done` returns true. Checks it again at each notification.
pub(crate) async fn wait_for(notify: &Notify, done: impl Fn() -> bool) {
    loop {
        let notified = notify.notified();
        tokio::pin!(notified);
        notified.as_mut().enable();
        if done() {
            return;
        }
        notified.await;
    }
}
