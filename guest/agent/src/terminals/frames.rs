//! Terminal frames, with the header of `crate::frames`. Data is decoded as it arrives; other payloads are collected.

use bytes::{Buf, Bytes};

use crate::frames::{HEADER_BYTES, encode_as};

const OPEN: u8 = 0x00;
const DATA: u8 = 0x01;
const RESIZE: u8 = 0x02;
const SIGNAL: u8 = 0x03;
const EXIT: u8 = 0x05;
const ERROR: u8 = 0x06;
/// Limit of an opening frame, as of a JSON request. A longer payload is cut, and is then not valid JSON.
const OPEN_BYTES: usize = 8 * 1024 * 1024;
/// Limit of a collected payload of other frames.
const CONTROL_BYTES: usize = 8;

#[derive(Debug, PartialEq)]
pub enum Input {
    Open(Vec<u8>),
    /// A part of a data frame, or all of it.
    Data(Bytes),
    Resize {
        rows: u16,
        cols: u16,
    },
    Signal(i32),
}

#[derive(Default)]
pub struct Decoder {
    chunk: Bytes,
    header: Vec<u8>,
    payload: Vec<u8>,
    /// Bytes of the payload that have not come yet, once the header is complete.
    missing: usize,
}

impl Decoder {
    /// Adds a chunk. Must be called only when `next` has returned None.
    pub fn push(&mut self, chunk: Bytes) {
        debug_assert!(self.chunk.is_empty());
        self.chunk = chunk;
    }

    pub fn next(&mut self) -> Option<Input> {
        loop {
            self.fill_header();
            let kind = *self.header.first().filter(|_| self.header.len() == HEADER_BYTES)?;
            if kind == DATA && self.missing > 0 {
                let count = self.missing.min(self.chunk.len());
                self.missing -= count;
                return (count > 0).then(|| Input::Data(self.chunk.split_to(count)));
            }
            self.gather(kind);
            if self.missing > 0 {
                return None;
            }
            self.header.clear();
            if let Some(input) = parse(kind, std::mem::take(&mut self.payload)) {
                return Some(input);
            }
        }
    }

    fn fill_header(&mut self) {
        let wanted = HEADER_BYTES - self.header.len();
        if wanted == 0 {
            return;
        }
        self.header.extend_from_slice(&self.chunk.split_to(wanted.min(self.chunk.len())));
        if let &[_, a, b, c, d] = &self.header[..] {
            self.missing = u32::from_be_bytes([a, b, c, d]) as usize;
        }
    }

    /// Collects payload bytes up to the limit of the frame's type, and skips the others.
    fn gather(&mut self, kind: u8) {
        let count = self.missing.min(self.chunk.len());
        let most = if kind == OPEN { OPEN_BYTES } else { CONTROL_BYTES };
        let kept = count.min(most - self.payload.len());
        self.payload.extend_from_slice(&self.chunk[..kept]);
        self.chunk.advance(count);
        self.missing -= count;
    }
}

/// None for a frame that is ignored.
fn parse(kind: u8, payload: Vec<u8>) -> Option<Input> {
    match (kind, &payload[..]) {
        (OPEN, _) => Some(Input::Open(payload)),
        (RESIZE, &[a, b, c, d]) => {
            let (rows, cols) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
            (rows > 0 && cols > 0).then_some(Input::Resize { rows, cols })
        }
        (SIGNAL, &[signal @ 1..=31]) => Some(Input::Signal(signal.into())),
        _ => None,
    }
}

pub fn data(bytes: &[u8]) -> Bytes {
    encode_as(DATA, bytes)
}

pub fn exit(code: i32) -> Bytes {
    encode_as(EXIT, &code.to_be_bytes())
}

pub fn error(message: &str) -> Bytes {
    encode_as(ERROR, message.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::frame;

    fn decode<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<Input> {
        let mut decoder = Decoder::default();
        let mut all = Vec::new();
        for chunk in chunks {
            decoder.push(Bytes::copy_from_slice(chunk));
            while let Some(input) = decoder.next() {
                all.push(input);
            }
        }
        all
    }

    fn joined(inputs: Vec<Input>) -> Vec<Input> {
        inputs.into_iter().fold(Vec::new(), |mut all, input| {
            match (all.last_mut(), &input) {
                (Some(Input::Data(before)), Input::Data(more)) => {
                    *before = [&before[..], more].concat().into();
                }
                _ => all.push(input),
            }
            all
        })
    }

    #[test]
    fn frames_are_read_however_they_are_cut() {
        let wire = [
            frame(0, b"{}"),
            frame(1, b"hello"),
            frame(2, &[0, 30, 0xff, 0xff]),
            frame(1, b""),
            frame(3, &[2]),
            frame(1, b"x"),
        ]
        .concat();
        let expected = [
            Input::Open(b"{}".to_vec()),
            Input::Data("hello".into()),
            Input::Resize { rows: 30, cols: 65_535 },
            Input::Signal(2),
            Input::Data("x".into()),
        ];
        for size in [1, 2, 3, 7, wire.len()] {
            assert_eq!(joined(decode(wire.chunks(size))), expected, "{size}");
        }
    }

    #[test]
    fn unknown_frames_are_ignored() {
        let wire = [
            frame(2, &[0, 0, 0, 80]),
            frame(2, &[0, 24, 0, 0]),
            frame(2, &[0, 24, 0]),
            frame(2, &[0, 24, 0, 80, 0]),
            frame(3, &[0]),
            frame(3, &[32]),
            frame(3, &[2, 2]),
            frame(3, &[]),
            frame(9, &[b'x'; 100_000]),
            frame(0xff, b""),
            frame(5, &[0, 0, 0, 0]),
            frame(1, b"still here"),
        ]
        .concat();
        assert_eq!(joined(decode(wire.chunks(5_000))), [Input::Data("still here".into())]);
    }

    #[test]
    fn an_endless_frame_is_not_gathered() {
        let mut decoder = Decoder::default();
        decoder.push(Bytes::from_static(&[7, 0xff, 0xff, 0xff, 0xff]));
        for _ in 0..100 {
            assert_eq!(decoder.next(), None);
            decoder.push(Bytes::from(vec![0; 100_000]));
        }
        assert!(decoder.payload.capacity() < 64);
    }

    #[test]
    fn an_exit_is_four_bytes_big_endian() {
        assert_eq!(&exit(130)[..], [5, 0, 0, 0, 4, 0, 0, 0, 130]);
        assert_eq!(&error("no")[..], [6, 0, 0, 0, 2, b'n', b'o']);
    }

    #[test]
    fn frames_decode_alike_however_they_are_cut() {
        for mut random in crate::fuzz::inputs(16_000) {
            let said = (0..random.below(6)).map(|_| {
                let payload = random.bytes(12);
                frame(random.below(7) as u8, &payload)
            });
            let mut said = said.collect::<Vec<_>>().concat();
            if random.one_in(2) {
                said = random.mutated(&said);
            }
            let whole = joined(decode([&said[..]]));
            assert_eq!(joined(decode(random.cut(&said))), whole);
        }
    }
}
