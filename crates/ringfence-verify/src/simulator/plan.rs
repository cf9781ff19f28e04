//! A schedule, written down before it is run: who wants what and when, and what goes wrong. A seed
//! decides it; and since it is a list, it can be shortened while it still shows what it shows.

use std::fmt;
use std::time::Duration;

use ringfence_core::group::Group;

/// A schedule.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What it was made from; also decides every delay.
    pub seed: u64,
    /// The values of the group.
    pub group: Group,
    /// What clients take off a TTL: a fraction, and a fixed part.
    pub drift: (f64, Duration),
    /// How long messages take, from and to, in nanoseconds.
    pub delay: (u64, u64),
    /// The lock servers.
    pub nodes: Vec<NodePlan>,
    /// The clients.
    pub clients: Vec<ClientPlan>,
    /// What they do.
    pub steps: Vec<Step>,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// From here on nothing does.
    pub healed: Duration,
}

/// A lock server.
#[derive(Debug, Clone, Copy)]
pub struct NodePlan {
    /// What its clock gains in a million parts of time.
    pub rate: u64,
    /// How far it is from the others', in microseconds.
    pub ahead_us: i64,
    /// Whether it remembers everything after a crash.
    pub durable: bool,
}

/// A client: one process with one connection to each node.
#[derive(Debug, Clone, Copy)]
pub struct ClientPlan {
    /// What its clock gains in a million parts of time.
    pub rate: u64,
    /// When it starts.
    pub start: Duration,
    /// The machine it runs on.
    pub host: usize,
}

/// One thing that a client does: take a lock, work, and give it back.
#[derive(Debug, Clone)]
pub struct Step {
    /// The number of the call in the history.
    pub op: u64,
    /// Who does it.
    pub client: usize,
    /// Steps of one task are done one after the other.
    pub task: usize,
    /// How long it rests before.
    pub after: Duration,
    /// What it wants.
    pub want: Want,
    /// For how long.
    pub ttl: Duration,
    /// Whether it waits: not at all, for so long, or until it has it.
    pub wait: Option<Duration>,
    /// Whether the lock is renewed for it.
    pub renew: bool,
    /// How long it holds on.
    pub hold: Duration,
    /// How often it updates the resource meanwhile.
    pub updates: u32,
    /// Whether it works on when it is told that the lock is lost.
    pub heedless: bool,
    /// When it changes its mind while it waits.
    pub cancel: Option<Duration>,
    /// For how long it extends the lock itself, if it does.
    pub extend: Option<Duration>,
    /// Whether it takes it for its client's owner, who may hold it already.
    pub owned: bool,
    /// For how long the lock is kept from others after a holder that was lost.
    pub lock_delay: Duration,
    /// For how long it is kept from others at least, once it was granted.
    pub at_least: Duration,
    /// How it ends.
    pub end: End,
}

/// What is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Want {
    /// One name alone.
    Mutex(String),
    /// Several, all or none.
    Multi(Vec<String>),
    /// A share.
    Read(String),
    /// The name alone, among readers.
    Write(String),
    /// The same, and later only a share.
    Downgrade(String),
    /// One of so many permits.
    Permit(String, u32),
    /// To lead.
    Lead(String),
    /// One name alone, without a fence.
    Plain(String),
    /// To see who leads, for as long as it would hold.
    Observe(String),
    /// To arrive at a latch for so many, as the party of this name.
    Arrive(String, u32, String),
    /// To see a latch for so many open.
    Await(String, u32),
}

/// How a hold ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It is released, and the answer awaited.
    Release,
    /// The guard is dropped.
    Drop,
}

/// Something that goes wrong.
#[derive(Debug, Clone)]
pub struct Fault {
    /// When.
    pub at: Duration,
    /// What.
    pub what: Trouble,
}

