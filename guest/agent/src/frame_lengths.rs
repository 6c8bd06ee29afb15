//! Tracks how much of the current HTTP/2 frame is still to come, by the lengths in the frame headers alone.

const PREFACE_BYTES: usize = 24;
const HEADER_BYTES: usize = 9;

pub struct FrameLengths {
    /// Bytes of the preface or of a payload that are still to come.
    left: usize,
    /// The bytes of a frame header that have arrived.
    header: Vec<u8>,
}

impl FrameLengths {
    /// The state of a new connection, before its preface.
    pub fn new() -> FrameLengths {
        FrameLengths { left: PREFACE_BYTES, header: Vec::with_capacity(HEADER_BYTES) }
    }

    pub fn pass(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let skipped = self.left.min(bytes.len());
            (self.left, bytes) = (self.left - skipped, &bytes[skipped..]);
            if self.left > 0 {
                return;
            }
            let taken = (HEADER_BYTES - self.header.len()).min(bytes.len());
            self.header.extend_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            if let [a, b, c, ..] = self.header[..]
                && self.header.len() == HEADER_BYTES
            {
                self.left = u32::from_be_bytes([0, a, b, c]) as usize;
                self.header.clear();
            }
        }
    }

    /// Bytes of the current payload that are still to come; 0 between frames.
    pub fn payload_left(&self) -> usize {
        self.left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_counted_however_the_bytes_are_cut() {
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        let frame = |bytes: usize| {
            [&[0, (bytes >> 8) as u8, bytes as u8, 0, 0, 0, 0, 0, 1], &vec![7; bytes][..]].concat()
        };
        let all = [&preface[..], &frame(0), &frame(700), &frame(3), &frame(300)[..9 + 100]].concat();
        for piece in [1, 2, 8, 9, 10, 33, 5000] {
            let mut lengths = FrameLengths::new();
            all.chunks(piece).for_each(|piece| lengths.pass(piece));
            assert_eq!(lengths.payload_left(), 200, "{piece}");
            lengths.pass(&[7; 200]);
            assert_eq!(lengths.payload_left(), 0, "{piece}");
        }
    }
}
