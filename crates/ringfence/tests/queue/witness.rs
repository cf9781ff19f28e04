//! A node that records when a caller's ticket is known to be on a majority. The order of grants is
//! judged by these records.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use ringfence::clock::Clock;
use ringfence::node::redis::RedisNode;
use ringfence::node::{Call, CallError, Completion, Deliver, Facts, Hear, InitMode, Node};
use ringfence::url::{NodeUrl, parse_nodes};
use ringfence_core::group::Group;
use ringfence_core::message::{Acquire, Answer, Op, Reply, Ticket};
use ringfence_core::protocol::quorum;

/// A caller's ticket, as the nodes have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stub {
    pub(crate) since_us: u64,
    pub(crate) id: String,
    /// When the last node of a majority had confirmed that it has the ticket.
    pub(crate) on_majority_ns: Option<u64>,
}

/// A ticket, and the nodes that confirmed that they have it.
type Known = (Stub, Vec<usize>);

/// The present ticket of each caller, by its label.
#[derive(Debug, Default)]
pub(crate) struct Book {
    stubs: Mutex<HashMap<Arc<str>, Known>>,
    nodes: usize,
}

impl Book {
    /// The nodes of `urls`, wrapped, and the book in which they record tickets.
    pub(crate) fn open(urls: &str) -> (Vec<Witness>, Arc<Self>) {
        let urls = parse_nodes(urls).unwrap();
        let book = Arc::new(Self {
            nodes: urls.len(),
            ..Self::default()
        });
        let nodes = urls.into_iter().enumerate().map(|(number, url)| {
            let NodeUrl::Redis(url) = url else {
                panic!("not a server: {url:?}");
            };
            Witness {
                node: RedisNode::connect(url, Clock::System).unwrap(),
                number,
                book: Arc::clone(&book),
            }
        });
        (nodes.collect(), book)
    }

    /// The ticket with which `label` was granted the lock, if it needed one.
    pub(crate) fn take(&self, label: &str) -> Option<Stub> {
        let taken = self.stubs.lock().unwrap().remove(label);
        taken.map(|(stub, _)| stub)
    }

    /// Records that `node` has the ticket of `label`.
    fn note(&self, label: &Arc<str>, ticket: &Ticket, node: usize) {
        let now_ns = Clock::System.now().as_nanos();
        let mut stubs = self.stubs.lock().unwrap();
        let blank = || {
            let stub = Stub {
                since_us: ticket.since_us,
                id: ticket.id.to_string(),
                on_majority_ns: None,
            };
            (stub, Vec::new())
        };
        let (stub, seen_by) = stubs.entry(Arc::clone(label)).or_insert_with(blank);
        if (stub.since_us, stub.id.as_str()) != (ticket.since_us, &*ticket.id) {
            (*stub, *seen_by) = blank();
        }
        if !seen_by.contains(&node) {
            seen_by.push(node);
        }
        if seen_by.len() >= quorum(self.nodes) {
            stub.on_majority_ns.get_or_insert(now_ns);
        }
    }
}

/// A server whose replies are recorded.
#[derive(Debug)]
pub(crate) struct Witness {
    node: RedisNode,
    number: usize,
    book: Arc<Book>,
}

impl Node for Witness {
    fn name(&self) -> &str {
        self.node.name()
    }

    fn send(&self, call: Call) {
        let Call {
            request,
            expires,
            done,
        } = call;
        let done = match &request.op {
            Op::Acquire(Acquire {
                label,
                ticket: Some(ticket),
                ..
            }) => {
                let answer = Answering {
                    book: Arc::clone(&self.book),
                    node: self.number,
                    label: Arc::clone(label),
                    ticket: ticket.clone(),
                    done: Mutex::new(Some(done)),
                };
                Completion::new(Arc::new(answer), 0)
            }
            _ => done,
        };
        self.node.send(Call {
            request,
            expires,
            done,
        });
    }

    fn listen(&self, client: &str, to: Arc<dyn Hear>) {
        self.node.listen(client, to);
    }

    fn probe(&self, done: Completion<Facts>) {
        self.node.probe(done);
    }

    fn join(&self, group: Group, done: Completion<Facts>) {
        self.node.join(group, done);
    }

    fn init(&self, group: Group, mode: InitMode, done: Completion<Facts>) {
        self.node.init(group, mode, done);
    }
}

/// An acquire with a ticket, in flight to a node.
struct Answering {
    book: Arc<Book>,
    node: usize,
    label: Arc<str>,
    ticket: Ticket,
    done: Mutex<Option<Completion<Reply>>>,
}

impl Deliver<Reply> for Answering {
    fn deliver(&self, _tag: u64, outcome: Result<Reply, CallError>) {
        if outcome
            .as_ref()
            .is_ok_and(|reply| reply.answer != Answer::TicketOld)
        {
            self.book.note(&self.label, &self.ticket, self.node);
        }
        let done = self.done.lock().unwrap().take();
        done.expect("a call is answered once").complete(outcome);
    }
}
