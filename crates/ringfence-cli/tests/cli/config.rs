//! Config files: which setting counts, what a nested `ringfence` sees, and mistakes in a file.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use ringfence_testkit::{Flavor, Server};
use serde_json::Value;

use super::scene::{Finished, Scene, in_own_mounts, program};

/// The program with the user's config folder in the test's folder, and no nodes in its environment.
fn ringfence(scene: &Scene, args: &[&str]) -> Command {
    let mut command = scene.ringfence(args);
    command
        .env_remove("RINGFENCE_NODES")
        .env_remove("RINGFENCE_CONFIG")
        .env("XDG_CONFIG_HOME", scene.path("config"))
        .env("XDG_STATE_HOME", scene.path("state"));
    command
}

fn done(scene: &Scene, args: &[&str]) -> Finished {
    Finished::of(ringfence(scene, args))
}

/// Writes the user's config file.
fn write_own(scene: &Scene, text: &str) {
    fs::create_dir_all(scene.path("config/ringfence")).unwrap();
    scene.write("config/ringfence/config.toml", text);
}

/// The value and the origin of a setting in force.
fn in_force(scene: &Scene, key: &str, args: &[&str]) -> (String, String) {
    let shown = done(scene, &[&["--json", "config"], args].concat());
    assert_eq!(shown.code(), 0, "{}", shown.stderr());
    let shown: Value = serde_json::from_str(shown.stdout()).expect("JSON");
    let mut rows = shown["settings"].as_array().expect("a list").iter();
    let row = rows.find(|row| row["key"] == key).expect("the setting");
    let text = |field: &str| row[field].as_str().expect("text").to_owned();
    (text("value"), text("from"))
}

#[test]
fn a_flag_goes_before_the_environment_and_that_before_the_file() {
    let scene = Scene::embedded();
    let default = in_force(&scene, "nodes", &[]);
    assert_eq!(default.1, "default");
    write_own(
        &scene,
        "nodes = \"sqlite:/tmp/in-file.db\"\nttl = \"42s\"\n",
    );
    let own = scene.path("config/ringfence/config.toml");
    let own = own.display().to_string();
    let filed = in_force(&scene, "nodes", &[]);
    assert_eq!(filed, ("sqlite:/tmp/in-file.db".to_owned(), own.clone()));
    assert_eq!(in_force(&scene, "ttl", &[]), ("42s".to_owned(), own));

    let mut command = ringfence(&scene, &["config"]);
    command.env("RINGFENCE_NODES", "sqlite:/tmp/in-env.db");
    let shown = Finished::of(command);
    assert!(shown.stdout().contains("sqlite:/tmp/in-env.db"));
    assert!(shown.stdout().contains("from RINGFENCE_NODES"));

    let mut command = ringfence(&scene, &["config", "--nodes", "sqlite:/tmp/in-flag.db"]);
    command.env("RINGFENCE_NODES", "sqlite:/tmp/in-env.db");
    let shown = Finished::of(command);
    assert!(shown.stdout().contains("sqlite:/tmp/in-flag.db"));
    assert!(shown.stdout().contains("from --nodes"));
}

#[test]
fn the_settings_of_the_first_pattern_that_fits_count() {
    let scene = Scene::embedded();
    write_own(
        &scene,
        "ttl = \"20s\"\nlabel = \"all\"\n\
         [[lock]]\nname = \"backup-*\"\nttl = \"30s\"\n\
         [[lock]]\nname = \"*\"\nttl = \"40s\"\nlabel = \"any\"\n",
    );
    let value = |key: &str, name: &[&str]| in_force(&scene, key, name).0;
    assert_eq!(value("ttl", &[]), "20s");
    assert_eq!(value("ttl", &["backup-db"]), "30s");
    assert_eq!(value("label", &["backup-db"]), "any");
    assert_eq!(value("ttl", &["other"]), "40s");
    let from = in_force(&scene, "ttl", &["backup-db"]).1;
    assert!(from.ends_with("[[lock]] backup-*"), "{from}");

    // The settings are those of the lock that is taken.
    let taken = done(&scene, &["--json", "acquire", "backup-db"]);
    let taken: Value = serde_json::from_str(taken.stdout()).expect("JSON");
    let valid_ms = taken["valid_for_ms"].as_u64().expect("a number");
    assert!((20_000..=30_000).contains(&valid_ms), "{valid_ms}");
    let seen = done(&scene, &["status", "backup-db"]);
    assert!(seen.stdout().contains("held by any"), "{}", seen.stdout());
    let taken = done(&scene, &["--json", "acquire", "--ttl", "5s", "backup-x"]);
    let taken: Value = serde_json::from_str(taken.stdout()).expect("JSON");
    let valid_ms = taken["valid_for_ms"].as_u64().expect("a number");
    assert!(valid_ms <= 5_000, "a flag goes before a file: {valid_ms}");
}

