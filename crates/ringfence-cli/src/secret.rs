//! Files that may contain a password: read once, with limits of size and time, and refused if other
//! users may read or change them.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{self, Path, PathBuf};
use std::time::Duration;

use ringfence::clock::Clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;

use crate::report::CliFailure;

/// Larger than any real list of nodes.
const FILE_MAX_BYTES: usize = 64 * 1024;
/// How long the writer of a pipe may take.
const PIPE_WITHIN: Duration = Duration::from_secs(10);

/// A file that may contain a password or a token.
pub(crate) struct Secret<'f> {
    file: &'f Path,
    option: &'static str,
    text: String,
    metadata: Metadata,
}

impl<'f> Secret<'f> {
    /// Reads a file that `option` names, or the environment `variable` if there is one.
    pub(crate) fn read(
        file: &'f Path,
        option: &'static str,
        variable: Option<&str>,
    ) -> Result<Self, CliFailure> {
        let unreadable = |error: io::Error| {
            let file = file.display().to_string();
            let file = file.escape_debug();
            let or = variable.map_or_else(String::new, |variable| format!(" or {variable}"));
            CliFailure::usage(format!("{file} ({option}{or}): {error}"))
        };
        let (text, metadata) = read(file).map_err(unreadable)?;
        let secret = Self {
            file,
            option,
            text,
            metadata,
        };
        if secret.text.len() > FILE_MAX_BYTES {
            return Err(secret.refused("it is longer than 64 KiB"));
        }
        secret.check_owner()?;
        Ok(secret)
    }

    /// Refuses a file that another user owns or may change, with or without a secret: it says which
    /// servers are trusted.
    fn check_owner(&self) -> Result<(), CliFailure> {
        let we = rustix::process::geteuid().as_raw();
        match who_may_change(self.metadata.uid(), self.metadata.mode() & 0o7777, we) {
            Some(why) => Err(self.refused(&why)),
            None => Ok(()),
        }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Refuses a file with a secret if every user may read or change it.
    pub(crate) fn check_rights(&self) -> Result<(), CliFailure> {
        let mode = self.metadata.mode() & 0o7777;
        if mode & 0o006 == 0 {
            return Ok(());
        }
        Err(self.refused(&format!(
            "it contains a secret, and its mode {mode:04o} lets every user read or change it: \
             chmod it to 0600 or 0640 (a Kubernetes secret: `defaultMode: 0400`)"
        )))
    }

    /// A path under which the command can read the file; `None` for a pipe, which can be read once.
    pub(crate) fn path_for_command(&self) -> io::Result<Option<PathBuf>> {
        let path = self.metadata.is_file().then(|| path::absolute(self.file));
        path.transpose()
    }

    /// Why the file is not used.
    pub(crate) fn refused(&self, why: &str) -> CliFailure {
        let file = self.file.display().to_string();
        let (file, option) = (file.escape_debug(), self.option);
        CliFailure::usage(format!("{file} ({option}) was not used: {why}"))
    }
}

/// Why a file of this owner and mode may be changed by another user than root and us.
fn who_may_change(owner: u32, mode: u32, we: u32) -> Option<String> {
    if owner != 0 && owner != we {
        return Some(format!(
            "it belongs to the user {owner}, who may change it: chown it to root or to the user \
             that runs ringfence ({we})"
        ));
    }
    (mode & 0o002 != 0)
        .then(|| format!("its mode {mode:04o} lets every user change it: chmod it to 0600 or 0640"))
}

/// Reads a file, or what is written to a pipe, up to a byte more than is allowed.
fn read(file: &Path) -> io::Result<(String, Metadata)> {
    // Otherwise the open of a pipe waits for a writer.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags.bits().cast_signed());
    let opened = options.open(file)?;
    let metadata = opened.metadata()?;
    let kind = metadata.file_type();
    let mut bytes = Vec::new();
    if kind.is_file() {
        let mut limited = opened.take(FILE_MAX_BYTES as u64 + 1);
        limited.read_to_end(&mut bytes)?;
    } else if kind.is_fifo() {
        bytes = read_pipe(opened)?;
    } else if kind.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    } else {
        return Err(io::Error::other("it is neither a file nor a pipe"));
    }
    let text = String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8"))?;
    Ok((text, metadata))
}

/// What is written to a pipe until its writer closes it, in time.
fn read_pipe(mut pipe: File) -> io::Result<Vec<u8>> {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    let until = Clock::System.now() + PIPE_WITHIN;
    while bytes.len() <= FILE_MAX_BYTES {
        let left = until.since(Clock::System.now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        let mut polled = [PollFd::new(&pipe, PollFlags::IN)];
        if poll(&mut polled, Some(&left))? == 0 {
            let within = PIPE_WITHIN.as_secs();
            let why = format!("the writer of this pipe did not end within {within} s");
            return Err(io::Error::new(ErrorKind::TimedOut, why));
        }
        match pipe.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::who_may_change;

    #[test]
    fn a_file_that_another_user_owns_or_may_change_is_refused() {
        let us = 1000;
        for (owner, mode) in [(us, 0o600), (0, 0o644), (us, 0o664), (0, 0o400)] {
            assert_eq!(who_may_change(owner, mode, us), None, "{owner} {mode:o}");
        }
        let foreign = who_may_change(1001, 0o600, us).unwrap();
        assert!(foreign.contains("the user 1001"), "{foreign}");
        assert!(who_may_change(1001, 0o600, 0).is_some(), "for root too");
        let open = who_may_change(us, 0o666, us).unwrap();
        assert!(open.contains("0666"), "{open}");
    }
}