/// What goes wrong.
#[derive(Debug, Clone)]
pub enum Trouble {
    /// Nothing gets from these clients to these nodes, or back, for a while.
    Partition {
        /// Which clients.
        clients: Vec<usize>,
        /// Which nodes.
        nodes: Vec<usize>,
        /// Which way is cut.
        ways: Ways,
        /// For how long.
        lasts: Duration,
    },
    /// Messages between them take this much longer for a while.
    Slow {
        /// Which client.
        client: usize,
        /// Which node.
        node: usize,
        /// At most this much longer.
        by: Duration,
        /// For how long.
        lasts: Duration,
    },
    /// Of a hundred messages, so many are lost, and so many requests carried out twice, for a while.
    Lossy {
        /// Lost.
        lost: u64,
        /// Carried out twice.
        twice: u64,
        /// For how long.
        lasts: Duration,
    },
    /// A connection ends; what is on its way may arrive late, or never.
    Reset {
        /// Which client's.
        client: usize,
        /// To which node.
        node: usize,
    },
    /// A node stands still and then goes on, in whatever order its connections come.
    Hang {
        /// Which node.
        node: usize,
        /// For how long.
        lasts: Duration,
        /// Its clock stands still too: its machine was paused.
        clock: bool,
    },
    /// A node is down, and remembers what its durability lets it.
    Crash {
        /// Which node.
        node: usize,
        /// For how long.
        lasts: Duration,
    },
    /// A node that is not durable loses all it has, and goes on.
    Flush {
        /// Which node.
        node: usize,
    },
    /// A node's clock is set.
    Step {
        /// Which node.
        node: usize,
        /// How far, in microseconds.
        by_us: i64,
    },
    /// A node's clock is set to and fro.
    Strobe {
        /// Which node.
        node: usize,
        /// How far, in microseconds.
        by_us: i64,
        /// How often.
        times: u32,
    },
    /// A client stands still, between two things that it does.
    Pause {
        /// Which client.
        client: usize,
        /// For how long.
        lasts: Duration,
        /// It has heard the nodes already, and its callers have not.
        heard: bool,
    },
    /// A client stands still while it sends: so many requests leave before.
    Stall {
        /// Which client.
        client: usize,
        /// How many leave before.
        sends: u32,
        /// For how long.
        lasts: Duration,
    },
    /// A virtual machine is paused: for its clients no time passes.
    PauseMachine {
        /// Which.
        host: usize,
        /// For how long.
        lasts: Duration,
    },
    /// A client is gone, and with it all it knew.
    Kill {
        /// Which client.
        client: usize,
    },
    /// A replica is attached to a node's own server: its standby. It has what the server wrote, late.
    Attach {
        /// Which node.
        node: usize,
        /// How long a write takes to get there.
        lag: Duration,
        /// How far the standby's clock is from the server's, in microseconds.
        ahead_us: i64,
    },
    /// A node's standby is made a master. Nothing is said to the server that it followed.
    Promote {
        /// Which node.
        node: usize,
        /// How the node's address is moved to it; `None` if the address stays.
        moved: Option<Moved>,
    },
    /// Of a node's two masters the one that was promoted first becomes a replica of the other: its data is
    /// replaced.
    Demote {
        /// Which node.
        node: usize,
        /// How long a write takes to get to it.
        lag: Duration,
    },
    /// A node's own server, which is a replica of the standby by now, is made a master again.
    FailBack {
        /// Which node.
        node: usize,
        /// How the node's address is moved back to it, if it was moved.
        moved: Moved,
    },
    /// A node's address leads to another node's server for a while: that one answers under two.
    Repoint {
        /// The node whose address is wrong.
        node: usize,
        /// The node whose server it leads to.
        to: usize,
        /// For how long.
        lasts: Duration,
        /// Whether connections that stand go on as they are, at both turns. If not, they end.
        connections_stay: bool,
    },
}

/// How an address is moved from one server to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// For how long connections that lead to the former server go on. Zero: they end at once.
    pub connections_last: Duration,
}

/// Which way a partition cuts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ways {
    /// Both.
    Both,
    /// Requests do not arrive.
    There,
    /// Answers do not.
    Back,
}

/// Which parts of a plan are run: positions in its lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parts {
    /// Of the steps.
    pub steps: Vec<usize>,
    /// Of the faults.
    pub faults: Vec<usize>,
}

