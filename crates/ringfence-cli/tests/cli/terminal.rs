//! ringfence at a terminal with a job-control shell.

use ringfence_testkit::wait_until;
use rustix::process::Signal;
use rustix::termios::tcgetpgrp;

use super::person::Person;
use super::scene::{PATIENCE, Scene};

const CTRL_C: &str = "\x03";
const CTRL_Z: &str = "\x1a";
const CTRL_BACKSLASH: &str = "\x1c";

#[test]
fn the_command_reads_from_the_terminal() {
    let scene = Scene::embedded();
    scene.write("job", "echo asking; read a; echo \"<$a>\"");
    let person = Person::at(&scene);
    person.types("$RF run x -- sh $DIR/job\n");
    person.sees("asking");
    person.types("hello\n");
    person.sees("<hello>");
    person.sees("prompt> ");
    person.sees_code(0);
}

#[test]
fn a_script_can_read_from_the_terminal_after_ringfence() {
    let scene = Scene::embedded();
    scene.write(
        "job",
        "$RF run x -- sh -c 'read a; echo \"<$a>\"'; read b; echo \"<<$b>>\"",
    );
    let person = Person::at(&scene);
    person.types("sh $DIR/job\n");
    person.types("one\n");
    person.sees("<one>");
    person.types("two\n");
    person.sees("<<two>>");
    person.sees_code(0);
}

#[test]
fn ctrl_z_in_a_script_stops_the_script_too() {
    let scene = Scene::embedded();
    scene.write("job", "$RF run --ttl 60s x -- sh $DIR/inner; echo after");
    scene.write("inner", "echo $$ > $DIR/child; read a; echo \"<$a>\"");
    let person = Person::at(&scene);
    person.types("sh $DIR/job\n");
    let child = scene.process("child");
    person.types(CTRL_Z);
    person.sees("prompt> ");
    assert!(child.is_stopped());
    person.types("fg\n");
    person.types("hello\n");
    person.sees("<hello>");
    person.sees("after");
}

#[test]
fn ctrl_c_ends_the_wait_for_leftovers() {
    let scene = Scene::embedded();
    scene.write(
        "job",
        "echo $$ > $DIR/child
         sh -c 'echo $$ > $DIR/left; exec sleep 1000' & while [ ! -s $DIR/left ]; do :; done",
    );
    let person = Person::at(&scene);
    person.types("$RF run --leftovers wait --stop-grace 100ms x -- sh $DIR/job\n");
    let left = scene.process("left");
    // Earlier, Ctrl-C would go to the command's group, where only a process that ignores it may be
    // left.
    let command: i32 = scene
        .line("child")
        .trim()
        .parse()
        .expect("a process number");
    wait_until("the command to give up the terminal", PATIENCE, || {
        let group = tcgetpgrp(&person.keyboard).expect("a terminal");
        group.as_raw_nonzero().get() != command
    });
    person.types(CTRL_C);
    person.sees("prompt> ");
    left.wait_gone();
    assert!(scene.is_free());
}

#[test]
fn ctrl_c_ends_everything_and_the_shell_has_its_terminal_back() {
    let scene = Scene::embedded();
    // A process that a script starts with `&` ignores Ctrl-C.
    scene.write(
        "job",
        "sh -c 'echo $$ > $DIR/ignoring; exec sleep 1000' & echo $$ > $DIR/child; wait; wait",
    );
    let person = Person::at(&scene);
    person.types("$RF run x -- sh $DIR/job\n");
    let (ignoring, child) = (scene.process("ignoring"), scene.process("child"));
    person.types(CTRL_C);
    person.sees("prompt> ");
    person.sees_code(130);
    assert!(!ignoring.is_alive() && !child.is_alive());
    assert!(scene.is_free());
}

#[test]
fn ctrl_c_ends_the_wait_for_a_lock() {
    let scene = Scene::embedded();
    let holder = scene.run(&[], "echo $$ > $DIR/holder; exec sleep 1000");
    scene.line("holder");
    let person = Person::at(&scene);
    person.types("$RF run x -- true\n");
    person.sees("waiting for `x`");
    person.types(CTRL_C);
    person.sees("prompt> ");
    person.sees_code(130);
    drop(holder);
}

/// A script that writes a file after its ringfence.
const SCRIPT: &str = "$RF run x -- sh $DIR/job; echo next > $DIR/next";
const SLEEPER: &str = "echo $$ > $DIR/child; exec sleep 1000";

/// bash checks how its command ended; other shells do not.
const SHELLS: [&str; 2] = ["sh", "bash"];

#[test]
fn ctrl_c_stops_the_calling_script() {
    // bash itself ignores QUIT.
    let cases = [
        ("sh", CTRL_C, 130),
        ("bash", CTRL_C, 130),
        ("sh", CTRL_BACKSLASH, 131),
    ];
    for (shell, key, code) in cases {
        let scene = Scene::embedded();
        // No core files.
        scene.write("script", &format!("ulimit -c 0; {SCRIPT}"));
        scene.write("job", SLEEPER);
        let person = Person::at(&scene);
        person.types(&format!("{shell} $DIR/script\n"));
        let child = scene.process("child");
        person.types(key);
        person.sees("prompt> ");
        person.sees_code(code);
        assert!(!child.is_alive());
        assert!(!scene.has("next"), "{shell} went on after {code}");
        assert!(scene.is_free());
    }
}

