//! How much of the world is searched, and under which rules. A scope is small on purpose: what goes
//! wrong at all goes wrong with two or three attempts and within a few ticks.

use super::world::CLIENTS;

/// A number of ticks, or a time in ticks.
pub type Ticks = u8;

/// How much of the world is searched, and under which rules.
#[derive(Debug, Clone, Copy)]
pub struct Scope {
    /// What it is called on the command line.
    pub name: &'static str,
    /// How many attempts each client makes, at most. Zero: there is no such client.
    pub attempts: [u8; CLIENTS],
    /// How many times the first client renews its hold, at most.
    pub renewals: u8,
    /// How many nodes may forget everything.
    pub crashes: u8,
    /// Replies may be delayed. If not, a reply arrives with its request or never.
    pub slow_replies: bool,
    /// A client undoes its last attempt too, if it is lost. If not, it is as good as dead from then
    /// on: its keys go when their leases end, and it does not matter which node refused it.
    pub undoes_last: bool,
    /// How time passes.
    pub clocks: Clocks,
    /// The protocol, or something like it that is wrong.
    pub variant: Variant,
}

/// How time passes.
#[derive(Debug, Clone, Copy)]
pub enum Clocks {
    /// The clocks of all clients and nodes show the same time.
    Together(Span),
    /// The clock of one node runs by itself. Everything else happens in no time: leases on the
    /// other nodes end at any moment, and a quarantine there never ends.
    Apart(NodeTime),
}

/// The time of all clients and nodes, in ticks.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    /// How many ticks pass.
    pub ticks: Ticks,
    /// The TTL of a lock.
    pub ttl: Ticks,
    /// The window `w`.
    pub window: Ticks,
    /// The quarantine `Q`.
    pub quarantine: Ticks,
}

/// The time of one node, in ticks. Leases on this node last for no tick.
#[derive(Debug, Clone, Copy)]
pub struct NodeTime {
    /// What its clock shows at first.
    pub start: Ticks,
    /// What its clock does not go beyond.
    pub end: Ticks,
    /// The window `w`.
    pub window: Ticks,
    /// How far the clock may be set back once: `S`.
    pub step: Ticks,
    /// The quarantine `Q`.
    pub quarantine: Ticks,
    /// The retention `R`.
    pub retention: Ticks,
    /// The lowest and the highest ballot that a client proposes, in ticks.
    pub ballots: (Ticks, Ticks),
}

/// The protocol, or something like it that is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Variant {
    /// The protocol as it is.
    Sound,
    /// A node that forgot everything votes at once.
    NoQuarantine,
    /// An undo gives back whatever its token holds, also what a later attempt got.
    CarelessRelease,
    /// Where there is a record, it alone decides what a ballot must exceed.
    PinnedFloor,
    /// Votes for an earlier attempt count for the present one.
    OldVotes,
    /// One vote is enough.
    NoMajority,
    /// A node keeps a lock for a tick less than it was asked to.
    ShortLease,
}

impl NodeTime {
    /// `w` one tick and `S` two: `2w + S` is four.
    const RUNNING: Self = Self {
        start: 3,
        end: 8,
        window: 1,
        step: 2,
        quarantine: 4,
        retention: 4,
        ballots: (3, 5),
    };

    /// Whether quarantine and retention are as long as they must be.
    fn is_sound(&self) -> bool {
        let least = 2 * self.window + self.step;
        self.quarantine >= least && self.retention >= least
    }

    /// Whether some ballot is high enough for a node whose quarantine is over.
    fn outlasts_quarantine(&self) -> bool {
        self.ballots.1 > self.start + self.quarantine - self.step - self.window
    }
}

impl Scope {
    /// Two clients try once each, and one node may forget everything.
    pub const CRASH: Self = Self {
        name: "crash",
        attempts: [1, 1, 0],
        slow_replies: true,
        clocks: Clocks::Together(Span {
            ticks: 2,
            ttl: 2,
            window: 8,
            quarantine: 20,
        }),
        ..Self::TURNS
    };

    /// Three clients try once each.
    pub const TURNS: Self = Self {
        name: "turns",
        attempts: [1, 1, 1],
        renewals: 0,
        crashes: 1,
        slow_replies: false,
        undoes_last: false,
        clocks: Clocks::Together(Span {
            ticks: 2,
            ttl: 1,
            window: 8,
            quarantine: 20,
        }),
        variant: Variant::Sound,
    };

