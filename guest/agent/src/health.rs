//! The answer of `GET /v1/health`, which is also part of other answers.

use serde_json::json;

use crate::clock;

/// Version of the wire.
const GENERATION: u32 = 2;

pub fn health() -> serde_json::Value {
    json!({
        "generation": GENERATION,
        "version": env!("CARGO_PKG_VERSION"),
        "uptime_ms": clock::uptime_ms(),
    })
}