#[test]
fn ctrl_c_ends_a_loop() {
    for shell in SHELLS {
        let scene = Scene::embedded();
        let script = "for i in 1 2 3; do $RF run x -- sh $DIR/job; done; echo next > $DIR/next";
        scene.write("script", script);
        scene.write("job", "echo $$ >> $DIR/child; exec sleep 1000");
        let person = Person::at(&scene);
        person.types(&format!("{shell} $DIR/script\n"));
        scene.line("child");
        person.types(CTRL_C);
        person.sees("prompt> ");
        person.sees_code(130);
        assert!(!scene.has("next"));
        assert_eq!(
            scene.line("child").lines().count(),
            1,
            "{shell} did not end the loop"
        );
    }
}

#[test]
fn ctrl_c_in_a_pipeline_stops_the_script_too() {
    let scene = Scene::embedded();
    scene.write("script", SCRIPT);
    scene.write("job", SLEEPER);
    let person = Person::at(&scene);
    person.types("bash $DIR/script | cat\n");
    scene.line("child");
    person.types(CTRL_C);
    person.sees("prompt> ");
    assert!(!scene.has("next"));
}

#[test]
fn ctrl_c_during_the_wait_stops_the_script_too() {
    let scene = Scene::embedded();
    let holder = scene.run(&[], "echo $$ > $DIR/holder; exec sleep 1000");
    scene.line("holder");
    scene.write("script", SCRIPT);
    let person = Person::at(&scene);
    person.types("bash $DIR/script\n");
    person.sees("waiting for `x`");
    person.types(CTRL_C);
    person.sees("prompt> ");
    person.sees_code(130);
    assert!(!scene.has("next"));
    drop(holder);
}

#[test]
fn a_script_goes_on_after_a_command_that_handles_ctrl_c() {
    for shell in SHELLS {
        let scene = Scene::embedded();
        scene.write("script", SCRIPT);
        scene.write(
            "job",
            "trap 'exit 3' INT; echo $$ > $DIR/child; while :; do sleep 0.01; done",
        );
        let person = Person::at(&scene);
        person.types(&format!("{shell} $DIR/script\n"));
        scene.line("child");
        person.types(CTRL_C);
        assert_eq!(scene.line("next"), "next");
        person.sees("prompt> ");
    }
}

#[test]
fn ctrl_z_stops_and_fg_goes_on() {
    let scene = Scene::embedded();
    scene.write("job", "echo $$ > $DIR/child; read a; echo \"<$a>\"");
    let person = Person::at(&scene);
    person.types("$RF run --ttl 60s x -- sh $DIR/job\n");
    let child = scene.process("child");
    person.types(CTRL_Z);
    person.sees("prompt> ");
    wait_until("the command to stop", PATIENCE, || child.is_stopped());
    person.types("fg\n");
    wait_until("the command to go on", PATIENCE, || !child.is_stopped());
    person.types("hello\n");
    person.sees("<hello>");
    person.sees_code(0);
}

#[test]
fn in_the_background_it_runs_until_it_reads() {
    let scene = Scene::embedded();
    scene.write(
        "job",
        "mkfifo $DIR/go; echo $$ > $DIR/child; read go < $DIR/go; read a; echo \"<$a>\"",
    );
    let person = Person::at(&scene);
    person.types("$RF run --ttl 60s x -- sh $DIR/job\n");
    let child = scene.process("child");
    person.types(CTRL_Z);
    person.sees("prompt> ");
    person.types("bg\n");
    wait_until("the command to go on", PATIENCE, || !child.is_stopped());
    person.sees("prompt> ");
    scene.write("go", "go\n");
    wait_until("the command to stop", PATIENCE, || child.is_stopped());
    person.types("fg\n");
    person.types("hello\n");
    person.sees("<hello>");
    person.sees_code(0);
}

#[test]
fn a_command_whose_lock_ended_while_it_was_stopped_never_runs_again() {
    let scene = Scene::embedded();
    scene.write(
        "job",
        "trap 'echo again > $DIR/again' TERM CONT HUP; echo $$ > $DIR/child
         while :; do read a; echo again > $DIR/again; done",
    );
    let person = Person::at(&scene);
    person.types("$RF run --ttl 3s x -- sh $DIR/job\n");
    let child = scene.process("child");
    person.types(CTRL_Z);
    person.sees("prompt> ");
    assert!(child.is_stopped());
    child.wait_gone();
    wait_until("the lock to end", PATIENCE, || scene.is_free());
    person.types("fg\n");
    person.sees("lost the lock `x`");
    person.sees("prompt> ");
    person.sees_code(79);
    assert!(!child.is_alive());
    assert!(!scene.has("again"));
}

#[test]
fn in_a_pipeline_the_process_that_reads_gets_the_terminal() {
    let scene = Scene::embedded();
    // The neighbour reads from the terminal; the command does not.
    scene.write(
        "neighbour",
        "cat > $DIR/piped; read a < /dev/tty; echo \"<$a>\"",
    );
    let person = Person::at(&scene);
    person.types("$RF run x -- echo from the command | sh $DIR/neighbour\n");
    assert_eq!(scene.line("piped"), "from the command");
    person.types("hello\n");
    person.sees("<hello>");
    // A command that reads from the terminal gets it.
    scene.write("job", "read a < /dev/tty; echo \"{$a}\"");
    person.types("$RF run x -- sh $DIR/job | cat\n");
    person.types("hello\n");
    person.sees("{hello}");
    person.sees_code(0);
}

#[test]
fn closing_the_terminal_ends_everything() {
    let scene = Scene::embedded();
    scene.write("job", "echo $$ > $DIR/child; exec sleep 1000");
    let mut person = Person::at(&scene);
    person.types("$RF run x -- sh $DIR/job\n");
    let child = scene.process("child");
    let pid = rustix::process::Pid::from_raw(person.shell.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    person.shell.wait().unwrap();
    child.wait_gone();
    wait_until("the lock to be free", PATIENCE, || scene.is_free());
}
