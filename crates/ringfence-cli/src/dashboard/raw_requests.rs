//! The whole HTTP of a dashboard over a connection in memory, for fuzzers and tests.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use ringfence::Locks;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::runtime::Runtime;

use crate::http::access::AccessRules;
use crate::http::connections::{self, Accept, Endpoints};
use crate::report::Report;

use super::collector::ClusterCollector;
use super::routes::{self, Dashboard};

/// How often other tasks run without a byte of the answer before it is taken as complete. A connection
/// that is kept, and the stream of events, do not end.
const IDLE_TURNS: u32 = 200;

/// A dashboard of a node in memory, whose viewers may break locks.
pub(crate) struct RawDashboard {
    runtime: Runtime,
    router: Router,
}

impl RawDashboard {
    /// Every request needs `token`, if there is one.
    pub(crate) fn new(token: Option<&str>) -> Self {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build().expect("a runtime");
        let locks = runtime.block_on(Locks::connect("memory:"));
        let locks = locks.expect("a node in memory");
        let (_, published) = ClusterCollector::new(locks.clone(), "memory:");
        let access = AccessRules::new(token.map(str::to_owned), &[]).expect("no hosts");
        let report = Report {
            quiet: true,
            ..Report::default()
        };
        let break_on = Some("memory:".to_owned());
        let dashboard = Dashboard::new(access, locks, published, break_on, report);
        let router = routes::router(Arc::new(dashboard));
        Self { runtime, router }
    }

    /// What it answers to `request`, the bytes of any number of requests.
    pub(crate) fn answer(&self, request: &[u8]) -> Vec<u8> {
        let (mut client, server) = tokio::io::duplex(request.len().max(1) + 1024);
        let listener = OneConnection(Mutex::new(Some(server)));
        let mut answer = Vec::new();
        self.runtime.block_on(async {
            let talk = async {
                // The pipe has room for all of it.
                let _ = client.write_all(request).await;
                read(&mut client, &mut answer).await;
            };
            tokio::select! {
                () = connections::serve(listener, self.router.clone(), 1) => {}
                () = talk => {}
            }
        });
        answer
    }
}

/// Reads until nothing more comes.
async fn read(client: &mut DuplexStream, answer: &mut Vec<u8>) {
    let (mut buffer, mut idle) = ([0; 4096], 0);
    while idle < IDLE_TURNS {
        tokio::select! {
            biased;
            read = client.read(&mut buffer) => match read {
                Ok(0) | Err(_) => return,
                Ok(bytes) => {
                    answer.extend(&buffer[..bytes]);
                    idle = 0;
                }
            },
            () = tokio::task::yield_now() => idle += 1,
        }
    }
}

/// Accepts one connection, and then no other.
struct OneConnection(Mutex<Option<DuplexStream>>);

impl Accept for OneConnection {
    type Socket = DuplexStream;
    type Peer = Endpoints;

    async fn accept(&self) -> io::Result<(DuplexStream, Endpoints)> {
        let socket = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        match socket {
            Some(socket) => {
                let local = SocketAddr::from(([127, 0, 0, 1], 7471));
                let remote = SocketAddr::from(([127, 0, 0, 1], 4711));
                Ok((socket, Endpoints { local, remote }))
            }
            None => std::future::pending().await,
        }
    }
}
