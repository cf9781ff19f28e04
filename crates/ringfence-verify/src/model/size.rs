//! More or less of a scope than what is searched on every commit: for long searches.

use super::scope::Scope;
use super::world::{CLIENTS, NUMBER_MAX, Number};

/// What of a scope is to be other than it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Size {
    /// How many attempts each client makes, at most; as many clients as there are numbers.
    pub attempts: Vec<u8>,
    /// How many ballots there are.
    pub ballots: Option<Number>,
    /// How many nodes may forget everything.
    pub crashes: Option<u8>,
}

impl Size {
    /// `scope` in this size.
    ///
    /// # Errors
    /// If it cannot be searched; says why.
    pub fn of(&self, mut scope: Scope) -> Result<Scope, String> {
        let clients = self.attempts.len();
        if clients > CLIENTS || self.attempts.contains(&0) {
            return Err(format!(
                "there may be 1 to {CLIENTS} clients, each with an attempt at least"
            ));
        }
        if clients > 0 {
            scope.attempts = [0; CLIENTS];
            scope.attempts[..clients].copy_from_slice(&self.attempts);
        }
        let lowest = scope.ballots.0;
        if let Some(ballots) = self.ballots {
            scope.ballots.1 = lowest.saturating_add(ballots).saturating_sub(1);
        }
        // The attempts of one client have rising ballots; where it is about what follows a grant, each client
        // has its own.
        let clients = scope.attempts.iter().filter(|n| **n > 0).count() as Number;
        let most = scope.attempts.iter().copied().max().unwrap_or_default();
        let least = if scope.extends > 0 { clients } else { most };
        let (fewest, most) = (lowest + least - 1, NUMBER_MAX);
        if !(fewest..=most).contains(&scope.ballots.1) {
            return Err(format!(
                "there must be {least} to {} ballots",
                most - lowest + 1
            ));
        }
        scope.crashes = self.crashes.unwrap_or(scope.crashes);
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
        assert_eq!(size.ballots, Scope::RETRIES.ballots);
        assert_eq!(size.crashes, Scope::RETRIES.crashes);
    }

    #[test]
    fn what_is_said_is_searched() {
        let size = Size {
            attempts: vec![2, 1, 1],
            ballots: Some(4),
            crashes: Some(1),
        };
        let scope = size.of(Scope::RETRIES).unwrap();
        assert_eq!(scope.attempts, [2, 1, 1]);
        assert_eq!((scope.ballots, scope.crashes), ((1, 4), 1));
        let later = size.of(Scope::QUARANTINE).unwrap();
        assert_eq!(later.ballots, (3, 6), "as many, from the same on");
    }

    #[test]
    fn what_cannot_be_searched_is_refused() {
        for (attempts, ballots) in [
            (vec![1, 1, 1, 1], None),
            (vec![1, 0], None),
            (vec![3], Some(2)),
            (vec![1], Some(0)),
            (vec![1], Some(16)),
        ] {
            let size = Size {
                attempts,
                ballots,
                crashes: None,
            };
            assert!(size.of(Scope::RETRIES).is_err(), "{size:?}");
        }
        let size = Size {
            attempts: vec![1, 1, 1],
            ..Size::default()
        };
        assert!(size.of(Scope::RENEWALS).is_err(), "one ballot each");
    }
}
