//! Accepts connections, and bounds what one client can take: connections, headers, and time.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::Request;
use axum::middleware::map_request;
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

/// How long a client may take to send the head of a request, also between two requests.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// The longest head.
const HEAD_MAX_BYTES: usize = 16 * 1024;
const HEADERS_MAX: usize = 64;
/// A browser that takes nothing for so long is disconnected.
const TAKEN_WITHIN: Duration = Duration::from_secs(30);
/// The pause after an error of `accept`, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Where connections come from.
pub(crate) trait Accept: Send {
    type Socket: AsyncRead + AsyncWrite + Unpin + Send + 'static;
    /// Who is connected. Every request of the connection has it as an extension.
    type Peer: Clone + Send + Sync + 'static;

    async fn accept(&self) -> io::Result<(Self::Socket, Self::Peer)>;
}

/// The address at which a connection arrived, and that of the client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Endpoints {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
}

/// Connections of browsers.
impl Accept for TcpListener {
    type Socket = TcpStream;
    type Peer = Endpoints;

    async fn accept(&self) -> io::Result<(TcpStream, Endpoints)> {
        let (socket, remote) = Self::accept(self).await?;
        socket.set_nodelay(true)?;
        #[cfg(target_os = "linux")]
        {
            let within_ms = u32::try_from(TAKEN_WITHIN.as_millis()).unwrap_or(u32::MAX);
            rustix::net::sockopt::set_tcp_user_timeout(&socket, within_ms)?;
        }
        let local = socket.local_addr()?;
        Ok((socket, Endpoints { local, remote }))
    }
}

/// Serves `router` for ever, to at most `connections_max` clients at a time. If more than half of the
/// places are taken, a connection ends after its first answer instead of waiting for another request.
pub(crate) async fn serve(listener: impl Accept, router: Router, connections_max: usize) {
    let places = Arc::new(Semaphore::new(connections_max));
    let silent = Arc::new(SilentConnections::default());
    for number in 0_u64.. {
        let (socket, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(target: "ringfence", %error, "a connection was not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Some(place) = place(&places, &silent).await else {
            continue;
        };
        let asked = Arc::clone(&silent);
        let service = router.clone().layer(Extension(peer));
        let service = service.layer(map_request(move |request: Request| {
            asked.remove(number);
            std::future::ready(request)
        }));
        let is_kept = places.available_permits() >= connections_max / 2;
        let ended = Arc::clone(&silent);
        let connection = async move {
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .keep_alive(is_kept)
                .header_read_timeout(HEAD_WITHIN)
                .max_buf_size(HEAD_MAX_BYTES)
                .max_headers(HEADERS_MAX)
                .serve_connection(TokioIo::new(socket), TowerToHyperService::new(service))
                .await;
            if let Err(error) = served {
                tracing::debug!(target: "ringfence", %error, "a connection failed");
            }
            ended.remove(number);
            drop(place);
        };
        silent.insert(number, || tokio::spawn(connection).abort_handle());
    }
}

/// A place for a new connection. If all are taken, the connection that has been silent for longest
/// loses its place; if every one is busy, there is none.
async fn place(
    places: &Arc<Semaphore>,
    silent: &SilentConnections,
) -> Option<OwnedSemaphorePermit> {
    if let Ok(place) = Arc::clone(places).try_acquire_owned() {
        return Some(place);
    }
    silent.take_oldest()?.abort();
    // The task that was aborted gives its place back as soon as it is dropped.
    Arc::clone(places).acquire_owned().await.ok()
}

/// The connections that have not sent a request yet, oldest first.
#[derive(Debug, Default)]
struct SilentConnections {
    connections: Mutex<VecDeque<(u64, AbortHandle)>>,
}

impl SilentConnections {
    /// Adds a connection that `start` begins to serve. It is added before it can remove itself.
    fn insert(&self, number: u64, start: impl FnOnce() -> AbortHandle) {
        let mut connections = self.lock();
        let handle = start();
        connections.push_back((number, handle));
    }

    fn remove(&self, number: u64) {
        self.lock().retain(|(other, _)| *other != number);
    }

    fn take_oldest(&self) -> Option<AbortHandle> {
        self.lock().pop_front().map(|(_, handle)| handle)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<(u64, AbortHandle)>> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
