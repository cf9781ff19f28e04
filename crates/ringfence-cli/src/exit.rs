//! The exit codes of all commands. No other file knows a number.

use std::process::ExitCode;

use crate::supervise::Typed;

/// Another client held the lock for as long as we were willing to wait.
pub(crate) const CONFLICT: u8 = 75;
/// The lock was lost while the command ran, or was no longer ours to extend or release.
pub(crate) const LOST: u8 = 79;

/// How an invocation ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The command of ringfence succeeded.
    Success,
    /// The command that was run ended with this code.
    Code(u8),
    /// The command, or ringfence itself while it waited, was ended by this signal.
    Signal(i32),
    /// Like `Signal`, and the signal was typed at the terminal. ringfence dies of it, so that the
    /// calling shell stops its script.
    Interrupted(i32, Typed),
    /// Another client held the lock; the code can be chosen with `--conflict-exit-code`.
    Conflict(u8),
    /// The lock was lost; the code can be chosen with `--lost-exit-code`.
    Lost(u8),
    /// `doctor` found a problem.
    Problem,
    /// No majority of the nodes answered.
    NoQuorum,
    /// The arguments or the environment are invalid.
    Usage,
    /// The command exists but cannot be executed.
    NotExecutable,
    /// The command does not exist.
    NotFound,
    /// An internal error.
    Internal,
}

impl Exit {
    /// The number that the shell sees. Our own numbers follow `sysexits.h` and the shells.
    pub(crate) fn code(self) -> u8 {
        self.parts().0
    }

    /// A word for the reason, which JSON errors carry. It does not change between versions.
    pub(crate) fn kind(self) -> &'static str {
        self.parts().1
    }

    fn parts(self) -> (u8, &'static str) {
        match self {
            Self::Success => (0, "success"),
            Self::Code(code) => (code, "command"),
            Self::Signal(signal) | Self::Interrupted(signal, _) => {
                let code = u8::try_from(128 + signal).unwrap_or(u8::MAX);
                (code, "interrupted")
            }
            Self::Conflict(code) => (code, "held"),
            Self::Lost(code) => (code, "lost"),
            Self::Problem => (1, "problem"),
            Self::NoQuorum => (69, "no_quorum"),
            Self::Usage => (64, "usage"),
            Self::NotExecutable => (126, "not_executable"),
            Self::NotFound => (127, "not_found"),
            Self::Internal => (70, "internal"),
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
    fn the_codes_match_the_manual() {
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
