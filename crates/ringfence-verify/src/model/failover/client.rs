//! What a client decides. The product's own machines decide all of it: [`Attempt`] and
//! [`Acquisition`] whether a grant counts, [`Hold`] what a reply does to the deadline, and
//! [`Cluster`] which replies count.

use ringfence_core::message::{Answer, Holder, Kind, Op, Release, ReleaseKind, Reply, Request};
use ringfence_core::protocol::{
    Acquisition, Attempt, ClockReading, Cluster, Confirmation, Hold, HoldAction, Line, Next,
    RoundMachine, Transmit,
};

use super::scope::{Ticks, Weakness};
use super::setting::{EPOCH, Setting, TICK, ago, ballot, end_of, left_until, now};
use super::world::{Call, CallKind, Said, Word};

/// What a reply does to a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extended {
    /// How many more ticks it is held.
    pub(super) left: Ticks,
    /// The hold has ended for another reason than its deadline: the loss is proved.
    pub(super) is_lost: bool,
    /// The lock is to be restored.
    pub(super) restores: bool,
    /// The reply counts.
    pub(super) counts: bool,
}

impl Setting {
    /// The request of a `client`, whose round began so many ticks ago.
    pub(super) fn request(&self, client: usize, call: &Call) -> Request {
        match call.kind {
            CallKind::Acquire => {
                let (_, attempt) = &self.attempts[usize::from(call.age)];
                attempt.request(&self.grants[client].claims, self.ttl, &self.label)
            }
            CallKind::Extend => self.extends[client].clone(),
            CallKind::Restore => self.restores[client].clone(),
        }
    }

    /// What a hold sends to extend the lock, and then to restore it, because it is gone.
    pub(super) fn transmits(&self) -> (Transmit, Transmit) {
        let mut hold = self.hold(1);
        let round = hold.extend(self.ttl, now());
        let extend = hold.poll_transmit(clock);
        let reply = self.reply(Said {
            word: Word::Gone,
            born_age: 0,
        });
        let cluster = self.cluster(confirmation(Some(0)));
        let until = hold.carried_until();
        let discount = cluster.discount_extension(Line::First, 0, &reply, now(), now(), until);
        hold.handle_reply(round, 0, Ok(reply), discount, clock());
        let both = extend.zip(hold.poll_transmit(clock));
        both.expect("a hold extends, and restores what is gone in a quarantine")
    }

    /// The final release of a `client`.
    pub(super) fn release(&self, client: usize) -> Request {
        let grant = &self.grants[client];
        Request {
            claims: grant.claims.clone(),
            token: grant.token.clone(),
            op: Op::Release(Release {
                ballot: ballot(client),
                kind: ReleaseKind::Final,
                fate_unknown: false,
                ticket: None,
                stays: false,
                keep_ms: None,
                delay_ms: 0,
            }),
        }
    }

    /// How long the newcomer holds the lock after this reply to its acquire; `None` if it does not.
    pub(super) fn granted(
        &self,
        age: Ticks,
        said: Said,
        confirmed: Option<Ticks>,
    ) -> Option<Ticks> {
        let (mut acquisition, mut attempt) = self.attempts[usize::from(age)].clone();
        let cluster = self.cluster(confirmation(confirmed));
        let reply = self.reply(said);
        let discount = cluster.discount_extension(Line::First, 0, &reply, ago(age), now(), None);
        let late = self.is(Weakness::LateReply) || self.is(Weakness::LateAcquireAndReply);
        let read_at = if late { ago(age) } else { now() };
        attempt.handle_reply(0, Ok(reply), discount, read_at);
        self.conclude(&mut acquisition, &attempt, &cluster)
    }

    fn conclude(
        &self,
        acquisition: &mut Acquisition,
        attempt: &Attempt,
        cluster: &Cluster,
    ) -> Option<Ticks> {
        attempt.verdict()?;
        match acquisition.conclude(attempt, cluster, now()) {
            Next::Granted { deadline } => Some(left_until(deadline)).filter(|left| *left > 0),
            Next::Retry { .. } | Next::GiveUp(_) => None,
        }
    }

    /// What a reply to an extend does to a hold with so much `left`.
    pub(super) fn extended(
        &self,
        left: Ticks,
        age: Ticks,
        said: Said,
        confirmed: Option<Ticks>,
    ) -> Extended {
        let mut hold = self.hold(left);
        let t0 = ago(age);
        let round = hold.extend(self.ttl, t0);
        hold.poll_transmit(clock);
        let reply = self.reply(self.aged(said));
        let confirmation = match self.is(Weakness::OnlyAcquiresConfirmed) {
            true => self::confirmation(Some(0)),
            false => self::confirmation(confirmed),
        };
        let cluster = self.cluster(confirmation);
        let until = hold.carried_until();
        let until = match self.is(Weakness::CarriedWithLess) {
            true => until.map(|until| until + TICK),
            false => until,
        };
        let discount = cluster.discount_extension(Line::First, 0, &reply, t0, now(), until);
        let counts = discount.is_none();
        hold.handle_reply(round, 0, Ok(reply), discount, clock());
        let transmit = hold.poll_transmit(clock);
        Extended {
            left: left_until(hold.deadline()),
            is_lost: left > 0 && hold.check(clock()).is_err(),
            restores: transmit.is_some_and(|transmit| transmit.action == HoldAction::Restore),
            counts,
        }
    }

    /// The reply as a client sees it that does not mind how young a birth is.
    fn aged(&self, said: Said) -> Said {
        let overlap = self.scope.stale_master() + self.scope.reply_within + 1;
        let at_once = self.is(Weakness::CarriedAtOnce);
        Said {
            born_age: said.born_age.max(if at_once { overlap } else { 0 }),
            ..said
        }
    }

    /// A hold with so much left.
    fn hold(&self, left: Ticks) -> Hold {
        let (_, attempt) = &self.attempts[0];
        let mut attempt = attempt.clone();
        let granted = Said {
            word: Word::Granted,
            born_age: self.scope.quarantine(),
        };
        attempt.handle_reply(0, Ok(self.reply(granted)), None, now());
        let policy = self.policy.clone();
        Hold::new(&attempt, end_of(left), policy, Kind::Exclusive, now())
    }

    fn reply(&self, said: Said) -> Reply {
        Reply {
            stamp: None,
            standing: self.standing(said.born_age),
            answer: match said.word {
                Word::Granted => Answer::Granted,
                Word::Extended => Answer::Extended,
                Word::Restored => Answer::Restored,
                Word::Held => Answer::Held(Holder::default()),
                Word::Gone => Answer::Gone,
                Word::Quarantined => Answer::Quarantined { left_ms: 1 },
                Word::Late => Answer::Late,
                Word::Stale => Answer::Stale,
            },
        }
    }
}

/// What the Sentinels confirmed of the session of a call.
fn confirmation(confirmed: Option<Ticks>) -> Option<Confirmation> {
    confirmed.map(|age| Confirmation {
        epoch: EPOCH,
        asked_at: ago(age),
    })
}

fn clock() -> ClockReading {
    ClockReading {
        now: now(),
        froze: None,
    }
}
