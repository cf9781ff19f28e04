//! The parts that nodes inside this process share: jobs, answers that wait to be delivered, and the
//! listeners for wakes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::group::Group;
use crate::message::{Answer, Claim, List, Mode, Reply, Request, Wake};
use crate::name::Name;

#[cfg(feature = "sqlite")]
use super::backlog::Urgency;
use super::{Call, CallError, Completion, Facts, Hear, InitMode, NodeClock, Trouble, TroubleKind};

/// A node's store. It carries out one job at a time.
pub(super) trait Store {
    fn carry_out(&mut self, request: &Request) -> Result<Reply, CallError>;
    fn probe(&mut self) -> Result<Facts, CallError>;
    fn join(&mut self, group: Group) -> Result<Facts, CallError>;
    fn init(&mut self, group: Group, mode: InitMode) -> Result<Facts, CallError>;
}

/// One job for a node.
#[derive(Debug)]
pub(super) enum Job {
    Call(Call),
    Probe(Completion<Facts>),
    Join(Group, Completion<Facts>),
    Init(Group, InitMode, Completion<Facts>),
}

impl Job {
    /// Its urgency among the jobs that wait.
    #[cfg(feature = "sqlite")]
    pub(super) fn urgency(&self) -> Urgency {
        match self {
            Self::Call(call) => Urgency::of(&call.request),
            Self::Probe(_) | Self::Join(..) | Self::Init(..) => Urgency::Control,
        }
    }

    /// The job, unless its caller has given up; then it is withdrawn.
    #[cfg(feature = "sqlite")]
    pub(super) fn if_wanted(self) -> Option<Self> {
        match self {
            Self::Call(call) if !call.done.is_wanted() => {
                call.done.withdraw();
                None
            }
            wanted => Some(wanted),
        }
    }

    pub(super) fn run(self, store: &mut impl Store) -> Answered {
        match self {
            Self::Call(call) => Answered::Call(call.done, store.carry_out(&call.request)),
            Self::Probe(done) => Answered::Facts(done, store.probe()),
            Self::Join(group, done) => Answered::Facts(done, store.join(group)),
            Self::Init(group, mode, done) => Answered::Facts(done, store.init(group, mode)),
        }
    }

    /// Whether its caller has stopped waiting.
    pub(super) fn has_expired(&self, clock: &NodeClock) -> bool {
        matches!(self, Self::Call(call) if call.expires < clock.now())
    }

    /// The answer to a call that expired before it was started.
    pub(super) fn expire(self) -> Answered {
        let trouble = Trouble::new(
            TroubleKind::Timeout,
            "the call expired before its turn came",
        );
        self.fail(CallError::NotSent(trouble))
    }

    pub(super) fn fail(self, error: CallError) -> Answered {
        match self {
            Self::Call(call) => Answered::Call(call.done, Err(error)),
            Self::Probe(done) | Self::Join(_, done) | Self::Init(_, _, done) => {
                Answered::Facts(done, Err(error))
            }
        }
    }
}

/// An answer and its receiver.
#[derive(Debug)]
pub(super) enum Answered {
    Call(Completion<Reply>, Result<Reply, CallError>),
    Facts(Completion<Facts>, Result<Facts, CallError>),
}

impl Answered {
    /// Must not be called under a lock: the receiver may call the node again at once.
    pub(super) fn deliver(self) {
        match self {
            Self::Call(done, outcome) => done.complete(outcome),
            Self::Facts(done, outcome) => done.complete(outcome),
        }
    }

    /// Replaces a successful answer by `error`. An earlier error stays.
    #[cfg(any(test, feature = "sqlite", feature = "test-util"))]
    pub(super) fn or_error(self, error: &CallError) -> Self {
        let error = || error.clone();
        match self {
            Self::Call(done, outcome) => Self::Call(done, outcome.and_then(|_| Err(error()))),
            Self::Facts(done, outcome) => Self::Facts(done, outcome.and_then(|_| Err(error()))),
        }
    }
}

/// How many names of a store are in one page of a list.
const PAGE_NAMES: u32 = 200;
/// The most names in one portion of a list.
const PORTION_NAMES_MAX: u32 = 400;

/// Carries out a list on a store that is ordered by name. `names` returns at most so many names
/// behind a name; `apply` carries out a request.
pub(super) fn list_portion<S>(
    store: &mut S,
    request: &Request,
    list: &List,
    names: impl FnOnce(&mut S, &str, u32) -> Result<Vec<String>, CallError>,
    apply: impl FnOnce(&mut S, &Request) -> Result<Reply, CallError>,
) -> Result<Reply, CallError> {
    let pages = list.pages.clamp(1, List::PAGES_MAX);
    let most = (pages * PAGE_NAMES).min(PORTION_NAMES_MAX);
    let page = names(store, &list.cursor, most)?;
    let last = page.last().filter(|_| page.len() >= most as usize);
    let next = last.map(|name| Arc::from(name.as_str()));
    // A stored name that no client writes is skipped.
    let names = page.iter().filter_map(|name| Name::of_key(name));
    let claims = names.map(|name| Claim {
        name,
        mode: Mode::Exclusive,
    });
    let request = Request {
        claims: claims.collect(),
        ..request.clone()
    };
    let mut reply = apply(store, &request)?;
    if let Answer::Listed(portion) = &mut reply.answer {
        portion.next = next;
        portion.took_us = Some(0);
    }
    Ok(reply)
}

/// The listeners in this process for the wakes of one node, by client.
#[derive(Default)]
pub(super) struct Listeners(Mutex<HashMap<String, Vec<Arc<dyn Hear>>>>);

impl Listeners {
    /// Delivers `client`'s wakes to `to`. Returns whether it is the first listener for this client.
    pub(super) fn add(&self, client: &str, to: Arc<dyn Hear>) -> bool {
        let mut by_client = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let listening = by_client.entry(client.to_owned()).or_default();
        listening.push(to);
        listening.len() == 1
    }

    /// Delivers `wake` to the listeners for its client. Returns it if its client has no listener.
    pub(super) fn deliver(&self, wake: Wake) -> Option<Wake> {
        let by_client = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let listening = client_of(&wake.ticket).and_then(|client| by_client.get(client));
        let Some(listening) = listening.cloned() else {
            return Some(wake);
        };
        // A listener may call the node again at once, or add a listener for another client.
        drop(by_client);
        for to in listening {
            to.hear(wake.clone());
        }
        None
    }
}

/// The client of a ticket: the part of its id before the last dot.
pub(super) fn client_of(ticket: &str) -> Option<&str> {
    ticket.rsplit_once('.').map(|(client, _)| client)
}

/// The answer to a lock operation on a node that belongs to no group yet.
pub(super) fn not_joined() -> CallError {
    CallError::NotSent(Trouble::new(
        TroubleKind::Newborn,
        "the node has not joined a group yet",
    ))
}

/// The answer to an `init` after which two clients might hold the same lock.
pub(super) fn not_new(why: &str) -> CallError {
    CallError::Refused(Trouble::new(
        TroubleKind::Group,
        format!("the node is not new: {why}"),
    ))
}
