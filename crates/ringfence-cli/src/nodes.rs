//! Which nodes are meant when none are given: a file that every machine can have.

use ringfence::node::sqlite::SqliteNode;

use crate::report::Failure;

/// The nodes to take locks on: those given, or the file in the user's state folder.
pub(crate) fn resolve(given: Option<String>) -> Result<String, Failure> {
    let urls = locate(given)?;
    // The library has it for tests: nobody outside this process would see the lock.
    if urls.trim_start().starts_with("memory:") {
        return Err(Failure::usage(
            "locks in memory: exclude nobody; leave --nodes out to use this user's own file",
        ));
    }
    Ok(urls)
}

/// The nodes that are meant, fit for locks or not.
pub(crate) fn locate(given: Option<String>) -> Result<String, Failure> {
    match given {
        Some(urls) if urls.trim().is_empty() => Err(Failure::usage(
            "--nodes (or RINGFENCE_NODES) is empty; leave it out to use this user's own file",
        )),
        Some(urls) => Ok(urls),
        None => default_file(),
    }
}

fn default_file() -> Result<String, Failure> {
    let path = SqliteNode::default_path().map_err(|error| Failure::usage(error.to_string()))?;
    match path.to_str() {
        Some(path) => Ok(format!("sqlite:{path}")),
        None => Err(Failure::usage(format!(
            "{} is not UTF-8; name another file with --nodes sqlite:/path",
            path.display()
        ))),
    }
}
