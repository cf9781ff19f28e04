//! The proxy's side: a thread that accepts connections and relays each to the server until a rule
//! ends it.

use std::future;
use std::io;
use std::net::{Ipv4Addr, TcpListener as StdListener};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::net::Shutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime;
use tokio::task::JoinSet;

use crate::pipe::{Broken, Direction, carry};
use crate::port;
use crate::proxy::ProxyState;

/// A listener on a free port.
pub(crate) fn listen() -> StdListener {
    const TRIES: usize = 10;
    (0..TRIES)
        .find_map(|_| StdListener::bind((Ipv4Addr::LOCALHOST, port::free())).ok())
        .expect("no free port for the proxy")
}

/// Relays connections to the current server until the rules stop it.
pub(crate) fn run(listener: StdListener, state: &Arc<ProxyState>) {
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("cannot start the proxy's runtime");
    runtime
        .block_on(accept_all(listener, state))
        .expect("the proxy cannot listen");
}

async fn accept_all(socket: StdListener, state: &Arc<ProxyState>) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    let mut listener = None;
    let mut rules = state.rules.subscribe();
    let mut connections = JoinSet::new();
    loop {
        let wanted = rules.borrow_and_update().clone();
        if wanted.stopped {
            return Ok(());
        }
        listener = match listener {
            Some(listener) if wanted.refuses => {
                drop(listener);
                stop_listening(&socket)?;
                None
            }
            None if !wanted.refuses => Some(start_listening(&socket)?),
            unchanged => unchanged,
        };
        state.refuses.store(wanted.refuses, Ordering::SeqCst);
        tokio::select! {
            _ = rules.changed() => {}
            client = accept(listener.as_ref()) => {
                connections.spawn(relay(client, Arc::clone(state)));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// The system refuses connections to this socket from now on. The socket is not closed, so its port
/// stays taken: a new socket could not bind the port while a process that another thread has just
/// forked still has a copy of the old socket.
fn stop_listening(socket: &StdListener) -> io::Result<()> {
    Ok(rustix::net::shutdown(socket, Shutdown::Read)?)
}

/// `listen` may be called again on a socket that listens already.
fn start_listening(socket: &StdListener) -> io::Result<TcpListener> {
    const BACKLOG: i32 = 1_024;
    rustix::net::listen(socket, BACKLOG)?;
    TcpListener::from_std(socket.try_clone()?)
}

async fn accept(listener: Option<&TcpListener>) -> TcpStream {
    match listener {
        Some(listener) => match listener.accept().await {
            Ok((client, _)) => client,
            Err(error) => panic!("the proxy cannot accept a connection: {error}"),
        },
        None => future::pending().await,
    }
}

async fn relay(mut client: TcpStream, state: Arc<ProxyState>) {
    // Before the server is looked up: a cut after a change of the server finds this entry.
    let entry = Entry::new(&state);
    let server = *state.server();
    // Accepted between the order to refuse and the end of the listener.
    if state.rules.borrow().refuses {
        return;
    }
    let Ok(mut server) = TcpStream::connect(server).await else {
        return;
    };
    let _ = client.set_nodelay(true);
    let _ = server.set_nodelay(true);
    let broken = {
        let mut rules = state.rules.subscribe();
        tokio::select! {
            carried = carry_both(&mut client, &mut server, &state) => carried.err(),
            _ = rules.wait_for(|rules| rules.cuts > entry.began) => None,
        }
    };
    if broken == Some(Broken::Reset) {
        let _ = client.set_zero_linger();
        let _ = server.set_zero_linger();
    }
    // A test that waits for this entry to be removed expects the sockets to be closed.
    drop((client, server));
    drop(entry);
}

/// Carries both directions until the server closes. A close by the client ends nothing by itself:
/// its bytes may still be on their way, and the server learns of the close through the same pipe.
async fn carry_both(
    client: &mut TcpStream,
    server: &mut TcpStream,
    state: &ProxyState,
) -> Result<(), Broken> {
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let requests = carry(from_client, to_server, Direction::Requests, state);
    let replies = carry(from_server, to_client, Direction::Replies, state);
    tokio::pin!(requests, replies);
    tokio::select! {
        finished = &mut requests => {
            finished?;
            replies.await
        }
        finished = &mut replies => finished,
    }
}

/// A connection's entry in the list of open ones.
struct Entry<'a> {
    state: &'a ProxyState,
    began: usize,
}

impl<'a> Entry<'a> {
    fn new(state: &'a ProxyState) -> Self {
        let began = state.rules.borrow().cuts;
        state.open().push(began);
        Self { state, began }
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        let mut open = self.state.open();
        if let Some(index) = open.iter().position(|&began| began == self.began) {
            open.swap_remove(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn a_socket_that_another_process_has_a_copy_of_refuses_and_listens_again() {
        let socket = listen();
        socket.set_nonblocking(true).unwrap();
        let addr = socket.local_addr().unwrap();
        let _copy = socket.try_clone().unwrap();
        for _ in 0..3 {
            let listener = start_listening(&socket).unwrap();
            let _client = TcpStream::connect(addr).expect("the socket should listen");
            listener.accept().await.unwrap();
            drop(listener);
            stop_listening(&socket).unwrap();
            let refused = TcpStream::connect(addr).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        }
    }
}