#[test]
fn the_file_of_the_user_goes_before_that_of_the_system() {
    let scene = Scene::embedded();
    write_own(&scene, "ttl = \"11s\"\n");
    fs::create_dir_all(scene.path("etc/ringfence")).unwrap();
    scene.write(
        "etc/ringfence/config.toml",
        "ttl = \"22s\"\nwait = \"33s\"\n",
    );
    let mut command = ringfence(&scene, &[]);
    // Another /etc, in a name space of this process only.
    let mut inside = in_own_mounts();
    inside.args(["sh", "-c"]);
    inside.arg("mount --bind $DIR/etc /etc && exec $RF config");
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => inside.env(key, value),
            None => inside.env_remove(key),
        };
    }
    inside.env("RF", program());
    command = inside;
    let shown = Finished::of(command);
    assert_eq!(shown.code(), 0, "{}", shown.stderr());
    let lines: Vec<&str> = shown.stdout().lines().collect();
    let after = |start: &str| {
        let at = lines.iter().position(|line| line.starts_with(start));
        let at = at.unwrap_or_else(|| panic!("{start}: {lines:#?}"));
        lines[at + 1].trim()
    };
    assert!(after("ttl              11s").ends_with("config/ringfence/config.toml"));
    assert_eq!(
        after("wait             33s"),
        "from /etc/ringfence/config.toml"
    );
}

#[test]
fn a_mistake_in_a_file_is_named_with_its_line() {
    let scene = Scene::embedded();
    for (text, words) in [
        (
            "ttl = \"10s\"\n\ntll = \"5s\"\n",
            "line 3: unknown key `tll`",
        ),
        (
            "[[lock]]\nname = \"x\"\nnodes = \"y\"\n",
            "line 3: unknown key `nodes`",
        ),
        ("ttl = \"10\"\n", "line 1: ttl: the unit is missing"),
        ("ttl = 10\n", "line 1: write the value as a text in quotes"),
        (
            "wait = \"1s\"\n[lock]\nname = \"x\"\n",
            "line 2: write the settings",
        ),
        ("[[lock]]\nttl = \"1s\"\n", "line 1: write the settings"),
        ("nodes = \"redis://:s3cret@a\n", "line 1: "),
        ("nodes = \"redis://a\"\nnodes-file = \"b\"\n", "not both"),
    ] {
        scene.write("wrong.toml", text);
        let path = scene.path("wrong.toml");
        let refused = done(&scene, &["--config", path.to_str().unwrap(), "status"]);
        assert_eq!(refused.code(), 64, "{text}");
        assert!(refused.stderr().contains(words), "{}", refused.stderr());
        assert!(!refused.stderr().contains("s3cret"), "{}", refused.stderr());
    }
    let missing = done(&scene, &["--config", "/nowhere/config.toml", "status"]);
    assert_eq!(missing.code(), 64);
    let help = done(&scene, &["config", "-h"]);
    for key in ["nodes-file", "no-quorum-after", "stop-grace"] {
        assert!(help.stdout().contains(key), "{key}");
    }
}

