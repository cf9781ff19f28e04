//! One state of the model, in so few bits that millions of them fit into memory: what the nodes
//! keep, what is under way, what each client believes.

use super::ledger::Slip;

/// How many nodes there are. Two of them are a majority.
pub const NODES: usize = 3;
/// How many clients there are at most.
pub const CLIENTS: usize = 3;

/// A ballot, which is also a node's time: small enough to be a bit of a [`Pile`].
pub type Number = u8;
/// The highest that fits into a [`Pile`].
pub const NUMBER_MAX: Number = 15;

/// One state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct World {
    /// The nodes, with all that is under way to and from them.
    pub nodes: [Node; NODES],
    /// The clients; those that the scope does not have are [`Phase::Done`].
    pub clients: [Client; CLIENTS],
    /// Every fence that was ever granted.
    pub fences: Pile,
    /// How many more nodes may forget everything.
    pub crashes_left: u8,
    /// How many more clocks may be set back.
    pub steps_left: u8,
    /// A fence was granted twice.
    pub duplicate: bool,
    /// A grant has no higher fence than one that was granted before it was asked for.
    pub disorder: bool,
    /// Two clients hold, although no lease of either has ended.
    pub doubled: bool,
    /// What happened on the way here.
    pub seen: Seen,
}

/// One node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node {
    /// What it keeps of the name.
    pub slip: Slip,
    /// Its time; `None` if that does not matter.
    pub clock: Option<Number>,
    /// When it forgot everything, if it did.
    pub born: Option<Born>,
    /// What is between it and each client.
    pub desks: [Desk; CLIENTS],
}

/// When a node forgot everything: its time then, if that matters.
pub type Born = Option<Number>;

/// What is between one node and one client. Whatever is under way may arrive at any time, in any order, or
/// never: that is how a message is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Desk {
    /// What is under way, by kind and ballot.
    pub mail: [Pile; Mail::ALL.len()],
    /// What the client knows of the node in its present round.
    pub vote: Vote,
}

/// A set of ballots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Pile(u16);

/// The kinds of messages between a client and a node. The last three are replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mail {
    /// An acquire.
    Acquire,
    /// An undo; the node said that it holds our token.
    Undo,
    /// An undo; nobody knows whether the acquire arrived.
    Retire,
    /// The final release of a holder.
    Release,
    /// The same, to a node whose answer to the acquire never came.
    ReleaseUnknown,
    /// An extend.
    Extend,
    /// A restore.
    Restore,
    /// "Granted".
    Granted,
    /// "Granted", of a node in quarantine.
    Doubted,
    /// "Extended".
    Extended,
}

/// What a client knows of a node in its present round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Vote {
    /// Nothing.
    #[default]
    Pending,
    /// It has our token, and that counts.
    Counted,
    /// It has our token, but may have forgotten others'.
    Doubted,
    /// It has nothing of this ballot.
    Refused,
}

/// One client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Client {
    /// What it does.
    pub phase: Phase,
    /// What it proposed last. All its attempts have one token.
    pub ballot: Number,
    /// The highest fence that had been granted to anybody when this attempt began.
    pub after: Number,
    /// How many more times it may try.
    pub attempts_left: u8,
    /// How many more times it may extend.
    pub extends_left: u8,
    /// Since it was granted the lock, none of its keys has expired.
    pub intact: bool,
}

/// What a client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// It may begin an attempt.
    Idle,
    /// It has asked all nodes.
    Asking,
    /// It believes that it holds.
    Holding,
    /// It holds, and has asked all nodes to extend.
    Extending,
    /// It has given up, or given back.
    Done,
}

/// What is worth showing that it can happen at all.
#[derive(Debug, Clone, Copy, Default)]
pub struct Seen {
    /// How many grants there were.
    pub grants: u8,
    /// A lease ended under its holder.
    pub lapsed: bool,
    /// An acquire came after its own undo, and was refused because of it.
    pub late_acquire_refused: bool,
    /// An undo came after a later attempt of the same client had been granted there.
    pub late_undo_refused: bool,
    /// A restore came after the release, and was refused.
    pub late_restore_refused: bool,
    /// A majority extended a lock after a node had forgotten it.
    pub extended_after_crash: bool,
    /// A node that had forgotten a holder got it back.
    pub restored_after_crash: bool,
    /// A grant was not counted, because the node may have forgotten another.
    pub doubted: bool,
    /// A node's quarantine was over, and its vote made a majority.
    pub grown_up: bool,
}

