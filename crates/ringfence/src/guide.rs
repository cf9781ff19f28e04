//! The guides, for reading here. The same pages are in the folder `docs` of the repository.
//!
//! | page | what |
//! |---|---|
//! | [`steps`] | nine steps from `SETNX` to a fenced lock, each with the failure of the one before; three whole cases |
//! | [`guarantees`] | what each guarantee needs, and what happens in every failure |
//! | [`when_not`] | what is often simpler than a lock |
//! | [`resources`] | resources that check the fence: Redis, PostgreSQL, SQLite, object stores |
//! | [`testing`] | tests of your own code without a server |
//! | [`observability`] | metrics, events, traces, alerts |
//! | [`operations`] | servers, passwords, ACLs, upgrades, cron, systemd, Kubernetes |
//! | [`deployments`] | which servers to use |
//! | [`migrating`] | from another Redlock library, one service at a time |
//!
//! # Platforms
//!
//! | platform | state |
//! |---|---|
//! | Linux with glibc, x86-64 | every test runs there |
//! | Linux with musl, x86-64 | the static command-line program is built and tried |
//! | Linux on other processors, Android | in theory: the same code; never compiled in our tests |
//! | macOS | in theory: there is code for it, with a clock that counts suspend; never compiled in our tests |
//! | other systems | in theory: never compiled in our tests; the clock may stand still during suspend |
//!
//! # Only in the repository
//!
//! The specification of the protocol, how it is verified, the dashboard, the benchmarks, and the files
//! for systemd, Kubernetes, Prometheus and Grafana are in the repository, not in this crate.
// A page defines its links at its end, for readers of the repository. The definitions here come
// first, so they count.

#[cfg(any(not(doctest), all(feature = "redis", feature = "sqlite")))]
#[doc = "[README.md]: crate"]
#[doc = "[crates/ringfence/examples/steps]: crate::guide#only-in-the-repository"]
#[doc = "[guarantees.md]: crate::guide::guarantees"]
#[doc = "[operations.md]: crate::guide::operations"]
#[doc = "[resources.md]: crate::guide::resources"]
#[doc = "[testing.md]: crate::guide::testing"]
#[doc = "[when-not.md]: crate::guide::when_not"]
#[doc = "[when-not.md three-cases]: crate::guide::when_not#three-cases"]
#[doc = ""]
#[doc = include_str!("guide/guide.md")]
pub mod steps {}

#[cfg(any(not(doctest), all(feature = "redis", feature = "sqlite")))]
#[doc = "[crates/ringfence/tests/scenarios/redlock.rs]: crate::guide#only-in-the-repository"]
#[doc = "[mutants.md]: crate::guide#only-in-the-repository"]
#[doc = "[protocol.md]: crate::guide#only-in-the-repository"]
#[doc = "[resources.md resources-that-can-only-compare-for-equality]: crate::guide::resources#resources-that-can-only-compare-for-equality"]
#[doc = "[verification.md]: crate::guide#only-in-the-repository"]
#[doc = "[when-not.md zookeeper-etcd-consul]: crate::guide::when_not#zookeeper-etcd-consul"]
#[doc = ""]
#[doc = include_str!("guide/guarantees.md")]
pub mod guarantees {}

#[doc = "[guarantees.md]: crate::guide::guarantees"]
#[doc = ""]
#[doc = include_str!("guide/when-not.md")]
pub mod when_not {}

#[cfg(any(not(doctest), all(feature = "redis", feature = "sqlite")))]
#[doc = "[crates/ringfence/src/resource/lua/admit.lua]: crate::resource::redis"]
#[doc = "[crates/ringfence/src/resource/lua/fenced.lua]: crate::resource::redis"]
#[doc = ""]
#[doc = include_str!("guide/resources.md")]
pub mod resources {}

// Its Rust is compiled elsewhere: in `tests/examples/user_tests.rs`.
#[cfg(not(doctest))]
#[doc = "[crates/ringfence/tests/examples/user_tests.rs]: crate::guide#only-in-the-repository"]
#[doc = ""]
#[doc = include_str!("guide/testing.md")]
pub mod testing {}

#[cfg(any(not(doctest), all(feature = "redis", feature = "metrics")))]
#[doc = "[bench/README.md metrics]: crate::guide#only-in-the-repository"]
#[doc = "[dashboard.md]: crate::guide#only-in-the-repository"]
#[doc = "[dist/grafana/ringfence.json]: crate::guide#only-in-the-repository"]
#[doc = "[dist/prometheus/ringfence.rules.yml]: crate::guide#only-in-the-repository"]
#[doc = "[operations.md]: crate::guide::operations"]
#[doc = ""]
#[doc = include_str!("guide/observability.md")]
pub mod observability {}

#[doc = "[dist/kubernetes/cronjob.yaml]: crate::guide#only-in-the-repository"]
#[doc = "[dist/systemd]: crate::guide#only-in-the-repository"]
#[doc = "[guarantees.md]: crate::guide::guarantees"]
#[doc = "[observability.md alerts]: crate::guide::observability#alerts"]
#[doc = "[resources.md]: crate::guide::resources"]
#[doc = ""]
#[doc = include_str!("guide/operations.md")]
pub mod operations {}

#[doc = "[guarantees.md]: crate::guide::guarantees"]
#[doc = "[when-not.md]: crate::guide::when_not"]
#[doc = ""]
#[doc = include_str!("guide/deployments.md")]
pub mod deployments {}

// Its Rust is compiled elsewhere: in the crate of the peers.
#[cfg(not(doctest))]
#[doc = "[resources.md]: crate::guide::resources"]
#[doc = ""]
#[doc = include_str!("guide/migrating.md")]
pub mod migrating {}
