//! The exit codes of every command, decided here and nowhere else.

use std::process::ExitCode;

use crate::supervise::Typed;

/// A lock was held by another for as long as we would wait.
pub(crate) const CONFLICT: u8 = 75;
/// The lock was lost while the command ran, or was no longer ours to extend or release.
pub(crate) const LOST: u8 = 79;

/// How an invocation ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// What was asked for is done.
    Success,
    /// The command that was run ended with this code.
    Code(u8),
    /// The command, or ringfence itself while it waited, was ended by this signal.
    Signal(i32),
    /// The same, and the signal was typed at the terminal: ringfence dies of it, so that the shell
    /// around it stops its script.
    Interrupted(i32, Typed),
    /// Another held the lock; the code can be chosen with `--conflict-exit-code`.
    Conflict(u8),
    /// The lock was lost; the code can be chosen with `--lost-exit-code`.
    Lost(u8),
    /// `doctor` found a problem.
    Problem,
    /// Too few nodes could be asked to decide anything.
    NoQuorum,
    /// The arguments or the environment make no sense.
    Usage,
    /// The command exists but cannot be run.
    NotExecutable,
    /// The command does not exist.
    NotFound,
    /// Something that should not happen.
    Internal,
}

impl Exit {
    /// The number that the shell sees. Those of our own follow `sysexits.h` and the shells.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Code(code) | Self::Conflict(code) | Self::Lost(code) => code,
            Self::Signal(signal) | Self::Interrupted(signal, _) => {
                u8::try_from(128 + signal).unwrap_or(u8::MAX)
            }
            Self::Problem => 1,
            Self::NoQuorum => 69,
            Self::Usage => 64,
            Self::Internal => 70,
            Self::NotExecutable => 126,
            Self::NotFound => 127,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_are_those_of_the_manual() {
        let codes = [
            (Exit::Success, 0),
            (Exit::Code(3), 3),
            (Exit::Signal(15), 143),
            (Exit::Interrupted(2, Typed::ForUs), 130),
            (Exit::Conflict(CONFLICT), 75),
            (Exit::Lost(LOST), 79),
            (Exit::Problem, 1),
            (Exit::NoQuorum, 69),
            (Exit::Usage, 64),
            (Exit::Internal, 70),
            (Exit::NotExecutable, 126),
            (Exit::NotFound, 127),
        ];
        for (exit, code) in codes {
            assert_eq!(exit.code(), code, "{exit:?}");
        }
    }
}
