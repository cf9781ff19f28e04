//! HTTP for the dashboard and for the service: connections with limits, and which requests are
//! answered.

pub(crate) mod access;
pub(crate) mod connections;
