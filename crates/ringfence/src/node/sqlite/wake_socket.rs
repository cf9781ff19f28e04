//! Wakes between the processes that share a file. Each client that listens has a datagram socket
//! beside the file, `locks.db-wake-CLIENT`, and a release writes to the sockets of the next
//! waiters. Nothing is stored or polled, and a process that does not listen has no cost.
//!
//! A wake may be lost (a full socket, a client in another mount namespace): then its client notices
//! when it next refreshes its ticket.
//!
//! Several users may share the folder, and one of them may be hostile: no link in it is followed,
//! and nothing is changed through a path. Another user can replace a name there by a link at any
//! moment, between a check of the path and its use. So a socket gets its mode before it has a name,
//! and an existing file is opened first, then checked and used through its handle.

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

use rustix::fs::{FileType, Mode, Stat, fchmod};
use rustix::net::SocketAddrUnix;

use crate::message::Wake;
use crate::node::Hear;
use crate::node::embedded::{Listeners, client_of};

use super::sharing::is_of_sharer;

/// The largest datagram: a fraction of the default socket buffer.
const DATAGRAM_MAX_BYTES: usize = 8 * 1024;
/// An unbound socket file of this age was left behind by a process that was killed. A newer one may
/// be about to be bound.
const LEFT_BEHIND_SECS: i64 = 10;

/// The listeners for one file in this process, and the sockets to those in other processes.
pub(super) struct WakeSockets {
    listeners: Arc<Listeners>,
    ticket: SocketFolder,
    sockets: Mutex<HashMap<String, WakeSocket>>,
}

/// The folder of the sockets, by a path that is short enough for them.
struct SocketFolder {
    folder: PathBuf,
    prefix: OsString,
    file: PathBuf,
    /// The handle that the path goes through, if it does.
    _folder: Option<OwnedFd>,
}

/// A socket with a thread that reads it until this is dropped.
struct WakeSocket {
    path: PathBuf,
    socket: Arc<UnixDatagram>,
    closed: Arc<AtomicBool>,
}

impl WakeSockets {
    /// The wake sockets of the lock file at `file`.
    pub(super) fn beside(file: &Path) -> Self {
        Self {
            listeners: Arc::default(),
            ticket: SocketFolder::beside(file),
            sockets: Mutex::default(),
        }
    }

    /// Delivers the wakes of `client` to `to`, from all processes.
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
                file = %self.ticket.file.display(),
                %error,
                "no wakes from other processes; waiters poll instead"
            ),
        }
    }

    /// Stops listening to other processes.
    pub(super) fn stop_listening(&self) {
        let mut sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        sockets.clear();
    }

    fn open_socket(&self, client: &str) -> io::Result<WakeSocket> {
        let path = self.ticket.socket(client);
        let path = path.ok_or(io::ErrorKind::InvalidFilename)?;
        let socket = Arc::new(self.ticket.bind(&path)?);
        let open = WakeSocket {
            path,
            socket: Arc::clone(&socket),
            closed: Arc::default(),
        };
        self.ticket.clear_away(&open.path);
        let closed = Arc::clone(&open.closed);
        let listeners = Arc::clone(&self.listeners);
        thread::Builder::new()
            .name("ringfence-wakes".to_owned())
            .spawn(move || receive(&socket, &closed, &listeners))?;
        Ok(open)
    }

    /// Sends `wakes` to the clients in this process and in others. Never blocks.
    pub(super) fn send(&self, wakes: Vec<Wake>) {
        let mut elsewhere: BTreeMap<PathBuf, Vec<Wake>> = BTreeMap::new();
        for wake in wakes {
            let Some(wake) = self.listeners.deliver(wake) else {
                continue;
            };
            let path = client_of(&wake.ticket).and_then(|client| self.ticket.socket(client));
            if let Some(path) = path {
                elsewhere.entry(path).or_default().push(wake);
            }
        }
        if elsewhere.is_empty() {
            return;
        }
        let Ok(lock_file) = fs::symlink_metadata(&self.ticket.file) else {
            return;
        };
        for (path, wakes) in elsewhere {
            // The client may not listen, be dead or have a full socket. A live one retries by
            // itself.
            let found = FoundSocket::of_sharer(&path, &lock_file);
            let _ = found.and_then(|socket| write(&socket, &wakes));
        }
    }
}

impl SocketFolder {
    fn beside(file: &Path) -> Self {
        let mut folder = file.parent().unwrap_or(file).to_owned();
        let mut prefix = file.file_name().unwrap_or_default().to_owned();
        prefix.push("-wake-");
        // The path of a socket must be short, and the folder at a path may be replaced by another.
        // Linux has a short path for every open folder, which always leads to this folder.
        let handle = open_folder(&folder);
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

    /// The socket of `client`; none for an id that could lead to another folder, since tickets are
    /// read from a file that other users write.
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
        // A user who may write the lock file may also send wakes.
        let mode = fs::symlink_metadata(&self.file)?.mode();
        match bind(path, mode) {
            // Left by a killed process whose client had the same id.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_dead(path) => {
                fs::remove_file(path)?;
                bind(path, mode)
            }
            bound => bound,
        }
    }

    /// Removes the sockets that killed processes have left behind. `own` was bound just now, and
    /// its timestamp is the file system's present time.
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
                    // Another process may remove it at the same time.
                    let _ = fs::remove_file(path);
                }
            }
        }
    }
}

