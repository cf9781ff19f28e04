//! The surroundings of a test: nodes, a folder, and processes that the test can inspect.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use ringfence_testkit::{Flavor, Server, wait_until};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::{NamedTempFile, TempDir};

/// Long enough for a busy machine. Only a failing test waits this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The nodes of a test, and a folder for the files that its commands write.
pub(crate) struct Scene {
    folder: TempDir,
    nodes: String,
}

impl Scene {
    /// Locks in a file that only this test uses.
    pub(crate) fn embedded() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let nodes = format!("sqlite:{}", folder.path().join("locks.db").display());
        Self { folder, nodes }
    }

    /// Locks on a server that only this test uses. There a busy disk delays no renewal, and a
    /// stopped client blocks no other client. (A client that is stopped while it writes to an
    /// embedded file keeps that file locked.)
    pub(crate) fn served() -> (Server, Self) {
        let server = Server::start(Flavor::Redis);
        let scene = Self::on(&server.url_without_quarantine());
        (server, scene)
    }

    /// Locks on `nodes`.
    pub(crate) fn on(nodes: &str) -> Self {
        Self {
            nodes: nodes.to_owned(),
            ..Self::embedded()
        }
    }

    /// The program with these nodes, and without other `RINGFENCE_…` variables.
    pub(crate) fn ringfence(&self, args: &[&str]) -> Command {
        let mut command = with_default_signals(program());
        command
            .args(args)
            .env("RINGFENCE_NODES", &self.nodes)
            // The settings of this machine are not those of the test.
            .env("RINGFENCE_CONFIG", "")
            .env_remove("RINGFENCE_NODES_FILE")
            .env_remove("RINGFENCE_PASSWORD_FILE")
            .env_remove("RINGFENCE_NAME")
            .env_remove("RINGFENCE_TOKEN")
            .env("DIR", self.folder.path())
            .stdin(Stdio::null());
        command
    }

    /// Starts `ringfence run OPTIONS x -- sh -c SCRIPT`. `$DIR` is the folder of this test.
    pub(crate) fn run(&self, options: &[&str], script: &str) -> Running {
        let args = [&["run"], options, &["x", "--", "sh", "-c", script]].concat();
        Running::start(self.ringfence(&args))
    }

    /// Whether the lock can be taken now.
    pub(crate) fn is_free(&self) -> bool {
        let taken = self.ringfence(&["run", "-n", "x", "--", "true"]).output();
        taken.expect("ringfence runs").status.success()
    }

    /// Waits until the commands have written a line to `file`, and returns it.
    #[track_caller]
    pub(crate) fn line(&self, file: &str) -> String {
        let path = self.path(file);
        let read = || fs::read_to_string(&path).unwrap_or_default();
        wait_until(&format!("a line in {file}"), PATIENCE, || {
            read().ends_with('\n')
        });
        read().trim_end().to_owned()
    }

    /// Whether the commands have written `file`.
    pub(crate) fn has(&self, file: &str) -> bool {
        self.path(file).exists()
    }

    /// The process that wrote its number to `file`.
    #[track_caller]
    pub(crate) fn process(&self, file: &str) -> Process {
        let pid = self.line(file).parse().expect("a process number");
        Process(Pid::from_raw(pid).expect("a process number"))
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    pub(crate) fn write(&self, file: &str, text: &str) {
        fs::write(self.path(file), text).expect("the folder can be written");
    }

    pub(crate) fn nodes(&self) -> &str {
        &self.nodes
    }

    /// Checks that `run`, whose TTL is 5 s, holds the lock for longer than that while its command
    /// `child` runs. Then lets the command end, by writing `$DIR/go`, and returns its exit code.
    #[track_caller]
    pub(crate) fn code_after_renewal(&self, run: Running, child: Process) -> i32 {
        let refused = self.run(&["-w", "5500ms"], "true").finish();
        let is_held = refused.code() == 75 && child.is_alive();
        assert!(is_held, "lost: {}", run.stderr());
        self.write("go", "");
        let done = run.finish();
        assert!(!done.stderr().contains("killing"), "{}", done.stderr());
        done.code()
    }

    /// Releases the lock without the holder's knowledge. The holder has written its token to
    /// `token`, and notices the loss at its next renewal.
    pub(crate) fn steal(&self) {
        let token = self.line("token");
        let stolen = Finished::of(self.ringfence(&["release", "x", "--token", &token]));
        assert_eq!(stolen.code(), 0, "{}", stolen.stderr());
    }
}

/// `unshare`, for a program whose mounts nobody else sees. An ordinary user needs a user name space
/// for that, which root may not make in a chroot.
pub(crate) fn in_own_mounts() -> Command {
    let mut command = Command::new("unshare");
    command.arg("--mount");
    if !geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command
}

