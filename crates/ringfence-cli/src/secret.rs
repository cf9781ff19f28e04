//! Files that may contain a password: read once, with a limit, and refused if every user may read
//! them.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{self, Path, PathBuf};

use crate::report::CliFailure;

/// Larger than any real list of nodes.
const FILE_MAX_BYTES: u64 = 64 * 1024;

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
        let opened = File::open(file).map_err(unreadable)?;
        let metadata = opened.metadata().map_err(unreadable)?;
        let mut text = String::new();
        let mut limited = opened.take(FILE_MAX_BYTES + 1);
        limited.read_to_string(&mut text).map_err(unreadable)?;
        let secret = Self {
            file,
            option,
            text,
            metadata,
        };
        if secret.text.len() as u64 > FILE_MAX_BYTES {
            return Err(secret.refused("it is longer than 64 KiB"));
        }
        Ok(secret)
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
