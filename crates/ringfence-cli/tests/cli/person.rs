//! A person at a terminal with a job-control shell on it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::thread;

use ringfence_testkit::wait_until;
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use super::scene::{PATIENCE, Scene, program, with_default_signals};

/// A person at a shell.
pub(crate) struct Person {
    pub(crate) keyboard: File,
    screen: Arc<Mutex<String>>,
    pub(crate) shell: Child,
}

impl Person {
    pub(crate) fn at(scene: &Scene) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).expect("a pseudo-terminal");
        grantpt(&master).expect("granted");
        unlockpt(&master).expect("unlocked");
        let path = ptsname(&master, Vec::new()).expect("a path");
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave: OwnedFd = rustix::fs::open(path, flags, Mode::empty()).expect("its other end");
        let copy = || slave.try_clone().expect("a copy");
        let shell = with_default_signals("setsid")
            .args(["--ctty", "sh", "-i"])
            .env("RINGFENCE_NODES", scene.nodes())
            .env("RINGFENCE_CONFIG", "")
            .env("RF", program())
            .env("DIR", scene.path(""))
            .env("PS1", "prompt> ")
            // Without it, progress is not shown.
            .env("TERM", "xterm")
            .env_remove("ENV")
            .env_remove("RINGFENCE_NAME")
            .stdin(copy())
            .stdout(copy())
            .stderr(copy())
            .spawn()
            .expect("a shell");
        let keyboard = File::from(master);
        let screen = Arc::default();
        watch(keyboard.try_clone().expect("a copy"), Arc::clone(&screen));
        let person = Self {
            keyboard,
            screen,
            shell,
        };
        person.sees("prompt> ");
        person
    }

    pub(crate) fn types(&self, keys: &str) {
        (&self.keyboard).write_all(keys.as_bytes()).expect("typed");
    }

    /// Waits until `text` is on the screen, and wipes the screen up to its end.
    #[track_caller]
    pub(crate) fn sees(&self, text: &str) {
        let mut seen = String::new();
        wait_until(&format!("{text:?} on the screen"), PATIENCE, || {
            let mut screen = self.screen.lock().expect("no panic");
            seen.clone_from(&screen);
            let Some(at) = screen.find(text) else {
                return false;
            };
            screen.drain(..at + text.len());
            true
        });
    }

    /// The exit code of the last command, as the shell has it.
    #[track_caller]
    pub(crate) fn sees_code(&self, code: i32) {
        self.types("echo code=$?.\n");
        self.sees(&format!("code={code}."));
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        if thread::panicking() {
            let screen = self.screen.lock().map(|screen| screen.clone());
            writeln!(std::io::stderr(), "screen: {screen:?}").expect("stderr");
        }
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

fn watch(mut terminal: File, screen: Arc<Mutex<String>>) {
    thread::spawn(move || {
        let mut bytes = [0; 1024];
        // The read fails once the last process on the terminal has ended.
        while let Ok(count @ 1..) = terminal.read(&mut bytes) {
            let text = String::from_utf8_lossy(&bytes[..count]);
            screen.lock().expect("no panic").push_str(&text);
        }
    });
}
