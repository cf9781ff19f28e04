//! Several users on one SQLite file, and hostile users of its folder.
//!
//! A test that needs a second user starts this test program again through `setpriv` (see
//! `processes.rs`), which only root may do. Without root it checks the modes of the files only.

mod planted;
mod processes;

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ringfence::node::NodeClock;
use ringfence::node::sqlite::SqliteNode;
use ringfence_core::group::Group;
use ringfence_core::message::Answer;
use ringfence_testkit::wait_until;

use processes::{command, program, spawn};

use crate::nodes::support::*;

/// Two users and a group that they share. They need no accounts.
const ALICE_UID: u32 = 64_001;
const BOB_UID: u32 = 64_002;
const GROUP_ID: u32 = 64_100;

fn open(path: &Path) -> SqliteNode {
    let node = SqliteNode::open(path, NodeClock::system()).unwrap();
    join(&node, Group::new(1)).wait().unwrap();
    node
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    let found = fs::symlink_metadata(path).unwrap();
    found.permissions().mode() & 0o7777
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn a_wake_socket_has_no_set_uid_bit_and_cannot_be_executed() {
    let scratch = Scratch::new();
    let file = scratch.path("locks.db");
    let node = open(&file);
    for (of_file, of_socket) in [(0o4777, 0o666), (0o7770, 0o660), (0o600, 0o600)] {
        set_mode(&file, of_file);
        let client = format!("m{of_file:o}");
        let _listener = WakeListener::at(&node, &client);
        let socket = scratch.path(&format!("locks.db-wake-{client}"));
        assert_eq!(mode(&socket), of_socket, "{:o}", mode(&socket));
    }
}

#[test]
fn a_link_that_replaces_a_wake_socket_changes_no_other_file() {
    let scratch = Scratch::new();
    let file = scratch.path("locks.db");
    let node = open(&file);
    set_mode(&file, 0o666);
    let victim = scratch.path("victim");
    fs::write(&victim, "").unwrap();
    set_mode(&victim, 0o600);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        // The hostile user: as soon as a socket appears, a link replaces it.
        scope.spawn(|| {
            let mut client = 0;
            while !over.load(Ordering::Relaxed) {
                let link = scratch.path("link");
                if fs::symlink_metadata(&link).is_err() {
                    symlink(&victim, &link).unwrap();
                }
                let socket = scratch.path(&format!("locks.db-wake-c{client}"));
                if fs::symlink_metadata(&socket).is_ok() {
                    fs::rename(&link, &socket).unwrap();
                    client += 1;
                }
            }
        });
        let mut listeners = Vec::new();
        for client in 0..300 {
            let client = format!("c{client}");
            listeners.push(WakeListener::at(&node, &client));
            let socket = scratch.path(&format!("locks.db-wake-{client}"));
            wait_until("the link", PATIENCE, || {
                fs::symlink_metadata(&socket).is_ok_and(|found| found.is_symlink())
            });
            if mode(&victim) != 0o600 {
                break;
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(mode(&victim), 0o600, "the mode of another file was changed");
}

#[test]
fn a_wake_is_not_sent_through_a_link() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("shared")).unwrap();
    let node = open(&scratch.path("shared/locks.db"));
    let elsewhere = scratch.path("elsewhere");
    let socket = UnixDatagram::bind(&elsewhere).unwrap();
    socket.set_nonblocking(true).unwrap();
    symlink(&elsewhere, scratch.path("shared/locks.db-wake-soft")).unwrap();
    fs::hard_link(&elsewhere, scratch.path("shared/locks.db-wake-hard")).unwrap();
    for name in ["soft", "hard"] {
        let ballot = next_ballot(&node, name);
        let answer = ask(&node, name, ALICE, acquire(ballot, TTL_MS));
        assert_eq!(answer, Answer::Granted);
        let waits = ticket(stamp(&node, name).clock_us, &format!("{name}.1"));
        ask(&node, name, BOB, refresh(&[&waits]));
        assert_eq!(ask(&node, name, ALICE, release(ballot)), Answer::Released);
        // Wakes are sent before the reply to the next call.
        stamp(&node, name);
        let received = socket.recv(&mut [0; 64]);
        assert!(received.is_err(), "a wake for {name} left the folder");
    }
}

#[test]
fn a_lock_file_that_is_a_link_is_not_followed() {
    let scratch = Scratch::new();
    let victim = scratch.path("victim");
    fs::write(&victim, "").unwrap();
    symlink(&victim, scratch.path("locks.db")).unwrap();
    let error = SqliteNode::open(scratch.path("locks.db"), NodeClock::system()).unwrap_err();
    assert!(error.to_string().contains("symbolic link"), "{error}");
    assert_eq!(fs::read(&victim).unwrap(), b"");
    symlink(scratch.path("missing"), scratch.path("dangling.db")).unwrap();
    let error = SqliteNode::open(scratch.path("dangling.db"), NodeClock::system()).unwrap_err();
    assert!(error.to_string().contains("symbolic link"), "{error}");
    assert!(!scratch.path("missing").exists());
}

#[test]
fn a_log_file_that_is_a_link_is_refused_and_not_followed() {
    let scratch = Scratch::new();
    set_mode(scratch.folder(), 0o777);
    let file = scratch.path("locks.db");
    drop(open(&file));
    wait_until("the file to be closed", PATIENCE, || {
        // Another program that closes the file as the last one removes the companions.
        let other = rusqlite::Connection::open(&file).unwrap();
        let _ = other.query_row("SELECT one FROM node", [], |_| Ok(()));
        drop(other);
        !scratch.path("locks.db-wal").exists() && !scratch.path("locks.db-shm").exists()
    });
    let victim = scratch.path("victim");
    for ending in ["-wal", "-shm"] {
        for hard in [false, true] {
            let companion = scratch.path(&format!("locks.db{ending}"));
            fs::write(&victim, "a file of another user").unwrap();
            set_mode(&victim, 0o640);
            if hard {
                fs::hard_link(&victim, &companion).unwrap();
            } else {
                symlink(&victim, &companion).unwrap();
            }
            let error = SqliteNode::open(&file, NodeClock::system()).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(ending) && text.contains("link"), "{text}");
            assert_eq!(fs::read(&victim).unwrap(), b"a file of another user");
            assert_eq!(mode(&victim), 0o640);
            fs::remove_file(&companion).unwrap();
            fs::remove_file(&victim).unwrap();
        }
    }
    open(&file);
}

