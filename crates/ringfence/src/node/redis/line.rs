//! One connection to one server: how it is made, and questions asked over it.

use std::future::Future;
use std::pin::Pin;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, ConnectionAddr, Pipeline, RedisConnectionInfo, RedisError, RedisResult,
    Value,
};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio_rustls::TlsConnector;

use crate::url::{Address, RedisUrl, TlsFiles};

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
        let mut login = RedisConnectionInfo::default().set_db(url.db.into());
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
        // Push messages are RESP3's; nothing here asks for any.
        let login = info
            .redis_settings()
            .clone()
            .set_protocol(redis::ProtocolVersion::RESP2);
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
    pub(super) async fn connect(&self) -> RedisResult<Line> {
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
                        None => Line::new(stream, login).await,
                        Some(tls) => {
                            let server = ServerName::try_from(host.clone())?;
                            Line::new(tls.connect(server, stream).await?, login).await
                        }
                    }
                }
                #[cfg(unix)]
                Address::Unix(path) => Line::new(UnixStream::connect(path).await?, login).await,
                #[cfg(not(unix))]
                Address::Unix(_) => {
                    Err(std::io::Error::from(std::io::ErrorKind::Unsupported).into())
                }
            },
            Self::Client(client) => {
                let connection = client
                    .get_multiplexed_async_connection_with_config(&config())
                    .await?;
                Ok(Line {
                    connection,
                    driver: Box::pin(std::future::pending()),
                    gauge: Gauge::default(),
                })
            }
        }
    }
}

/// No timeouts: the link has its own, and a timeout of the library's would drop a request that may
/// not have been sent.
fn config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_response_timeout(None)
        .set_connection_timeout(None)
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
}

impl Line {
    async fn new<S>(stream: S, login: &RedisConnectionInfo) -> RedisResult<Self>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let gauge = Gauge::default();
        let stream = Bounded::new(stream, gauge.clone());
        let (connection, driver) =
            MultiplexedConnection::new_with_config(login, stream, config()).await?;
        Ok(Self {
            connection,
            driver: Box::pin(driver),
            gauge,
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
