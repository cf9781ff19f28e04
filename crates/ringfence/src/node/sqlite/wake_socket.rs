//! Wakes between the processes that share a file: each client that listens has a datagram socket
//! beside it, `locks.db-wake-CLIENT`, and whoever releases writes to the sockets of those next in
//! line. Nothing is stored or polled for, and a process that does not listen pays nothing.
//!
//! A wake may be lost (a full socket, a client in another mount namespace): then its client finds
//! out when it next refreshes its ticket.
//!
//! Several users may share the folder, and one of them may be hostile: no link in it is followed,
//! and nothing is changed through a path (see `socket.rs`).

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::message::Wake;
use crate::node::Hear;
use crate::node::embedded::{Listeners, client_of};

use super::socket::{self, FoundSocket};

/// The most that one datagram carries: a fraction of what sockets take by default.
const DATAGRAM_MAX_BYTES: usize = 8 * 1024;
/// A socket that nobody has bound for this long was left behind by a process that was killed;
/// one that is younger may just be about to be bound.
const LEFT_BEHIND_SECS: i64 = 10;

/// Who listens on one file in this process, and the way to those in others.
pub(super) struct WakeSockets {
    listeners: Arc<Listeners>,
    place: SocketFolder,
    sockets: Mutex<HashMap<String, WakeSocket>>,
}

/// The folder of the sockets, by a path that is short enough for them.
struct SocketFolder {
    folder: PathBuf,
    prefix: OsString,
    file: PathBuf,
    /// What the path leads through, where it does.
    _folder: Option<OwnedFd>,
}

/// A socket that is listened to until this is dropped.
struct WakeSocket {
    path: PathBuf,
    socket: Arc<UnixDatagram>,
    closed: Arc<AtomicBool>,
}

impl WakeSockets {
    /// The wake_sockets of the lock file at `file`.
    pub(super) fn beside(file: &Path) -> Self {
        Self {
            listeners: Arc::default(),
            place: SocketFolder::beside(file),
            sockets: Mutex::default(),
        }
    }

    /// Has the wakes of `client` told to `to`, whichever process they come from.
    pub(super) fn listen(&self, client: &str, to: Arc<dyn Hear>) {
        if !self.listeners.add(client, to) {
            return;
        }
        match self.open_socket(client) {
            Ok(open) => {
                let mut sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
                sockets.insert(client.to_owned(), open);
            }
            Err(error) => tracing::warn!(
                target: "ringfence",
                file = %self.place.file.display(),
                %error,
                "no wakes from other processes: waiting polls instead"
            ),
        }
    }

    /// Stops listening to other processes.
    pub(super) fn silence(&self) {
        let mut sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        sockets.clear();
    }

    fn open_socket(&self, client: &str) -> io::Result<WakeSocket> {
        let path = self.place.socket(client);
        let path = path.ok_or(io::ErrorKind::InvalidFilename)?;
        let socket = Arc::new(self.place.bind(&path)?);
        let open = WakeSocket {
            path,
            socket: Arc::clone(&socket),
            closed: Arc::default(),
        };
        self.place.clear_away(&open.path);
        let closed = Arc::clone(&open.closed);
        let listeners = Arc::clone(&self.listeners);
        thread::Builder::new()
            .name("ringfence-wakes".to_owned())
            .spawn(move || hear(&socket, &closed, &listeners))?;
        Ok(open)
    }

    /// Tells those who are to be woken, in this process and in others. Never blocks.
    pub(super) fn ring(&self, wakes: Vec<Wake>) {
        let mut elsewhere: BTreeMap<PathBuf, Vec<Wake>> = BTreeMap::new();
        for wake in wakes {
            let Some(wake) = self.listeners.tell(wake) else {
                continue;
            };
            let path = client_of(&wake.ticket).and_then(|client| self.place.socket(client));
            if let Some(path) = path {
                elsewhere.entry(path).or_default().push(wake);
            }
        }
        for (path, wakes) in elsewhere {
            // Not listening, dead or too busy to hear: all of them will come and look.
            let _ = write(&path, &wakes);
        }
    }
}

impl SocketFolder {
    fn beside(file: &Path) -> Self {
        let mut folder = file.parent().unwrap_or(file).to_owned();
        let mut prefix = file.file_name().unwrap_or_default().to_owned();
        prefix.push("-wake-");
        // Sockets have short paths, and the folder at a path may be replaced by another. Linux has
        // a short path for every folder that is open, and that one stays this folder.
        let handle = socket::open_folder(&folder);
        if let Some((_, through)) = &handle {
            folder.clone_from(through);
        }
        Self {
            folder,
            prefix,
            file: file.to_owned(),
            _folder: handle.map(|(handle, _)| handle),
        }
    }