impl Plan {
    /// All of it.
    pub fn all(&self) -> Parts {
        Parts {
            steps: (0..self.steps.len()).collect(),
            faults: (0..self.faults.len()).collect(),
        }
    }

    /// Whether the nodes' clocks are so far apart, or go apart so fast, that a place in line, which is by
    /// their time, depends on which of them were heard first.
    pub(super) fn clocks_apart(&self) -> bool {
        let ahead = |node: &NodePlan| node.ahead_us;
        let rate = |node: &NodePlan| node.rate as i64;
        self.apart(ahead) > 50_000 || self.apart(rate) > 10_000
    }

    fn apart(&self, of: impl Fn(&NodePlan) -> i64) -> i64 {
        let most = self.nodes.iter().map(&of).max().unwrap_or_default();
        most - self.nodes.iter().map(&of).min().unwrap_or_default()
    }

    /// The parts of it, in words.
    pub fn describe(&self, parts: &Parts) -> String {
        use fmt::Write as _;
        let mut text = String::new();
        let nodes = self.nodes.iter().enumerate().map(|(at, node)| {
            let tier = if node.durable { "durable" } else { "memory" };
            format!(
                "n{at} {tier} {:+} ppm {:+} µs",
                drift_ppm(node.rate),
                node.ahead_us
            )
        });
        let nodes: Vec<String> = nodes.collect();
        let _ = writeln!(text, "  nodes: {}", nodes.join("; "));
        let _ = writeln!(text, "  group: {}; drift {:?}", self.group, self.drift);
        for (at, client) in self.clients.iter().enumerate() {
            if self
                .steps
                .iter()
                .enumerate()
                .any(|(i, step)| step.client == at && parts.steps.contains(&i))
            {
                let _ = writeln!(
                    text,
                    "  client {at} on host {} from {:?}, {:+} ppm",
                    client.host,
                    client.start,
                    drift_ppm(client.rate)
                );
            }
        }
        for &at in &parts.steps {
            let _ = writeln!(text, "  step {at}: {}", self.steps[at]);
        }
        for &at in &parts.faults {
            let fault = &self.faults[at];
            let _ = writeln!(text, "  fault {at} at {:?}: {:?}", fault.at, fault.what);
        }
        let _ = writeln!(text, "  no fault after {:?}", self.healed);
        text
    }
}

fn drift_ppm(rate: u64) -> i64 {
    rate as i64 - super::dial::TRUE_RATE as i64
}

impl Step {
    /// Whether nodes may keep something of it when its client is done.
    pub(super) fn lingers(&self) -> bool {
        !self.lock_delay.is_zero() || !self.at_least.is_zero()
    }
}

impl Want {
    /// The names as the history knows them.
    pub fn names(&self) -> Vec<String> {
        match self {
            Self::Multi(names) => names.clone(),
            Self::Mutex(name)
            | Self::Read(name)
            | Self::Write(name)
            | Self::Downgrade(name)
            | Self::Permit(name, _)
            | Self::Lead(name)
            | Self::Plain(name)
            | Self::Observe(name)
            | Self::Arrive(name, ..)
            | Self::Await(name, _) => vec![name.clone()],
        }
    }
}

fn unless_zero(what: &str, span: Duration) -> String {
    match span.is_zero() {
        true => String::new(),
        false => format!(", {what} {span:?}"),
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "op {} of client {} task {}: after {:?} {:?}, ttl {:?}, wait {:?}, renew {}, hold {:?} with {} updates{}{}{}{}{}{}, then {:?}",
            self.op,
            self.client,
            self.task,
            self.after,
            self.want,
            self.ttl,
            self.wait,
            self.renew,
            self.hold,
            self.updates,
            if self.heedless { ", heedless" } else { "" },
            unless_zero("extending by", self.extend.unwrap_or_default()),
            if self.owned { ", owned" } else { "" },
            unless_zero("lock delay", self.lock_delay),
            unless_zero("at least", self.at_least),
            match self.cancel {
                Some(after) => format!(", cancelled after {after:?}"),
                None => String::new(),
            },
            self.end
        )
    }
}
