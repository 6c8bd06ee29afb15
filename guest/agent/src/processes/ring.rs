//! Positions of a log's bytes in its file, a ring buffer of the most recent bytes. A position in the stream counts all
//! bytes so far and only grows; a position in the file wraps.

/// Smallest ring that wraps at its present size on a full disk; a smaller one loses bytes instead.
const SMALLEST_BYTES: u64 = 64 * 1024;

#[derive(Debug)]
pub struct Ring {
    capacity: u64,
    /// Position of the next byte in the file.
    head: u64,
    /// Number of bytes before the end that can be read.
    kept: u64,
    /// Position of the next byte in the stream.
    end: u64,
    /// Whether the ring has wrapped; the file does not grow any more.
    has_wrapped: bool,
}

/// A range of the file.
#[derive(Debug, PartialEq)]
pub struct Span {
    pub at: u64,
    pub bytes: usize,
}

impl Ring {
    pub fn new(capacity: u64) -> Ring {
        Ring { capacity, head: 0, kept: 0, end: 0, has_wrapped: false }
    }

    pub fn start(&self) -> u64 {
        self.end - self.kept
    }

    pub fn end(&self) -> u64 {
        self.end
    }

    pub fn kept(&self) -> u64 {
        self.kept
    }

    /// The range for the first of `bytes` to write. Bytes that they overwrite can no longer be read.
    pub fn make_space(&mut self, bytes: usize) -> Span {
        if self.head == self.capacity {
            (self.head, self.has_wrapped) = (0, true);
        }
        let bytes = (self.capacity - self.head).min(bytes as u64);
        self.kept = self.kept.min(self.capacity - bytes);
        Span { at: self.head, bytes: bytes as usize }
    }

    pub fn written(&mut self, bytes: usize) {
        self.head += bytes as u64;
        self.kept += bytes as u64;
        self.end += bytes as u64;
    }

    /// Limits the ring to its present size, because the file cannot grow. Returns false if that is too small.
    pub fn shrink(&mut self) -> bool {
        let shrinks = !self.has_wrapped && self.kept >= SMALLEST_BYTES;
        if shrinks {
            self.capacity = self.kept;
        }
        shrinks
    }

    /// The range of at most `bytes` from a position in the stream, up to where the ring wraps.
    pub fn find(&self, from: u64, bytes: usize) -> Span {
        let before_head = self.end - from;
        let at = (self.head + self.capacity - before_head) % self.capacity;
        let bytes = before_head.min(self.capacity - at).min(bytes as u64);
        Span { at, bytes: bytes as usize }
    }

    pub fn forget(&mut self) {
        (self.head, self.kept) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(ring: &mut Ring, mut bytes: usize) {
        while bytes > 0 {
            let span = ring.make_space(bytes);
            ring.written(span.bytes);
            bytes -= span.bytes;
        }
    }

    #[test]
    fn a_ring_keeps_the_most_recent_bytes() {
        let mut ring = Ring::new(10);
        write(&mut ring, 7);
        assert_eq!((ring.start(), ring.end()), (0, 7));
        assert_eq!(ring.find(2, 100), Span { at: 2, bytes: 5 });
        write(&mut ring, 7);
        assert_eq!((ring.start(), ring.end()), (4, 14));
        assert_eq!(ring.find(4, 100), Span { at: 4, bytes: 6 });
        assert_eq!(ring.find(10, 100), Span { at: 0, bytes: 4 });
        assert_eq!(ring.find(5, 2), Span { at: 5, bytes: 2 });
        write(&mut ring, 6);
        assert_eq!((ring.start(), ring.find(10, 100)), (10, Span { at: 0, bytes: 10 }));
    }

    #[test]
    fn bytes_about_to_be_overwritten_are_no_longer_read() {
        let mut ring = Ring::new(10);
        write(&mut ring, 10);
        assert_eq!(ring.make_space(3), Span { at: 0, bytes: 3 });
        assert_eq!((ring.start(), ring.end()), (3, 10));
        ring.written(1);
        assert_eq!((ring.start(), ring.end()), (3, 11));
        assert_eq!(ring.find(10, 100), Span { at: 0, bytes: 1 });
    }

    #[test]
    fn a_ring_that_cannot_grow_goes_round_in_what_it_has() {
        let mut ring = Ring::new(1_000_000);
        write(&mut ring, 100);
        assert!(!ring.shrink());
        write(&mut ring, 99_900);
        assert!(ring.shrink());
        assert_eq!(ring.make_space(5), Span { at: 0, bytes: 5 });
        ring.written(5);
        assert_eq!((ring.start(), ring.end()), (5, 100_005));
        assert_eq!(ring.find(5, 1_000_000), Span { at: 5, bytes: 99_995 });
        assert!(!ring.shrink());
    }
}
