//! What the fuzzing tests share. Input number i of a test comes of seed `VIV_FUZZ_SEED` + i, which a failure names;
//! `VIV_FUZZ` = 10 gives ten times as many. Together with SSH's own tests they are 100,000 inputs.

mod connections;
mod jail;
mod requests;

use std::env;
use std::sync::atomic::{AtomicU64, Ordering};

/// Of the input that is being tried, for the words of a failure.
static SEED: AtomicU64 = AtomicU64::new(0);

fn number(name: &str) -> u64 {
    env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

pub fn inputs(count: u64) -> impl Iterator<Item = Random> {
    let first = number("VIV_FUZZ_SEED");
    (first..first + count * number("VIV_FUZZ")).map(|seed| {
        SEED.store(seed, Ordering::Relaxed);
        Random::of(seed)
    })
}

pub struct Random {
    seed: u64,
    state: u64,
}

impl Random {
    fn of(seed: u64) -> Random {
        let mut random = Random { seed, state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 };
        random.next();
        random
    }

    pub fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    pub fn below(&mut self, limit: usize) -> usize {
        self.next() as usize % limit
    }

    pub fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub fn pick<'a, T: ?Sized>(&mut self, choices: &[&'a T]) -> &'a T {
        choices[self.below(choices.len())]
    }

    pub fn bytes(&mut self, most: usize) -> Vec<u8> {
        (0..self.below(most + 1)).map(|_| self.next() as u8).collect()
    }

    /// Bytes of which a few places were changed, doubled, cut out or put in.
    pub fn mutated(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len() + 1);
            let end = bytes.len().min(at + 1 + self.below(8));
            let new = match self.below(6) {
                0 => vec![],
                1 => bytes[at..end].repeat(2),
                2 => self.pick::<[u8]>(&NASTY).to_vec(),
                3 => self.bytes(8),
                4 => bytes[at..end].iter().map(|byte| byte ^ (1 << (self.next() % 8))).collect(),
                _ => bytes[at..end].iter().rev().copied().collect(),
            };
            bytes.splice(at..end, new);
        }
        if self.one_in(8) {
            bytes.truncate(self.below(bytes.len() + 1));
        }
        bytes
    }

    /// The same bytes in pieces of any size.
    pub fn cut<'a>(&mut self, mut bytes: &'a [u8]) -> Vec<&'a [u8]> {
        let most = 1 + self.below(bytes.len() + 1);
        let mut pieces = Vec::new();
        while !bytes.is_empty() {
            let (piece, rest) = bytes.split_at(1 + self.below(most.min(bytes.len())));
            pieces.push(piece);
            bytes = rest;
        }
        pieces
    }
}

impl Drop for Random {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("VIV_FUZZ_SEED={}", self.seed);
        }
    }
}

const NASTY: [&[u8]; 16] = [
    b"\0",
    b"\xff",
    b"\xff\xff\xff\xff",
    b"\0\0\0\0",
    b"\x7f\xff\xff\xff",
    b"18446744073709551615",
    b"18446744073709551616",
    b"-1",
    b"1e999",
    b"null",
    b"[[[[[[[[[[[[[[[[[[[[[[[[",
    b"\\ud800",
    b"%00%zz%c3%28",
    b"../../..",
    b"/",
    "\u{202e}\u{1f9c0}".as_bytes(),
];

/// Memory of this program that is not its file's.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: Vec<usize> = statm.split(' ').map(|pages| pages.trim().parse().unwrap()).collect();
    (pages[1] - pages[2]) * 4096
}
