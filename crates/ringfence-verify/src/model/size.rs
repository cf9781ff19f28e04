//! More or less of a scope than what is searched on every commit: for long searches.

use super::scope::{Clocks, Scope, Ticks};
use super::world::CLIENTS;

/// The most ticks, attempts of a client, renewals and crashes.
const MOST: u8 = 15;

/// What of a scope is to be other than it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Size {
    /// How many attempts each client makes, at most; as many clients as there are numbers.
    pub attempts: Vec<u8>,
    /// How many times the first client renews.
    pub renewals: Option<u8>,
    /// How many ballots there are, where they are not chosen by the machines.
    pub ballots: Option<Ticks>,
    /// How many ticks pass, where time is the same for all.
    pub ticks: Option<Ticks>,
    /// How many nodes may forget everything.
    pub crashes: Option<u8>,
    /// Whether replies may be delayed.
    pub slow_replies: bool,
    /// Whether clients undo their last attempts.
    pub undoes_last: bool,
}

impl Size {
    /// `scope` in this size.
    ///
    /// # Errors
    /// If it cannot be searched; says why.
    pub fn of(&self, mut scope: Scope) -> Result<Scope, String> {
        let clients = self.attempts.len();
        if clients > CLIENTS || self.attempts.iter().any(|n| *n == 0 || *n > MOST) {
            return Err(format!(
                "there may be 1 to {CLIENTS} clients, each with 1 to {MOST} attempts"
            ));
        }
        if clients > 0 {
            scope.attempts = [0; CLIENTS];
            scope.attempts[..clients].copy_from_slice(&self.attempts);
        }
        let within = |what: &str, number: Option<u8>| match number {
            Some(number) if number > MOST => Err(format!("there may be up to {MOST} {what}")),
            _ => Ok(number),
        };
        let ticks = within("ticks", self.ticks)?;
        let ballots = within("ballots", self.ballots)?;
        match &mut scope.clocks {
            Clocks::Together(_) if ballots.is_some() => {
                return Err("in this scope the machines choose the ballots".to_owned());
            }
            Clocks::Apart(_) if ticks.is_some() => {
                return Err("in this scope time is not the same for all".to_owned());
            }
            Clocks::Together(span) => span.ticks = ticks.unwrap_or(span.ticks),
            Clocks::Apart(time) => match ballots {
                Some(0) => return Err("there must be a ballot".to_owned()),
                Some(ballots) => time.ballots.1 = time.ballots.0 + ballots - 1,
                None => {}
            },
        }
        scope.crashes = within("crashes", self.crashes)?.unwrap_or(scope.crashes);
        scope.renewals = within("renewals", self.renewals)?.unwrap_or(scope.renewals);
        scope.slow_replies |= self.slow_replies;
        scope.undoes_last |= self.undoes_last;
        Ok(scope)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_stays() {
        let size = Size::default().of(Scope::RETRIES).unwrap();
        assert_eq!(size.attempts, Scope::RETRIES.attempts);
        assert_eq!(size.crashes, Scope::RETRIES.crashes);
        let ticks = |scope: Scope| scope.span().unwrap().ticks;
        assert_eq!(ticks(size), ticks(Scope::RETRIES));
    }

    #[test]
    fn what_is_said_is_searched() {
        let size = Size {
            attempts: vec![2, 1, 1],
            renewals: Some(2),
            ticks: Some(5),
            crashes: Some(1),
            slow_replies: true,
            undoes_last: true,
            ballots: None,
        };
        let scope = size.of(Scope::RETRIES).unwrap();
        assert_eq!(scope.attempts, [2, 1, 1]);
        assert_eq!((scope.renewals, scope.crashes), (2, 1));
        assert_eq!(scope.span().unwrap().ticks, 5);
        assert!(scope.slow_replies && scope.undoes_last);
        let size = Size {
            ballots: Some(4),
            ..Size::default()
        };
        let later = size.of(Scope::QUARANTINE).unwrap();
        let ballots = later.node_time().unwrap().ballots;
        assert_eq!(ballots, (3, 6), "as many, from the same on");
    }

    #[test]
    fn what_cannot_be_searched_is_refused() {
        let sizes = [
            (vec![1, 1, 1, 1], None, None),
            (vec![1, 0], None, None),
            (vec![16], None, None),
            (vec![1], Some(16), None),
            (vec![1], None, Some(2)),
        ];
        for (attempts, ticks, ballots) in sizes {
            let size = Size {
                attempts,
                ticks,
                ballots,
                ..Size::default()
            };
            assert!(size.of(Scope::RETRIES).is_err(), "{size:?}");
        }
        let size = Size {
            ballots: Some(0),
            ..Size::default()
        };
        assert!(size.of(Scope::QUARANTINE).is_err());
    }
}
