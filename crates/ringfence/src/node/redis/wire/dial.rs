//! Makes the connections of one node: where to connect, and how to log in.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use redis::{
    AsyncConnectionConfig, Cmd, ConnectionAddr, ErrorKind, ProtocolVersion, PushInfo,
    RedisConnectionInfo, RedisError, RedisResult, Value, cmd,
};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio_rustls::TlsConnector;

use crate::protocol::MasterAddress;
use crate::url::{Address, RedisUrl, SentinelLogin, TlsFiles};

use super::library::{Library, Pushes};
use super::stream::Stream;
use super::tls::{self, TlsError};
use super::wake_listeners::WakeListeners;
use super::{Bytes, Connection, Wire};

/// Makes the connections of one node.
pub(crate) enum Dial {
    /// With our own code: it notices at once when the connection ends, and bounds the input.
    Ourselves {
        address: Address,
        tls: Option<TlsConnector>,
        login: RedisConnectionInfo,
    },
    /// With the caller's client of the crate `redis`, whose TLS settings cannot be read.
    Client(Box<redis::Client>),
}

impl Dial {
    /// Connects to the server of `url`.
    ///
    /// # Errors
    /// If the TLS files cannot be used.
    pub(crate) fn url(url: &RedisUrl) -> Result<Self, TlsError> {
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

    /// Connects to the Sentinel at `host` and `port`.
    ///
    /// # Errors
    /// If the TLS files cannot be used.
    pub(crate) fn sentinel(
        host: &str,
        port: u16,
        access: &SentinelLogin,
    ) -> Result<Self, TlsError> {
        let mut login = RedisConnectionInfo::default();
        if let Some(user) = &access.user {
            login = login.set_username(user);
        }
        if let Some(password) = &access.password {
            login = login.set_password(password);
        }
        Ok(Self::Ourselves {
            address: Address::Tcp(host.to_owned(), port),
            tls: access.tls.as_ref().map(tls::connector).transpose()?,
            login,
        })
    }

    /// Connects to the server of `client`.
    ///
    /// # Errors
    /// If it uses TLS and the system has no trusted roots.
    pub(crate) fn client(client: redis::Client) -> Result<Self, TlsError> {
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
                // The client uses the provider of the process for TLS, and panics if there is none.
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

    /// Connects to the server at `address` in the same way; `None` if that is not possible.
    pub(crate) fn at(&self, address: &Address) -> Option<Self> {
        match self {
            Self::Ourselves { tls, login, .. } => Some(Self::Ourselves {
                address: address.clone(),
                tls: tls.clone(),
                login: login.clone(),
            }),
            Self::Client(_) => None,
        }
    }

    /// Connects, logs in and selects the database. The caller limits the time.
    ///
    /// Wakes are pushed over the same connection, which needs RESP3. A server without RESP3 sends
    /// none.
    /// `master`: the server that the Sentinels name, for a service.
    pub(crate) async fn connect(
        &self,
        master: Option<&MasterAddress>,
        listeners: &Arc<WakeListeners>,
    ) -> RedisResult<Connection> {
        match self.connect_with(master, Some(listeners)).await {
            Err(error) if cannot_push(&error) => self.connect_with(master, None).await,
            outcome => outcome,
        }
        .map(|mut connection| {
            connection.master = master.cloned();
            connection
        })
    }

    async fn connect_with(
        &self,
        master: Option<&MasterAddress>,
        listeners: Option<&Arc<WakeListeners>>,
    ) -> RedisResult<Connection> {
        match self {
            Self::Ourselves {
                address,
                tls,
                login,
            } => match (address, master) {
                (Address::Tcp(host, port), _) => {
                    let stream = TcpStream::connect((host.as_str(), *port)).await?;
                    enter(stream, host, tls.as_ref(), login, listeners).await
                }
                (Address::Service(_), Some(master)) => {
                    let stream = connect_to(master).await?;
                    enter(stream, &master.host, tls.as_ref(), login, listeners).await
                }
                // The caller asks the Sentinels first.
                (Address::Service(_), None) => {
                    Err(io::Error::from(io::ErrorKind::AddrNotAvailable).into())
                }
                #[cfg(unix)]
                (Address::Unix(path), _) => {
                    log_in(UnixStream::connect(path).await?, login, listeners).await
                }
                #[cfg(not(unix))]
                (Address::Unix(_), _) => Err(io::Error::from(io::ErrorKind::Unsupported).into()),
            },
            Self::Client(client) => {
                let info = client.get_connection_info().clone();
                let protocol = match listeners {
                    Some(_) => ProtocolVersion::RESP3,
                    None => ProtocolVersion::RESP2,
                };
                let login = info.redis_settings().clone().set_protocol(protocol);
                let client = redis::Client::open(info.set_redis_settings(login))?;
                let pushes =
                    listeners.map(|listeners| Arc::new(Pushes::new(Arc::clone(listeners))));
                let connection = client
                    .get_multiplexed_async_connection_with_config(&config(pushes.clone()))
                    .await?;
                let library = Library::new(connection, pushes);
                Ok(Connection::new(Bytes::Library(library)))
            }
        }
    }
}

/// Connects to an IP that a majority of the Sentinels gave. A name is not resolved again: it could
/// have other IPs by now.
async fn connect_to(master: &MasterAddress) -> io::Result<TcpStream> {
    if master.ips.is_empty() {
        let why = format!("the name of the master {master} cannot be resolved");
        return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, why));
    }
    let addresses = master
        .ips
        .iter()
        .map(|ip| SocketAddr::new(*ip, master.port));
    TcpStream::connect(addresses.collect::<Vec<_>>().as_slice()).await
}

