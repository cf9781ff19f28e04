//! A socket in a folder that others may write to: made and reached without following a link.
//!
//! A neighbour can replace a name in such a folder by a link at any moment. What is done through a
//! path after a look at it may hit another file: so a socket gets its mode before it has a name, and
//! whatever has a name is held by a handle, looked at, and reached through that handle.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, Stat, fchmod};
use rustix::net::SocketAddrUnix;

/// What a mode may give: to send to a socket is to write. No set-uid bit, nothing to execute.
const MODE_MASK: u32 = 0o666;

/// Binds a new socket to `path`, with as much of `mode` as makes sense for a socket.
///
/// # Errors
/// If there is something at `path` already, if only a link.
pub(super) fn bind(path: &Path, mode: u32) -> io::Result<UnixDatagram> {
    let mode = Mode::from_raw_mode((mode & MODE_MASK) as _);
    let socket = UnixDatagram::unbound()?;
    // On Linux the file of a socket gets the mode that the socket has when it is bound. Elsewhere
    // this fails, and the mode is what the umask leaves: others may then be unable to send wakes.
    let _ = fchmod(&socket, mode);
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    #[cfg(target_os = "linux")]
    undo_umask(path, mode)?;
    Ok(socket)
}

/// Gives the socket that was just bound to `path` what the umask took from `mode`.
#[cfg(target_os = "linux")]
fn undo_umask(path: &Path, mode: Mode) -> io::Result<()> {
    let found = FoundSocket::at(path)?;
    let Some((_, stat)) = &found.handle else {
        return Ok(());
    };
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err(not_a_socket());
    }
    if stat.st_mode & 0o7777 != mode.as_raw_mode() {
        // Through the handle, so that it is the socket that was looked at.
        rustix::fs::chmod(found.path(), mode)?;
    }
    Ok(())
}

/// A socket that was found, and a path to it that no neighbour can turn elsewhere.
pub(super) struct FoundSocket {
    path: PathBuf,
    #[cfg_attr(not(target_os = "linux"), expect(dead_code))]
    handle: Option<(OwnedFd, Stat)>,
}

impl FoundSocket {
    /// The socket at `path`.
    ///
    /// # Errors
    /// If it is something else: a link, or a socket that has another name as well.
    pub(super) fn at(path: &Path) -> io::Result<Self> {
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
                    handle: Some((handle, stat)),
                });
            }
        }
        // Without such handles a look has to do.
        check(&rustix::fs::lstat(path)?)?;
        Ok(Self {
            path: path.to_owned(),
            handle: None,
        })
    }

    pub(super) fn path(&self) -> &Path {
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

/// Opens `folder`, and says by which path it is reached through its handle.
pub(super) fn open_folder(folder: &Path) -> Option<(OwnedFd, PathBuf)> {
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

/// The path of what `handle` holds, where `/proc` is mounted.
#[cfg(target_os = "linux")]
fn path_through(handle: &OwnedFd) -> Option<PathBuf> {
    use std::os::fd::AsRawFd;
    let path = PathBuf::from(format!("/proc/self/fd/{}", handle.as_raw_fd()));
    rustix::fs::stat(&path).is_ok().then_some(path)
}
