//! Several servers at once.

use ringfence_testkit::{Flavor, Fleet, Server};

#[test]
fn a_fleet_is_independent_servers_in_node_order() {
    let fleet = Fleet::start(3);
    let urls: Vec<String> = fleet.iter().map(Server::url).collect();
    assert_eq!(fleet.urls(), urls.join(","));
    assert_eq!(
        fleet.urls_without_quarantine(),
        format!(
            "{}?quarantine=off,{}?quarantine=off,{}?quarantine=off",
            urls[0], urls[1], urls[2]
        )
    );
    fleet[1].command(&["SET", "key", "value"]);
    let values: Vec<String> = fleet
        .iter()
        .map(|server| server.command(&["GET", "key"]))
        .collect();
    assert_eq!(values, ["", "value", ""]);
}

#[test]
fn a_fleet_may_be_mixed() {
    let fleet = Fleet::start_with(2, |number| Server::builder(Flavor::ALL[number]));
    let is_valkey = |server: &Server| {
        server
            .command(&["INFO", "server"])
            .contains("valkey_version")
    };
    assert!(!is_valkey(&fleet[0]));
    assert!(is_valkey(&fleet[1]));
}
