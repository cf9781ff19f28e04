//! The compiler as it is called for the build that has mutants.
//!
//! Cargo lets a program stand between it and the compiler for the members of a workspace alone, and
//! keeps what it makes apart from what the compiler makes by itself. So the dependencies of the normal
//! build are used again, and no normal build ever meets a mutant. The program is this one: cargo calls it
//! with the compiler and its arguments, and it adds the flag.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// The flag that only this build has.
const FLAG: [&str; 2] = ["--cfg", "ringfence_mutants"];

/// Says to a program that cargo starts that it is to call the compiler.
const VARIABLE: &str = "RINGFENCE_VERIFY_COMPILES";

/// Has `cargo` compile the members of the workspace with mutants.
pub(super) fn with_mutants(cargo: &mut Command) -> std::io::Result<&mut Command> {
    Ok(cargo
        .env("RUSTC_WORKSPACE_WRAPPER", env::current_exe()?)
        .env(VARIABLE, "1"))
}

/// If cargo started this program to compile, calls the compiler in its place, and returns only if that
/// fails.
pub fn stand_in() -> Option<ExitCode> {
    env::var_os(VARIABLE)?;
    let mut arguments = env::args_os().skip(1);
    let Some(compiler) = arguments.next() else {
        eprintln!("{VARIABLE} is for cargo, which names a compiler");
        return Some(ExitCode::FAILURE);
    };
    // A proc macro that reads the environment must not find what the next one would not.
    let error = Command::new(&compiler)
        .env_remove(VARIABLE)
        .args(arguments)
        .args(FLAG)
        .exec();
    eprintln!("{}: {error}", compiler.display());
    Some(ExitCode::FAILURE)
}
