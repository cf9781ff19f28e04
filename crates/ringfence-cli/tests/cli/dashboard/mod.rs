//! `ringfence dashboard`: its guards with raw HTTP, its answers against the OpenAPI file, and the
//! page in a real browser.

mod answers;
mod browser;
mod cast;
mod cost;
mod guards;
pub(crate) mod http;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use ringfence_testkit::wait_until;
use serde_json::Value;

use super::scene::{PATIENCE, Process, Running, Scene};

/// The token of the viewers.
const TOKEN: &str = "a-token-of-24-characters";

/// A running dashboard, which is killed at the end of its test.
pub(crate) struct DashboardProcess {
    running: Running,
    pub(crate) port: u16,
}

impl DashboardProcess {
    /// Starts it on a free port, and waits until it listens.
    #[track_caller]
    fn start(scene: &Scene, options: &[&str]) -> Self {
        let args = [&["--json", "dashboard", "--listen", "127.0.0.1:0"], options].concat();
        let running = Running::start(scene.ringfence(&args));
        wait_until("the dashboard to listen", PATIENCE, || {
            running.stdout().ends_with('\n')
        });
        let said: Value = serde_json::from_str(&running.stdout()).expect("JSON");
        let port = said["port"]
            .as_u64()
            .and_then(|port| u16::try_from(port).ok());
        Self {
            port: port.expect("a port"),
            running,
        }
    }

    pub(crate) fn process(&self) -> Process {
        self.running.process()
    }

    /// Starts it with a token; viewers may break locks.
    #[track_caller]
    pub(crate) fn with_token(scene: &Scene, options: &[&str]) -> Self {
        let file = token_file(scene, TOKEN, 0o600);
        Self::start(
            scene,
            &[&["--token-file", &file, "--allow-break"], options].concat(),
        )
    }
}

/// Declares the nodes a new cluster. On a busy machine a node may not answer in time, so it is tried
/// again.
#[track_caller]
fn init(scene: &Scene) {
    wait_until("a new cluster", PATIENCE, || {
        let done = scene.ringfence(&["init"]).output();
        done.expect("ringfence runs").status.success()
    });
}

/// A file with `token`, and its path.
fn token_file(scene: &Scene, token: &str, mode: u32) -> String {
    scene.write("viewers", &format!("{token}\n"));
    let path = scene.path("viewers");
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("our own file");
    path.display().to_string()
}