    /// The socket of `client`; none for an id that could lead elsewhere, since tickets are read
    /// from a file that others write.
    fn socket(&self, client: &str) -> Option<PathBuf> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        if client.is_empty() || !client.bytes().all(plain) {
            return None;
        }
        let mut name = self.prefix.clone();
        name.push(client);
        Some(self.folder.join(name))
    }

    fn bind(&self, path: &Path) -> io::Result<UnixDatagram> {
        // Whoever may write the lock file may wake those who wait for it.
        let mode = fs::symlink_metadata(&self.file)?.mode();
        match socket::bind(path, mode) {
            // Of a process that was killed and whose client had this very id.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_dead(path) => {
                fs::remove_file(path)?;
                socket::bind(path, mode)
            }
            bound => bound,
        }
    }

    /// Removes the sockets that killed processes have left behind. `own` was bound just now and
    /// tells the time of the file system.
    fn clear_away(&self, own: &Path) {
        let (Ok(own), Ok(files)) = (fs::symlink_metadata(own), fs::read_dir(&self.folder)) else {
            return;
        };
        let prefix = self.prefix.as_encoded_bytes();
        for file in files.flatten() {
            let ours = file.file_name().as_encoded_bytes().starts_with(prefix);
            if ours && file.metadata().is_ok_and(|found| is_old(&found, &own)) {
                let path = file.path();
                if is_dead(&path) {
                    // Another process may be clearing away too.
                    let _ = fs::remove_file(path);
                }
            }
        }
    }
}

impl Drop for WakeSocket {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::SeqCst);
        // The thread hears either of these, the one on every system, the other on Linux even if
        // the file is gone. Nothing that fails here can be mended: the thread then ends with its
        // process, and the next who listens clears the socket away.
        let _ = write(&self.path, &[]);
        let _ = self.socket.shutdown(Shutdown::Both);
        let _ = fs::remove_file(&self.path);
    }
}

fn is_old(found: &Metadata, own: &Metadata) -> bool {
    found.file_type().is_socket() && found.mtime() < own.mtime() - LEFT_BEHIND_SECS
}

fn is_dead(path: &Path) -> bool {
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    let found = FoundSocket::at(path);
    found
        .and_then(|found| UnixDatagram::unbound()?.connect(found.path()))
        .is_err_and(refused)
}

/// Hears wakes on `socket` until it is closed.
fn hear(socket: &UnixDatagram, closed: &AtomicBool, listeners: &Listeners) {
    let mut buffer = vec![0; DATAGRAM_MAX_BYTES];
    loop {
        let received = socket.recv(&mut buffer);
        if closed.load(Ordering::SeqCst) {
            return;
        }
        match received {
            Ok(bytes) => read(&buffer[..bytes]).for_each(|wake| {
                // Not for anybody here: a mistake of whoever sent it.
                let _ = listeners.tell(wake);
            }),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                tracing::warn!(target: "ringfence", %error, "no more wakes from other processes: waiting polls instead");
                return;
            }
        }
    }
}

/// One line for each wake.
fn write(path: &Path, wakes: &[Wake]) -> io::Result<()> {
    let found = FoundSocket::at(path)?;
    let path = found.path();
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    let mut text = String::new();
    for wake in wakes {
        let line = format!("{wake}\n");
        if text.len() + line.len() > DATAGRAM_MAX_BYTES {
            socket.send_to(text.as_bytes(), path)?;
            text.clear();
        }
        text.push_str(&line);
    }
    socket.send_to(text.as_bytes(), path)?;
    Ok(())
}

fn read(datagram: &[u8]) -> impl Iterator<Item = Wake> {
    let text = std::str::from_utf8(datagram).unwrap_or_default();
    text.lines().filter_map(Wake::read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_wake_in_a_datagram_is_passed_over() {
        let wakes = |text: &[u8]| read(text).collect::<Vec<_>>();
        let wake = |ticket: &str, after_ms, slot| Wake {
            ticket: ticket.to_owned(),
            after_ms,
            slot,
        };
        let some = b"0 a.1\n\nx a.2\n-1 a.3\n1500 a.4\n0 a.5 2\n0 a.6 x\n7";
        let heard = [
            wake("a.1", 0, None),
            wake("a.4", 1500, None),
            wake("a.5", 0, Some(2)),
        ];
        assert_eq!(wakes(some), heard);
        assert_eq!(wakes(b"0 a.1\n\xff"), []);
        assert_eq!(wakes(b""), []);
    }
}