/// Logs in over `stream`. The certificate of the server must be for `host`.
async fn enter(
    stream: TcpStream,
    host: &str,
    tls: Option<&TlsConnector>,
    login: &RedisConnectionInfo,
    listeners: Option<&Arc<WakeListeners>>,
) -> RedisResult<Connection> {
    // Our batches are complete: waiting for more to send would only delay them.
    stream.set_nodelay(true)?;
    match tls {
        None => log_in(stream, login, listeners).await,
        Some(tls) => {
            let server = ServerName::try_from(host.to_owned())?;
            let stream = tls.connect(server, stream).await?;
            log_in(stream, login, listeners).await
        }
    }
}

/// Whether the error says that the server does not know RESP3, in the texts of several versions.
fn cannot_push(error: &RedisError) -> bool {
    error.kind() == ErrorKind::RESP3NotSupported
        || error.code() == Some("NOPROTO")
        || error
            .detail()
            .is_some_and(|detail| detail.starts_with("unknown command"))
}

/// No timeouts: the link has its own, and a timeout of the crate `redis` would drop a request that
/// may not have been sent.
fn config(pushes: Option<Arc<Pushes>>) -> AsyncConnectionConfig {
    let config = AsyncConnectionConfig::new()
        .set_response_timeout(None)
        .set_connection_timeout(None);
    let Some(pushes) = pushes else {
        return config;
    };
    config.set_push_sender(move |push: PushInfo| {
        pushes.receive(&push);
        Ok::<(), ()>(())
    })
}

/// Logs in over `stream`: with RESP3 if there are `listeners` for pushes, else with RESP2, which
/// every server knows.
///
/// Sends no library name: that would need another right, and fill the server's ACL LOG without it.
async fn log_in(
    stream: impl Stream + 'static,
    login: &RedisConnectionInfo,
    listeners: Option<&Arc<WakeListeners>>,
) -> RedisResult<Connection> {
    let mut wire = Wire::new(stream, listeners.cloned());
    let mut commands = Vec::new();
    if listeners.is_some() {
        commands.push(hello(login));
    } else if let Some(password) = login.password() {
        let mut auth = cmd("AUTH");
        auth.arg(login.username()).arg(password);
        commands.push(auth);
    }
    if login.db() != 0 {
        let mut select = cmd("SELECT");
        select.arg(login.db());
        commands.push(select);
    }
    if !commands.is_empty() {
        wire.send(&commands);
        for answer in wire.answers().await? {
            if let Value::ServerError(error) = answer {
                return Err(error.into());
            }
        }
    }
    Ok(Connection::new(Bytes::Wire(wire)))
}

/// Requests RESP3, and logs in if there is a password.
fn hello(login: &RedisConnectionInfo) -> Cmd {
    let mut hello = cmd("HELLO");
    hello.arg(3);
    if let Some(password) = login.password() {
        let user = login.username().unwrap_or("default");
        hello.arg("AUTH").arg(user).arg(password);
    }
    hello
}
