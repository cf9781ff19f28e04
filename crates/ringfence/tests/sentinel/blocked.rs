//! A lock behind Sentinels survives code that blocks its tokio runtime: a thread asks the Sentinels
//! itself, and renews over a connection of its own.

use ringfence_testkit::{Flavor, SentinelGroup};

use crate::fleet::blocking_code::{keeps_its_lock_everywhere, one_thread};
use crate::sentinel::stage::*;

#[test]
fn blocking_code_keeps_its_lock_behind_sentinels() {
    let builder = SentinelGroup::builder(Flavor::Redis).replicas(1);
    let group = builder.sentinels(3).start();
    drop(one_thread().block_on(new_client(&group.url())));
    keeps_its_lock_everywhere(&group.url());
}
