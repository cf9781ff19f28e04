//! `--metrics-file`: writes the metrics of the library to a file, for the textfile collector of
//! Prometheus' node exporter.
//!
//! A thread of its own writes it, so that a slow disk delays no renewal. The file is replaced in one
//! step: a reader never sees half of it.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

use crate::report::{CliFailure, Report};

/// How often the file is written while nothing special happens.
const EVERY: Duration = Duration::from_secs(5);
/// The upper ends of the buckets, in seconds, as `docs/observability.md` recommends them.
const BUCKETS: [f64; 14] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 120.0,
];
/// How long ringfence waits at its end for a disk that hangs.
const LAST_WRITE: Duration = Duration::from_secs(1);

/// A file that is written in the background.
pub(crate) struct MetricsFile {
    wishes: Sender<Wish>,
}

enum Wish {
    WriteNow,
    /// Write for the last time, then say so.
    End(Sender<()>),
}

impl MetricsFile {
    /// Writes `file` from now on. Every sample has the `name` of the lock. Call it before the client
    /// is connected: that is when the library registers its metrics.
    pub(crate) fn start(file: &Path, name: &str, report: Report) -> Result<Self, CliFailure> {
        let recorder = PrometheusBuilder::new()
            .set_buckets(&BUCKETS)
            .map_err(io::Error::other)?
            .add_global_label("name", name)
            .build_recorder();
        let metrics = recorder.handle();
        let cannot = |error: io::Error| {
            let file = file.display();
            CliFailure::usage(format!("--metrics-file {file} cannot be written: {error}"))
        };
        // A wrong path is better reported before the lock is taken than after.
        replace(file, &metrics.render()).map_err(cannot)?;
        metrics::set_global_recorder(recorder)
            .map_err(|error| io::Error::other(error.to_string()))?;
        let (wishes, wanted) = channel();
        let writer = Writer {
            file: file.to_owned(),
            metrics,
            report,
            warned: false,
        };
        thread::Builder::new()
            .name("metrics-file".to_owned())
            .spawn(move || writer.run(&wanted))?;
        Ok(Self { wishes })
    }

    /// Writes the file soon: something changed.
    pub(crate) fn write_now(&self) {
        // The thread ends only with this.
        let _ = self.wishes.send(Wish::WriteNow);
    }
}

impl Drop for MetricsFile {
    /// Writes the file for the last time, also if ringfence fails.
    fn drop(&mut self) {
        let (done, written) = channel();
        let _ = self.wishes.send(Wish::End(done));
        let _ = written.recv_timeout(LAST_WRITE);
    }
}

struct Writer {
    file: PathBuf,
    metrics: PrometheusHandle,
    report: Report,
    warned: bool,
}

impl Writer {
    fn run(mut self, wishes: &Receiver<Wish>) {
        loop {
            match wishes.recv_timeout(EVERY) {
                Ok(Wish::WriteNow) | Err(RecvTimeoutError::Timeout) => self.write(),
                Ok(Wish::End(done)) => {
                    self.write();
                    let _ = done.send(());
                    return;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Warns once: the disk may stay full for hours.
    fn write(&mut self) {
        let written = replace(&self.file, &self.metrics.render());
        if let Err(error) = written
            && !std::mem::replace(&mut self.warned, true)
        {
            let file = self.file.display();
            self.report
                .warn(&format!("--metrics-file {file} is not written: {error}"));
        }
    }
}

/// Replaces `file` in one step. The file beside it that is renamed does not end with `.prom`, so the
/// collector ignores it.
fn replace(file: &Path, page: &str) -> io::Result<()> {
    let Some(name) = file.file_name() else {
        return Err(ErrorKind::IsADirectory.into());
    };
    // A rename would remove a device or a link and put a file in its place.
    match fs::symlink_metadata(file) {
        Ok(found) if !found.is_file() => {
            return Err(io::Error::other("only a regular file can be replaced"));
        }
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let mut beside = std::ffi::OsString::from(".");
    beside.push(name);
    beside.push(format!(".{}", process::id()));
    let beside = file.with_file_name(beside);
    let written = write_new(&beside, page).and_then(|()| fs::rename(&beside, file));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

/// Never follows a link that another user of the folder put there.
fn write_new(file: &Path, page: &str) -> io::Result<()> {
    let create = || OpenOptions::new().write(true).create_new(true).open(file);
    let mut opened = match create() {
        // Left by a process that had our number and was killed.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            fs::remove_file(file)?;
            create()?
        }
        opened => opened?,
    };
    opened.write_all(page.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_nothing_else_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("job.prom");
        replace(&file, "one\n").unwrap();
        replace(&file, "two\n").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "two\n");
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().flatten().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[test]
    fn a_link_in_the_way_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (file, other) = (folder.path().join("job.prom"), folder.path().join("other"));
        fs::write(&other, "precious").unwrap();
        let beside = folder.path().join(format!(".job.prom.{}", process::id()));
        std::os::unix::fs::symlink(&other, beside).unwrap();
        replace(&file, "one\n").unwrap();
        assert_eq!(fs::read_to_string(&other).unwrap(), "precious");
        assert_eq!(fs::read_to_string(&file).unwrap(), "one\n");
    }

    #[test]
    fn only_a_regular_file_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (link, device) = (folder.path().join("link"), Path::new("/dev/null"));
        std::os::unix::fs::symlink(device, &link).unwrap();
        let socket = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for file in [&link, &socket] {
            let before = fs::symlink_metadata(file).unwrap().file_type();
            let error = replace(file, "one\n").unwrap_err();
            assert!(error.to_string().contains("regular file"), "{error}");
            let after = fs::symlink_metadata(file).unwrap().file_type();
            assert_eq!(before, after, "{}", file.display());
        }
    }

    #[test]
    fn a_folder_is_an_error_and_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("job.prom");
        fs::create_dir(&inner).unwrap();
        assert!(replace(&inner, "one\n").is_err());
        let left = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 1);
    }
}
