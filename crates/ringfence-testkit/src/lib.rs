//! Real servers, real certificates and real network faults for ringfence's tests.
//!
//! A test that needs a server starts its own here and stops it by dropping it. No test is skipped:
//! a missing server is a panic that says what to do. The kit does not know the library, so the
//! library, the command line and the benchmarks can all use it.
//!
//! ```no_run
//! use ringfence_testkit::{Attack, Fault, Flavor, Fleet, HostileServer, Proxy, Server};
//!
//! let fleet = Fleet::start(5);
//! fleet[0].kill();
//! fleet[1].pause();
//!
//! let server = Server::builder(Flavor::Valkey).requirepass("secret").start();
//! let proxy = Proxy::in_front_of(&server);
//! proxy.replies(Fault::BlackHole);
//!
//! let hostile = HostileServer::in_front_of(&server);
//! hostile.attack(Attack::LongText { bytes: 60 << 20 });
//! ```

mod binary;
mod port;
mod preload;
mod process;
mod reply;
mod resp;

mod builder;
mod certificates;
mod disk_journal;
mod fleet;
mod fork;
mod names;
mod namespace;
mod sentinel;
mod server;
mod sync;
mod wait;
mod wall_clock;

mod network;
mod pipe;
mod proxy;
mod relay;

mod fake_sentinel;
mod hostile;

mod postgres;
mod psql;

pub mod svg;

pub use binary::Flavor;
pub use builder::{Persistence, ServerBuilder};
pub use certificates::Certificates;
pub use disk_journal::{DiskAction, DiskEvent, DiskImage, DiskJournal, disk_after};
pub use fake_sentinel::{FakeSentinel, Testimony};
pub use fleet::Fleet;
pub use fork::{fork, fork_environment};
pub use hostile::{Attack, HostileServer, Push};
pub use names::host_with_ips;
pub use namespace::unshared;
pub use network::Network;
pub use postgres::Postgres;
pub use process::Process;
pub use proxy::{Fault, Proxy};
pub use psql::Psql;
pub use sentinel::{SentinelGroup, SentinelGroupBuilder};
pub use server::Server;
pub use sync::DiskSync;
pub use wait::{wait_until, wait_until_async};
pub use wall_clock::WallClock;
