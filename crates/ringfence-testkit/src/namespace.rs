//! Processes in namespaces of their own, as containers have them.

use std::process::Command;

use rustix::process::geteuid;

/// `unshare` with `options`; append a program and its arguments. A user that is not root gets a
/// user namespace in which it is root.
///
/// # Panics
/// If the system allows no such namespace.
pub fn unshared(options: &[&str]) -> Command {
    let command = || {
        let mut command = Command::new("unshare");
        if !geteuid().is_root() {
            command.arg("--map-root-user");
        }
        command.args(options);
        command
    };
    let tried = command().arg("true").output();
    let tried = tried.expect("this test needs the program `unshare` (util-linux)");
    assert!(
        tried.status.success(),
        "this test needs a namespace (unshare {options:?}): run it as root, or where users may \
         make user namespaces: {}",
        String::from_utf8_lossy(&tried.stderr)
    );
    command()
}
