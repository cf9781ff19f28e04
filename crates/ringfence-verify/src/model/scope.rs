//! How much of the world is searched, and under which rules. A scope is small on purpose: what goes wrong
//! at all goes wrong with two or three attempts and a window of a tick.

use super::world::Number;

/// How much of the world is searched, and under which rules.
#[derive(Debug, Clone, Copy)]
pub struct Scope {
    /// What it is called on the command line.
    pub name: &'static str,
    /// How many attempts each client makes, at most. Zero: there is no such client.
    pub attempts: [u8; 3],
    /// How many times the first of them extends, at most.
    pub extends: u8,
    /// The lowest and the highest ballot that anybody proposes.
    pub ballots: (Number, Number),
    /// How many nodes may forget everything.
    pub crashes: u8,
    /// Replies may be delayed; if not, they come at once or never.
    pub slow_replies: bool,
    /// The time of node A, if it matters. On the other nodes, and else on all, leases end at any moment, and
    /// a quarantine never does.
    pub time: Option<Time>,
    /// The protocol, or something like it that is wrong.
    pub variant: Variant,
}

/// The time of one node, in ticks of its ballots' clock. Its leases last for no tick.
#[derive(Debug, Clone, Copy)]
pub struct Time {
    /// What its clock shows at first.
    pub start: Number,
    /// What its clock does not go beyond.
    pub end: Number,
    /// How many ticks of the ballots' clock are one of the leases'.
    pub ticks_per_ms: Number,
    /// The window `w`, in ticks.
    pub window: Number,
    /// How far the clock may be set back once: `S`, in ticks.
    pub step: Number,
    /// The quarantine `Q`, in ticks.
    pub quarantine: Number,
    /// The retention `R`.
    pub retention_ms: Number,
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
}

impl Time {
    /// `w` one tick and `S` two, which are one tick of the leases': `2w + S` is four and two.
    const RUNNING: Self = Self {
        start: 3,
        end: 8,
        ticks_per_ms: 2,
        window: 1,
        step: 2,
        quarantine: 4,
        retention_ms: 2,
    };

    /// Whether quarantine and retention are as long as they must be.
    fn is_sound(&self) -> bool {
        let least = 2 * self.window + self.step;
        self.quarantine >= least && self.retention_ms * self.ticks_per_ms >= least
    }
}

impl Scope {
    /// Two clients try once each, and one node may forget everything.
    pub const CRASH: Self = Self {
        name: "crash",
        attempts: [1, 1, 0],
        ballots: (1, 2),
        crashes: 1,
        ..Self::TURNS
    };

    /// Three clients try once each, and one node may forget everything.
    pub const TURNS: Self = Self {
        name: "turns",
        attempts: [1, 1, 1],
        extends: 0,
        ballots: (1, 2),
        crashes: 1,
        slow_replies: true,
        time: None,
        variant: Variant::Sound,
    };

    /// Two clients, of which one tries again.
    pub const RETRIES: Self = Self {
        name: "retries",
        attempts: [2, 1, 0],
        ballots: (1, 3),
        crashes: 0,
        ..Self::TURNS
    };

    /// Two clients, of which one extends, puts its lock back where it was lost, and gives it back.
    pub const RENEWALS: Self = Self {
        name: "renewals",
        attempts: [1, 1, 0],
        extends: 1,
        slow_replies: false,
        ..Self::TURNS
    };

    /// Clocks run and may be set back; a node forgets everything and votes again after `Q`.
    pub const QUARANTINE: Self = Self {
        name: "quarantine",
        attempts: [1, 1, 0],
        extends: 0,
        ballots: (3, 5),
        crashes: 1,
        slow_replies: false,
        time: Some(Time::RUNNING),
        variant: Variant::Sound,
    };

    /// Clocks run and may be set back; records are forgotten after `R`.
    pub const RETENTION: Self = Self {
        name: "retention",
        crashes: 0,
        ..Self::QUARANTINE
    };

    /// As `QUARANTINE`, with a third client whose ballots may be written while a node has forgotten.
    pub const PINNED: Self = Self {
        name: "pinned",
        attempts: [1, 1, 1],
        ballots: (3, 4),
        time: Some(Time {
            end: 5,
            step: 0,
            quarantine: 2,
            retention_ms: 1,
            ..Time::RUNNING
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

    /// The same with replies that come at once or never.
    #[must_use]
    pub const fn prompt(self) -> Self {
        Self {
            slow_replies: false,
            ..self
        }
    }

    /// Whether nothing wrong should be found.
    pub fn is_sound(&self) -> bool {
        self.variant == Variant::Sound && self.time.is_none_or(|time| time.is_sound())
    }

    /// The same with other times for quarantine and retention.
    #[must_use]
    pub const fn keeping(self, quarantine: Number, retention_ms: Number) -> Self {
        let time = match self.time {
            Some(time) => Some(Time {
                quarantine,
                retention_ms,
                ..time
            }),
            None => None,
        };
        Self { time, ..self }
    }

    /// Whether some ballot is high enough for a node whose quarantine is over.
    pub fn outlasts_quarantine(&self) -> bool {
        let ground = |time: Time| time.start + time.quarantine - time.step - time.window;
        self.time.is_some_and(|time| self.ballots.1 > ground(time))
    }

    /// How many of the clients, from the first on, are alike.
    pub fn alike(&self) -> usize {
        if self.extends > 0 {
            return 1;
        }
        let first = self.attempts[0];
        self.attempts.iter().take_while(|n| **n == first).count()
    }
}