/// `program` with default handling of the signals that the tests use. An ignored signal stays
/// ignored after an exec, and these tests may run under `nohup`.
pub(crate) fn with_default_signals(program: &str) -> Command {
    let mut command = Command::new("env");
    command
        .arg("--default-signal=HUP,INT,QUIT,TERM,PIPE,TSTP,TTIN,TTOU,CONT,USR1,USR2")
        .arg(program);
    command
}

/// The program under test.
pub(crate) fn program() -> &'static str {
    env!("CARGO_BIN_EXE_ringfence")
}

/// A running `ringfence`, which is killed at the end of its test.
///
/// It writes to files: a test can read them while it runs, and leftover processes do not keep a
/// pipe open.
pub(crate) struct Running {
    child: Child,
    stdout: NamedTempFile,
    stderr: NamedTempFile,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        let [stdout, stderr] = [(), ()].map(|()| NamedTempFile::new().expect("a temporary file"));
        let [out, err] = [&stdout, &stderr].map(|file| file.reopen().expect("our own file"));
        let child = command.stdout(out).stderr(err).spawn();
        Self {
            child: child.expect("ringfence starts"),
            stdout,
            stderr,
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.process().signal(signal);
    }

    pub(crate) fn process(&self) -> Process {
        Process::numbered(self.child.id().cast_signed()).expect("a process number")
    }

    /// Waits until `words` are on stderr.
    #[track_caller]
    pub(crate) fn wait_for(&self, words: &str) {
        wait_until(&format!("{words:?} on stderr"), PATIENCE, || {
            read(&self.stderr).contains(words)
        });
    }

    /// Waits until a line is on stderr.
    #[track_caller]
    pub(crate) fn wait_for_line(&self) {
        wait_until("a line on stderr", PATIENCE, || {
            read(&self.stderr).ends_with('\n')
        });
    }

    /// Stdout so far.
    pub(crate) fn stdout(&self) -> String {
        read(&self.stdout)
    }

    /// Waits until `words` are on stdout.
    #[track_caller]
    pub(crate) fn wait_for_output(&self, words: &str) {
        wait_until(&format!("{words:?} on stdout"), PATIENCE, || {
            read(&self.stdout).contains(words)
        });
    }

    /// Stderr so far.
    pub(crate) fn stderr(&self) -> String {
        read(&self.stderr)
    }

    /// Waits until it ends.
    #[track_caller]
    pub(crate) fn finish(mut self) -> Finished {
        let mut ended = None;
        wait_until("ringfence to end", PATIENCE, || {
            ended = self.child.try_wait().expect("our own child");
            ended.is_some()
        });
        Finished {
            status: ended.expect("it has ended"),
            stdout: read(&self.stdout),
            stderr: read(&self.stderr),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(file: &NamedTempFile) -> String {
    let bytes = fs::read(file.path()).expect("our own file");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The result of a `ringfence`.
pub(crate) struct Finished {
    status: ExitStatus,
    stdout: String,
    stderr: String,
}

impl Finished {
    #[track_caller]
    pub(crate) fn of(command: Command) -> Self {
        Running::start(command).finish()
    }

    /// The exit code. Fails if a signal ended the program.
    #[track_caller]
    pub(crate) fn code(&self) -> i32 {
        assert_eq!(self.status.signal(), None, "{}", self.stderr);
        self.status.code().expect("an exit code")
    }

    pub(crate) fn stdout(&self) -> &str {
        &self.stdout
    }

    pub(crate) fn stderr(&self) -> &str {
        &self.stderr
    }
}

/// A process that is not our child.
#[derive(Clone, Copy)]
pub(crate) struct Process(Pid);

impl Process {
    pub(crate) fn numbered(pid: i32) -> Option<Self> {
        Pid::from_raw(pid).map(Self)
    }

    pub(crate) fn pid(self) -> Pid {
        self.0
    }

    pub(crate) fn parent(self) -> Option<Pid> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0)).ok()?;
        let fields = stat.rsplit_once(") ")?.1;
        Pid::from_raw(fields.split(' ').nth(1)?.parse().ok()?)
    }

    /// The name of its program.
    pub(crate) fn name(self) -> Option<String> {
        let name = fs::read_to_string(format!("/proc/{}/comm", self.0)).ok()?;
        Some(name.trim_end().to_owned())
    }

    /// The user that it runs as.
    pub(crate) fn user(self) -> Option<u32> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0)).ok()?;
        let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        users.split_whitespace().nth(1)?.parse().ok()
    }

    pub(crate) fn signal(self, signal: Signal) {
        kill_process(self.0, signal).expect("the process is there");
    }

    pub(crate) fn is_alive(self) -> bool {
        !matches!(self.state(), None | Some('Z' | 'X'))
    }

    pub(crate) fn is_stopped(self) -> bool {
        self.state() == Some('T')
    }

    #[track_caller]
    pub(crate) fn wait_gone(self) {
        wait_until("a process to end", PATIENCE, || !self.is_alive());
    }

    fn state(self) -> Option<char> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0)).ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    }
}
