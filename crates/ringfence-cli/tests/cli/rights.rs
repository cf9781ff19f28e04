//! The command line with each of the ACL users of the operations guide.

use ringfence_testkit::{Flavor, Fleet, Persistence, Server};

use super::diagnosis::{assert_says, doctor, finding};
use super::scene::{Finished, Running, Scene};

const GUIDE: &str = include_str!("../../../../docs/operations.md");

/// The ACL line that the guide gives to `user`.
fn line_of(user: &str) -> &'static str {
    let begin = format!("user {user} on ");
    let mut lines = GUIDE.lines();
    lines.find(|line| line.starts_with(&begin)).unwrap()
}

fn users() -> String {
    let lines = ["orders", "watcher", "operator"].map(line_of).join("\n");
    format!("user default off\n{lines}")
}

fn urls(fleet: &Fleet, user: &str) -> String {
    let urls = fleet.iter().map(|server| server.url_as(user, "PASSWORD"));
    urls.collect::<Vec<_>>().join(",")
}

#[track_caller]
fn succeeds(scene: &Scene, args: &[&str]) -> String {
    let said = Finished::of(scene.ringfence(args));
    assert_eq!(said.code(), 0, "{args:?}: {}", said.stderr());
    said.stdout().to_owned()
}

/// Returns stderr.
#[track_caller]
fn fails(scene: &Scene, args: &[&str]) -> String {
    let said = Finished::of(scene.ringfence(args));
    assert_ne!(said.code(), 0, "{args:?}: {}", said.stdout());
    said.stderr().to_owned()
}

#[test]
fn the_users_of_the_guide_have_the_rights_they_need() {
    for flavor in Flavor::ALL {
        let fleet = Fleet::start_with(3, |_| Server::builder(flavor).acl_file(&users()));
        let scene = |user| Scene::on(&urls(&fleet, user));
        let (orders, watcher, operator) = (scene("orders"), scene("watcher"), scene("operator"));
        let refused = fails(&orders, &["init"]);
        assert!(refused.contains("docs/operations.md"), "{refused}");
        succeeds(&operator, &["init"]);
        the_orders_user_locks_its_own_names_only(&orders);
        // Facts that a user may not see are notes.
        the_doctor_finds_no_fault(&orders, "ok");
        the_doctor_finds_no_fault(&watcher, "note");
        the_doctor_finds_no_fault(&operator, "note");
        let (_, value) = doctor(&watcher, 0);
        let rights = finding(&value, "rights", Some(&fleet[1]));
        let line = "ACL SETUSER watcher ~ringfence:{PREFIX* ~PREFIX* ~ringfence:born";
        assert_says(rights, "note", &["but not take locks", line]);
        // Only a user that may list the locks can search for them.
        let (_, value) = doctor(&orders, 0);
        let expiry = finding(&value, "expiry", Some(&fleet[1]));
        assert_says(expiry, "note", &["not visible to this user"]);
        the_watcher_cannot_lock(&watcher, &orders);
    }
}

#[track_caller]
fn the_orders_user_locks_its_own_names_only(orders: &Scene) {
    succeeds(orders, &["run", "orders:x", "--", "true"]);
    succeeds(orders, &["run", "--shared", "orders:x", "--", "true"]);
    succeeds(orders, &["run", "--permits", "2", "orders:x", "--", "true"]);
    let denied = fails(orders, &["run", "billing:x", "--", "true"]);
    let rule = "ACL SETUSER orders ~ringfence:{billing:* ~billing:*";
    assert!(denied.contains(rule), "{denied}");
}

/// The only warning is that all nodes run on one host. The verdict about the rights is `verdict`.
#[track_caller]
fn the_doctor_finds_no_fault(scene: &Scene, verdict: &str) {
    let (_, value) = doctor(scene, 0);
    let counts = (&value["problems"], &value["warnings"]);
    assert_eq!(counts, (&0.into(), &1.into()), "{value:#}");
    assert_eq!(value["quorum"], true);
    let findings = value["findings"].as_array().unwrap().iter();
    let mut rights = findings.filter(|finding| finding["check"] == "rights");
    assert!(
        rights.all(|finding| finding["verdict"] == verdict),
        "{value:#}"
    );
    succeeds(scene, &["doctor", "orders:x"]);
}

#[track_caller]
fn the_watcher_cannot_lock(watcher: &Scene, orders: &Scene) {
    let script = "echo > $DIR/on; exec sleep 1000";
    let run = Running::start(orders.ringfence(&["run", "orders:x", "--", "sh", "-c", script]));
    orders.line("on");
    assert!(succeeds(watcher, &["status", "orders:x"]).contains("held"));
    succeeds(watcher, &["status"]);
    assert!(succeeds(watcher, &["ls"]).contains("orders:x "));
    assert!(fails(orders, &["ls"]).contains("scan"));
    succeeds(watcher, &["status", "orders:x"]);
    drop(run);
    let denied = fails(watcher, &["run", "orders:y", "--", "true"]);
    let words = "lets user `watcher` only look";
    assert!(denied.contains(words), "{denied}");
    let denied = Finished::of(watcher.ringfence(&["doctor", "billing:x"]));
    assert_eq!(denied.code(), 1, "{}", denied.stdout());
    let rule = "%R~ringfence:{billing:* %R~billing:*";
    assert!(denied.stdout().contains(rule), "{}", denied.stdout());
}

