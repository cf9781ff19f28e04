//! A command that runs through a failover of real Sentinels.

use ringfence_testkit::{Flavor, SentinelGroup, wait_until};

use super::scene::{PATIENCE, Scene};

#[test]
fn a_command_goes_on_through_a_planned_failover_which_verbose_tells_in_two_lines() {
    let group = SentinelGroup::start(Flavor::Redis);
    let scene = Scene::on(&group.url());
    let init = scene.ringfence(&["init"]).output().unwrap();
    assert!(init.status.success(), "{init:?}");
    let doctor = scene.ringfence(&["doctor"]).output().unwrap();
    let told = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(doctor.status.success(), "{told}");
    assert!(
        told.contains("2 of 3 Sentinels") && told.contains("has 2 replicas"),
        "{told}"
    );
    let script = "echo $$ > $DIR/child; while [ ! -e $DIR/done ]; do sleep 0.1; done";
    let run = scene.run(&["-v", "--ttl", "30s"], script);
    scene.line("child");
    let epoch = || {
        let born = group.master().command(&["GET", "ringfence:born"]);
        born.split(' ').nth(3).map(str::to_owned)
    };
    let before = epoch();
    group.fail_over();
    wait_until("the client to join the new master", PATIENCE, || {
        epoch() != before
    });
    std::fs::write(scene.path("done"), "").unwrap();
    let finished = run.finish();
    assert_eq!(finished.code(), 0, "{}", finished.stderr());
    let stderr = finished.stderr();
    let told: Vec<&str> = stderr
        .lines()
        .filter(|line| line.contains("failover:"))
        .collect();
    let port = group.master().port().to_string();
    assert_eq!(told.len(), 2, "{stderr}");
    assert!(
        told[0].contains("name 127.0.0.1:") && told[0].contains(&port),
        "{stderr}"
    );
    assert!(told[1].contains("holders keep their locks"), "{stderr}");
}
