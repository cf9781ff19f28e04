//! What the Sentinels say. The product's own [`SentinelGroupView`] decides what a majority of them
//! confirms.
//!
//! A client asks all the time and gets every answer that helps it, however late: a Sentinel's last
//! answer under an epoch was given when it had that epoch last. More answers only make more votes
//! count, and a vote that does not count is the same as a reply that is lost. So what is confirmed
//! does not depend on the client.

use std::time::Duration;

use ringfence_core::protocol::{MasterAddress, SentinelAnswer, SentinelGroupView};

use super::scope::{FailoverScope, Ticks, Weakness};
use super::setting::{ago, now};
use super::world::{EPOCHS, SENTINELS, Sentinels};

/// How long ago the Sentinels were asked that confirm an epoch, for all ages of their answers.
#[derive(Debug)]
pub(super) struct Confirmations {
    oldest: Ticks,
    by_ages: Vec<Option<Ticks>>,
}

impl Confirmations {
    pub(super) fn new(scope: FailoverScope) -> Self {
        let oldest = scope.oldest_word();
        let all = usize::from(oldest) + 2;
        let by_ages = (0..all * all * all).map(|n| {
            let ages = [n / (all * all), n / all % all, n % all];
            let ages = ages.map(|age| Some(age as Ticks).filter(|age| *age <= oldest));
            confirmed(ages, scope.is(Weakness::OneSentinel))
        });
        Self {
            oldest,
            by_ages: by_ages.collect(),
        }
    }

    /// How long ago the Sentinels were asked, at the latest, whose majority names the master of an
    /// epoch. `ages`: how long ago each of them had the epoch.
    pub(super) fn of(&self, ages: [Option<Ticks>; SENTINELS]) -> Option<Ticks> {
        let all = usize::from(self.oldest) + 2;
        let place =
            |age: Option<Ticks>| usize::from(age.unwrap_or(Ticks::MAX).min(self.oldest + 1));
        let n = ages.iter().fold(0, |n, age| n * all + place(*age));
        self.by_ages[n]
    }
}

/// What the product confirms by answers of these ages.
fn confirmed(ages: [Option<Ticks>; SENTINELS], one_is_enough: bool) -> Option<Ticks> {
    let listed = if one_is_enough { 1 } else { SENTINELS };
    let mut view = SentinelGroupView::new(listed, Duration::from_secs(3600));
    let mut answers: Vec<_> = ages.into_iter().enumerate().collect();
    // The first of the list is the one that says most.
    answers.sort_by_key(|(_, age)| age.unwrap_or(Ticks::MAX));
    for (index, (sentinel, age)) in answers.into_iter().enumerate() {
        let Some(age) = age.filter(|_| index < listed) else {
            continue;
        };
        let answer = SentinelAnswer {
            id: format!("sentinel{sentinel}").into(),
            master: MasterAddress {
                host: "server".into(),
                port: 1,
                ips: [].into(),
            },
            epoch_before: 1,
            epoch_after: 1,
            others: listed as u32 - 1,
            asked_at: ago(age),
        };
        view.handle_answer(index, answer, now());
    }
    let asked_at = view.confirmed(now())?.asked_at;
    (0..Ticks::MAX).find(|age| ago(*age) == asked_at)
}

impl Sentinels {
    /// All have the first epoch.
    pub(super) fn new() -> Self {
        let mut at = [0; EPOCHS];
        at[0] = SENTINELS as u8;
        Self {
            at,
            left: [[None; 2]; EPOCHS],
        }
    }

    /// One of those that have the epoch `from` learns of `to`.
    pub(super) fn learn(&mut self, from: usize, to: usize) {
        self.at[from] -= 1;
        self.at[to] += 1;
        let left = &mut self.left[from];
        *left = [Some(0), left[0]];
    }

    /// How long ago each of them had `epoch`.
    pub(super) fn ages(&self, epoch: usize) -> [Option<Ticks>; SENTINELS] {
        let mut ages = [None; SENTINELS];
        let left = self.left[epoch].into_iter().flatten();
        let at = (0..self.at[epoch]).map(|_| 0);
        for (age, known) in ages.iter_mut().zip(at.chain(left)) {
            *age = Some(known);
        }
        ages
    }

    /// A tick passes.
    pub(super) fn tick(&mut self) {
        for age in self.left.as_flattened_mut() {
            *age = age.map(|age| age + 1);
        }
    }

    /// Forgets what cannot matter: words that are too old, all that a majority does not need, and
    /// all about epochs before `oldest`, which no client asks for.
    pub(super) fn forget(&mut self, scope: FailoverScope, oldest: usize) {
        for epoch in 0..oldest {
            self.left[epoch] = [None; 2];
            let behind = std::mem::take(&mut self.at[epoch]);
            self.at[0] += behind;
        }
        let mut below = 0;
        for (at, left) in self.at.iter().zip(&mut self.left) {
            for age in left.iter_mut() {
                age.take_if(|age| *age > scope.oldest_word());
            }
            match at {
                0 if scope.is(Weakness::OneSentinel) => {}
                // None of them will have this epoch again: the older word of two decides.
                0 if below == 0 => *left = [left[1], left[1]],
                0 => {}
                1 => left[1] = None,
                _ => *left = [None; 2],
            }
            below += at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_word_of_a_majority_decides() {
        let confirmations = Confirmations::new(FailoverScope::FAILOVER);
        assert_eq!(confirmations.of([Some(0), Some(2), None]), Some(2));
        assert_eq!(confirmations.of([Some(2), Some(0), Some(1)]), Some(1));
        assert_eq!(confirmations.of([Some(0), None, None]), None);
    }

    #[test]
    fn what_is_forgotten_does_not_change_what_is_confirmed() {
        let scope = FailoverScope::FAILOVER;
        let confirmations = Confirmations::new(scope);
        let mut all = Sentinels::new();
        let mut few = Sentinels::new();
        for (from, to) in [(0, 1), (0, 2), (1, 2), (0, 1)] {
            for sentinels in [&mut all, &mut few] {
                sentinels.learn(from, to);
                sentinels.tick();
            }
            few.forget(scope, 0);
            for epoch in 0..3 {
                let of = |sentinels: &Sentinels| confirmations.of(sentinels.ages(epoch));
                assert_eq!(of(&few), of(&all), "epoch {epoch} after {from} to {to}");
            }
        }
    }
}
