//! The settings of a server, before it is started.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use crate::binary::Flavor;
use crate::certificates::Certificates;
use crate::port;
use crate::proxy::Proxy;
use crate::server::{ADMIN, SOCKET, Server};
use crate::sync::DiskSync;
use crate::wait::wait_until;
use crate::wall_clock::WallClock;

/// What a server keeps when it ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Persistence {
    /// Nothing.
    #[default]
    None,
    /// An append-only file that is synced before each reply.
    AofAlways,
    /// An append-only file that is synced each second.
    AofEverysec,
    /// A snapshot that is written at a clean shutdown.
    Snapshot,
}

/// A server that is not started yet.
#[derive(Debug, Clone)]
#[must_use = "nothing runs before `start`"]
pub struct ServerBuilder {
    pub(crate) flavor: Flavor,
    pub(crate) password: Option<String>,
    pub(crate) certificates: Option<Certificates>,
    pub(crate) only_unix_socket: bool,
    pub(crate) environment: Vec<(String, String)>,
    persistence: Persistence,
    users: Option<String>,
    primary: Option<Primary>,
    cluster_mode: bool,
    /// What a Sentinel monitors: the lines of its configuration.
    sentinel: Option<String>,
    settings: Vec<(String, String)>,
}

/// The kit's own user, as a server's configuration describes it.
const RIGHTS: [&str; 6] = [ADMIN, "on", "nopass", "~*", "&*", "+@all"];

#[derive(Debug, Clone)]
struct Primary {
    addr: SocketAddr,
    has_tls: bool,
}

impl ServerBuilder {
    pub(crate) fn new(flavor: Flavor) -> Self {
        Self {
            flavor,
            password: None,
            certificates: None,
            only_unix_socket: false,
            environment: Vec::new(),
            persistence: Persistence::default(),
            users: None,
            primary: None,
            cluster_mode: false,
            sentinel: None,
            settings: Vec::new(),
        }
    }

    /// A Sentinel, with these lines of configuration.
    pub(crate) fn sentinel(mut self, configuration: String) -> Self {
        self.sentinel = Some(configuration);
        self
    }

    /// Replicates with the kit's own user when it becomes a replica.
    pub(crate) fn may_follow(self) -> Self {
        self.arg("--masteruser", ADMIN).arg("--masterauth", ADMIN)
    }

    /// What it keeps when it ends; nothing by default.
    pub fn persistence(mut self, persistence: Persistence) -> Self {
        self.persistence = persistence;
        self
    }

    /// Begins to feed its replicas at once.
    pub fn feeding_at_once(self) -> Self {
        self.arg("--repl-diskless-sync-delay", "0")
    }

    /// Any other setting, as on the server's command line: `.arg("--maxmemory", "10mb")`.
    pub fn arg(mut self, setting: &str, value: &str) -> Self {
        self.settings.push((setting.to_owned(), value.to_owned()));
        self
    }

    /// The default user's password. [`Server::url`] contains it, so it must not need escaping
    /// there.
    pub fn requirepass(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// The contents of an ACL file: one `user …` line for each user. See [`Server::url_as`].
    pub fn acl_file(mut self, users: &str) -> Self {
        self.users = Some(users.to_owned());
        self
    }

    /// A replica of `primary`; [`start`](Self::start) waits until it is connected.
    pub fn replica_of(mut self, primary: &Server) -> Self {
        self.primary = Some(Primary {
            addr: primary.addr(),
            has_tls: primary.has_tls(),
        });
        self
    }

    /// A replica of `primary` behind `proxy`, which can cut the connection.
    pub fn replica_through(mut self, proxy: &Proxy, primary: &Server) -> Self {
        self.primary = Some(Primary {
            addr: proxy.addr(),
            has_tls: primary.has_tls(),
        });
        self
    }

    /// The only node of a cluster.
    pub fn cluster_mode(mut self) -> Self {
        self.cluster_mode = true;
        self
    }

    /// Only TLS on its port.
    pub fn tls(mut self, certificates: &Certificates) -> Self {
        self.certificates = Some(certificates.clone());
        self
    }

    /// A Unix socket and no port.
    pub fn unix_socket(mut self) -> Self {
        self.only_unix_socket = true;
        self
    }

    /// A variable in its environment. Several libraries to preload are all loaded.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        let preloaded = self.environment.iter_mut();
        let mut preloaded = preloaded.filter(|(known, _)| known == name && name == "LD_PRELOAD");
        match preloaded.next() {
            Some((_, libraries)) => *libraries = format!("{libraries}:{value}"),
            None => self.environment.push((name.to_owned(), value.to_owned())),
        }
        self
    }

    /// A shared library that is loaded into it before all others, such as one that changes its
    /// clock.
    pub fn preload(self, library: &Path) -> Self {
        let path = library.to_str().expect("the library's path is not UTF-8");
        self.env("LD_PRELOAD", path)
    }

    /// Its own wall clock, which the test can set while the server runs.
    pub fn wall_clock(self, clock: &WallClock) -> Self {
        self.envs(&clock.environment())
    }

