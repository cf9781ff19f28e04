//! A client that sends exactly the bytes that a test wants.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::Value;

use super::super::scene::PATIENCE;
use super::TOKEN;

/// An answer of the dashboard.
#[derive(Debug)]
pub(crate) struct HttpAnswer {
    pub(super) status: u16,
    pub(super) head: String,
    pub(crate) body: String,
}

impl HttpAnswer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().skip(1);
        let mut fields = lines.filter_map(|line| line.split_once(": "));
        let found = fields.find(|(field, _)| field.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value)
    }
}

/// Connects to `port`.
pub(super) fn connect(port: u16) -> TcpStream {
    let socket = TcpStream::connect(("127.0.0.1", port)).expect("the dashboard listens");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket
}

/// Sends `request` as it is, and reads until the dashboard closes the connection.
#[track_caller]
pub(super) fn send(port: u16, request: &str) -> HttpAnswer {
    let mut socket = connect(port);
    // The dashboard may refuse before it has read everything.
    let _ = socket.write_all(request.as_bytes());
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    HttpAnswer {
        status: status.unwrap_or(0),
        head: head.to_owned(),
        body: body.to_owned(),
    }
}

/// `METHOD PATH` with these header lines, and the usual host unless they have one.
#[track_caller]
pub(super) fn ask(port: u16, line: &str, headers: &[&str], body: &str) -> HttpAnswer {
    let mut request = format!("{line} HTTP/1.1\r\nConnection: close\r\n");
    if !headers.iter().any(|header| header.starts_with("Host:")) {
        request += &format!("Host: 127.0.0.1:{port}\r\n");
    }
    for header in headers {
        request += &format!("{header}\r\n");
    }
    if !body.is_empty() {
        request += &format!("Content-Length: {}\r\n", body.len());
    }
    send(port, &format!("{request}\r\n{body}"))
}

/// A request with the token.
#[track_caller]
pub(crate) fn get(port: u16, path: &str) -> HttpAnswer {
    let token = format!("Authorization: Bearer {TOKEN}");
    ask(port, &format!("GET {path}"), &[&token], "")
}
