//! Networks that are divided: a group of Sentinels on several hosts.

use std::sync::Arc;
use std::time::Duration;

use ringfence_testkit::{Flavor, Network, SentinelGroup, Server, wait_until};

const PATIENCE: Duration = Duration::from_secs(60);

fn named_by(sentinel: &Server) -> String {
    let service = SentinelGroup::SERVICE;
    sentinel.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", service])
}

#[test]
fn a_master_that_is_cut_off_with_one_sentinel_goes_on_until_the_network_heals() {
    let network = Arc::new(Network::new(6));
    let group = SentinelGroup::builder(Flavor::Redis).network(&network);
    let group = group.start();
    let (old, old_port) = (&group.servers()[0], group.master().port());
    assert_eq!(old_port, old.port());
    // Host 3 is that of the first Sentinel.
    network.divide(&[0, 3]);
    group.wait_for_new_master(old_port);
    let [with_old, with_new] = [0, 1].map(|number| named_by(&group.sentinels()[number]));
    assert!(with_old.contains(&old_port.to_string()), "{with_old}");
    assert!(!with_new.contains(&old_port.to_string()), "{with_new}");
    assert_eq!(old.command(&["SET", "key", "value"]), "OK");
    assert_eq!(group.master().command(&["GET", "key"]), "");
    network.heal();
    group.wait_until_settled();
    wait_until("the old master to follow", PATIENCE, || {
        old.command(&["ROLE"]).starts_with("slave")
    });
}
