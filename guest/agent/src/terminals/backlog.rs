//! The last output of a terminal, and how far each client has read in it.

use std::collections::{BTreeMap, VecDeque};

/// The contract's size of a backlog.
pub const BACKLOG_BYTES: usize = 256 * 1024;
/// How far the fastest client may be behind before the terminal waits for it.
const WINDOW_BYTES: u64 = 32 * 1024;

pub type ClientId = u64;

#[derive(Default)]
pub struct Backlog {
    bytes: VecDeque<u8>,
    /// In the stream: just behind the last byte.
    end: u64,
    /// Bytes that every client has read are kept for later clients.
    keeps: bool,
    next_client: ClientId,
    /// Where each reads on.
    clients: BTreeMap<ClientId, u64>,
}

impl Backlog {
    pub fn new(keeps: bool) -> Backlog {
        Backlog { keeps, ..Default::default() }
    }

    fn start(&self) -> u64 {
        self.end - self.bytes.len() as u64
    }

    pub fn join(&mut self) -> ClientId {
        self.next_client += 1;
        self.clients.insert(self.next_client, self.start());
        self.next_client
    }

    pub fn leave(&mut self, client: ClientId) {
        self.clients.remove(&client);
        self.drop_what_was_read();
    }

    /// A terminal waits for the fastest of its clients. A single client misses nothing, a slow one among several does
    /// not block the others, and without clients old output is dropped.
    pub fn has_space(&self) -> bool {
        let fastest = self.clients.values().max();
        fastest.is_none_or(|at| self.end - at < WINDOW_BYTES)
    }

    pub fn push(&mut self, bytes: &[u8]) {
        let over = (self.bytes.len() + bytes.len()).saturating_sub(BACKLOG_BYTES);
        self.bytes.drain(..over.min(self.bytes.len()));
        self.bytes.extend(&bytes[bytes.len().saturating_sub(BACKLOG_BYTES)..]);
        self.end += bytes.len() as u64;
        self.drop_what_was_read();
    }

    /// The next bytes for a client, at most so many. A client that was overtaken continues with the oldest bytes left.
    pub fn read(&mut self, client: ClientId, most: usize) -> Option<Vec<u8>> {
        let start = self.start();
        let at = self.clients.get_mut(&client)?;
        let from = (*at).max(start);
        let bytes = copy(&self.bytes, (from - start) as usize, most);
        *at = from + bytes.len() as u64;
        self.drop_what_was_read();
        (!bytes.is_empty()).then_some(bytes)
    }

    fn drop_what_was_read(&mut self) {
        if !self.keeps {
            let slowest = self.clients.values().min().copied().unwrap_or(self.end).max(self.start());
            self.bytes.drain(..(slowest - self.start()) as usize);
        }
    }
}

/// In two strokes, where byte by byte would be the terminal's speed.
fn copy(bytes: &VecDeque<u8>, from: usize, most: usize) -> Vec<u8> {
    let (head, tail) = bytes.as_slices();
    let head = &head[from.min(head.len())..];
    let tail = &tail[(from + head.len()).saturating_sub(bytes.len() - tail.len()).min(tail.len())..];
    let head = &head[..head.len().min(most)];
    [head, &tail[..tail.len().min(most - head.len())]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(backlog: &mut Backlog, client: ClientId) -> Vec<u8> {
        std::iter::from_fn(|| backlog.read(client, 1000)).flatten().collect()
    }

    #[test]
    fn whoever_attaches_gets_the_last_output_first() {
        let mut backlog = Backlog::new(true);
        backlog.push(b"before ");
        let one = backlog.join();
        backlog.push(b"after");
        assert_eq!(read_all(&mut backlog, one), b"before after");
        let two = backlog.join();
        assert_eq!(read_all(&mut backlog, two), b"before after");
        assert_eq!(backlog.read(one, 10), None);
    }

    #[test]
    fn a_backlog_is_bounded_and_keeps_the_last() {
        let mut backlog = Backlog::new(true);
        for at in 0..100u8 {
            assert!(backlog.has_space());
            backlog.push(&[at; 10_000]);
        }
        let client = backlog.join();
        let all = read_all(&mut backlog, client);
        assert_eq!(all.len(), BACKLOG_BYTES);
        assert_eq!((all[0], all[BACKLOG_BYTES - 1]), (73, 99));
        assert!(backlog.bytes.capacity() <= 2 * BACKLOG_BYTES);
    }

    #[test]
    fn the_terminal_waits_for_the_fastest_client_alone() {
        let mut backlog = Backlog::new(true);
        let (fast, slow) = (backlog.join(), backlog.join());
        backlog.push(&[b'x'; WINDOW_BYTES as usize]);
        assert!(!backlog.has_space());
        read_all(&mut backlog, fast);
        assert!(backlog.has_space());
        for _ in 0..100 {
            backlog.push(&[b'y'; 10_000]);
            read_all(&mut backlog, fast);
        }
        assert_eq!(read_all(&mut backlog, slow), vec![b'y'; BACKLOG_BYTES]);
        backlog.leave(fast);
        backlog.push(&[b'z'; WINDOW_BYTES as usize]);
        assert!(!backlog.has_space());
    }

    #[test]
    fn bytes_are_copied_from_any_place_in_a_ring() {
        let mut ring: VecDeque<u8> = VecDeque::with_capacity(16);
        ring.extend(0..12);
        ring.drain(..10);
        ring.extend(12..20);
        assert!(!ring.as_slices().1.is_empty());
        for from in 0..=10 {
            for most in 0..=11 {
                let expected: Vec<u8> = (10..20).skip(from).take(most).collect();
                assert_eq!(copy(&ring, from, most), expected, "{most} from {from}");
            }
        }
    }

    #[test]
    fn a_terminal_without_a_later_client_keeps_nothing() {
        let mut backlog = Backlog::new(false);
        let client = backlog.join();
        backlog.push(b"abc");
        assert_eq!(backlog.bytes.len(), 3);
        assert_eq!(read_all(&mut backlog, client), b"abc");
        assert_eq!(backlog.bytes.len(), 0);
        backlog.leave(client);
        backlog.push(b"def");
        assert_eq!(backlog.bytes.len(), 0);
    }
}
