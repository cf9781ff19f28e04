//! The crontab, the systemd units and the Kubernetes manifests of `docs/operations.md`: the program
//! understands every call of `ringfence` in them.

use crate::scene::Scene;

const GUIDE: &str = include_str!("../../../../docs/operations.md");

#[test]
fn every_call_in_a_crontab_a_unit_or_a_manifest_is_understood() {
    let calls = calls();
    assert!(calls.len() >= 6, "{calls:?}");
    for mut call in calls {
        // Another command, and a lock of its own for each call.
        let separator = call
            .iter()
            .position(|word| word == "--")
            .expect("a command");
        call.truncate(separator + 1);
        call.push("true".to_owned());
        let args: Vec<&str> = call.iter().map(String::as_str).collect();
        let output = Scene::embedded().ringfence(&args).output().unwrap();
        assert!(output.status.success(), "{call:?}: {output:?}");
    }
}

/// Machines whose clocks differ start a job at different times, and a pod that finds the lock held has
/// done its part.
#[test]
fn the_units_and_manifests_to_copy_run_a_short_job_once() {
    let unit = include_str!("../../../../dist/systemd/nightly-report.service");
    let manifest = include_str!("../../../../dist/kubernetes/cronjob.yaml");
    for file in [unit, manifest] {
        assert!(file.contains("--no-wait"), "{file}");
        assert!(file.contains("--hold-at-least"), "{file}");
    }
    assert!(unit.contains("SuccessExitStatus=75"), "{unit}");
    assert!(manifest.contains("- --conflict-exit-code=0"), "{manifest}");
    assert!(!manifest.contains("FailJob"), "{manifest}");
}

/// The arguments of each call.
fn calls() -> Vec<Vec<String>> {
    let plain = |text: &str| text.split_whitespace().map(str::to_owned).collect();
    let listed = |text: &str| {
        let words = text.trim_end_matches(']').split(", ");
        words
            .map(|word| word.trim_matches('"').to_owned())
            .collect()
    };
    let lines = GUIDE.lines().map(str::trim);
    let calls = lines.filter_map(|line| {
        if line.starts_with("ExecStart=") {
            let (_, rest) = line.split_once("ringfence ")?;
            Some(plain(rest))
        } else if let Some(rest) = line.strip_prefix("command: [ringfence, ") {
            Some(listed(rest))
        } else {
            let (_, rest) = line.split_once("* * *  app  ringfence ")?;
            Some(plain(rest))
        }
    });
    calls.collect()
}
