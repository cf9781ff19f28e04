//! One running server, and what a test may do to it.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use crate::binary::Flavor;
use crate::builder::ServerBuilder;
use crate::port;
use crate::process::Process;
use crate::reply::{self, Reply};
use crate::wait::{Patience, wait_until};

/// The kit's own user on every server.
pub(crate) const ADMIN: &str = "testkit";
/// Every server has a Unix socket in its folder, for the kit. Unlike a port it cannot belong to
/// another process, and it needs no TLS.
pub(crate) const SOCKET: &str = "server.sock";

const START_LIMIT: Duration = Duration::from_secs(20);
const REPLY_LIMIT: Duration = Duration::from_secs(5);
/// The same for a command that must succeed.
const COMMAND_LIMIT: Duration = Duration::from_secs(30);
const SYNC_LIMIT: Duration = Duration::from_secs(30);

/// A real server with its own folder and its own loopback port. Dropping it ends the process and
/// removes the folder.
///
/// Every method takes a shared reference, so that a test can harm a server while tasks use it.
#[derive(Debug)]
pub struct Server {
    builder: ServerBuilder,
    port: u16,
    arguments: Vec<String>,
    // Before the folder: fields are dropped in this order, and the process writes there.
    process: Mutex<Option<Process>>,
    folder: TempDir,
}

impl Server {
    /// Starts a server without persistence, password or other settings.
    pub fn start(flavor: Flavor) -> Self {
        Self::builder(flavor).start()
    }

    /// The settings of a server to be started.
    pub fn builder(flavor: Flavor) -> ServerBuilder {
        ServerBuilder::new(flavor)
    }

    /// The URL for a client, with the password of [`ServerBuilder::requirepass`].
    pub fn url(&self) -> String {
        self.url_through(self.port)
    }

    /// The URL for a client as one of the users of [`ServerBuilder::acl_file`].
    pub fn url_as(&self, user: &str, password: &str) -> String {
        self.locate(Some((user, password)), self.port)
    }

    /// [`url`](Self::url) with `quarantine=off`, for a server that is to vote at once.
    pub fn url_without_quarantine(&self) -> String {
        let url = self.url();
        let separator = if url.contains('?') { '&' } else { '?' };
        format!("{url}{separator}quarantine=off")
    }

    /// Its port on the loopback interface.
    ///
    /// # Panics
    /// If it has only a Unix socket.
    pub fn port(&self) -> u16 {
        assert!(!self.builder.only_unix_socket, "this server has no port");
        self.port
    }

