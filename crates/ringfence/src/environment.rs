//! The clock, the random bytes and the process of a client. No other file reads a system clock or calls the
//! random generator. A test may pass a clock that it steps itself, and a simulation may pass a
//! seed.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ringfence_core::splitmix::SplitMix64;

use crate::time::Timestamp;
use crate::token::{TOKEN_ENTROPY_BYTES, Token};

mod process;
#[cfg(any(test, feature = "test-util"))]
mod stepped;
mod timer;

pub(crate) use process::{OwnCall, OwnerProcess, ProcessBound, own_task};
#[cfg(any(test, feature = "test-util"))]
pub use stepped::SteppedClock;
pub(crate) use timer::{KernelTimer, Timer};

/// The clock that a client measures durations on: `CLOCK_BOOTTIME`, which counts suspend and is
/// never set.
#[derive(Debug, Clone, Default)]
pub enum Clock {
    /// The system's clock that counts suspend.
    #[default]
    System,
    /// A clock that moves only when it is stepped.
    #[cfg(any(test, feature = "test-util"))]
    Stepped(SteppedClock),
}

impl Clock {
    /// The present moment.
    pub fn now(&self) -> Timestamp {
        match self {
            Self::System => system_now(),
            #[cfg(any(test, feature = "test-util"))]
            Self::Stepped(clock) => clock.now(),
        }
    }

    /// The moment `at` as an [`Instant`]. The clock of `Instant` may not count suspend, so the two
    /// can be compared for the present moment only.
    #[allow(clippy::disallowed_methods)]
    pub(crate) fn instant(&self, at: Timestamp) -> Instant {
        // Read first: a pause between the two readings makes the result earlier, never later.
        let instant = Instant::now();
        let now = self.now();
        let moved = if at >= now {
            instant.checked_add(at.since(now))
        } else {
            instant.checked_sub(now.since(at))
        };
        moved.unwrap_or(instant)
    }

    /// Completes once the clock has reached `until`; at once if it has already.
    ///
    /// Counts suspend: on Linux a long sleep has a timer of the kernel that does. There are few of
    /// these, and other systems have none. Then suspend may delay this by up to half a second after
    /// the machine wakes: tokio's timers stop during suspend, so the clock is read again that often.
    ///
    /// # Panics
    /// Outside of a tokio runtime with its I/O and time drivers enabled.
    pub async fn sleep_until(&self, until: Timestamp) {
        const RECHECK: Duration = Duration::from_millis(500);
        match self {
            Self::System => loop {
                let left = until.since(system_now());
                if left.is_zero() {
                    return;
                }
                #[cfg(any(target_os = "linux", target_os = "android"))]
                if left > RECHECK
                    && let Some(timer) = timer::boottime::SPARE.take()
                    && timer.sleep_until(until).await.is_ok()
                {
                    continue;
                }
                tokio::time::sleep(left.min(RECHECK)).await;
            },
            #[cfg(any(test, feature = "test-util"))]
            Self::Stepped(clock) => clock.reached(until).await,
        }
    }
}

/// The wall clock in microseconds since 1970, or zero before. No lease depends on it: only the
/// ballots of embedded nodes start from it, so that fences also rise when a file is replaced by a
/// new one.
#[allow(clippy::disallowed_methods)]
pub(crate) fn wall_us() -> u64 {
    use std::time::SystemTime;
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since_1970.map_or(0, |since| {
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    })
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn system_now() -> Timestamp {
    from_timespec(rustix::time::clock_gettime(rustix::time::ClockId::Boottime))
}

/// On Apple systems `CLOCK_MONOTONIC` counts suspend.
#[cfg(target_vendor = "apple")]
fn system_now() -> Timestamp {
    from_timespec(rustix::time::clock_gettime(
        rustix::time::ClockId::Monotonic,
    ))
}

/// Other systems have only the monotonic clock. If it does not count suspend there, a suspended
/// holder learns late that it lost its lock.
#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
#[allow(clippy::disallowed_methods)]
fn system_now() -> Timestamp {
    use std::sync::OnceLock;
    static START: OnceLock<Instant> = OnceLock::new();
    Timestamp::ZERO + START.get_or_init(Instant::now).elapsed()
}

#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
fn from_timespec(time: rustix::time::Timespec) -> Timestamp {
    let secs = u64::try_from(time.tv_sec).unwrap_or_default();
    let nanos = u64::try_from(time.tv_nsec).unwrap_or_default();
    Timestamp::ZERO + Duration::from_secs(secs) + Duration::from_nanos(nanos)
}

/// The source of a client's random bytes: for its tokens, its jitter and its id.
///
/// The default is the operating system's generator, in every build.
#[derive(Clone, Default)]
#[cfg_attr(
    not(feature = "test-util"),
    expect(unreachable_pub, reason = "only tests choose another source")
)]
pub struct Entropy(
    /// The generator of a test; `None` for the operating system's.
    Option<Arc<Mutex<SplitMix64>>>,
);

