//! The feature `metrics` with a real exporter: what it shows of a cluster of real servers, how many
//! series there are, and whether the dashboard and the alert rules fit them.

mod cluster;
mod dashboards;
mod exporter;
mod http;
mod prometheus;
mod series;
