//! One connection to one server: how it is made, and questions asked over it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, ConnectionAddr, ErrorKind, Pipeline, ProtocolVersion, PushInfo,
    RedisConnectionInfo, RedisError, RedisResult, Value,
};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio_rustls::TlsConnector;

use crate::url::{Address, RedisUrl, TlsFiles};

use super::ears::Ears;
use super::flood::{Bounded, Gauge};
use super::tls::{self, TlsError};

/// How the connections of one node are made.
pub(super) enum Dial {
    /// By us: we learn at once when the connection ends, and bound what arrives.
    Ourselves {
        address: Address,
        tls: Option<TlsConnector>,
        login: RedisConnectionInfo,
    },
    /// By a client that was handed in and whose TLS settings only it knows.
    Client(Box<redis::Client>),
}

impl Dial {
    /// Dials what `url` names.
    ///
    /// # Errors
    /// If the TLS files cannot be used.
    pub(super) fn url(url: &RedisUrl) -> Result<Self, TlsError> {
        // A library name is worth no right of its own, and denied it would fill the server's ACL LOG.
        let login = RedisConnectionInfo::default().set_skip_set_lib_name();
        let mut login = login.set_db(url.db.into());
        if let Some(user) = &url.user {
            login = login.set_username(user);
        }
        if let Some(password) = &url.password {
            login = login.set_password(password);
        }
        Ok(Self::Ourselves {
            address: url.address.clone(),
            tls: url.tls.as_ref().map(tls::connector).transpose()?,
            login,
        })
    }

    /// Dials what `client` would.
    ///
    /// # Errors
    /// If it wants TLS and nobody is trusted.
    pub(super) fn client(client: redis::Client) -> Result<Self, TlsError> {
        let info = client.get_connection_info();
        let login = info.redis_settings().clone();
        let (address, tls) = match info.addr() {
            ConnectionAddr::Tcp(host, port) => (Address::Tcp(host.clone(), *port), None),
            ConnectionAddr::Unix(path) => (Address::Unix(path.clone()), None),
            ConnectionAddr::TcpTls {
                host,
                port,
                insecure: false,
                tls_params: None,
            } => {
                let tls = tls::connector(&TlsFiles::default())?;
                (Address::Tcp(host.clone(), *port), Some(tls))
            }
            _ => {
                // The client makes its TLS with the process's provider, and panics if there is none.
                let _ = rustls::crypto::ring::default_provider().install_default();
                return Ok(Self::Client(Box::new(client)));
            }
        };
        Ok(Self::Ourselves {
            address,
            tls,
            login,
        })
    }

    /// Connects, logs in and selects the database. How long that may take is the caller's business.
    ///
    /// Wakes are pushed, which RESP3 alone can do on a connection that is also asked. A server that
    /// does not know it gives none.
    pub(super) async fn connect(&self, ears: &Arc<Ears>) -> RedisResult<Line> {
        match self.connect_with(Some(ears)).await {
            Err(error) if cannot_push(&error) => self.connect_with(None).await,
            outcome => outcome,
        }
    }

    async fn connect_with(&self, ears: Option<&Arc<Ears>>) -> RedisResult<Line> {
        match self {
            Self::Ourselves {
                address,
                tls,
                login,
            } => match address {
                Address::Tcp(host, port) => {
                    let stream = TcpStream::connect((host.as_str(), *port)).await?;
                    // Our batches are whole: waiting for more to send would only delay them.
                    stream.set_nodelay(true)?;
                    match tls {
                        None => Line::new(stream, login, ears).await,
                        Some(tls) => {
                            let server = ServerName::try_from(host.clone())?;
                            let stream = tls.connect(server, stream).await?;
                            Line::new(stream, login, ears).await
                        }
                    }
                }
                #[cfg(unix)]
                Address::Unix(path) => {
                    Line::new(UnixStream::connect(path).await?, login, ears).await
                }
                #[cfg(not(unix))]
                Address::Unix(_) => {
                    Err(std::io::Error::from(std::io::ErrorKind::Unsupported).into())
                }
            },
            Self::Client(client) => {
                let gauge = Gauge::default();
                let info = client.get_connection_info().clone();
                let login = speaking(info.redis_settings(), ears);
                let client = redis::Client::open(info.set_redis_settings(login))?;
                let connection = client
                    .get_multiplexed_async_connection_with_config(&config(ears, &gauge))
                    .await?;
                Ok(Line {
                    connection,
                    driver: Box::pin(std::future::pending()),
                    gauge,
                    hears: ears.is_some(),
                })
            }
        }
    }
}

/// Whether the server said that it does not know RESP3, in the words of one age or another.
fn cannot_push(error: &RedisError) -> bool {
    error.kind() == ErrorKind::RESP3NotSupported
        || error.code() == Some("NOPROTO")
        || error
            .detail()
            .is_some_and(|detail| detail.starts_with("unknown command"))
}

/// No timeouts: the link has its own, and a timeout of the library's would drop a request that may
/// not have been sent.
fn config(ears: Option<&Arc<Ears>>, gauge: &Gauge) -> AsyncConnectionConfig {
    let config = AsyncConnectionConfig::new()
        .set_response_timeout(None)
        .set_connection_timeout(None);
    let Some(ears) = ears.map(Arc::clone) else {
        return config;
    };
    let gauge = gauge.clone();
    config.set_push_sender(move |push: PushInfo| {
        // As complete as a reply, and it may be long until the next of those.
        gauge.reset();
        ears.hear(&push);
        Ok::<(), ()>(())
    })
}

/// `login` in the protocol that can push to `ears`, or the one that every server knows.
fn speaking(login: &RedisConnectionInfo, ears: Option<&Arc<Ears>>) -> RedisConnectionInfo {
    login.clone().set_protocol(match ears {
        Some(_) => ProtocolVersion::RESP3,
        None => ProtocolVersion::RESP2,
    })
}

/// One connection.
pub(super) struct Line {
    /// Takes requests. They go nowhere unless `driver` is polled.
    pub(super) connection: MultiplexedConnection,
    /// Moves the bytes, in the link's own task: no second task has to wake up for a reply. Completes
    /// when the connection has ended.
    pub(super) driver: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Counts what arrives.
    pub(super) gauge: Gauge,
    /// Whether the server can push.
    pub(super) hears: bool,
}

impl Line {
    async fn new<S>(
        stream: S,
        login: &RedisConnectionInfo,
        ears: Option<&Arc<Ears>>,
    ) -> RedisResult<Self>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let gauge = Gauge::default();
        let stream = Bounded::new(stream, gauge.clone());
        let login = speaking(login, ears);
        let (connection, driver) =
            MultiplexedConnection::new_with_config(&login, stream, config(ears, &gauge)).await?;
        Ok(Self {
            connection,
            driver: Box::pin(driver),
            gauge,
            hears: ears.is_some(),
        })
    }

    /// Asks everything in `questions` at once and waits for all the answers, errors among them.
    pub(super) async fn ask(&mut self, questions: &Pipeline) -> RedisResult<Vec<Value>> {
        let count = questions.len();
        let answers = self.connection.send_packed_commands(questions, 0, count);
        let answers = tokio::select! {
            biased;
            answers = answers => answers?,
            () = &mut self.driver => return Err(ended()),
        };
        self.gauge.reset();
        Ok(answers)
    }
}

/// What a question gets whose connection has ended.
pub(super) fn ended() -> RedisError {
    std::io::Error::from(std::io::ErrorKind::BrokenPipe).into()
}
