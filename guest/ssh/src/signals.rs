//! SSH's names of signals (RFC 4254, 6.10).

use rustix::process::Signal;

const NAMES: [(&str, Signal); 13] = [
    ("ABRT", Signal::ABORT),
    ("ALRM", Signal::ALARM),
    ("FPE", Signal::FPE),
    ("HUP", Signal::HUP),
    ("ILL", Signal::ILL),
    ("INT", Signal::INT),
    ("KILL", Signal::KILL),
    ("PIPE", Signal::PIPE),
    ("QUIT", Signal::QUIT),
    ("SEGV", Signal::SEGV),
    ("TERM", Signal::TERM),
    ("USR1", Signal::USR1),
    ("USR2", Signal::USR2),
];

pub fn name(signal: i32) -> Option<&'static str> {
    NAMES.iter().find(|(_, known)| known.as_raw() == signal).map(|(name, _)| *name)
}

pub fn named(name: &str) -> Option<Signal> {
    NAMES.iter().find(|(known, _)| *known == name).map(|(_, signal)| *signal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_their_names_both_ways() {
        assert_eq!(name(9), Some("KILL"));
        assert_eq!(named("KILL"), Some(Signal::KILL));
        assert_eq!(name(64), None);
        assert_eq!(named("SIGKILL"), None);
    }
}
