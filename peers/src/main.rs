//! The Rust clients behind the line protocol of `peers/README.md`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ringfence_peers::serve::main(std::env::args().skip(1))
}
