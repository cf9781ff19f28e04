//! A pause of exactly the wanted length. Tokio's own timers have steps of a millisecond: a hold of
//! one would take up to two.

use std::time::Duration;

/// Sleeps for this long, on a timer of the kernel that the tokio runtime waits for directly.
#[cfg(target_os = "linux")]
pub async fn pause(span: Duration) {
    use std::os::fd::OwnedFd;

    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
    let fd: OwnedFd = timerfd_create(TimerfdClockId::Monotonic, flags).expect("a timer");
    let zero = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let once = Itimerspec {
        it_interval: zero,
        it_value: Timespec {
            tv_sec: span.as_secs() as i64,
            // Zero would disarm it.
            tv_nsec: i64::from(span.subsec_nanos().max(1)),
        },
    };
    timerfd_settime(&fd, TimerfdTimerFlags::empty(), &once).expect("a timer");
    // The safe constructor is deprecated because a type may hand out a descriptor that it does not
    // keep open. An `OwnedFd` keeps it; its replacement would need `unsafe`.
    #[allow(deprecated)]
    let timer = AsyncFd::with_interest(fd, Interest::READABLE).expect("a runtime with I/O");
    // Fails only when the tokio runtime ends, and then no task waits.
    let _ = timer.readable().await;
}

/// Other systems sleep on a thread of their own.
#[cfg(not(target_os = "linux"))]
pub async fn pause(span: Duration) {
    // Fails only when the tokio runtime ends, and then no task waits.
    let _ = tokio::task::spawn_blocking(move || std::thread::sleep(span)).await;
}

#[cfg(test)]
mod tests {
    use ringfence::clock::Clock;

    use super::*;

    #[tokio::test]
    async fn a_pause_is_never_too_short() {
        for span in [Duration::from_micros(300), Duration::from_millis(1)] {
            let begun = Clock::System.now();
            pause(span).await;
            assert!(Clock::System.now().since(begun) >= span);
        }
    }
}