    /// Two clients, of which one tries again.
    pub const RETRIES: Self = Self {
        name: "retries",
        attempts: [2, 1, 0],
        crashes: 0,
        clocks: Clocks::Together(Span {
            ticks: 2,
            ttl: 2,
            window: 8,
            quarantine: 20,
        }),
        ..Self::TURNS
    };

    /// Two clients, of which one renews its hold, puts it back where it was lost, and releases it.
    pub const RENEWALS: Self = Self {
        name: "renewals",
        attempts: [1, 1, 0],
        renewals: 1,
        clocks: Clocks::Together(Span {
            ticks: 2,
            ttl: 2,
            window: 8,
            quarantine: 20,
        }),
        ..Self::TURNS
    };

    /// A clock runs and may be set back; its node forgets everything and votes again after `Q`.
    pub const QUARANTINE: Self = Self {
        name: "quarantine",
        attempts: [1, 1, 0],
        renewals: 0,
        crashes: 1,
        slow_replies: false,
        undoes_last: false,
        clocks: Clocks::Apart(NodeTime::RUNNING),
        variant: Variant::Sound,
    };

    /// A clock runs and may be set back; its node forgets records after `R`.
    pub const RETENTION: Self = Self {
        name: "retention",
        crashes: 0,
        ..Self::QUARANTINE
    };

    /// As `QUARANTINE`, with a third client whose ballots may be written while a node has
    /// forgotten.
    pub const PINNED: Self = Self {
        name: "pinned",
        attempts: [1, 1, 1],
        clocks: Clocks::Apart(NodeTime {
            end: 5,
            step: 0,
            quarantine: 2,
            retention: 3,
            ballots: (3, 4),
            ..NodeTime::RUNNING
        }),
        ..Self::QUARANTINE
    };

    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::TURNS,
        Self::CRASH,
        Self::RETRIES,
        Self::RENEWALS,
        Self::QUARANTINE,
        Self::RETENTION,
        Self::PINNED,
    ];

    /// The same under other rules.
    #[must_use]
    pub const fn with(self, variant: Variant) -> Self {
        Self { variant, ..self }
    }

    /// The same with other times for quarantine and retention.
    #[must_use]
    pub const fn keeping(self, quarantine: Ticks, retention: Ticks) -> Self {
        let clocks = match self.clocks {
            Clocks::Apart(time) => Clocks::Apart(NodeTime {
                quarantine,
                retention,
                ..time
            }),
            together => together,
        };
        Self { clocks, ..self }
    }

    /// The same with replies that come at once or never.
    #[must_use]
    pub const fn prompt(self) -> Self {
        Self {
            slow_replies: false,
            ..self
        }
    }

    /// The same for so many ticks.
    #[must_use]
    pub const fn lasting(self, ticks: Ticks) -> Self {
        let clocks = match self.clocks {
            Clocks::Together(span) => Clocks::Together(Span { ticks, ..span }),
            apart @ Clocks::Apart(_) => apart,
        };
        Self { clocks, ..self }
    }

    /// Whether nothing wrong should be found.
    pub fn is_sound(&self) -> bool {
        self.variant == Variant::Sound && self.node_time().is_none_or(|time| time.is_sound())
    }

    /// The time of all, if there is one.
    pub fn span(&self) -> Option<Span> {
        match self.clocks {
            Clocks::Together(span) => Some(span),
            Clocks::Apart(_) => None,
        }
    }

    /// The time of the one node whose clock runs by itself, if there is one.
    pub fn node_time(&self) -> Option<NodeTime> {
        match self.clocks {
            Clocks::Together(_) => None,
            Clocks::Apart(time) => Some(time),
        }
    }

    /// Whether a node that forgot everything can have a vote again.
    pub fn outlasts_quarantine(&self) -> bool {
        self.node_time()
            .is_some_and(|time| time.outlasts_quarantine())
    }

    /// How many of the clients, from the first on, are alike.
    pub fn alike(&self) -> usize {
        if self.renewals > 0 {
            return 1;
        }
        let first = self.attempts[0];
        self.attempts.iter().take_while(|n| **n == first).count()
    }
}
