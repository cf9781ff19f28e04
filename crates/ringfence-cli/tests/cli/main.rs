//! Tests of the `ringfence` program with real processes, real servers and a real terminal.
//!
//! One test binary, one module per subject. No test sleeps for a fixed time: tests wait for
//! conditions, with a limit.

#![allow(missing_docs)]

mod breaking;
mod cells;
mod config;
mod dashboard;
mod diagnosis;
mod doctor;
mod documented;
mod elect;
mod exit_codes;
mod failover;
mod fleet;
mod hostile;
mod idle;
mod keep;
mod leftovers;
mod loss;
mod ls;
mod manual;
mod metrics_file;
mod mutants;
mod operator;
mod outages;
mod pages;
mod permits;
mod person;
mod rights;
mod scene;
mod secrets;
mod sentinels;
mod serve;
mod services;
mod shared;
mod signals;
mod terminal;
mod tokens;
mod truth;
mod unknown;
mod usage;
mod watch;
mod watchdog;
