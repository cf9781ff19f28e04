//! `--raise-mark`: raises the mark of a fenced resource, so that it refuses a broken holder.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, IntoConnectionInfo,
    RedisConnectionInfo, TlsCertificates,
};
use ringfence::resource::redis::{ADMIT, marks_key};
use ringfence::resource::sql::{self, POSTGRES, SQLITE};
use ringfence::url::{Address, NodeUrl, RedisUrl, TlsFiles, parse_nodes};

use crate::args::BreakArgs;
use crate::exit::Exit;
use crate::report::CliFailure;

/// How long the resource may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A fenced resource.
pub(super) struct MarkTarget {
    store: Store,
    /// The key or the name under which the resource has its marks.
    resource: String,
}

enum Store {
    /// A server and the login there.
    Redis(Box<Client>),
    /// The file of a database.
    Sqlite(PathBuf),
    /// Only the SQL is printed: which account may write the table, we cannot know.
    Postgres,
}

impl MarkTarget {
    /// The resource in the arguments, if there is one.
    pub(super) fn parse(args: &BreakArgs) -> Result<Option<Self>, CliFailure> {
        let Some(url) = &args.raise_mark else {
            return Ok(None);
        };
        let store = if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            Store::Postgres
        } else {
            match parse_nodes(url).as_deref() {
                Ok([NodeUrl::Redis(redis)]) => Store::Redis(Box::new(client(redis)?)),
                Ok([NodeUrl::Sqlite(path)]) => Store::Sqlite(path.clone()),
                Ok(_) => {
                    return Err(CliFailure::usage(
                        "--raise-mark needs one redis://, sqlite: or postgres:// URL",
                    ));
                }
                Err(error) => return Err(CliFailure::usage(format!("--raise-mark: {error}"))),
            }
        };
        let resource = args.resource.as_ref().unwrap_or(&args.name).clone();
        Ok(Some(Self { store, resource }))
    }

    /// Raises the write mark to `fence`. Returns what was done, or what to do.
    pub(super) async fn raise(&self, fence: u64) -> Result<String, CliFailure> {
        match &self.store {
            Store::Redis(server) => self.raise_on_redis(server, fence).await,
            Store::Sqlite(path) => self.raise_in_sqlite(path, fence),
            Store::Postgres => Ok(self.statement_for_postgres(fence)),
        }
    }

    async fn raise_on_redis(&self, client: &Client, fence: u64) -> Result<String, CliFailure> {
        let failed = |error: String| self.failed(fence, &error);
        let raise = async {
            let patience = AsyncConnectionConfig::new()
                .set_connection_timeout(Some(PATIENCE))
                .set_response_timeout(Some(PATIENCE));
            let connection = client.get_multiplexed_async_connection_with_config(&patience);
            let mut connection = connection.await?;
            let script = format!("{ADMIT}\nreturn admit(KEYS[1], 'write', ARGV[1], '0')");
            redis::Script::new(&script)
                .key(marks_key(&self.resource))
                .arg(fence)
                .invoke_async::<Option<()>>(&mut connection)
                .await
        };
        match tokio::time::timeout(PATIENCE, raise).await {
            Ok(Ok(_)) => Ok(self.raised(fence)),
            Ok(Err(error)) if error.to_string().contains("STALEFENCE") => Ok(self.is_higher()),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(_) => Err(failed("no answer in time".to_owned())),
        }
    }

    fn raise_in_sqlite(&self, path: &PathBuf, fence: u64) -> Result<String, CliFailure> {
        let raise = || -> rusqlite::Result<usize> {
            let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE;
            let database = rusqlite::Connection::open_with_flags(path, flags)?;
            database.busy_timeout(PATIENCE)?;
            database.execute(SQLITE.create, [])?;
            let values = rusqlite::params![self.resource, sql::number(fence)];
            database.execute(SQLITE.admit_write, values)
        };
        match raise() {
            Ok(0) => Ok(self.is_higher()),
            Ok(_) => Ok(self.raised(fence)),
            Err(error) => Err(self.failed(fence, &error.to_string())),
        }
    }

    fn statement_for_postgres(&self, fence: u64) -> String {
        let resource = format!("'{}'", self.resource.replace('\'', "''"));
        let statement = POSTGRES.admit_write.replacen("$1", &resource, 1);
        let statement = statement.replacen("$2", &fence.to_string(), 1);
        format!("run this where the data is, to refuse the old holder:\n{statement};")
    }

    fn raised(&self, fence: u64) -> String {
        format!("raised the mark of `{}` to {fence}", self.resource)
    }

    fn is_higher(&self) -> String {
        format!("the mark of `{}` is higher already", self.resource)
    }

    /// The lock is broken by now, so the operator needs the fence.
    fn failed(&self, fence: u64, error: &str) -> CliFailure {
        CliFailure::new(
            Exit::Internal,
            format!(
                "the lock is broken and its fence is {fence}, but the mark of `{}` could not be \
                 raised: {error}",
                self.resource
            ),
        )
    }
}

/// A client for the server, which is not connected yet.
fn client(url: &RedisUrl) -> Result<Client, CliFailure> {
    let wrong = |error: redis::RedisError| CliFailure::usage(format!("--raise-mark: {error}"));
    let address = match (&url.address, &url.tls) {
        (Address::Tcp(host, port), None) => ConnectionAddr::Tcp(host.clone(), *port),
        (Address::Tcp(host, port), Some(_)) => ConnectionAddr::TcpTls {
            host: host.clone(),
            port: *port,
            insecure: false,
            tls_params: None,
        },
        (Address::Unix(path), _) => ConnectionAddr::Unix(path.clone()),
        (Address::Service(_), _) => {
            return Err(CliFailure::usage(
                "--raise-mark needs the address of the server with the data, not of its Sentinels",
            ));
        }
    };
    let mut login = RedisConnectionInfo::default().set_db(i64::from(url.db));
    if let Some(user) = &url.user {
        login = login.set_username(user);
    }
    if let Some(password) = &url.password {
        login = login.set_password(password);
    }
    let info = address.into_connection_info().map_err(wrong)?;
    let info = info.set_redis_settings(login);
    match &url.tls {
        None => Client::open(info).map_err(wrong),
        Some(files) => Client::build_with_tls(info, certificates(files)?).map_err(wrong),
    }
}

/// The certificates that the URL names.
fn certificates(files: &TlsFiles) -> Result<TlsCertificates, CliFailure> {
    let read = |file: &PathBuf| {
        fs::read(file).map_err(|error| {
            let file = file.display().to_string();
            CliFailure::usage(format!("--raise-mark: {}: {error}", file.escape_debug()))
        })
    };
    let identity = files.identity.as_ref().map(|(cert, key)| {
        Ok::<_, CliFailure>(ClientTlsConfig {
            client_cert: read(cert)?,
            client_key: read(key)?,
        })
    });
    Ok(TlsCertificates {
        client_tls: identity.transpose()?,
        root_cert: files.ca.as_ref().map(read).transpose()?,
    })
}