impl Entropy {
    /// The operating system's generator.
    #[cfg(feature = "test-util")]
    pub fn system() -> Self {
        Self(None)
    }

    /// A generator with a seed: the same seed and the same calls give the same tokens. Clones
    /// share one generator.
    ///
    /// Danger: for tests and simulations only. A program that knows the seed knows every token,
    /// and can extend and release each lock; two clients with the same seed may draw the same
    /// token, and each would take the lock of the other for its own.
    #[cfg(any(test, feature = "test-util"))]
    #[cfg_attr(
        not(feature = "test-util"),
        expect(unreachable_pub, reason = "only tests choose another source")
    )]
    pub fn seeded(seed: u64) -> Self {
        Self(Some(Arc::new(Mutex::new(SplitMix64::new(seed)))))
    }

    /// A fresh token.
    ///
    /// # Errors
    /// If the operating system's generator fails. There is no fallback.
    pub(crate) fn token(&self) -> Result<Token, getrandom::Error> {
        self.bytes::<TOKEN_ENTROPY_BYTES>().map(Token::from_entropy)
    }

    /// A seed for jitter and a fresh token, in one system call.
    ///
    /// # Errors
    /// As [`token`](Self::token).
    pub(crate) fn seed_and_token(&self) -> Result<(u64, Token), getrandom::Error> {
        const SEED: usize = size_of::<u64>();
        let drawn = self.bytes::<{ SEED + TOKEN_ENTROPY_BYTES }>()?;
        let (mut seed, mut token) = ([0; SEED], [0; TOKEN_ENTROPY_BYTES]);
        seed.copy_from_slice(&drawn[..SEED]);
        token.copy_from_slice(&drawn[SEED..]);
        Ok((u64::from_ne_bytes(seed), Token::from_entropy(token)))
    }

    /// The id of a client, which is part of its ticket ids.
    pub(crate) fn client_id(&self) -> String {
        format!("{:016x}", self.seed())
    }

    /// A seed for jitter. No safety depends on it, so it does not fail with the generator.
    pub(crate) fn seed(&self) -> u64 {
        self.bytes()
            .map(u64::from_ne_bytes)
            .unwrap_or(0x9e37_79b9_7f4a_7c15)
    }

    #[allow(clippy::disallowed_methods)]
    fn bytes<const N: usize>(&self) -> Result<[u8; N], getrandom::Error> {
        let mut bytes = [0; N];
        match &self.0 {
            None => getrandom::fill(&mut bytes)?,
            Some(generator) => {
                let mut generator = generator.lock().unwrap_or_else(PoisonError::into_inner);
                for chunk in bytes.chunks_mut(size_of::<u64>()) {
                    chunk.copy_from_slice(&generator.draw().to_le_bytes()[..chunk.len()]);
                }
            }
        }
        Ok(bytes)
    }
}

impl fmt::Debug for Entropy {
    /// Does not show the state of the generator, because it determines the tokens.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            None => "Entropy::system",
            Some(_) => "Entropy::seeded",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_every_draw_and_clones_share_one_generator() {
        let drawn = |entropy: Entropy| {
            let (seed, token) = entropy.seed_and_token().unwrap();
            (seed, token, entropy.clone().token(), entropy.client_id())
        };
        let (_, first, second, _) = drawn(Entropy::seeded(7));
        assert_ne!(Ok(first), second);
        assert_eq!(drawn(Entropy::seeded(7)), drawn(Entropy::seeded(7)));
        assert_ne!(drawn(Entropy::seeded(7)), drawn(Entropy::seeded(8)));
    }

    #[test]
    fn the_default_is_the_operating_system_s_generator() {
        assert!(Entropy::default().0.is_none());
        assert_ne!(Entropy::default().token(), Entropy::default().token());
    }

    #[test]
    fn debug_does_not_show_the_state() {
        assert_eq!(format!("{:?}", Entropy::seeded(7)), "Entropy::seeded");
    }
}
