//! The machine's clocks.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime, clock_settime};

use crate::refusal::Refusal;

pub fn uptime_ms() -> u64 {
    let since_boot = clock_gettime(ClockId::Boottime);
    since_boot.tv_sec as u64 * 1000 + since_boot.tv_nsec as u64 / 1_000_000
}

pub fn wall_clock_ms() -> u64 {
    let since_1970 = clock_gettime(ClockId::Realtime);
    since_1970.tv_sec.max(0) as u64 * 1000 + since_1970.tv_nsec as u64 / 1_000_000
}

/// Sets the wall clock: in a loaded machine it still shows the time of the capture.
pub fn set_wall_clock(since_1970: Duration) -> Result<(), Refusal> {
    let now = Timespec { tv_sec: since_1970.as_secs() as i64, tv_nsec: since_1970.subsec_nanos().into() };
    clock_settime(ClockId::Realtime, now).map_err(|e| Refusal::internal("set the clock", e))
}

pub fn parse_wall_clock(nanoseconds: &str) -> Result<Duration, Refusal> {
    nanoseconds.parse().map(Duration::from_nanos).map_err(|_| {
        Refusal::invalid(format!(
            "wall_clock_ns: expected nanoseconds since 1970 in decimal, got {nanoseconds:?}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wall_clock_is_a_decimal_string_of_nanoseconds() {
        let parsed = parse_wall_clock("1795242319000000001").unwrap();
        assert_eq!(parsed, Duration::new(1_795_242_319, 1));
        for wrong in ["", "-1", "1.5", "now", "99999999999999999999999"] {
            assert!(parse_wall_clock(wrong).is_err(), "{wrong}");
        }
    }
}
