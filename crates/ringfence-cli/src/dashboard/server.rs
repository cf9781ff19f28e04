//! Accepts connections, and bounds what one client can take: connections, headers, and time.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// The most connections at a time. A browser has up to six.
const CONNECTIONS_MAX: usize = 128;
/// How long a client may take to send the head of a request, also between two requests.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// The longest head.
const HEAD_MAX_BYTES: usize = 16 * 1024;
const HEADERS_MAX: usize = 64;
/// A client that takes nothing for so long is disconnected.
const TAKEN_WITHIN: Duration = Duration::from_secs(30);
/// The pause after an error of `accept`, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The address at which a connection arrived, and that of the client.
#[derive(Debug, Clone, Copy)]
pub(super) struct Endpoints {
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
}

/// Serves `router` for ever.
pub(super) async fn serve(listener: TcpListener, router: Router) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        // Never closed, so there is always a place sooner or later.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let accepted = match listener.accept().await {
            Ok((socket, remote)) => Endpoints::of(&socket, remote).map(|both| (socket, both)),
            Err(error) => Err(error),
        };
        let (socket, endpoints) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(target: "ringfence", %error, "a connection was not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let service = router.clone().layer(Extension(endpoints));
        tokio::spawn(async move {
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_WITHIN)
                .max_buf_size(HEAD_MAX_BYTES)
                .max_headers(HEADERS_MAX)
                .serve_connection(TokioIo::new(socket), TowerToHyperService::new(service))
                .await;
            if let Err(error) = served {
                tracing::debug!(target: "ringfence", %error, "a connection failed");
            }
            drop(place);
        });
    }
}

impl Endpoints {
    fn of(socket: &TcpStream, remote: SocketAddr) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        let within_ms = u32::try_from(TAKEN_WITHIN.as_millis()).unwrap_or(u32::MAX);
        #[cfg(target_os = "linux")]
        rustix::net::sockopt::set_tcp_user_timeout(socket, within_ms)?;
        #[cfg(not(target_os = "linux"))]
        let _ = within_ms;
        Ok(Self {
            local: socket.local_addr()?,
            remote,
        })
    }
}
