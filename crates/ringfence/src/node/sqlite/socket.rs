//! A socket in a folder that other users may write to: created and reached without following a
//! link.
//!
//! Another user can replace a name in such a folder by a link at any moment, between a check of the
//! path and its use. So a socket gets its mode before it has a name, and an existing file is opened
//! first, then checked and used through its handle.

use std::fs::Metadata;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, Stat, fchmod};
use rustix::net::SocketAddrUnix;

use super::sharing::is_of_sharer;

/// The permissions that a socket may have: sending to it needs write permission. No set-uid bit, no
/// execution.
const MODE_MASK: u32 = 0o666;

/// Binds a new socket to `path`, with the bits of `mode` that a socket may have.
///
/// # Errors
/// If `path` already exists, even as a link.
pub(super) fn bind(path: &Path, mode: u32) -> io::Result<UnixDatagram> {
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
pub(super) struct FoundSocket {
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
    pub(super) fn of_sharer(path: &Path, lock_file: &Metadata) -> io::Result<Self> {
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

/// Opens `folder`. Returns its handle and a path through the handle.
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

/// A path through `handle`, if `/proc` is mounted.
#[cfg(target_os = "linux")]
fn path_through(handle: &OwnedFd) -> Option<PathBuf> {
    use std::os::fd::AsRawFd;
    let path = PathBuf::from(format!("/proc/self/fd/{}", handle.as_raw_fd()));
    rustix::fs::stat(&path).is_ok().then_some(path)
}
