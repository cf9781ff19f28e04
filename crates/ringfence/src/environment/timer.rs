//! A timer that counts suspend. The timers of tokio stop while the machine sleeps, and a deadline
//! that passes during the sleep must be noticed at once.

use crate::time::Timestamp;

use super::Clock;

/// A timer on the client's clock, to be used again and again.
pub(crate) struct Timer {
    clock: Clock,
    #[cfg(any(target_os = "linux", target_os = "android"))]
    boottime: Option<boottime::BoottimeTimer>,
}

impl Timer {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            #[cfg(any(target_os = "linux", target_os = "android"))]
            boottime: match clock {
                Clock::System => boottime::BoottimeTimer::new().ok(),
                #[cfg(any(test, feature = "test-util"))]
                Clock::Stepped(_) => None,
            },
            clock,
        }
    }

    /// Its kernel timer, if it has one.
    pub(crate) fn kernel_timer(&self) -> Option<KernelTimer> {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        return self.boottime.as_ref().map(|timer| timer.kernel_timer());
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        None
    }

    /// Completes once the clock has reached `until`, or the time to which the kernel timer was set since.
    pub(crate) async fn sleep_until(&mut self, until: Timestamp) {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        if let Some(boottime) = &mut self.boottime {
            // If this timer fails, the clock's own sleep still checks the time twice a second.
            if boottime.sleep_until(until).await.is_ok() {
                return;
            }
        }
        self.clock.sleep_until(until).await;
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) use boottime::KernelTimer;

/// Other systems have no such kernel timer.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
#[derive(Debug)]
pub(crate) enum KernelTimer {}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
impl KernelTimer {
    pub(crate) fn set(&self, _: Timestamp) -> bool {
        match *self {}
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) mod boottime {
    use std::io;
    use std::os::fd::OwnedFd;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    use super::super::ProcessBound;
    use crate::time::Timestamp;

    /// The timers for single sleeps of this process.
    pub(in super::super) static SPARE: SpareTimers = SpareTimers::new();

    /// The most timers for single sleeps. Each has a file descriptor, and a program that sleeps a
    /// thousand times at once needs its descriptors for something else.
    pub(super) const SPARE_MAX: usize = 16;

    /// A `timerfd` on `CLOCK_BOOTTIME`.
    pub(super) struct BoottimeTimer(ProcessBound<AsyncFd<Arc<OwnedFd>>>);

    /// Sets a timer from any thread, without waking the task that waits for it.
    #[derive(Debug)]
    pub(crate) struct KernelTimer(Arc<OwnedFd>);

    impl KernelTimer {
        /// Lets the timer fire at `at` instead. Returns whether it will.
        pub(crate) fn set(&self, at: Timestamp) -> bool {
            set(&self.0, at).is_ok()
        }

        /// How long it is until the timer fires.
        #[cfg(test)]
        pub(crate) fn left(&self) -> std::time::Duration {
            let left = rustix::time::timerfd_gettime(&self.0).unwrap().it_value;
            std::time::Duration::new(left.tv_sec as u64, left.tv_nsec as u32)
        }
    }

    /// How many timers for single sleeps exist.
    pub(in super::super) struct SpareTimers(AtomicUsize);

    /// A timer for one sleep.
    pub(in super::super) struct SpareTimer {
        timer: BoottimeTimer,
        _counted: Counted,
    }

    /// One of the timers that are counted.
    struct Counted(&'static SpareTimers);

    impl SpareTimers {
        pub(super) const fn new() -> Self {
            Self(AtomicUsize::new(0))
        }

        /// A timer, unless too many exist.
        pub(in super::super) fn take(&'static self) -> Option<SpareTimer> {
            let existing = self.0.fetch_add(1, Ordering::Relaxed);
            let counted = Counted(self);
            if existing >= SPARE_MAX {
                return None;
            }
            Some(SpareTimer {
                timer: BoottimeTimer::new().ok()?,
                _counted: counted,
            })
        }
    }

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    impl SpareTimer {
        /// Completes once the clock has reached `until`.
        pub(in super::super) async fn sleep_until(mut self, until: Timestamp) -> io::Result<()> {
            self.timer.sleep_until(until).await
        }
    }

    impl BoottimeTimer {
        pub(super) fn new() -> io::Result<Self> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let fd = timerfd_create(TimerfdClockId::Boottime, flags)?;
            // The safe constructor is deprecated because a type may hand out a descriptor that it
            // does not keep open. An `OwnedFd` keeps it; its replacement would need `unsafe`.
            #[allow(deprecated)]
            let registered = AsyncFd::with_interest(Arc::new(fd), Interest::READABLE)?;
            Ok(Self(ProcessBound::new(registered)))
        }

        pub(super) fn kernel_timer(&self) -> KernelTimer {
            KernelTimer(Arc::clone(self.0.get_ref()))
        }

        pub(super) async fn sleep_until(&mut self, until: Timestamp) -> io::Result<()> {
            set(self.0.get_ref(), until)?;
            loop {
                let mut ready = self.0.readable().await?;
                let mut count = [0; 8];
                match ready.try_io(|fd| Ok(rustix::io::read(fd.get_ref(), &mut count)?)) {
                    Ok(read) => return read.map(|_| ()),
                    Err(_would_block) => {}
                }
            }
        }
    }

    fn set(timer: &OwnedFd, at: Timestamp) -> io::Result<()> {
        const NANOS: u64 = 1_000_000_000;
        // Zero would disarm it.
        let nanos = at.as_nanos().max(1);
        let once = Itimerspec {
            it_interval: Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: Timespec {
                tv_sec: i64::try_from(nanos / NANOS).unwrap_or(i64::MAX),
                tv_nsec: (nanos % NANOS) as i64,
            },
        };
        timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &once)?;
        Ok(())
    }
}

#[cfg(all(test, any(target_os = "linux", target_os = "android")))]
mod tests {
    use std::time::Duration;

    use super::boottime::{SPARE_MAX, SpareTimers};
    use super::*;

    #[tokio::test]
    async fn only_so_many_sleeps_have_a_timer_of_their_own() {
        static TIMERS: SpareTimers = SpareTimers::new();
        let mut taken: Vec<_> = std::iter::from_fn(|| TIMERS.take()).collect();
        assert_eq!(taken.len(), SPARE_MAX);
        let until = Clock::System.now() + Duration::from_millis(1);
        taken.pop().unwrap().sleep_until(until).await.unwrap();
        assert!(Clock::System.now() >= until);
        // It is free for the next sleep, and so is the timer of a sleep that was dropped.
        let sleep = TIMERS.take().unwrap().sleep_until(until);
        assert!(TIMERS.take().is_none());
        drop(sleep);
        assert!(TIMERS.take().is_some());
    }
}
