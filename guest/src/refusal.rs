//! A request that is not done: status, code and one sentence, rendered as `{code, message}`.

use std::fmt::Display;

use http_body_util::Full;
use hyper::{Response, StatusCode};
use serde_json::json;

use crate::body::{self, Body};

#[derive(Debug)]
pub struct Refusal {
    status: StatusCode,
    code: &'static str,
    message: String,
}

/// The contract's cap on a message.
const MESSAGE_CHARS: usize = 1024;

impl Refusal {
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        let message = message.into().chars().take(MESSAGE_CHARS).collect();
        Refusal { status, code, message }
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Refusal::new(StatusCode::BAD_REQUEST, "invalid", message)
    }

    pub fn internal(step: &str, error: impl Display) -> Self {
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", format!("could not {step}: {error}"))
    }

    pub fn into_response(self) -> Response<Body> {
        let text = json!({ "code": self.code, "message": self.message }).to_string();
        let mut response = Response::new(body::whole(Full::from(text)));
        *response.status_mut() = self.status;
        response
    }
}
