//! Texts and exit codes claim nothing that is not known, and a failure looks like one.

use ringfence_testkit::{Flavor, Fleet};
use serde_json::Value;

use super::person::Person;
use super::scene::{Finished, Scene, program};

#[track_caller]
fn ends(scene: &Scene, args: &[&str], code: i32) -> Finished {
    let said = Finished::of(scene.ringfence(args));
    assert_eq!(
        said.code(),
        code,
        "{args:?}: {}{}",
        said.stdout(),
        said.stderr()
    );
    said
}

#[test]
fn a_release_does_not_claim_that_the_lock_had_expired() {
    let scene = Scene::embedded();
    let token = ends(&scene, &["acquire", "x"], 0)
        .stdout()
        .trim()
        .to_owned();
    ends(&scene, &["release", "x", "--token", &token], 0);
    // Again, and of a lock that never existed.
    for name in ["x", "never"] {
        let said = ends(&scene, &["release", name, "--token", &token], 79);
        assert!(
            said.stderr().contains("this token does not hold the lock"),
            "{}",
            said.stderr()
        );
        assert!(!said.stderr().contains("had expired"), "{}", said.stderr());
    }
}

#[test]
fn a_free_lock_is_not_to_be_broken() {
    let scene = Scene::embedded();
    let person = Person::at(&scene);
    person.types("$RF break x\n");
    // Before this there was a question, and no prompt.
    person.sees("`x` is free");
    person.sees_code(64);
}

#[test]
fn a_command_that_is_not_there_is_reported_as_json() {
    let scene = Scene::embedded();
    let said = ends(
        &scene,
        &["--json", "run", "x", "--", "/no/such/command"],
        127,
    );
    let value: Value = serde_json::from_str(said.stderr()).expect("JSON");
    assert_eq!(value["exit"], 127, "{value}");
    assert!(
        value["error"]
            .as_str()
            .unwrap()
            .contains("/no/such/command"),
        "{value}"
    );
}

#[test]
fn settings_that_no_command_can_use_are_a_usage_error() {
    let scene = Scene::on("redis://a:6379,nonsense://b");
    let said = ends(&scene, &["config"], 64);
    assert!(said.stdout().contains("not valid"), "{}", said.stdout());
    assert!(said.stderr().contains("nonsense"), "{}", said.stderr());
}

#[test]
fn a_missing_authority_file_is_a_usage_error() {
    let server = ringfence_testkit::Server::start(Flavor::Redis);
    let url = format!("rediss://{}?ca=/no/such/file.pem", server.addr());
    let scene = Scene::on(&url);
    let doctor = ends(&scene, &["doctor"], 1);
    for words in ["/no/such/file.pem", "correct the files in its URL (?ca="] {
        assert!(doctor.stdout().contains(words), "{}", doctor.stdout());
    }
    for args in [
        &["run", "-n", "x", "--", "true"][..],
        &["status"],
        &["ls"],
        &["watch", "x"],
    ] {
        let said = ends(&scene, args, 64);
        assert!(
            said.stderr().contains("/no/such/file.pem"),
            "{}",
            said.stderr()
        );
        assert!(!said.stderr().contains("log"), "{}", said.stderr());
    }
}

/// Also if there is only one: the reason is where the reader looks first.
#[test]
fn a_watch_says_why_no_node_answers() {
    let fleet = Fleet::start(2);
    for server in fleet.iter() {
        server.kill();
    }
    for scene in [Scene::on(&fleet[0].url()), Scene::on(&fleet.urls())] {
        let said = ends(&scene, &["watch", "x"], 69);
        let reason = "Connection refused";
        assert!(said.stderr().contains(reason), "{}", said.stderr());
    }
}

/// The token would be lost, and nobody could release the lock.
#[test]
fn a_lock_is_not_left_behind_without_a_token() {
    let scene = Scene::embedded();
    for line in [
        "acquire x >&-",
        "--json acquire x >&-",
        "acquire x >/dev/full",
    ] {
        let mut command = std::process::Command::new("sh");
        command
            .args(["-c", &format!("exec {} {line}", program())])
            .env("RINGFENCE_NODES", scene.nodes())
            .env("RINGFENCE_CONFIG", "");
        let said = Finished::of(command);
        assert_ne!(said.code(), 0, "{line}");
        assert!(scene.is_free(), "{line}: {}", said.stderr());
    }
    // Who throws the token away says so.
    let mut command = std::process::Command::new("sh");
    command
        .args(["-c", &format!("exec {} acquire x > /dev/null", program())])
        .env("RINGFENCE_NODES", scene.nodes())
        .env("RINGFENCE_CONFIG", "");
    assert_eq!(Finished::of(command).code(), 0);
    assert!(!scene.is_free());
}

#[test]
fn ctrl_z_says_for_how_long_the_lock_lasts() {
    let scene = Scene::embedded();
    let person = Person::at(&scene);
    person.types("$RF run --ttl 30s x -- sh -c 'echo > $DIR/on; exec sleep 1000'\n");
    scene.line("on");
    person.types("\x1a");
    person.sees("stopped: the lock `x` is not renewed meanwhile, and lasts for 2");
    person.sees("the command is killed then unless it is continued");
    person.sees("prompt> ");
    person.types("fg\n");
    person.types("\x03");
    person.sees("prompt> ");
}
