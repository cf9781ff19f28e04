//! Passwords: where users may put them, and where they never appear.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use ringfence_testkit::{Flavor, Server};

use super::scene::{Finished, Scene};

const PASSWORD: &str = "s3cret";

/// Prints the whole environment of the command, then runs a `ringfence` in it.
const NESTED: &str = "env; echo; $RF run y -- sh -c 'echo nested; env'";

fn locked() -> Server {
    Server::builder(Flavor::Redis).requirepass(PASSWORD).start()
}

/// Writes a file with a mode. Returns its path.
fn file(scene: &Scene, name: &str, text: &str, mode: u32) -> String {
    scene.write(name, text);
    let path = scene.path(name);
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path.to_str().unwrap().to_owned()
}

fn bare(server: &Server) -> String {
    format!("redis://127.0.0.1:{}?quarantine=off", server.port())
}

#[track_caller]
fn assert_no_password(done: &Finished) {
    let output = format!("{}{}", done.stdout(), done.stderr());
    assert!(!output.contains(PASSWORD), "{output}");
}

#[test]
fn a_nodes_file_hides_the_password_from_the_command_and_works_in_it() {
    let server = locked();
    let scene = Scene::embedded();
    let urls = format!("# our server\n\n{},\n", server.url_without_quarantine());
    let nodes = file(&scene, "nodes", &urls, 0o400);
    let run = ["run", "x", "--", "sh", "-c", NESTED];
    // An option overrides a variable.
    let mut by_option = scene.ringfence(&[&["--nodes-file", &nodes], &run[..]].concat());
    by_option.env("RINGFENCE_NODES", "redis://u:s3cret@127.0.0.1:1");
    let mut by_variable = scene.ringfence(&run);
    by_variable
        .env_remove("RINGFENCE_NODES")
        .env("RINGFENCE_NODES_FILE", &nodes);
    for mut command in [by_option, by_variable] {
        command.env("RF", super::scene::program());
        let done = Finished::of(command);
        assert_eq!(done.code(), 0, "{}", done.stderr());
        assert_no_password(&done);
        let output = done.stdout();
        assert!(output.contains("nested"), "{output}");
        let variable = format!("RINGFENCE_NODES_FILE={nodes}\n");
        assert_eq!(output.matches(&variable).count(), 2, "{output}");
        assert!(!output.contains("RINGFENCE_NODES="), "{output}");
    }
}

#[test]
fn a_password_file_works_for_urls_without_password_and_in_the_command() {
    let server = locked();
    let scene = Scene::on(&bare(&server));
    let password = file(&scene, "password", "s3cret\n", 0o600);
    for by_flag in [true, false] {
        let args: &[&str] = &["run", "x", "--", "sh", "-c", NESTED];
        let args = match by_flag {
            true => [&["--password-file", &password], args].concat(),
            false => args.to_vec(),
        };
        let mut command = scene.ringfence(&args);
        command.env("RF", super::scene::program());
        if !by_flag {
            command.env("RINGFENCE_PASSWORD_FILE", &password);
        }
        let done = Finished::of(command);
        assert_eq!(done.code(), 0, "{}", done.stderr());
        assert_no_password(&done);
        assert!(done.stdout().contains("nested"), "{}", done.stdout());
    }
}

#[test]
fn a_command_gets_urls_without_passwords() {
    let server = locked();
    let scene = Scene::on(&server.url_without_quarantine());
    let done = scene.run(&[], "env").finish();
    assert_eq!(done.code(), 0, "{}", done.stderr());
    assert_no_password(&done);
    let variable = format!("RINGFENCE_NODES={}\n", bare(&server));
    assert!(done.stdout().contains(&variable), "{}", done.stdout());
    assert_eq!(
        done.stderr(),
        "",
        "there is a warning about a password on loopback"
    );
}

#[test]
fn a_password_file_that_all_users_may_read_is_refused() {
    let scene = Scene::embedded();
    let with = "redis://:s3cret@127.0.0.1:1";
    for (text, mode, refused) in [
        (with, 0o644, true),
        (with, 0o602, true),
        ("redis://:s3/cret@127.0.0.1:1", 0o644, true),
        (with, 0o640, false),
        (with, 0o400, false),
        ("redis://127.0.0.1:1", 0o644, false),
    ] {
        let nodes = file(&scene, "nodes", text, mode);
        let args = ["--nodes-file", &nodes, "run", "-n", "x", "--", "true"];
        let mut command = scene.ringfence(&args);
        command.env_remove("RINGFENCE_NODES");
        let done = Finished::of(command);
        assert_no_password(&done);
        // No server listens there: if the file is used, there is no quorum.
        assert_eq!(
            done.code(),
            if refused { 64 } else { 69 },
            "{}",
            done.stderr()
        );
        assert_eq!(
            done.stderr().contains("chmod"),
            refused,
            "{}",
            done.stderr()
        );
        fs::remove_file(scene.path("nodes")).unwrap();
    }
    let password = file(&scene, "password", "s3cret", 0o644);
    let scene = Scene::on("redis://127.0.0.1:1");
    let args = ["--password-file", &password, "status"];
    let done = Finished::of(scene.ringfence(&args));
    assert_eq!(done.code(), 64, "{}", done.stderr());
    assert!(done.stderr().contains("mode 0644"), "{}", done.stderr());
    assert_no_password(&done);
}

