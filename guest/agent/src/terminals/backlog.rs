//! The last output of a terminal, and each client's read position in it.

use std::collections::{BTreeMap, VecDeque};

/// Size of a backlog, by the contract.
pub const BACKLOG_BYTES: usize = 256 * 1024;
/// Unread bytes of the fastest client at which the terminal is not read any further.
const WINDOW_BYTES: u64 = 32 * 1024;

pub type ClientId = u64;

#[derive(Default)]
pub struct Backlog {
    bytes: VecDeque<u8>,
    /// Position in the stream behind the last byte.
    end: u64,
    /// Whether bytes that every client has read are kept for later clients.
    keeps: bool,
    next_client: ClientId,
    /// The position in the stream at which each client continues.
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

    /// False while the terminal has to wait for its fastest client. So a single client misses nothing, a slow client
    /// among several does not block the others, and without clients old output is dropped.
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

    /// The next bytes for a client, at most `most`. A client whose bytes were dropped continues with the oldest left.
    pub fn read(&mut self, client: ClientId, most: usize) -> Option<Vec<u8>> {
        let start = self.start();
        let at = self.clients.get_mut(&client)?;
        let from = (*at).max(start);
        let first = (from - start) as usize;
        let bytes: Vec<u8> = self.bytes.range(first..self.bytes.len().min(first + most)).copied().collect();
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
