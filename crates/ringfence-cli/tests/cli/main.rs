//! The `ringfence` program as its users meet it: real processes, real servers, a real terminal.
//!
//! One test binary, a module per subject. Nothing sleeps for a fixed time; conditions are waited
//! for, with an end.

#![allow(missing_docs)]

mod diagnosis;
mod doctor;
mod elect;
mod exit_codes;
mod fleet;
mod hostile;
mod keep;
mod leftovers;
mod loss;
mod mutants;
mod permits;
mod person;
mod rights;
mod scene;
mod secrets;
mod shared;
mod signals;
mod terminal;
mod tokens;
mod usage;
mod watchdog;