#[test]
fn the_mode_of_a_new_file_follows_from_its_folder() {
    let own_group = rustix::process::getegid().as_raw();
    let made = |folder_mode: u32| {
        let scratch = Scratch::new();
        let folder = scratch.path("shared");
        fs::create_dir(&folder).unwrap();
        chown(&folder, None, Some(own_group)).unwrap();
        set_mode(&folder, folder_mode);
        let node = open(&folder.join("locks.db"));
        let _listener = WakeListener::at(&node, "b");
        let modes = [
            "locks.db",
            "locks.db-wal",
            "locks.db-shm",
            "locks.db-wake-b",
        ]
        .map(|name| mode(&folder.join(name)));
        assert!(modes.iter().all(|mode| *mode == modes[0]), "{modes:?}");
        modes[0]
    };
    // The folder is not set up for sharing: only the owner may use the file.
    // In the last one all users may replace it.
    for private in [0o700, 0o755, 0o775, 0o777, 0o2755, 0o1755, 0o2777] {
        assert_eq!(made(private), 0o600, "{private:o}");
    }
    assert_eq!(made(0o2770), 0o660);
    assert_eq!(made(0o2775), 0o660);
    // In sticky folders the system may forbid the accesses that sharing needs.
    assert_eq!(
        made(0o3770),
        if protected_regular() < 2 {
            0o660
        } else {
            0o600
        }
    );
    let all = if protected_regular() < 1 {
        0o666
    } else {
        0o600
    };
    assert_eq!(made(0o1777), all);
}