impl Drop for WakeSocket {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::SeqCst);
        // Either of these ends the thread: the first on every system, the second on Linux even if
        // the file was deleted. If both fail, the thread ends with its process, and the next
        // listener removes the socket.
        let _ = FoundSocket::at(&self.path).and_then(|socket| write(&socket, &[]));
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

/// Receives wakes on `socket` until it is closed.
fn receive(socket: &UnixDatagram, closed: &AtomicBool, listeners: &Listeners) {
    let mut buffer = vec![0; DATAGRAM_MAX_BYTES];
    loop {
        let received = socket.recv(&mut buffer);
        if closed.load(Ordering::SeqCst) {
            return;
        }
        match received {
            Ok(bytes) => read(&buffer[..bytes]).for_each(|wake| {
                // A wake without a listener was sent to the wrong socket.
                let _ = listeners.deliver(wake);
            }),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                tracing::warn!(
                    target: "ringfence", %error,
                    "no more wakes from other processes; waiters poll instead"
                );
                return;
            }
        }
    }
}

/// One line for each wake.
fn write(to: &FoundSocket, wakes: &[Wake]) -> io::Result<()> {
    let path = to.path();
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

/// The permissions that a socket may have: sending to it needs write permission. No set-uid bit, no
/// execution.
const MODE_MASK: u32 = 0o666;

/// Binds a new socket to `path`, with the bits of `mode` that a socket may have.
///
/// # Errors
/// If `path` already exists, even as a link.
fn bind(path: &Path, mode: u32) -> io::Result<UnixDatagram> {
    let mode = Mode::from_raw_mode((mode & MODE_MASK) as _);
    let socket = UnixDatagram::unbound()?;
    // On Linux the file of a socket gets the mode that the socket has when it is bound. On other
    // systems this fails, and the umask decides the mode: other users may then be unable to send
    // wakes.
    let _ = fchmod(&socket, mode);
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    #[cfg(target_os = "linux")]
    undo_umask(path, mode)?;
    Ok(socket)
}

/// Restores the bits of `mode` that the umask removed from the socket that was just bound to
/// `path`.
#[cfg(target_os = "linux")]
fn undo_umask(path: &Path, mode: Mode) -> io::Result<()> {
    let found = FoundSocket::at(path)?;
    let (Some(_), stat) = (&found.handle, &found.stat) else {
        return Ok(());
    };
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err(not_a_socket());
    }
    if stat.st_mode & 0o7777 != mode.as_raw_mode() {
        // Through the handle, so that it is the socket that was checked.
        rustix::fs::chmod(found.path(), mode)?;
    }
    Ok(())
}

/// An existing socket, and a path to it that no other user can redirect.
struct FoundSocket {
    path: PathBuf,
    stat: Stat,
    /// The handle that the path goes through, if it does.
    handle: Option<OwnedFd>,
}

impl FoundSocket {
    /// The socket at `path`.
    ///
    /// # Errors
    /// If it is anything else: a link, or a socket with a second name.
    fn at(path: &Path) -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        {
            use rustix::fs::{OFlags, fstat, open};
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let handle = open(path, flags, Mode::empty())?;
            let stat = fstat(&handle)?;
            check(&stat)?;
            if let Some(through) = path_through(&handle) {
                return Ok(Self {
                    path: through,
                    stat,
                    handle: Some(handle),
                });
            }
        }
        // Systems without such handles: only check.
        let stat = rustix::fs::lstat(path)?;
        check(&stat)?;
        Ok(Self {
            path: path.to_owned(),
            stat,
            handle: None,
        })
    }

    /// The same, if a user who shares `lock_file` may have bound it.
    fn of_sharer(path: &Path, lock_file: &Metadata) -> io::Result<Self> {
        let found = Self::at(path)?;
        let (stat, handle) = (&found.stat, &found.handle);
        // On other systems the umask decides the mode.
        let has_mode = !cfg!(target_os = "linux")
            || handle.is_none()
            || stat.st_mode & 0o7777 == lock_file.mode() & MODE_MASK;
        match has_mode && is_of_sharer(stat.st_uid, stat.st_gid, lock_file) {
            true => Ok(found),
            false => Err(not_a_socket()),
        }
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

fn check(stat: &Stat) -> io::Result<()> {
    if FileType::from_raw_mode(stat.st_mode) != FileType::Socket || stat.st_nlink > 1 {
        return Err(not_a_socket());
    }
    Ok(())
}

fn not_a_socket() -> io::Error {
    io::Error::other("the socket for wakes was replaced by something else")
}

/// Opens `folder`. Returns its handle and a path through the handle.
fn open_folder(folder: &Path) -> Option<(OwnedFd, PathBuf)> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{OFlags, open};
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = open(folder, flags, Mode::empty()).ok()?;
        let through = path_through(&handle)?;
        Some((handle, through))
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = folder;
        None
    }
}

/// A path through `handle`, if `/proc` is mounted.
#[cfg(target_os = "linux")]
fn path_through(handle: &OwnedFd) -> Option<PathBuf> {
    use std::os::fd::AsRawFd;
    let path = PathBuf::from(format!("/proc/self/fd/{}", handle.as_raw_fd()));
    rustix::fs::stat(&path).is_ok().then_some(path)
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
        let expected = [
            wake("a.1", 0, None),
            wake("a.4", 1500, None),
            wake("a.5", 0, Some(2)),
        ];
        assert_eq!(wakes(some), expected);
        assert_eq!(wakes(b"0 a.1\n\xff"), []);
        assert_eq!(wakes(b""), []);
    }
}