    /// Its address and port.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port()).into()
    }

    /// Its Unix socket, which always exists.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join(SOCKET)
    }

    /// Whether its process runs, and is not paused.
    pub fn is_running(&self) -> bool {
        self.process()
            .as_ref()
            .is_some_and(|process| !process.is_paused())
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.running(Process::id)
    }

    /// Stops the process (SIGSTOP): it keeps its connections and does not answer.
    pub fn pause(&self) {
        self.running(Process::pause);
    }

    /// Lets a paused process continue (SIGCONT); it then handles what has arrived meanwhile.
    pub fn resume(&self) {
        self.running(Process::resume);
    }

    /// Ends the process at once (SIGKILL), like a power failure. It is gone on return.
    pub fn kill(&self) {
        drop(self.process().take());
    }

    /// Ends the process cleanly (SIGTERM, the same as `SHUTDOWN`): it writes what its persistence
    /// requires. It is gone on return.
    pub fn shutdown_cleanly(&self) {
        if let Some(process) = self.process().take() {
            process.terminate();
        }
    }

    /// Starts it again on the same port and in the same folder; kills it first if it runs.
    pub fn restart(&self) {
        self.kill();
        if let Err(log) = self.launch() {
            panic!(
                "{:?} did not start again; its log:\n{log}",
                self.builder.flavor
            );
        }
    }

    /// How much of its append-only file is written so far, as a mark for
    /// [`lose_writes_after`](Self::lose_writes_after).
    ///
    /// # Panics
    /// If it has no append-only file.
    pub fn written(&self) -> u64 {
        self.append_only_file().1
    }

    /// Removes what was written to its append-only file after `mark`, as a power failure does with
    /// data that was not synced. The server must have been killed.
    pub fn lose_writes_after(&self, mark: u64) {
        assert!(self.process().is_none(), "this server still writes");
        let (path, _) = self.append_only_file();
        let file = File::options().write(true).open(path);
        file.and_then(|file| file.set_len(mark))
            .expect("cannot cut the append-only file");
    }

    /// Executes one command with all rights, whatever users the test has set up. A nil reply is an
    /// empty text, a list is one line per item.
    ///
    /// # Panics
    /// If the server answers with an error, or not within thirty seconds: on a busy machine a
    /// replica that loads its master's data answers late.
    #[track_caller]
    pub fn command(&self, command: &[&str]) -> String {
        self.answer(command, COMMAND_LIMIT)
            .unwrap_or_else(|error| panic!("{command:?} failed: {error}"))
    }

    /// Like [`command`](Self::command), but returns an error of the server or the connection. A
    /// server that hangs has five seconds to answer.
    pub fn try_command(&self, command: &[&str]) -> Result<String, String> {
        self.answer(command, REPLY_LIMIT)
    }

    fn answer(&self, command: &[&str], limit: Duration) -> Result<String, String> {
        match self.ask(command, limit) {
            Ok(Reply::Error(error)) => Err(error),
            Ok(reply) => Ok(reply.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Makes this server a replica of `master`, and waits until it has its master's data.
    ///
    /// # Panics
    /// If that takes more than thirty seconds.
    #[track_caller]
    pub fn follow(&self, master: &Self) {
        self.command(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
        wait_until("the replica to have its master's data", SYNC_LIMIT, || {
            let replication = self.command(&["INFO", "replication"]);
            replication.contains("master_link_status:up")
        });
    }

    /// Makes this replica a master without a restart.
    #[track_caller]
    pub fn promote(&self) {
        self.command(&["REPLICAOF", "NO", "ONE"]);
    }

    /// Starts the server that `builder` describes, on another port if the first one is taken.
    pub(crate) fn launch_somewhere(builder: ServerBuilder) -> Self {
        const TRIES: usize = 10;
        let mut last_log = String::new();
        for _ in 0..TRIES {
            let server = Self::prepare(builder.clone());
            match server.launch() {
                Ok(()) => return server,
                Err(log) => last_log = log,
            }
            if !last_log.contains("Address already in use") {
                break;
            }
        }
        panic!("{:?} did not start; its log:\n{last_log}", builder.flavor);
    }

    pub(crate) fn has_tls(&self) -> bool {
        self.builder.certificates.is_some()
    }

    /// The URL for a client, if a proxy in front of it listens on `port`.
    pub(crate) fn url_through(&self, port: u16) -> String {
        self.locate(
            self.builder
                .password
                .as_deref()
                .map(|password| ("", password)),
            port,
        )
    }

    fn prepare(builder: ServerBuilder) -> Self {
        let folder = tempfile::Builder::new().prefix("ringfence-").tempdir();
        let folder = folder.expect("cannot make a temporary folder");
        let port = if builder.only_unix_socket {
            0
        } else {
            port::free()
        };
        let arguments = builder.arguments(port, folder.path());
        let process = Mutex::new(None);
        Self {
            builder,
            port,
            arguments,
            process,
            folder,
        }
    }

    /// Starts the process and waits until it answers; otherwise returns its log.
    fn launch(&self) -> Result<(), String> {
        let mut process = Process::spawn(&mut self.invocation());
        let patience = Patience::new(START_LIMIT);
        // An error does not count as an answer: a server that still loads its data is not ready.
        while !matches!(self.ask(&["PING"], REPLY_LIMIT), Ok(Reply::Text(_))) {
            if process.has_ended() || patience.is_over() {
                return Err(self.log());
            }
            thread::sleep(Duration::from_millis(2));
        }
        *self.process() = Some(process);
        Ok(())
    }

    fn invocation(&self) -> Command {
        let log = File::create(self.log_file()).expect("cannot write the server's log");
        let log_again = log.try_clone().expect("cannot share the server's log");
        let mut command = Command::new(self.builder.flavor.program());
        command
            .args(&self.arguments)
            .envs(
                self.builder
                    .environment
                    .iter()
                    .map(|(name, value)| (name, value)),
            )
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(log_again);
        command
    }

    fn ask(&self, command: &[&str], limit: Duration) -> io::Result<Reply> {
        let mut stream = UnixStream::connect(self.socket())?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        match reply::ask(&mut stream, &["AUTH", ADMIN, ADMIN])? {
            Reply::Text(_) => reply::ask(&mut stream, command),
            refusal => Ok(refusal),
        }
    }

    fn locate(&self, user: Option<(&str, &str)>, port: u16) -> String {
        if self.builder.only_unix_socket {
            let query = user.map_or_else(String::new, |(user, password)| match user {
                "" => format!("?pass={password}"),
                user => format!("?user={user}&pass={password}"),
            });
            return format!("redis+unix://{}{query}", self.socket().display());
        }
        let scheme = if self.has_tls() { "rediss" } else { "redis" };
        let user = user.map_or_else(String::new, |(user, password)| {
            format!("{user}:{password}@")
        });
        format!("{scheme}://{user}127.0.0.1:{port}")
    }

    /// The part of the append-only file that grows, and its size.
    fn append_only_file(&self) -> (PathBuf, u64) {
        let folder = self.folder.path().join("appendonlydir");
        let entries = folder.read_dir().into_iter().flatten().flatten();
        let parts = entries.filter_map(|entry| Some((entry.path(), entry.metadata().ok()?.len())));
        let mut growing = parts.filter(|(path, _)| path.to_string_lossy().ends_with(".incr.aof"));
        growing.next().expect("this server has no append-only file")
    }

    /// What the server wrote to its log since it was last started.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join("server.log")
    }

    fn running<T>(&self, act: impl FnOnce(&Process) -> T) -> T {
        act(self.process().as_ref().expect("this server is not running"))
    }

    /// A panic while the lock was held has already failed the test.
    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
