//! A timer that counts suspend. The timers of tokio stop while the machine sleeps, and a deadline
//! that passes during the sleep must be noticed at once.

use crate::clock::Clock;
use crate::time::Timestamp;

/// A timer on the client's clock.
pub(super) struct Timer {
    clock: Clock,
    #[cfg(any(target_os = "linux", target_os = "android"))]
    boottime: Option<boottime::BoottimeTimer>,
}

impl Timer {
    pub(super) fn new(clock: Clock) -> Self {
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

    /// Completes once the clock has reached `until`.
    pub(super) async fn sleep_until(&mut self, until: Timestamp) {
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
mod boottime {
    use std::io;
    use std::os::fd::OwnedFd;

    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    use crate::time::Timestamp;

    /// A `timerfd` on `CLOCK_BOOTTIME`.
    pub(super) struct BoottimeTimer(AsyncFd<OwnedFd>);

    impl BoottimeTimer {
        pub(super) fn new() -> io::Result<Self> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let fd = timerfd_create(TimerfdClockId::Boottime, flags)?;
            // The safe constructor is deprecated because a type may hand out a descriptor that it
            // does not keep open. An `OwnedFd` keeps it; its replacement would need `unsafe`.
            #[allow(deprecated)]
            AsyncFd::with_interest(fd, Interest::READABLE).map(Self)
        }

        pub(super) async fn sleep_until(&mut self, until: Timestamp) -> io::Result<()> {
            const NANOS: u64 = 1_000_000_000;
            // Zero would disarm it.
            let nanos = until.as_nanos().max(1);
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
            timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::ABSTIME, &once)?;
            loop {
                let mut ready = self.0.readable().await?;
                let mut count = [0; 8];
                match ready.try_io(|fd| Ok(rustix::io::read(fd, &mut count)?)) {
                    Ok(read) => return read.map(|_| ()),
                    Err(_would_block) => {}
                }
            }
        }
    }
}
