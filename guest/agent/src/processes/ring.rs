//! Where the bytes of a log lie in its file: a ring that keeps the most recent ones. Positions in the stream count from
//! its first byte and only grow; positions in the file go round.

/// On a full disk a ring of at least this size keeps its size and wraps.
const SMALLEST_BYTES: u64 = 64 * 1024;

#[derive(Debug)]
pub struct Ring {
    capacity: u64,
    /// In the file: where the next byte goes.
    head: u64,
    /// How many bytes before the end are there to be read.
    kept: u64,
    /// In the stream: how many bytes it has had.
    end: u64,
    /// The file has been full once, and grows no more.
    is_round: bool,
}

/// A stretch of the file.
#[derive(Debug, PartialEq)]
pub struct Span {
    pub at: u64,
    pub bytes: usize,
}

impl Ring {
    pub fn new(capacity: u64) -> Ring {
        Ring { capacity, head: 0, kept: 0, end: 0, is_round: false }
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

    /// The position of the first of `bytes`. The bytes that they overwrite are given up now, so that no reader gets them.
    pub fn make_space(&mut self, bytes: usize) -> Span {
        if self.head == self.capacity {
            (self.head, self.is_round) = (0, true);
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

    /// The file can grow no further. Returns whether the ring wraps within its size.
    pub fn shrink(&mut self) -> bool {
        let shrinks = !self.is_round && self.kept >= SMALLEST_BYTES;
        if shrinks {
            self.capacity = self.kept;
        }
        shrinks
    }

    /// Where to read from a position in the stream, at most `bytes` and as many as lie together.
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
