//! Why a request is refused or failed, as an HTTP answer.

use std::fmt;

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::exit::Exit;
use crate::report::CliFailure;

/// See the module. `kind` is the word of [`Exit::kind`], which the command line writes too.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    kind: &'static str,
    why: String,
    /// Each node and its answer, if nodes were asked.
    nodes: Vec<(String, String)>,
}

impl Problem {
    fn new(status: StatusCode, kind: &'static str, why: impl Into<String>) -> Self {
        Self {
            status,
            kind,
            why: why.into(),
            nodes: Vec::new(),
        }
    }

    pub(super) fn usage(why: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, Exit::Usage.kind(), why)
    }

    pub(super) fn too_large(why: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, Exit::Usage.kind(), why)
    }

    pub(super) fn timeout(why: impl Into<String>) -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, Exit::Usage.kind(), why)
    }

    pub(super) fn not_found(why: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", why)
    }

    pub(super) fn method() -> Self {
        let why = "this method is not possible here";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, Exit::Usage.kind(), why)
    }

    pub(super) fn forbidden(why: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", why)
    }

    pub(super) fn unauthorized(why: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "forbidden", why)
    }

    /// The service is about to end, or has as much to do as it may.
    pub(super) fn unavailable(why: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", why)
    }

    /// The lock is no longer the client's.
    pub(super) fn lost(why: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "lost", why)
    }

    /// The fields of the answer. The stream of a hold writes them too.
    pub(super) fn fields(&self) -> Value {
        let mut value = json!({
            "error": self.why,
            "kind": self.kind,
            "status": self.status.as_u16(),
        });
        if !self.nodes.is_empty() {
            let nodes = self.nodes.iter();
            let nodes = nodes.map(|(node, said)| json!({"node": node, "said": said}));
            value["nodes"] = nodes.collect();
        }
        value
    }
}

/// What an error of the library means for the exit code, it means for the status.
impl<T: Into<CliFailure>> From<T> for Problem {
    fn from(error: T) -> Self {
        let failure: CliFailure = error.into();
        let status = match failure.exit {
            Exit::Conflict(_) => StatusCode::CONFLICT,
            Exit::Lost(_) => StatusCode::GONE,
            Exit::NoQuorum => StatusCode::SERVICE_UNAVAILABLE,
            Exit::Usage => StatusCode::BAD_REQUEST,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self {
            status,
            kind: failure.exit.kind(),
            why: failure.message,
            nodes: failure.nodes,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        (self.status, answer(&self.fields())).into_response()
    }
}

/// A JSON answer.
pub(super) fn answer(value: &Value) -> impl IntoResponse + use<> {
    ([(CONTENT_TYPE, "application/json")], format!("{value}\n"))
}