#[test]
fn the_doctor_prints_the_acl_rule_for_a_missing_right() {
    for flavor in Flavor::ALL {
        let least = line_of("orders");
        let without = |user: &str, rules: &[&str]| {
            let line = least.replace("user orders", &format!("user {user}"));
            let kept = line.split(' ').filter(|rule| !rules.contains(rule));
            let kept = kept.collect::<Vec<_>>().join(" ");
            assert_eq!(
                kept.split(' ').count() + rules.len(),
                line.split(' ').count()
            );
            kept
        };
        let users = [
            without("nozadd", &["+zadd"]),
            without("noeval", &["+eval"]),
            without("noscripts", &["+eval", "+evalsha_ro"]),
            without("noborn", &["~ringfence:born"]),
        ];
        let users = format!("user default off\n{least}\n{}", users.join("\n"));
        let server = Server::builder(flavor).acl_file(&users).start();
        let scene = |user: &str| Scene::on(&server.url_as(user, "PASSWORD"));
        // A user without `+eval` learns of its rights only from a script that is loaded.
        let (_, value) = doctor(&scene("noeval"), 0);
        let rights = finding(&value, "rights", Some(&server));
        assert_says(
            rights,
            "warning",
            &["has not loaded the scripts", "`+eval`"],
        );
        succeeds(&scene("orders"), &["run", "orders:x", "--", "true"]);
        for (user, rule) in [
            ("nozadd", "ACL SETUSER nozadd +zadd"),
            ("noeval", "ACL SETUSER noeval +eval"),
            ("noscripts", "ACL SETUSER noscripts +evalsha_ro"),
            ("noborn", "ACL SETUSER noborn ~ringfence:born"),
        ] {
            let (_, value) = doctor(&scene(user), 1);
            let rights = finding(&value, "rights", Some(&server));
            assert_says(rights, "problem", &[rule]);
            let line = rights["advice"].as_str().unwrap();
            let line = line.split(',').next().unwrap();
            server.command(&line.split(' ').collect::<Vec<_>>());
            if user != "noscripts" {
                doctor(&scene(user), 0);
            }
        }
        // A lock that the user may not take, and one that it may take.
        let named = |name| Finished::of(scene("orders").ringfence(&["doctor", name]));
        let denied = named("invoices:1");
        assert_eq!(denied.code(), 1, "{}", denied.stdout());
        let rule = "ACL SETUSER orders ~ringfence:{invoices:* ~invoices:*";
        assert!(denied.stdout().contains(rule), "{}", denied.stdout());
        assert_eq!(named("orders:1").code(), 0);
    }
}

#[test]
fn a_server_that_denies_info_is_best_effort_and_the_doctor_says_so() {
    for flavor in Flavor::ALL {
        let line = line_of("orders").replace(" +info", "");
        let users = format!("user default off\n{line}\n");
        let server = Server::builder(flavor).acl_file(&users).start();
        let url = server.url_as("orders", "PASSWORD");
        // Its replicas are not known, so its first use would have to wait for the quarantine.
        let scene = Scene::on(&format!("{url}?failover=ignore"));
        let ran = Finished::of(scene.ringfence(&["run", "-v", "orders:x", "--", "true"]));
        assert_eq!(ran.code(), 0, "{}", ran.stderr());
        let words = "does not let user `orders` run INFO: best effort";
        assert!(ran.stderr().contains(words), "{}", ran.stderr());
        let (text, value) = doctor(&scene, 0);
        let durability = finding(&value, "durability", Some(&server));
        let words = [
            "denies user orders INFO",
            "best effort",
            "ACL SETUSER orders +info",
        ];
        assert_says(durability, "warning", &words);
        assert!(text.contains("failover=lossless"), "{text}");
    }
}

#[test]
fn a_setting_that_only_config_shows_is_a_note() {
    let server = Server::builder(Flavor::Redis)
        .persistence(Persistence::AofAlways)
        .acl_file(&users())
        .start();
    let url = server.url_as("orders", "PASSWORD");
    let (_, value) = doctor(&Scene::on(&url), 0);
    let durability = finding(&value, "durability", Some(&server));
    assert_says(
        durability,
        "note",
        &["not visible to this user: appendfsync", "?durable=yes"],
    );
    assert_eq!(
        (&value["problems"], &value["warnings"]),
        (&0.into(), &0.into())
    );
    assert_eq!(value["verdict"], "ok");
    let (text, _) = doctor(&Scene::on(&format!("{url}?durable=yes")), 0);
    assert!(text.contains("durable: a lock is on disk"), "{text}");
    assert_eq!(
        server.command(&["ACL", "LOG"]),
        "",
        "the server denied a command"
    );
}
