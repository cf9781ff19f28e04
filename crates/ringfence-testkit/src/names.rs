//! Names of hosts that a test gives to one process, each with IPs in a fixed order: a small library
//! answers for the resolver.
//!
//! It is for programs that call `getaddrinfo` of the C library, as Rust programs do.

use std::sync::OnceLock;

use crate::preload::Preload;

const SOURCE: &str = include_str!("names.c");

/// The environment for a process that finds `ips` for the host `name`.
///
/// # Panics
/// If there is no C compiler.
pub fn host_with_ips(name: &str, ips: &[&str]) -> [(String, String); 2] {
    static LIBRARY: OnceLock<Preload> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| Preload::compile(SOURCE));
    let hosts = format!("{name}={}", ips.join(","));
    [library.environment(), ("RINGFENCE_HOSTS".to_owned(), hosts)]
}
