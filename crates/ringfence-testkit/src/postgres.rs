//! One running PostgreSQL, on a Unix socket in its own folder.

use std::fs::{self, File};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::binary::postgres_program;
use crate::process::Process;
use crate::psql::{Psql, USER};
use crate::wait::{Patience, wait_until};

const START_LIMIT: Duration = Duration::from_secs(30);
const END_LIMIT: Duration = Duration::from_secs(20);

/// A real PostgreSQL without a port. Dropping it ends its processes and removes its folder.
///
/// It does not sync to disk: tests of locks need its rules, not its durability.
#[derive(Debug)]
pub struct Postgres {
    // Before the folder: fields are dropped in this order, and the processes write there.
    process: Process,
    folder: TempDir,
    _template: Arc<TempDir>,
}

impl Postgres {
    /// Creates a new, empty database and starts its server.
    ///
    /// # Panics
    /// If it is not installed or does not start; the message contains the server's log.
    pub fn start() -> Self {
        let owner = Owner::of_servers();
        let template = template(&owner);
        let folder = owner.folder();
        copy_data(template.path(), folder.path(), &owner);
        let process = Process::spawn(&mut invocation(folder.path(), &owner));
        let mut postgres = Self {
            process,
            folder,
            _template: template,
        };
        postgres.wait_until_it_answers();
        postgres
    }

    /// The folder with its socket, which clients and `psql -h` call the host.
    pub fn host(&self) -> &Path {
        self.folder.path()
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// A new session with all rights.
    pub fn session(&self) -> Psql {
        Psql::connect(self.host())
    }

    fn wait_until_it_answers(&mut self) {
        let patience = Patience::new(START_LIMIT);
        while !Psql::can_connect(self.folder.path()) {
            let given_up = self.process.has_ended() || patience.is_over();
            assert!(
                !given_up,
                "PostgreSQL did not start; its log:\n{}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(log_file(self.folder.path())).unwrap_or_default()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // The server's "immediate shutdown": it ends its child processes first, which would outlive
        // a SIGKILL for a while.
        self.process.signal(Signal::QUIT);
        if std::thread::panicking() {
            let patience = Patience::new(END_LIMIT);
            while !self.process.has_ended() && !patience.is_over() {
                std::thread::sleep(Duration::from_millis(2));
            }
        } else {
            wait_until("PostgreSQL to end", END_LIMIT, || self.process.has_ended());
        }
    }
}

/// A folder with a new database, which the servers of this process copy: `initdb` takes a second, a
/// copy a tenth of it. The folder is removed with the last server that uses it.
fn template(owner: &Owner) -> Arc<TempDir> {
    static TEMPLATE: Mutex<Weak<TempDir>> = Mutex::new(Weak::new());
    // A panic of `initdb` in another test leaves nothing unfinished here.
    let mut template = TEMPLATE.lock().unwrap_or_else(PoisonError::into_inner);
    template.upgrade().unwrap_or_else(|| {
        let folder = Arc::new(owner.folder());
        initialize(folder.path(), owner);
        *template = Arc::downgrade(&folder);
        folder
    })
}

fn copy_data(from: &Path, to: &Path, owner: &Owner) {
    let mut command = Command::new("cp");
    command.arg("-R").args([from.join("data"), to.join("data")]);
    let copied = owner.run(command.current_dir(to)).status();
    assert!(
        copied.is_ok_and(|status| status.success()),
        "cannot copy {} to {}",
        from.display(),
        to.display()
    );
}

fn initialize(folder: &Path, owner: &Owner) {
    let mut command = Command::new(postgres_program("initdb"));
    command
        .args([
            "--auth=trust",
            "--no-locale",
            "--encoding=UTF8",
            "--no-sync",
        ])
        .arg(format!("--username={USER}"))
        .arg("--pgdata")
        .arg(folder.join("data"))
        .current_dir(folder)
        .stdin(Stdio::null());
    let output = owner.run(&mut command).output();
    let output = output.unwrap_or_else(|error| panic!("cannot start initdb: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "initdb failed:\n{errors}");
}

fn invocation(folder: &Path, owner: &Owner) -> Command {
    let log = File::create(log_file(folder)).expect("cannot write the server's log");
    let log_again = log.try_clone().expect("cannot share the server's log");
    let mut command = Command::new(postgres_program("postgres"));
    command
        .arg("-D")
        .arg(folder.join("data"))
        .args(["-c", "fsync=off", "-c", "listen_addresses=", "-c"])
        .arg(format!("unix_socket_directories={}", folder.display()))
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(log_again);
    owner.run(&mut command);
    command
}

fn log_file(folder: &Path) -> std::path::PathBuf {
    folder.join("server.log")
}

/// The user that the server runs as. It refuses to run as root, so root runs it as `nobody`.
struct Owner(Option<(u32, u32)>);

impl Owner {
    fn of_servers() -> Self {
        if !rustix::process::geteuid().is_root() {
            return Self(None);
        }
        let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let ids = users.lines().find_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            let [name, _, user, group, ..] = fields[..] else {
                return None;
            };
            (name == "nobody").then_some((user.parse().ok()?, group.parse().ok()?))
        });
        Self(Some(
            ids.expect("root needs the user `nobody` to run PostgreSQL as"),
        ))
    }

    /// A new folder of that user.
    fn folder(&self) -> TempDir {
        let folder = tempfile::Builder::new().prefix("ringfence-pg-").tempdir();
        let folder = folder.expect("cannot make a temporary folder");
        if let Some((user, group)) = self.0 {
            chown(folder.path(), Some(user), Some(group))
                .expect("cannot change the owner of the folder");
        }
        folder
    }

    fn run<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        if let Some((user, group)) = self.0 {
            command.uid(user).gid(group);
        }
        command
    }
}