    /// Its own disk, whose syncs the test can let fail while the server runs.
    pub fn disk_sync(self, sync: &DiskSync) -> Self {
        self.envs(&sync.environment())
    }

    fn envs(self, variables: &[(String, String)]) -> Self {
        let add = |server: Self, (name, value): &(String, String)| server.env(name, value);
        variables.iter().fold(self, add)
    }

    /// Starts it and waits until it answers.
    ///
    /// # Panics
    /// If it is not installed or does not start; the message contains the server's log.
    pub fn start(self) -> Server {
        let is_replica = self.primary.is_some();
        let server = Server::launch_somewhere(self);
        if is_replica {
            wait_until(
                "the replica to find its primary",
                Duration::from_secs(20),
                || {
                    let replication = server.command(&["INFO", "replication"]);
                    replication.contains("master_link_status:up")
                },
            );
        }
        server
    }

    /// The server's command line. Writes the files that it names to `folder`.
    pub(crate) fn arguments(&self, port: u16, folder: &Path) -> Vec<String> {
        let mut arguments = Arguments::default();
        if let Some(configuration) = &self.sentinel {
            // A Sentinel writes what it learns into its configuration file.
            let file = folder.join("sentinel.conf");
            let user = RIGHTS.join(" ");
            fs::write(&file, format!("user {user}\n{configuration}\n"))
                .expect("cannot write the Sentinel's configuration");
            arguments.add(&text(&file), ["--sentinel"]);
        }
        arguments.add("--bind", ["127.0.0.1"]);
        arguments.add("--unixsocket", [text(&folder.join(SOCKET))]);
        arguments.add("--dir", [text(folder)]);
        // A replica should not wait five seconds for other replicas.
        arguments.add("--repl-diskless-sync-delay", ["0"]);
        self.add_ports(&mut arguments, port);
        if self.sentinel.is_none() {
            self.add_persistence(&mut arguments);
        }
        self.add_users(&mut arguments, folder);
        self.add_primary(&mut arguments);
        for (setting, value) in &self.settings {
            arguments.add(setting, [value]);
        }
        arguments.0
    }

    fn add_ports(&self, arguments: &mut Arguments, port: u16) {
        if let Some(certificates) = &self.certificates {
            arguments.add("--port", ["0"]);
            arguments.add("--tls-port", [port.to_string()]);
            arguments.add("--tls-ca-cert-file", [text(&certificates.authority_file())]);
            arguments.add("--tls-cert-file", [text(&certificates.certificate_file())]);
            arguments.add("--tls-key-file", [text(&certificates.key_file())]);
            arguments.add("--tls-auth-clients", ["no"]);
        } else {
            arguments.add("--port", [port.to_string()]);
        }
        if self.cluster_mode {
            arguments.add("--cluster-enabled", ["yes"]);
            arguments.add("--cluster-port", [port::free().to_string()]);
        }
    }

    fn add_persistence(&self, arguments: &mut Arguments) {
        let (snapshot, aof, fsync) = match self.persistence {
            Persistence::None => ("", "no", "everysec"),
            Persistence::AofAlways => ("", "yes", "always"),
            Persistence::AofEverysec => ("", "yes", "everysec"),
            Persistence::Snapshot => ("3600 1", "no", "everysec"),
        };
        arguments.add("--save", [snapshot]);
        arguments.add("--appendonly", [aof]);
        arguments.add("--appendfsync", [fsync]);
    }

    /// The kit has its own user, so that it can talk to the server whatever the test does to the
    /// default user. A server refuses users in both its settings and a file.
    fn add_users(&self, arguments: &mut Arguments, folder: &Path) {
        if let Some(password) = &self.password {
            arguments.add("--requirepass", [password]);
        }
        let Some(users) = &self.users else {
            if self.sentinel.is_none() {
                arguments.add("--user", RIGHTS);
            }
            return;
        };
        let file = folder.join("users.acl");
        let users = format!("{}\nuser {}\n", users.trim_end(), RIGHTS.join(" "));
        fs::write(&file, users).expect("cannot write the ACL file");
        arguments.add("--aclfile", [text(&file)]);
    }

    fn add_primary(&self, arguments: &mut Arguments) {
        let Some(Primary { addr, has_tls }) = &self.primary else {
            return;
        };
        arguments.add(
            "--replicaof",
            [addr.ip().to_string(), addr.port().to_string()],
        );
        arguments.add("--masteruser", [ADMIN]);
        arguments.add("--masterauth", [ADMIN]);
        arguments.add("--tls-replication", [if *has_tls { "yes" } else { "no" }]);
    }
}

#[derive(Default)]
struct Arguments(Vec<String>);

impl Arguments {
    fn add<V: AsRef<str>>(&mut self, setting: &str, values: impl IntoIterator<Item = V>) {
        self.0.push(setting.to_owned());
        let values = values.into_iter().map(|value| value.as_ref().to_owned());
        self.0.extend(values);
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
