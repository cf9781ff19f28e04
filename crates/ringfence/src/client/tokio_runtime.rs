//! The tokio runtime in which a client is connected: whether there is one, and whether it has the
//! drivers that a client needs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tokio::runtime::Handle;

use crate::clock::Clock;

use super::config_error::ConnectError;

/// The tokio runtime of the caller, for a client with this clock.
///
/// # Errors
/// If there is none, or if it was built without the timer that the clock of the system needs.
pub(crate) fn with_timer_for(clock: &Clock) -> Result<Handle, ConnectError> {
    // With test doubles there is a clock that a test steps.
    match matches!(clock, Clock::System) {
        true => with_timer(),
        false => Handle::try_current().map_err(|_| ConnectError::NoRuntime),
    }
}

fn with_timer() -> Result<Handle, ConnectError> {
    let runtime = Handle::try_current().map_err(|_| ConnectError::NoRuntime)?;
    match panics(|| drop(tokio::time::sleep(Duration::ZERO))) {
        true => Err(ConnectError::RuntimeWithout {
            missing: "enable_time",
        }),
        false => Ok(runtime),
    }
}

/// The same, for a client that also needs sockets.
#[cfg(feature = "redis")]
pub(crate) fn with_sockets() -> Result<Handle, ConnectError> {
    let runtime = with_timer()?;
    // Not connected to anything. If the system has no socket left, that is reported later.
    let socket = std::net::UdpSocket::bind(("127.0.0.1", 0)).and_then(|socket| {
        socket.set_nonblocking(true)?;
        Ok(socket)
    });
    let Ok(socket) = socket else {
        return Ok(runtime);
    };
    match panics(|| drop(tokio::net::UdpSocket::from_std(socket))) {
        true => Err(ConnectError::RuntimeWithout {
            missing: "enable_io",
        }),
        false => Ok(runtime),
    }
}

/// Whether `attempt` panics. Tokio cannot be asked whether a runtime has a driver, and panics where
/// one is missing: later, in a task of ours.
fn panics(attempt: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(attempt)).is_err()
}
