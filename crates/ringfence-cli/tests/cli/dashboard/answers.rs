//! The answers of the dashboard are as its OpenAPI file describes them, on a real cluster with every
//! kind of lock, read by a user who may only look.

use std::io::{BufRead, BufReader, Write};
use std::process::Command;

use ringfence_testkit::{Flavor, Fleet, SentinelGroup, Server, wait_until};
use serde_json::{Value, json};

use super::super::scene::{PATIENCE, Scene};
use super::cast::Cast;
use super::http::{ask, connect, get};
use super::{DashboardProcess, TOKEN, init, token_file};

const FILE: &str = include_str!("../../../src/dashboard/assets/openapi.json");

/// Checks `value` against the schema `name` of the file.
#[track_caller]
fn fits(value: &Value, name: &str) {
    let mut schema: Value = serde_json::from_str(FILE).expect("JSON");
    schema["$ref"] = format!("#/components/schemas/{name}").into();
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let errors: Vec<String> = validator
        .iter_errors(value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{name}: {errors:#?}\n{value:#}");
}

/// Waits until the list of locks is as `wanted`.
#[track_caller]
fn locks_when(port: u16, what: &str, wanted: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let mut found = Vec::new();
    wait_until(what, PATIENCE, || {
        let answer = get(port, "/api/v1/locks").json();
        found = answer["locks"].as_array().expect("a list").clone();
        wanted(&found)
    });
    found
}

#[test]
fn the_answers_fit_the_openapi_file_with_a_user_who_may_only_look() {
    let guide = include_str!("../../../../../docs/operations.md");
    let line = guide
        .lines()
        .find(|line| line.starts_with("user watcher on "));
    let users = format!(
        "user default on nopass ~* &* +@all\n{}",
        line.expect("the line")
    );
    let fleet = Fleet::start_with(3, |_| Server::builder(Flavor::Redis).acl_file(&users));
    let everything = Scene::on(&fleet.urls());
    init(&everything);
    let mut cast = Cast::on(&fleet.urls());
    // The watcher of the guide sees the names of one team.
    for (act, name, label) in [
        ("hold", "orders:1", "a"),
        ("hold", "orders:2", "b"),
        ("share", "orders:3", "c"),
        ("permit", "orders:4", "d"),
        ("arrive", "orders:5", "e"),
        ("lead", "orders:6", "f"),
    ] {
        cast.act(&[act, name, label]);
    }
    cast.act(&["queue", "orders:1", "waiter"]);
    let urls: Vec<String> = fleet
        .iter()
        .map(|server| server.url_as("watcher", "PASSWORD"))
        .collect();
    let scene = Scene::on(&urls.join(","));
    let dashboard = DashboardProcess::with_token(&scene, &[]);
    let port = dashboard.port;
    // A node that was too slow for the grant gets the lock with its first renewal.
    let everywhere = json!(["held", "held", "held"]);
    let is_everywhere = |row: &Value| row["name"] == "orders:1" && row["votes"] == everywhere;
    let rows = locks_when(port, "all kinds", |rows| {
        rows.len() == 6 && rows.iter().any(is_everywhere)
    });
    fits(&get(port, "/api/v1/locks").json(), "Locks");
    fits(&get(port, "/api/v1/about").json(), "About");
    let cluster = get(port, "/api/v1/cluster").json();
    fits(&cluster, "Cluster");
    assert_eq!(
        cluster["headline"],
        "All 3 nodes vote. 5 locks held, 1 waiter."
    );
    let one = |name: &str| rows.iter().find(|row| row["name"] == name).expect("a row");
    assert_eq!(one("orders:1")["holders"][0]["label"], "a");
    assert_eq!(one("orders:3")["kind"], "shared");
    assert_eq!(
        (&one("orders:4")["kind"], &one("orders:4")["permits"]),
        (&json!("semaphore"), &json!(3))
    );
    assert_eq!(one("orders:5")["arrived"], 1);
    single_answers_fit(port);
    metrics_count_the_cluster(port);
    events_tell_what_changes(port, &mut cast);
}

/// Also a user who may do everything: a server that was restarted gets no birth record, so its
/// quarantine begins with a client that uses locks.
#[test]
fn it_writes_nothing_whatever_its_user_may_do() {
    let fleet = Fleet::start(3);
    let scene = Scene::on(&fleet.urls());
    init(&scene);
    fleet[2].restart();
    let dashboard = DashboardProcess::start(&scene, &[]);
    let state = |node: usize, word: &str| {
        let cluster = ask(dashboard.port, "GET /api/v1/cluster", &[], "").json();
        cluster["nodes"][node]["state"] == word
    };
    wait_until("the nodes", PATIENCE, || {
        state(0, "votes") && state(2, "mute")
    });
    wait_until("a list of locks", PATIENCE, || {
        let locks = ask(dashboard.port, "GET /api/v1/locks", &[], "").json();
        locks["list"]["ended_ms"].is_number()
    });
    assert_eq!(fleet[2].command(&["DBSIZE"]), "0");
    assert_eq!(fleet[0].command(&["KEYS", "*"]), "ringfence:born");
}

/// A lock of which only one node is left, as after a crash of the others.
#[test]
fn a_remnant_on_a_minority_is_shown_as_a_split_vote() {
    let fleet = Fleet::start(3);
    let scene = Scene::on(&fleet.urls());
    init(&scene);
    let taken = scene.ringfence(&["acquire", "--ttl", "30s", "x"]).output();
    assert!(taken.expect("ringfence runs").status.success());
    let has = |node: usize| fleet[node].command(&["EXISTS", "x"]) == "1";
    let kept = (0..3).find(|node| has(*node)).expect("a majority has it");
    for node in (0..3).filter(|node| *node != kept) {
        fleet[node].command(&["DEL", "x"]);
    }
    let dashboard = DashboardProcess::with_token(&scene, &[]);
    let rows = locks_when(dashboard.port, "the remnant", |rows| !rows.is_empty());
    let mut votes = ["free"; 3];
    votes[kept] = "other";
    let row = &rows[0];
    assert_eq!(
        (&row["state"], &row["split"]),
        (&json!("free"), &json!(true)),
        "{row:#}"
    );
    assert_eq!(row["votes"], json!(votes));
    let headline = &get(dashboard.port, "/api/v1/cluster").json()["headline"];
    let headline = headline.as_str().expect("text");
    assert!(
        headline.ends_with("On 1 lock the nodes disagree."),
        "{headline}"
    );
}

/// One lock, the time line, and what is not valid.
fn single_answers_fit(port: u16) {
    let lock = get(port, "/api/v1/lock?name=orders%3A1").json();
    fits(&lock, "Lock");
    assert_eq!(lock["rows"][0]["queue"].as_array().map(Vec::len), Some(1));
    wait_until("the time line", PATIENCE, || {
        let timeline = get(port, "/api/v1/timeline?search=ORDERS").json();
        fits(&timeline, "Timeline");
        timeline["track_count"] == 5
    });
    for wrong in [
        "/api/v1/lock",
        "/api/v1/lock?name=",
        "/api/v1/lock?name=ringfence%3Ax",
        "/api/v1/timeline?limit=x",
    ] {
        let answer = get(port, wrong);
        assert_eq!(answer.status, 400, "{wrong}");
        fits(&answer.json(), "Problem");
    }
}

fn metrics_count_the_cluster(port: u16) {
    let page = get(port, "/metrics").body;
    for line in [
        "ringfence_cluster_nodes{state=\"votes\"} 3",
        "ringfence_cluster_quorum 1",
        "ringfence_cluster_held{kind=\"exclusive\"} 3",
        "ringfence_cluster_held{kind=\"semaphore\"} 1",
        "ringfence_cluster_queued 1",
        "ringfence_cluster_split 0",
        "ringfence_cluster_unknown 0",
    ] {
        assert!(page.lines().any(|found| found == line), "{line}\n{page}");
    }
    assert_eq!(
        page.matches("\nringfence_cluster_node_votes{node=").count(),
        3,
        "{page}"
    );
    assert!(!page.contains("orders"), "{page}");
}

fn events_tell_what_changes(port: u16, cast: &mut Cast) {
    let mut socket = connect(port);
    let head = format!(
        "GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).expect("written");
    let mut lines = BufReader::new(socket)
        .lines()
        .map(|line| line.expect("a line"));
    let mut event = || {
        let line = lines.find(|line| line.starts_with('{')).expect("an event");
        let event: Value = serde_json::from_str(&line).expect("JSON");
        fits(&event, "Event");
        event
    };
    let first = event();
    assert_eq!(first["event"], "all");
    assert_eq!(first["changed"].as_array().map(Vec::len), Some(6));
    fits(&first["cluster"], "Cluster");
    let names = |event: &Value, field: &str, name: &str| {
        let rows = event[field].as_array().expect("a list");
        rows.iter().any(|row| row["name"] == name)
    };
    cast.act(&["hold", "orders:new", "n"]);
    while !names(&event(), "changed", "orders:new") {}
    cast.act(&["release", "orders:new"]);
    while !names(&event(), "gone", "orders:new") {}
}

#[test]
fn a_service_behind_sentinels_is_shown_with_its_master_and_replicas() {
    let group = SentinelGroup::start(Flavor::Redis);
    let scene = Scene::on(&group.url());
    let _cast = Cast::on(&group.url());
    let dashboard = DashboardProcess::with_token(&scene, &[]);
    let mut service = Value::Null;
    wait_until("the service", PATIENCE, || {
        let cluster = get(dashboard.port, "/api/v1/cluster").json();
        fits(&cluster, "Cluster");
        service = cluster["nodes"][0]["service"].clone();
        !service.is_null()
    });
    let master = format!("127.0.0.1:{}", group.master().port());
    assert_eq!(service["master"], master.as_str());
    let agrees = |one: &Value| one["agrees"] == true;
    let sentinels = service["sentinels"].as_array().expect("a list");
    assert!(
        sentinels.len() == 3 && sentinels.iter().all(agrees),
        "{service:#}"
    );
    assert_eq!(
        service["replicas"].as_array().map(Vec::len),
        Some(group.replicas().count())
    );
}

#[test]
fn it_starts_and_says_so_when_no_node_answers() {
    let scene = Scene::on("redis://127.0.0.1:1,redis://127.0.0.1:2,redis://127.0.0.1:3");
    let dashboard = DashboardProcess::start(&scene, &[]);
    wait_until("the headline", PATIENCE, || {
        let cluster = ask(dashboard.port, "GET /api/v1/cluster", &[], "").json();
        cluster["headline"] == "No quorum: 0 of 3 nodes vote, so no lock can be taken. 3 are down."
    });
}

#[test]
fn prometheus_accepts_the_scrape_config_of_the_guide() {
    let guide = include_str!("../../../../../docs/dashboard.md");
    let (_, rest) = guide.split_once("```yaml\n").expect("a block");
    let (config, _) = rest.split_once("```").expect("its end");
    let scene = Scene::embedded();
    let token = token_file(&scene, TOKEN, 0o600);
    scene.write(
        "prometheus.yml",
        &config.replace("/etc/ringfence/viewers", &token),
    );
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "config"]);
    let done = promtool.arg(scene.path("prometheus.yml")).output();
    let done = done.expect("promtool is installed (Debian: the package prometheus)");
    assert!(done.status.success(), "{done:?}");
}
