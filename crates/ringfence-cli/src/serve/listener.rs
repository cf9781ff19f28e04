//! The sockets: bound by us, or inherited from systemd.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use listenfd::ListenFd;
use rustix::fs::{FlockOperation, Mode, flock};
use rustix::process::{geteuid, umask};

use crate::args::ServeArgs;
use crate::report::CliFailure;

/// The Unix socket. The file that we made is removed when this is dropped.
pub(super) struct UnixSocket {
    pub(super) listener: UnixListener,
    /// What people connect to.
    pub(super) path: PathBuf,
    _made: Option<MadeFile>,
}

/// A socket file of ours, and the lock that keeps a second service away from it.
struct MadeFile {
    path: PathBuf,
    inode: u64,
    _lock: File,
}

impl UnixSocket {
    /// The socket that systemd passed (`LISTEN_FDS`), or a new one.
    pub(super) fn open(args: &ServeArgs) -> Result<Self, CliFailure> {
        if let Some(listener) = inherited()? {
            let address = listener.local_addr()?;
            return Ok(Self {
                path: address.as_pathname().unwrap_or(Path::new("")).to_owned(),
                listener,
                _made: None,
            });
        }
        let path = match &args.socket {
            Some(path) => path.clone(),
            None => default_path()?,
        };
        let cannot = |error: io::Error| {
            CliFailure::usage(format!("cannot listen on {}: {error}", path.display()))
        };
        let lock = sole_service(&path).map_err(cannot)?;
        remove_stale(&path).map_err(cannot)?;
        // Nobody else can connect before the mode is set.
        let before = umask(Mode::from_raw_mode(0o177));
        let listener = UnixListener::bind(&path);
        umask(before);
        let listener = listener.map_err(cannot)?;
        if let Some(group) = &args.socket_group {
            chown(&path, None, Some(group_id(group)?)).map_err(cannot)?;
        }
        let mode = fs::Permissions::from_mode(args.socket_mode);
        fs::set_permissions(&path, mode).map_err(cannot)?;
        let inode = fs::symlink_metadata(&path).map_err(cannot)?.ino();
        Ok(Self {
            listener,
            _made: Some(MadeFile {
                path: path.clone(),
                inode,
                _lock: lock,
            }),
            path,
        })
    }
}

impl Drop for MadeFile {
    fn drop(&mut self) {
        let found = fs::symlink_metadata(&self.path);
        if found.is_ok_and(|found| found.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The first socket of `LISTEN_FDS`, if there is one. It must be a Unix socket.
fn inherited() -> Result<Option<UnixListener>, CliFailure> {
    let mut passed = ListenFd::from_env();
    if passed.len() == 0 {
        return Ok(None);
    }
    if passed.len() > 1 {
        return Err(CliFailure::usage(
            "systemd passed more than one socket: give the unit one ListenStream",
        ));
    }
    let listener = passed.take_unix_listener(0).map_err(|error| {
        CliFailure::usage(format!(
            "the socket that systemd passed cannot be used: {error}; ListenStream must be a path"
        ))
    })?;
    Ok(listener)
}

/// `$XDG_RUNTIME_DIR/ringfence.sock`, or for root `/run/ringfence/ringfence.sock`.
fn default_path() -> Result<PathBuf, CliFailure> {
    if geteuid().is_root() {
        let folder = Path::new("/run/ringfence");
        let made = fs::create_dir(folder);
        return match made {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(CliFailure::usage(
                format!("cannot make {}: {error}; give --socket", folder.display()),
            )),
            _ => Ok(folder.join("ringfence.sock")),
        };
    }
    let folder = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    match folder.filter(|folder| folder.is_absolute()) {
        Some(folder) => Ok(folder.join("ringfence.sock")),
        None => Err(CliFailure::usage(
            "XDG_RUNTIME_DIR is not set: give --socket, in a folder that only you can write to",
        )),
    }
}

/// A lock file beside the socket. A second service for the same socket fails here, also if both
/// start at the same moment.
fn sole_service(path: &Path) -> io::Result<File> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".lock");
    let mut options = OpenOptions::new();
    // No link that another user planted in a shared folder.
    let no_link = rustix::fs::OFlags::NOFOLLOW.bits();
    options.create(true).append(true).mode(0o600);
    options.custom_flags(i32::try_from(no_link).unwrap_or_default());
    let file = options.open(beside)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(io::Error::new(
            ErrorKind::AddrInUse,
            "another `ringfence serve` listens there",
        )),
        Err(error) => Err(error.into()),
    }
}

/// Removes the socket of a service that was killed. Anything else at `path` stays.
fn remove_stale(path: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if !found.file_type().is_socket() {
        return Err(io::Error::new(
            ErrorKind::AlreadyExists,
            "there is a file that is not a socket",
        ));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) => Err(error),
        Ok(_) => Err(io::Error::new(
            ErrorKind::AddrInUse,
            "another program listens there",
        )),
    }
}

fn group_id(group: &str) -> Result<u32, CliFailure> {
    if let Ok(number) = group.parse() {
        return Ok(number);
    }
    match nix::unistd::Group::from_name(group) {
        Ok(Some(found)) => Ok(found.gid.as_raw()),
        _ => Err(CliFailure::usage(format!(
            "there is no group {}",
            group.escape_debug()
        ))),
    }
}