/// No two states differ by what was seen on the way: each would be searched once for every way.
impl PartialEq for Seen {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Seen {}

impl PartialOrd for Seen {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Seen {
    fn cmp(&self, _: &Self) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
}

impl std::hash::Hash for Seen {
    fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
}

impl World {
    /// The state that stands for this one and all that differ from it only by which node is which, and
    /// which of the clients before `alike` is which.
    #[must_use]
    pub fn representative(&self, alike: usize) -> Self {
        const ORDERS: [[usize; CLIENTS]; 6] = [
            [0, 1, 2],
            [1, 0, 2],
            [0, 2, 1],
            [2, 1, 0],
            [1, 2, 0],
            [2, 0, 1],
        ];
        let orders = match alike {
            0 | 1 => &ORDERS[..1],
            2 => &ORDERS[..2],
            _ => &ORDERS[..],
        };
        let reordered = orders.iter().map(|order| self.reordered(order));
        reordered.min().unwrap_or(*self)
    }

    /// The same with the clients in another order, and the nodes in ascending order.
    fn reordered(&self, order: &[usize; CLIENTS]) -> Self {
        let mut world = *self;
        world.clients = order.map(|was| self.clients[was]);
        for node in &mut world.nodes {
            let desks = node.desks;
            node.desks = order.map(|was| desks[was]);
            let now = |was: u8| order.iter().position(|&o| o == usize::from(was));
            node.slip
                .rename(|was| now(was).map_or(was, |now| now as u8));
        }
        world.nodes.sort_unstable();
        world
    }
}

impl Mail {
    /// All kinds.
    pub const ALL: [Self; 10] = [
        Self::Acquire,
        Self::Undo,
        Self::Retire,
        Self::Release,
        Self::ReleaseUnknown,
        Self::Extend,
        Self::Restore,
        Self::Granted,
        Self::Doubted,
        Self::Extended,
    ];

    /// Whether it goes from the node to the client.
    pub fn is_reply(self) -> bool {
        matches!(self, Self::Granted | Self::Doubted | Self::Extended)
    }
}

impl Desk {
    /// What is under way of one kind.
    pub fn pile(&mut self, mail: Mail) -> &mut Pile {
        &mut self.mail[mail as usize]
    }

    /// Everything that is under way.
    pub fn all_mail(&self) -> impl Iterator<Item = (Mail, Number)> {
        let piles = Mail::ALL.into_iter().zip(self.mail);
        piles.flat_map(|(mail, pile)| pile.iter().map(move |ballot| (mail, ballot)))
    }

    /// The node carries nothing out any more.
    pub fn drop_requests(&mut self) {
        for mail in Mail::ALL.into_iter().filter(|mail| !mail.is_reply()) {
            *self.pile(mail) = Pile::default();
        }
    }

    /// Nobody reads the replies any more.
    pub fn drop_replies(&mut self) {
        for mail in Mail::ALL.into_iter().filter(|mail| mail.is_reply()) {
            *self.pile(mail) = Pile::default();
        }
    }
}

impl Pile {
    /// Puts `number` in.
    pub fn put(&mut self, number: Number) {
        self.0 |= 1 << number;
    }

    /// Takes `number` out.
    pub fn take(&mut self, number: Number) {
        self.0 &= !(1 << number);
    }

    /// Whether `number` is in it.
    pub fn has(self, number: Number) -> bool {
        self.0 & (1 << number) != 0
    }

    /// The highest, or zero.
    pub fn highest(self) -> Number {
        self.0.checked_ilog2().unwrap_or_default() as Number
    }

    /// The lowest, or beyond all.
    pub fn lowest(self) -> Number {
        match self.0 {
            0 => Number::MAX,
            some => some.trailing_zeros() as Number,
        }
    }

    /// Puts in what is in `other`.
    pub fn merge(&mut self, other: Self) {
        self.0 |= other.0;
    }

    fn iter(self) -> impl Iterator<Item = Number> {
        (0..=NUMBER_MAX).filter(move |number| self.has(*number))
    }
}

impl Client {
    /// A client that may try and extend so many times.
    pub fn new(attempts: u8, extends: u8) -> Self {
        Self {
            phase: if attempts > 0 {
                Phase::Idle
            } else {
                Phase::Done
            },
            ballot: 0,
            after: 0,
            attempts_left: attempts,
            extends_left: extends,
            intact: false,
        }
    }

    /// Whether it believes that it holds the lock.
    pub fn holds(&self) -> bool {
        matches!(self.phase, Phase::Holding | Phase::Extending)
    }

    /// Whether a reply about `ballot` is of interest.
    pub fn asks(&self, ballot: Number) -> bool {
        self.phase == Phase::Asking && self.ballot == ballot
    }
}
