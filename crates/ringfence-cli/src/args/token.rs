//! The token of `extend` and `release`: from `--token`, or from the environment.

use std::convert::Infallible;
use std::env;

use ringfence::{Receipt, ReceiptError};

use crate::report::{CliFailure, one_line};

/// The environment variables that `run` sets for its command.
const NAME: &str = "RINGFENCE_NAME";
const TOKEN: &str = "RINGFENCE_TOKEN";

/// A token as the user gave it. [`receipt`] reports a malformed token later: clap would print the
/// whole value, and a token with a typing mistake is still a secret.
#[derive(Debug, Clone)]
pub(crate) struct TokenArgs(Result<Receipt, ReceiptError>);

impl TokenArgs {
    pub(super) fn read(text: &str) -> Result<Self, Infallible> {
        Ok(Self(Receipt::parse(text)))
    }
}

/// The token for the lock `name`: the `given` one, or the one in the environment. Inside `run x` the
/// environment has the token of `x`, which is not that of another lock.
pub(crate) fn receipt(name: &str, given: Option<&TokenArgs>) -> Result<Receipt, CliFailure> {
    let malformed = |error: ReceiptError| {
        CliFailure::usage(format!(
            "the value of --token (or {TOKEN}): {error}, as `ringfence acquire` prints it"
        ))
    };
    if let Some(given) = given {
        return given.0.clone().map_err(malformed);
    }
    let missing = "--token is missing: give the token that `ringfence acquire` printed";
    let Ok(token) = env::var(TOKEN) else {
        return Err(CliFailure::usage(missing));
    };
    match env::var(NAME) {
        Ok(other) if other != name => Err(CliFailure::usage(format!(
            "{missing} ({TOKEN} is that of the lock `{}`)",
            one_line(&other)
        ))),
        _ => Receipt::parse(&token).map_err(malformed),
    }
}