/// Whether the kernel keeps users from opening each other's files in sticky folders: 1 for folders
/// that all users may write, 2 for those that a group may write, too.
fn protected_regular() -> u32 {
    let text = fs::read_to_string("/proc/sys/fs/protected_regular").unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

#[test]
fn two_users_share_a_file_and_wake_each_other_through_a_group_folder() {
    two_users_share(0o2770);
}

#[test]
fn two_users_share_a_file_and_wake_each_other_through_a_sticky_folder() {
    if protected_regular() > 0 {
        // Without sharing: the second user gets an error that says why, and what to do.
        let error = error_of_the_second_user(0o1777);
        assert!(error.contains("protected_regular"), "{error}");
        assert!(error.contains("2770"), "{error}");
    } else {
        two_users_share(0o1777);
    }
}

fn two_users_share(folder_mode: u32) {
    let scratch = Scratch::new();
    let folder = shared_folder(&scratch, folder_mode);
    if !is_root() {
        // Without root: one user, whose files are open to the group of the folder.
        drop(open(&folder.join("locks.db")));
        assert_eq!(mode(&folder.join("locks.db")) & 0o660, 0o660);
        return;
    }
    let program = program(&scratch);
    let mut releasing = spawn(&program, &folder, ALICE_UID, "release");
    let mut listening = spawn(&program, &folder, BOB_UID, "listen");
    for child in [&mut releasing, &mut listening] {
        assert!(child.wait().unwrap().success());
    }
    let owner = fs::metadata(folder.join("locks.db")).unwrap().uid();
    assert_eq!(owner, ALICE_UID);
    assert!(folder.join("woken").exists());
}

#[test]
fn the_error_for_a_user_without_rights_says_what_happened_and_what_to_do() {
    for folder_mode in [0o777, 0o755] {
        let error = error_of_the_second_user(folder_mode);
        if !is_root() {
            assert_eq!(error, "", "the owner has every right");
            continue;
        }
        assert!(
            error.contains(&format!("user {BOB_UID} may not")),
            "{error}"
        );
        assert!(error.contains("locks.db"), "{error}");
        assert!(error.contains("mode 0"), "{error}");
        assert!(error.contains("install -d -m 2770 -g GROUP"), "{error}");
        assert!(!error.contains("Error code 14"), "{error}");
    }
}

/// The error of a second user that opens a file of the first.
fn error_of_the_second_user(folder_mode: u32) -> String {
    let scratch = Scratch::new();
    let folder = shared_folder(&scratch, folder_mode);
    if !is_root() {
        return match SqliteNode::open(folder.join("locks.db"), NodeClock::system()) {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        };
    }
    chown(&folder, Some(ALICE_UID), None).unwrap();
    let program = program(&scratch);
    let mut first = spawn(&program, &folder, ALICE_UID, "stay");
    wait_until("the first user", PATIENCE, || folder.join("open").exists());
    let output = command(&program, &folder, BOB_UID, "fail")
        .output()
        .unwrap();
    fs::write(folder.join("done"), "").unwrap();
    assert!(first.wait().unwrap().success());
    reported(&output)
}

fn reported(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.strip_prefix("ERROR "));
    line.unwrap_or_else(|| panic!("{output:?}")).to_owned()
}

fn shared_folder(scratch: &Scratch, mode: u32) -> PathBuf {
    set_mode(scratch.folder(), 0o755);
    let folder = scratch.path("shared");
    fs::create_dir(&folder).unwrap();
    if is_root() {
        chown(&folder, None, Some(GROUP_ID)).unwrap();
    }
    set_mode(&folder, mode);
    folder
}