#[test]
fn a_file_with_a_password_must_be_private_and_the_password_is_not_shown() {
    let scene = Scene::embedded();
    write_own(&scene, "nodes = [\"redis://:s3cret@127.0.0.1:1\"]\n");
    let own = scene.path("config/ringfence/config.toml");
    let mode = |mode| fs::set_permissions(&own, fs::Permissions::from_mode(mode)).unwrap();
    mode(0o644);
    let refused = done(&scene, &["config"]);
    assert_eq!(refused.code(), 64);
    assert!(
        refused.stderr().contains("its mode 0644"),
        "{}",
        refused.stderr()
    );
    mode(0o600);
    for args in [&["config"][..], &["--json", "config"]] {
        let shown = done(&scene, args);
        assert_eq!(shown.code(), 0, "{}", shown.stderr());
        assert!(shown.stdout().contains("passwords not shown"));
        assert!(!shown.stdout().contains("s3cret"), "{}", shown.stdout());
    }
}

#[test]
fn a_nested_ringfence_finds_the_same_nodes() {
    let scene = Scene::embedded();
    let rf = program();
    let file = scene.path("own.db").display().to_string();
    // Without a password, with one in the file, and with a file that was named in another folder.
    scene.write("named.toml", &format!("nodes = \"sqlite:{file}\"\n"));
    let inner = format!("cd / && {rf} run -n x -- true");
    let mut command = ringfence(
        &scene,
        &[
            "run",
            "--config",
            "named.toml",
            "x",
            "--",
            "sh",
            "-c",
            &inner,
        ],
    );
    command.current_dir(scene.path(""));
    let nested = Finished::of(command);
    assert_eq!(nested.code(), 75, "{}", nested.stderr());
    let seen = "env | grep ^RINGFENCE_ | sort";
    let mut command = ringfence(
        &scene,
        &["run", "--config", "named.toml", "x", "--", "sh", "-c", seen],
    );
    command.current_dir(scene.path(""));
    let seen = Finished::of(command);
    assert!(
        seen.stdout()
            .contains(&format!("RINGFENCE_NODES=sqlite:{file}\n"))
    );
    let named = scene.path("named.toml").display().to_string();
    assert!(
        seen.stdout()
            .contains(&format!("RINGFENCE_CONFIG={named}\n")),
        "{}",
        seen.stdout()
    );
}

#[test]
fn a_nested_ringfence_finds_the_password_in_the_file() {
    let server = Server::builder(Flavor::Redis).requirepass("s3cret").start();
    let scene = Scene::on(&server.url_without_quarantine());
    assert!(scene.nodes().contains("s3cret"));
    write_own(&scene, &format!("nodes = \"{}\"\n", scene.nodes()));
    let own = scene.path("config/ringfence/config.toml");
    fs::set_permissions(&own, fs::Permissions::from_mode(0o600)).unwrap();
    let rf = program();
    let script = format!("env | grep -c s3cret; {rf} run -n y -- echo inner");
    let nested = done(&scene, &["-q", "run", "x", "--", "sh", "-c", &script]);
    assert_eq!(nested.code(), 0, "{}", nested.stderr());
    assert_eq!(nested.stdout(), "0\ninner\n", "{}", nested.stderr());
}

#[test]
fn the_example_of_the_distribution_is_valid() {
    let scene = Scene::embedded();
    let example = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../dist/config.example.toml"
    );
    let shown = done(&scene, &["config", "--config", example, "backup-db"]);
    assert_eq!(shown.code(), 0, "{}", shown.stderr());
    assert!(
        shown.stdout().contains("wait             10m"),
        "{}",
        shown.stdout()
    );
    // Every setting that is commented out is valid, too.
    let text = fs::read_to_string(example).unwrap();
    let text = text
        .replace("# nodes-file", "#")
        .replace("# password-file", "#");
    let lines = text.lines().map(|line| match line.strip_prefix("# ") {
        Some(setting) if setting.contains(" = \"") => setting,
        _ => line,
    });
    scene.write("all.toml", &lines.collect::<Vec<_>>().join("\n"));
    let all = scene.path("all.toml");
    let shown = done(&scene, &["config", "--config", all.to_str().unwrap()]);
    assert_eq!(shown.code(), 0, "{}", shown.stderr());
}
