//! Who is connected: the user and process behind a Unix socket, or a client on loopback.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use crate::http::connections::Accept;

/// A connected client.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    /// The address at which a TCP connection arrived. `None` for the Unix socket.
    pub(super) local: Option<SocketAddr>,
    uid: Option<u32>,
    pid: Option<i32>,
    /// Whether the boot clock of the client shows the same time as ours.
    pub(super) shares_boot_clock: bool,
    /// Counts as a connection of its user until it is dropped.
    _place: Option<Arc<UserPlace>>,
}

impl Peer {
    /// Who it is, for people: `host:pid uid N`.
    pub(super) fn label(&self) -> String {
        let host = rustix::system::uname();
        let host = host.nodename().to_string_lossy().into_owned();
        match (self.pid, self.uid) {
            (Some(pid), Some(uid)) => format!("{host}:{pid} uid {uid}"),
            (None, Some(uid)) => format!("{host} uid {uid}"),
            _ => format!("{host} loopback"),
        }
    }

    /// Whether both are clients of one user, or both came over TCP with the token.
    pub(super) fn is_same_user(&self, other: &Self) -> bool {
        self.uid == other.uid
    }
}

/// The Unix socket.
pub(super) struct UnixClients {
    listener: UnixListener,
    users: Arc<Users>,
}

impl UnixClients {
    /// One user has at most three quarters of `connections_max`, so that others are served too.
    pub(super) fn new(listener: UnixListener, connections_max: usize) -> Self {
        let users = Users {
            most: connections_max / 4 * 3,
            connections: Mutex::default(),
        };
        Self {
            listener,
            users: Arc::new(users),
        }
    }
}

impl Accept for UnixClients {
    type Socket = UnixStream;
    type Peer = Peer;

    async fn accept(&self) -> io::Result<(UnixStream, Peer)> {
        loop {
            let (socket, _) = self.listener.accept().await?;
            let credentials = socket.peer_cred()?;
            let Some(place) = Users::place(&self.users, credentials.uid()) else {
                // The client sees that the connection was closed before an answer.
                continue;
            };
            // 0 is a process of another PID namespace.
            let pid = credentials.pid().filter(|pid| *pid != 0);
            let peer = Peer {
                local: None,
                uid: Some(credentials.uid()),
                pid,
                shares_boot_clock: pid.is_some_and(shares_time_namespace),
                _place: Some(Arc::new(place)),
            };
            return Ok((socket, peer));
        }
    }
}

/// A TCP socket on loopback. Its clients have the token.
pub(super) struct LoopbackClients(pub(super) TcpListener);

impl Accept for LoopbackClients {
    type Socket = TcpStream;
    type Peer = Peer;

    async fn accept(&self) -> io::Result<(TcpStream, Peer)> {
        let (socket, _) = self.0.accept().await?;
        socket.set_nodelay(true)?;
        let peer = Peer {
            local: Some(socket.local_addr()?),
            uid: None,
            pid: None,
            // It may be a container with a time namespace of its own.
            shares_boot_clock: false,
            _place: None,
        };
        Ok((socket, peer))
    }
}

/// Whether process `pid` is in our time namespace. If that cannot be read, it may be in another.
fn shares_time_namespace(pid: i32) -> bool {
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/time"));
    match (namespace("self"), namespace(&pid.to_string())) {
        (Ok(ours), Ok(theirs)) => ours == theirs,
        _ => false,
    }
}

/// How many connections each user has.
#[derive(Debug)]
struct Users {
    most: usize,
    connections: Mutex<HashMap<u32, usize>>,
}

/// One connection of a user.
#[derive(Debug)]
struct UserPlace {
    uid: u32,
    users: Arc<Users>,
}

impl Users {
    fn place(users: &Arc<Self>, uid: u32) -> Option<UserPlace> {
        let mut connections = users.lock();
        let count = connections.entry(uid).or_default();
        (*count < users.most).then(|| {
            *count += 1;
            UserPlace {
                uid,
                users: Arc::clone(users),
            }
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u32, usize>> {
        let connections = self.connections.lock();
        connections.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for UserPlace {
    fn drop(&mut self) {
        let mut connections = self.users.lock();
        if let Some(count) = connections.get_mut(&self.uid) {
            *count -= 1;
            if *count == 0 {
                connections.remove(&self.uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_cannot_take_every_place() {
        let users = Arc::new(Users {
            most: 2,
            connections: Mutex::default(),
        });
        let first = Users::place(&users, 1000);
        let second = Users::place(&users, 1000);
        assert!(first.is_some() && second.is_some());
        assert!(Users::place(&users, 1000).is_none());
        assert!(Users::place(&users, 1001).is_some());
        drop(first);
        assert!(Users::place(&users, 1000).is_some());
    }

    #[test]
    fn a_process_that_is_gone_does_not_share_our_clock() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(shares_time_namespace(own));
        assert!(!shares_time_namespace(i32::MAX));
    }
}
