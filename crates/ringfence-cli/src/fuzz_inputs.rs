//! Entry points for fuzzers (`fuzz/`) and for tests with random input: one function for each kind of
//! input from outside. No function may panic, and each checks what it accepts.

use std::path::Path;

use ringfence::url::parse_nodes;

use crate::config::ConfigFile;
use crate::dashboard::raw_requests::RawDashboard;
use crate::nodes::{has_password, urls_in};

/// A token that no input has.
const TOKEN: &str = "a token that nobody guesses";

/// The first byte says which of the inputs follows.
#[cfg(fuzzing)]
pub(crate) fn any(bytes: &[u8]) {
    let Some((kind, input)) = bytes.split_first() else {
        return;
    };
    match (kind % 3, std::str::from_utf8(input)) {
        (0, Ok(text)) => config(text),
        (1, Ok(text)) => nodes(text),
        (2, _) => request(input),
        _ => {}
    }
}

/// The text of a config file. An error shows no password, and is one line.
pub(crate) fn config(text: &str) {
    let path = Path::new("/etc/ringfence/config.toml");
    match ConfigFile::of_text(path, text) {
        Ok(file) => drop(file.nodes.as_deref().map(has_password)),
        Err(failure) => {
            assert!(!failure.message.contains('\n'), "{:?}", failure.message);
            let secret = text.contains("hunter2hunter2");
            assert!(!secret || !failure.message.contains("hunter2hunter2"));
        }
    }
}

/// The text of a nodes file. Every line with a URL that has a password is known to have one.
pub(crate) fn nodes(text: &str) {
    let urls = urls_in(text);
    assert!(!urls.contains('\n'));
    if let Ok(nodes) = parse_nodes(&urls) {
        assert!(!nodes.is_empty());
    } else if urls.contains('@') {
        assert!(has_password(&urls));
    }
}

/// The bytes of requests to a dashboard: one that needs a token, and one that does not. Nothing
/// fails, and without the token no data is shown.
pub(crate) fn request(bytes: &[u8]) {
    thread_local! {
        static LOCKED: RawDashboard = RawDashboard::new(Some(TOKEN));
        static OPEN: RawDashboard = RawDashboard::new(None);
    }
    let locked = LOCKED.with(|dashboard| dashboard.answer(bytes));
    let open = OPEN.with(|dashboard| dashboard.answer(bytes));
    for answer in [&locked, &open] {
        let head = answer.get(..13).unwrap_or_default();
        assert!(
            answer.is_empty() || head.starts_with(b"HTTP/1."),
            "{head:?}"
        );
        assert!(
            !head.ends_with(b" 500"),
            "{:?}",
            String::from_utf8_lossy(answer)
        );
    }
    let shows = |text: &str| {
        locked
            .windows(text.len())
            .any(|part| part == text.as_bytes())
    };
    for data in [
        "\"headline\":",
        "\"locks\":",
        "\"tracks\":",
        "# TYPE ringfence_",
    ] {
        assert!(!shows(data), "{:?}", String::from_utf8_lossy(&locked));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_config_file_causes_a_panic(
            text in "(nodes|ttl|wait|label|\\[\\[lock\\]\\]|name|= *|\"[a-z0-9:/@.]*\"|\n|\\PC){0,30}",
        ) {
            config(&text);
        }

        #[test]
        fn no_nodes_file_causes_a_panic(
            text in "(redis://|:hunter2@|[a-z.]{1,5}|:6379|,|#|\n|\\PC){0,20}",
        ) {
            nodes(&text);
        }

        #[test]
        fn no_request_causes_a_failure_or_shows_data_without_the_token(
            method in "GET|POST|PUT|[A-Z]{0,5}",
            path in "/(api/v1/(cluster|locks|lock|timeline|break|about)|metrics|healthz)?(\\?(name|search|limit)=[a-z0-9%]{0,9})?",
            headers in "((Host: localhost|Content-Type: application/json|Authorization: Bearer [a-z]{0,9}|Content-Length: [0-9]{1,4}|Transfer-Encoding: chunked|Origin: \\PC{0,9})\r\n){0,5}",
            body in "(\\{|\\}|\"(name|confirm|reason|fence|slot)\":|\"[a-z]*\"|[0-9]{1,3}|,|\r\n|\\PC){0,12}",
        ) {
            request(format!("{method} {path} HTTP/1.1\r\n{headers}\r\n{body}").as_bytes());
        }
    }

    #[test]
    fn a_request_with_the_right_host_is_answered() {
        let open = RawDashboard::new(None);
        let request =
            b"GET /api/v1/cluster HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let answer = String::from_utf8(open.answer(request)).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        assert!(answer.contains("\"headline\""), "{answer}");
        let answer = RawDashboard::new(Some(TOKEN)).answer(request);
        assert!(answer.starts_with(b"HTTP/1.1 401 "));
    }
}