#[test]
fn unusable_files_are_refused() {
    let scene = Scene::embedded();
    let empty = file(&scene, "empty", "\n# nothing\n", 0o600);
    let long = file(&scene, "long", &"#".repeat(70_000), 0o600);
    for (args, word) in [
        (vec!["--nodes-file", "/nowhere/at/all"], "No such file"),
        (vec!["--nodes-file", &empty], "names no node"),
        (vec!["--nodes-file", &long], "64 KiB"),
        (vec!["--nodes-file", "/"], "directory"),
        (
            vec!["--nodes-file", &empty, "--nodes", "redis://a"],
            "cannot be used with",
        ),
        (vec!["--password-file", "/nowhere/at/all"], "No such file"),
    ] {
        let mut command = scene.ringfence(&[&args[..], &["status"]].concat());
        command.env_remove("RINGFENCE_NODES");
        command.env("HOME", scene.path(""));
        let done = Finished::of(command);
        assert_eq!(done.code(), 64, "{args:?}: {}", done.stderr());
        assert!(done.stderr().contains(word), "{args:?}: {}", done.stderr());
    }
    let mut both = scene.ringfence(&["status"]);
    both.env("RINGFENCE_NODES_FILE", &empty);
    let both = Finished::of(both);
    assert_eq!(both.code(), 64, "{}", both.stderr());
    assert!(
        both.stderr().contains("both RINGFENCE_NODES and"),
        "{}",
        both.stderr()
    );
}

#[test]
fn a_password_file_that_is_named_as_the_list_of_nodes_is_not_shown() {
    let scene = Scene::embedded();
    for text in ["s3cret\n", "redis://127.0.0.1:1\ns3cret\n"] {
        let wrong = file(&scene, "password", text, 0o600);
        let mut command = scene.ringfence(&["--nodes-file", &wrong, "status"]);
        command.env_remove("RINGFENCE_NODES");
        let done = Finished::of(command);
        assert_eq!(done.code(), 64, "{}", done.stderr());
        assert!(
            done.stderr().contains("--password-file"),
            "{}",
            done.stderr()
        );
        assert_no_password(&done);
    }
}

#[test]
fn a_file_that_every_user_may_change_is_refused() {
    let scene = Scene::embedded();
    let nodes = file(&scene, "nodes", "redis://127.0.0.1:1", 0o666);
    let config = file(&scene, "config", "nodes = \"redis://127.0.0.1:1\"", 0o666);
    for args in [["--nodes-file", &nodes], ["--config", &config]] {
        let mut command = scene.ringfence(&[&args[..], &["status", "x"]].concat());
        command.env_remove("RINGFENCE_NODES");
        let done = Finished::of(command);
        assert_eq!(done.code(), 64, "{args:?}: {}", done.stderr());
        assert!(done.stderr().contains("mode 0666"), "{}", done.stderr());
    }
}

#[test]
fn a_pipe_without_a_writer_hangs_nothing() {
    let scene = Scene::embedded();
    let pipe = scene.path("pipe");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
    let pipe = pipe.to_str().unwrap();
    let options = ["--nodes-file", "--password-file", "--config"];
    let commands = options.map(|option| {
        let mut command = scene.ringfence(&[option, pipe, "status", "x"]);
        if option == "--nodes-file" {
            command.env_remove("RINGFENCE_NODES");
        }
        std::thread::spawn(move || Finished::of(command))
    });
    for (command, option) in commands.into_iter().zip(options) {
        let done = command.join().unwrap();
        assert_eq!(done.code(), 64, "{option}: {}", done.stderr());
        assert!(done.stderr().contains("this pipe"), "{}", done.stderr());
    }
}

#[test]
fn the_watchdog_has_no_password_in_its_environment() {
    let server = locked();
    let scene = Scene::on(&server.url_without_quarantine());
    // The parent of the command.
    let done = scene.run(&[], "cat /proc/$PPID/environ").finish();
    assert_eq!(done.code(), 0, "{}", done.stderr());
    assert!(done.stdout().contains("PATH="), "{}", done.stdout());
    assert_no_password(&done);
}

#[test]
fn the_nodes_may_come_from_a_pipe_and_the_command_gets_urls_without_passwords() {
    let server = locked();
    let scene = Scene::embedded();
    let mut command = std::process::Command::new("sh");
    let script = "echo $URL | $RF --nodes-file /dev/stdin run x -- env -u URL";
    command
        .args(["-c", script])
        .env_remove("RINGFENCE_NODES")
        .env("URL", server.url_without_quarantine())
        .env("RF", super::scene::program());
    let done = Finished::of(command);
    assert_eq!(done.code(), 0, "{}", done.stderr());
    assert_no_password(&done);
    let variable = format!("RINGFENCE_NODES={}\n", bare(&server));
    assert!(done.stdout().contains(&variable), "{}", done.stdout());
    drop(scene);
}

#[test]
fn an_unencrypted_password_to_another_machine_causes_one_warning() {
    // Not a loopback address, but it leads to this machine.
    let scene = Scene::on("redis://u:s3cret@0.0.0.0:1");
    let args = [
        "run",
        "-w",
        "100ms",
        "--no-quorum-after",
        "100ms",
        "x",
        "--",
        "true",
    ];
    let done = Finished::of(scene.ringfence(&args));
    assert_eq!(
        done.stderr().matches("unencrypted").count(),
        1,
        "{}",
        done.stderr()
    );
    assert!(done.stderr().contains("0.0.0.0:1"), "{}", done.stderr());
    assert!(done.stderr().contains("rediss://"), "{}", done.stderr());
    assert_no_password(&done);
    let quiet = Finished::of(scene.ringfence(&[&["-q"], &args[..]].concat()));
    assert!(
        !quiet.stderr().contains("unencrypted"),
        "{}",
        quiet.stderr()
    );
}

#[test]
fn a_password_in_the_arguments_causes_a_warning() {
    let scene = Scene::embedded();
    let done = Finished::of(scene.ringfence(&["--nodes", "redis://:s3cret@127.0.0.1:1", "status"]));
    assert!(done.stderr().contains("--nodes-file"), "{}", done.stderr());
    assert_no_password(&done);
}
