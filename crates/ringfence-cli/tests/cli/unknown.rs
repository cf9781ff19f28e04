//! What is shown of a lock while too few nodes vote: what is unknown is called unknown, with what is
//! known beside it.

use ringfence_testkit::{Fleet, wait_until};
use serde_json::{Value, json};

use super::dashboard::{DashboardProcess, http::get};
use super::scene::{Finished, PATIENCE, Running, Scene};

/// Five nodes of which two say who holds `seed`: one is down, one hangs, one is in quarantine.
struct Outage {
    scene: Scene,
    fleet: Fleet,
    /// The node that is down, the one that hangs, and the one in quarantine.
    silent: [usize; 3],
}

impl Outage {
    fn begin() -> Self {
        let fleet = Fleet::start(5);
        let scene = Scene::on(&fleet.urls());
        // A busy machine must not let the lease or the quarantine end.
        wait_until("a new cluster", PATIENCE, || {
            let done = scene.ringfence(&["init", "--quarantine", "20m"]).output();
            done.expect("ringfence runs").status.success()
        });
        let taken = scene.ringfence(&["acquire", "--ttl", "10m", "--label", "vm:7899", "seed"]);
        let taken = Finished::of(taken);
        assert_eq!(taken.code(), 0, "{}", taken.stderr());
        // A grant does not wait for all nodes.
        let has = |node: &usize| fleet[*node].command(&["EXISTS", "seed"]) == "1";
        let voting: Vec<usize> = (0..5).filter(has).take(2).collect();
        let mut silent = (0..5).filter(|node| !voting.contains(node));
        let [down, hung, young] = [(); 3].map(|()| silent.next().expect("five nodes"));
        fleet[down].kill();
        fleet[hung].pause();
        fleet[young].restart();
        Self {
            scene,
            silent: [down, hung, young],
            fleet,
        }
    }

    /// What each node says, if the nodes that are down, hang and are in quarantine say `silent`.
    fn marks(&self, silent: [&'static str; 3], others: &'static str) -> Vec<&'static str> {
        let mut marks = vec![others; 5];
        for (node, mark) in self.silent.into_iter().zip(silent) {
            marks[node] = mark;
        }
        marks
    }

    #[track_caller]
    fn fails(&self, args: &[&str]) -> Finished {
        let said = Finished::of(self.scene.ringfence(args));
        assert_eq!(
            said.code(),
            69,
            "{args:?}: {}{}",
            said.stdout(),
            said.stderr()
        );
        said
    }
}

const UNKNOWN: &str = "unknown, no majority: 2 of 5 nodes say vm:7899";

#[test]
fn a_held_lock_is_not_shown_as_free_without_a_majority() {
    let outage = Outage::begin();
    let said = outage.fails(&["status", "seed"]);
    assert!(said.stdout().starts_with(UNKNOWN), "{}", said.stdout());
    let said = outage.fails(&["status", "--exit-code", "seed"]);
    assert!(said.stdout().starts_with(UNKNOWN), "{}", said.stdout());
    let said = outage.fails(&["--json", "status", "seed"]);
    let value: Value = serde_json::from_str(said.stdout()).expect("JSON");
    assert_eq!(
        (&value["state"], &value["taken"]),
        (&json!("unknown"), &Value::Null)
    );
    assert_eq!(value["label"], Value::Null);
    let reported = &value["reported"][0];
    assert_eq!(
        (&reported["label"], &reported["nodes"]),
        (&json!("vm:7899"), &json!(2))
    );

    let list = outage.fails(&["ls"]);
    let lines: Vec<&str> = list.stdout().lines().collect();
    assert!(
        lines[0].starts_with("no majority: 2 of 5 nodes vote"),
        "{lines:#?}"
    );
    let row = lines.iter().find(|line| line.starts_with("seed"));
    let row = row.expect("what the nodes have that answer is listed");
    for words in ["unknown", "vm:7899", "2/5"] {
        assert!(row.contains(words), "{row}");
    }
    let list = outage.fails(&["--json", "ls"]);
    let first: Value = serde_json::from_str(list.stdout().lines().next().unwrap()).expect("JSON");
    assert_eq!(
        (&first["name"], &first["state"]),
        (&json!("seed"), &json!("unknown"))
    );
    assert!(list.stderr().contains("no majority"), "{}", list.stderr());

    let watch = Running::start(outage.scene.ringfence(&["watch", "seed"]));
    watch.wait_for_output(UNKNOWN);
    assert!(!watch.stdout().contains("free"), "{}", watch.stdout());
}

/// The nodes that are down come first. They are what an operator has to mend.
#[test]
fn an_attempt_names_the_nodes_that_are_down_before_the_one_in_quarantine() {
    let outage = Outage::begin();
    let said = outage.fails(&["run", "-n", "other", "--", "true"]);
    let line = said.stderr().lines().next().expect("an error");
    let [down, hung, young] = outage.silent.map(|node| {
        let address = outage.fleet[node].addr().to_string();
        line.find(&address)
            .unwrap_or_else(|| panic!("{address}: {line}"))
    });
    assert!(down < hung && hung < young, "{line}");
    assert!(!line.contains("init"), "{line}");
}

#[test]
fn the_dashboard_claims_no_disagreement_without_a_majority() {
    let outage = Outage::begin();
    // The dashboard writes nothing, so the quarantine has to begin with another client.
    outage.fails(&["run", "-n", "other", "--", "true"]);
    let dashboard = DashboardProcess::with_token(&outage.scene, &[]);
    let port = dashboard.port;
    let rows = || get(port, "/api/v1/locks").json()["locks"].clone();
    let marks = json!(outage.marks(["down", "down", "mute"], "reported"));
    wait_until("the lock in the list", PATIENCE, || {
        rows()[0]["votes"] == marks
    });
    let row = &rows()[0];
    assert_eq!(
        (&row["name"], &row["split"]),
        (&json!("seed"), &json!(false))
    );
    assert_eq!(row["state"], "unknown");
    assert_eq!(row["holders"][0]["label"], "vm:7899");
    let lock = get(port, "/api/v1/lock?name=seed").json();
    assert_eq!(
        (&lock["state"], &lock["quorum"]),
        (&json!("unknown"), &json!(false))
    );
    let headline = || {
        let cluster = get(port, "/api/v1/cluster").json();
        cluster["headline"].as_str().expect("text").to_owned()
    };
    wait_until("the state of the nodes", PATIENCE, || {
        headline().starts_with("No quorum: 2 of 5 nodes vote")
    });
    let headline = headline();
    assert!(
        !headline.contains("disagree") && !headline.contains("0 locks held"),
        "{headline}"
    );
    let page = get(port, "/metrics").body;
    for line in [
        "ringfence_cluster_split 0",
        "ringfence_cluster_unknown 1",
        "ringfence_cluster_quorum 0",
    ] {
        assert!(page.lines().any(|found| found == line), "{line}\n{page}");
    }
}
