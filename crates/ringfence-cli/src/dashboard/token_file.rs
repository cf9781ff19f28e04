//! Reads the token of the viewers from `--token-file`.

use std::path::Path;

use crate::report::CliFailure;
use crate::secret::Secret;

use super::access::TOKEN_MIN_CHARS;

/// The token in `file`, without the white space around it.
pub(super) fn read(file: Option<&Path>) -> Result<Option<String>, CliFailure> {
    let Some(file) = file else {
        return Ok(None);
    };
    let secret = Secret::read(file, "--token-file", None)?;
    secret.check_rights()?;
    let token = secret.text().trim();
    // What a browser can send in a header, as one word.
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(secret.refused("a token consists of ASCII characters without spaces"));
    }
    if token.len() < TOKEN_MIN_CHARS {
        return Err(secret.refused(&format!(
            "a token has at least {TOKEN_MIN_CHARS} characters, for example the output of \
             `openssl rand -hex 24`"
        )));
    }
    Ok(Some(token.to_owned()))
}
