//! The answer of `GET /v1/health`, which is also part of other answers.

use serde_json::json;

use crate::clock;

const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
/// Version of the wire.
const GENERATION: u32 = 2;

/// The answer of the request, which has time for what the others leave out.
pub fn full_health() -> serde_json::Value {
    let mut health = health();
    health["clock_source"] = std::fs::read_to_string(CLOCK_SOURCE).unwrap_or_default().trim().into();
    health
}

pub fn health() -> serde_json::Value {
    json!({
        "generation": GENERATION,
        "version": env!("CARGO_PKG_VERSION"),
        "uptime_ms": clock::uptime_ms(),
    })
}
