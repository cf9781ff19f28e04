//! The holds of a history: in which period each client relied on which lock.

use std::collections::HashMap;

use super::{Event, History, Mode, What};

/// A period in which a client relied on what it was granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold<'a> {
    /// The call.
    pub op: u64,
    /// The client.
    pub client: u64,
    /// The names that were held.
    pub names: &'a [String],
    /// The kind of hold.
    pub mode: Mode,
    /// Its fence.
    pub fence: Option<u64>,
    /// The slot, if it is a permit of a semaphore.
    pub slot: Option<u32>,
    /// The owner, if it has one.
    pub owner: Option<u64>,
    /// When the call began.
    pub invoked_us: u64,
    /// When the client learned of the grant.
    pub granted_us: u64,
    /// When the period begins.
    pub from_us: u64,
    /// When the period ends.
    pub to_us: u64,
}

impl Hold<'_> {
    /// Whether both are holds of one owner.
    pub fn is_owned_with(&self, other: &Self) -> bool {
        self.owner.is_some() && self.owner == other.owner
    }

    /// Whether a break of `name` up to the fence `up_to` ends it.
    pub fn is_broken_by(&self, name: &str, slot: Option<u32>, up_to: u64) -> bool {
        let fence = self.fence.unwrap_or_default();
        self.names == [name] && self.slot == slot && fence <= up_to
    }
}

impl History {
    /// All holds, in the order of their grants. A downgrade makes two holds out of one. A hold that
    /// is broken ends when the break begins, whatever its holder believes.
    pub fn holds(&self) -> Vec<Hold<'_>> {
        let mut holds = self.believed_holds();
        for Event { at_us, what } in &self.events {
            if let What::Breaks {
                name, slot, up_to, ..
            } = what
            {
                for hold in &mut holds {
                    if hold.is_broken_by(name, *slot, *up_to) {
                        hold.to_us = hold.to_us.min(*at_us);
                    }
                }
            }
        }
        holds
    }

    /// All holds as their holders believe.
    pub fn believed_holds(&self) -> Vec<Hold<'_>> {
        let mut collector = HoldCollector::default();
        for event in &self.events {
            collector.add(event);
        }
        collector.holds
    }
}

/// Makes the holds of a history from its events.
#[derive(Default)]
struct HoldCollector<'a> {
    /// What each call asked for.
    asked: HashMap<u64, Hold<'a>>,
    /// The index of the open hold of each call.
    open: HashMap<u64, usize>,
    holds: Vec<Hold<'a>>,
}

impl<'a> HoldCollector<'a> {
    fn add(&mut self, Event { at_us, what }: &'a Event) {
        match what {
            What::Invoked {
                op,
                client,
                mode,
                names,
                owner,
                ..
            } => {
                let hold = Hold {
                    op: *op,
                    client: *client,
                    names,
                    mode: *mode,
                    fence: None,
                    slot: None,
                    owner: *owner,
                    invoked_us: *at_us,
                    granted_us: *at_us,
                    from_us: *at_us,
                    to_us: *at_us,
                };
                self.asked.insert(*op, hold);
            }
            What::Granted {
                op,
                fence,
                slot,
                until_us,
            } => {
                if let Some(hold) = self.asked.get(op) {
                    self.open.insert(*op, self.holds.len());
                    self.holds.push(Hold {
                        fence: *fence,
                        slot: *slot,
                        granted_us: *at_us,
                        from_us: *at_us,
                        to_us: *until_us,
                        ..hold.clone()
                    });
                }
            }
            What::Deadline { op, until_us } => {
                if let Some(&at) = self.open.get(op) {
                    self.holds[at].to_us = *until_us;
                }
            }
            What::Downgraded { op } => self.downgrade(*op, *at_us),
            What::Ended { op } => {
                if let Some(at) = self.open.remove(op) {
                    let hold = &mut self.holds[at];
                    hold.to_us = hold.to_us.min(*at_us);
                }
            }
            _ => {}
        }
    }

    /// Ends the exclusive hold of `op`, and begins a shared one with the same deadline.
    fn downgrade(&mut self, op: u64, at_us: u64) {
        let Some(&at) = self.open.get(&op) else {
            return;
        };
        self.open.insert(op, self.holds.len());
        let to_us = self.holds[at].to_us;
        self.holds[at].to_us = to_us.min(at_us);
        let shared = Hold {
            mode: Mode::Shared,
            from_us: at_us,
            to_us,
            ..self.holds[at].clone()
        };
        self.holds.push(shared);
    }
}

#[cfg(test)]
mod tests {
    use super::super::made::{History as Made, exclusive, grant};
    use super::*;

    #[test]
    fn a_hold_ends_at_its_deadline_or_when_its_client_ends_it() {
        let mut history = Made::default();
        history.invoke(0, 1, exclusive("x"));
        history.push(5, grant(1, 10, 100));
        history.push(
            50,
            What::Deadline {
                op: 1,
                until_us: 200,
            },
        );
        assert_eq!(history.holds()[0].to_us, 200);
        history.push(120, What::Ended { op: 1 });
        assert_eq!(history.holds()[0].to_us, 120);
    }

    #[test]
    fn a_broken_hold_ends_when_the_break_begins_also_if_its_holder_learns_of_the_grant_later() {
        let mut history = Made::default();
        for (op, granted_us, fence) in [(1, 5, 10), (2, 50, 10), (3, 50, 11)] {
            history.invoke(0, op, exclusive("x"));
            history.push(granted_us, grant(op, fence, 100));
        }
        history.push(
            30,
            What::Breaks {
                op: 9,
                client: 1,
                name: "x".to_owned(),
                slot: None,
                up_to: 10,
            },
        );
        let ends: Vec<u64> = history.holds().iter().map(|hold| hold.to_us).collect();
        assert_eq!(ends, [30, 30, 100], "a later fence is not broken");
    }

    #[test]
    fn a_downgrade_makes_two_holds_of_one() {
        let mut history = Made::default();
        history.invoke(0, 1, exclusive("x"));
        history.push(5, grant(1, 10, 100));
        history.push(40, What::Downgraded { op: 1 });
        history.push(70, What::Ended { op: 1 });
        let holds = history.holds();
        let spans: Vec<_> = holds.iter().map(|h| (h.mode, h.from_us, h.to_us)).collect();
        assert_eq!(
            spans,
            [(Mode::Exclusive, 5, 40), (Mode::Shared, 40, 70)],
            "{holds:?}"
        );
    }
}
