//! Parser, without I/O, of the lines that are exchanged before HTTP/2:
//!
//! ```text
//! host  → HELLO <nonce>\n     repeated until answered
//! agent → READY <nonce>\n     once per nonce
//! host  → PRI * HTTP/2.0…     after which the bytes belong to HTTP/2
//! ```
//!
//! Other bytes are the rest of an earlier connection: they are skipped, and the host must greet anew.

const HELLO: &[u8] = b"HELLO ";
const NONCE_BYTES: usize = 32;
const LINE_BYTES: usize = HELLO.len() + NONCE_BYTES + 1;
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#[derive(Default)]
pub struct Resync {
    pending: Vec<u8>,
    answered: Option<Vec<u8>>,
}

#[derive(Debug, PartialEq)]
pub enum Step {
    NeedMore,
    /// Write this line.
    Answer(Vec<u8>),
    /// HTTP/2 begins with these bytes.
    Begin(Vec<u8>),
}

impl Resync {
    pub fn push(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    pub fn step(&mut self) -> Step {
        let mut at = 0;
        let step = loop {
            let rest = &self.pending[at..];
            if self.answered.is_some() && rest.starts_with(PREFACE) {
                break Step::Begin(rest.to_vec());
            }
            if let Some(nonce) = greeting(rest) {
                at += LINE_BYTES;
                if self.answered.as_deref() != Some(nonce) {
                    let line = [b"READY ", nonce, b"\n"].concat();
                    self.answered = Some(nonce.to_vec());
                    break Step::Answer(line);
                }
            } else if may_become_greeting(rest) || (self.answered.is_some() && PREFACE.starts_with(rest)) {
                break Step::NeedMore;
            } else {
                at += 1;
                self.answered = None;
            }
        };
        match step {
            Step::Begin(_) => self.pending.clear(),
            _ => drop(self.pending.drain(..at)),
        }
        step
    }
}

/// True for a chunk of complete greetings only: a new host, while the connection of the one before is still open here.
pub fn is_only_greetings(chunk: &[u8]) -> bool {
    !chunk.is_empty()
        && chunk.len() % LINE_BYTES == 0
        && chunk.chunks(LINE_BYTES).all(|line| greeting(line).is_some())
}

fn greeting(bytes: &[u8]) -> Option<&[u8]> {
    let line = bytes.get(..LINE_BYTES)?;
    let nonce = line.strip_prefix(HELLO)?.strip_suffix(b"\n")?;
    nonce.iter().all(is_nonce_byte).then_some(nonce)
}

fn may_become_greeting(bytes: &[u8]) -> bool {
    let (word, nonce) = bytes.split_at(bytes.len().min(HELLO.len()));
    bytes.len() < LINE_BYTES && HELLO.starts_with(word) && nonce.iter().all(is_nonce_byte)
}

fn is_nonce_byte(byte: &u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &[u8] = b"HELLO 0123456789abcdef0123456789abcdef\n";
    const TWO: &[u8] = b"HELLO ffffffffffffffffffffffffffffffff\n";

    fn ready(hello: &[u8]) -> Step {
        Step::Answer([b"READY ", &hello[6..]].concat())
    }

    fn all_steps(resync: &mut Resync) -> Vec<Step> {
        let mut steps = Vec::new();
        loop {
            match resync.step() {
                Step::NeedMore => return steps,
                step => steps.push(step),
            }
        }
    }

    #[test]
    fn answers_a_nonce_once_and_begins_at_the_preface() {
        let mut resync = Resync::default();
        resync.push(&[ONE, ONE, ONE, PREFACE, b"settings"].concat());
        assert_eq!(
            all_steps(&mut resync),
            [ready(ONE), Step::Begin([PREFACE, b"settings".as_slice()].concat())]
        );
    }

    #[test]
    fn works_byte_by_byte() {
        let mut resync = Resync::default();
        let mut steps = Vec::new();
        for byte in [ONE, ONE, PREFACE].concat() {
            resync.push(&[byte]);
            steps.extend(all_steps(&mut resync));
        }
        assert_eq!(steps, [ready(ONE), Step::Begin(PREFACE.to_vec())]);
    }

    #[test]
    fn skips_garbage_before_a_greeting() {
        let mut resync = Resync::default();
        resync.push(&[b"\x00\x01HELLO 12HELLO x\nHEL".as_slice(), ONE].concat());
        assert_eq!(all_steps(&mut resync), [ready(ONE)]);
    }

    #[test]
    fn a_second_host_is_answered_too() {
        let mut resync = Resync::default();
        resync.push(&[ONE, TWO, PREFACE].concat());
        assert_eq!(all_steps(&mut resync), [ready(ONE), ready(TWO), Step::Begin(PREFACE.to_vec())]);
    }

    #[test]
    fn a_preface_without_a_greeting_is_garbage() {
        let mut resync = Resync::default();
        resync.push(&[PREFACE, ONE].concat());
        assert_eq!(all_steps(&mut resync), [ready(ONE)]);
        resync.push(&[b"noise".as_slice(), PREFACE].concat());
        assert_eq!(all_steps(&mut resync), []);
        assert!(resync.pending.is_empty());
    }

    #[test]
    fn only_whole_greetings_count_as_greetings() {
        assert!(is_only_greetings(ONE));
        assert!(is_only_greetings(&[ONE, TWO].concat()));
        assert!(!is_only_greetings(b""));
        assert!(!is_only_greetings(&ONE[1..]));
        assert!(!is_only_greetings(&[ONE, b"x"].concat()));
    }

    /// Nothing that came before keeps a host from being answered, and none of it is kept.
    #[test]
    fn anything_may_come_before_a_greeting() {
        for mut random in crate::fuzz::inputs(16_000) {
            let parts = (0..random.below(6)).map(|_| match random.below(3) {
                0 => random.bytes(60),
                _ => random.pick(&[ONE, TWO, PREFACE, HELLO, &PREFACE[..9], &ONE[..20]]).to_vec(),
            });
            let mut said = parts.collect::<Vec<_>>().concat();
            if random.one_in(2) {
                said = random.mutated(&said);
            }
            let mut resync = Resync::default();
            let mut begun = false;
            for piece in random.cut(&said) {
                resync.push(piece);
                let steps = all_steps(&mut resync);
                assert!(resync.pending.len() <= LINE_BYTES);
                begun |=
                    steps.iter().any(|step| matches!(step, Step::Begin(bytes) if bytes.starts_with(PREFACE)));
            }
            let own = b"HELLO 00112233445566778899aabbccddeeff\n";
            resync.push(&[b"#", &own[..]].concat());
            assert!(begun || all_steps(&mut resync).contains(&ready(own)));
        }
    }
}
