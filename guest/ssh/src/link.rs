//! The bytes for the client: sealed in order, and never more than the client takes.

use std::cell::{Cell, RefCell};
use std::io;

use bytes::Bytes;
use tokio::sync::{Notify, mpsc};

use crate::broken::Broken;
use crate::cipher::{Cipher, Keys, Sealer};
use crate::wire::Message;

/// Data waits while this much is on its way.
const FULL_BYTES: usize = 64 * 1024;
/// Answers cannot wait, so beyond this no more questions are read.
const FLOODED_BYTES: usize = 256 * 1024;
/// While keys are exchanged questions must be read; a client that asks this much then does not want answers.
const QUEUED_BYTES: usize = 1024 * 1024;
/// One piece of data: the packet size that OpenSSH takes.
pub const PIECE_BYTES: usize = 32 * 1024;

pub struct Link {
    out: RefCell<Out>,
    /// There is something to send, or the client has gone.
    changed: Notify,
    /// There is space for more data.
    has_space: Notify,
    is_over: Cell<bool>,
    /// One for all channels: nothing waits between the filling and the sealing.
    scratch: RefCell<Box<[u8]>>,
}

#[derive(Default)]
struct Out {
    sealer: Sealer,
    sealed: Vec<u8>,
    /// Messages that wait for the end of a key exchange.
    queued: Option<Vec<Vec<u8>>>,
}

impl Link {
    pub fn new() -> Self {
        Link {
            out: RefCell::default(),
            changed: Notify::new(),
            has_space: Notify::new(),
            is_over: Cell::new(false),
            scratch: RefCell::new(vec![0; PIECE_BYTES].into()),
        }
    }

    pub fn send(&self, message: Message) {
        self.send_parts(&[message.as_ref()]);
    }

    fn send_parts(&self, parts: &[&[u8]]) {
        let mut out = self.out.borrow_mut();
        match &mut out.queued {
            Some(queued) => queued.push(parts.concat()),
            None => self.seal(&mut out, parts),
        }
    }

    /// For the messages of the key exchange itself, and the last one of all.
    pub fn send_at_once(&self, message: &[u8]) {
        self.seal(&mut self.out.borrow_mut(), &[message]);
    }

    pub fn send_clear(&self, bytes: &[u8]) {
        self.out.borrow_mut().sealed.extend_from_slice(bytes);
        self.changed.notify_one();
    }

    fn seal(&self, out: &mut Out, parts: &[&[u8]]) {
        let Out { sealer, sealed, .. } = out;
        if sealer.seal(parts, sealed).is_err() {
            self.is_over.set(true);
        }
        self.changed.notify_one();
    }

    /// From here on only the key exchange speaks.
    pub fn queue_messages(&self) {
        self.out.borrow_mut().queued.get_or_insert_default();
    }

    pub fn rekey(&self, cipher: Cipher, keys: &Keys, from_zero: bool) {
        self.out.borrow_mut().sealer.rekey(cipher, keys, from_zero);
    }

    pub fn send_queued(&self) {
        let queued = self.out.borrow_mut().queued.take().unwrap_or_default();
        queued.iter().for_each(|message| self.send_parts(&[message]));
        self.has_space.notify_waiters();
    }

    /// Fills a piece of at most `limit` bytes and seals it behind `head`, which the piece's length follows. Answers as the
    /// filling does.
    pub fn send_piece(
        &self,
        head: &[u8],
        limit: usize,
        fill: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut scratch = self.scratch.borrow_mut();
        let count = fill(&mut scratch[..limit.min(PIECE_BYTES)])?;
        if count > 0 {
            self.send_parts(&[head, &(count as u32).to_be_bytes(), &scratch[..count]]);
        }
        Ok(count)
    }

    pub fn is_over(&self) -> bool {
        self.is_over.get()
    }

    pub fn is_full(&self) -> bool {
        let out = self.out.borrow();
        out.queued.is_some() || out.sealed.len() >= FULL_BYTES
    }

    pub async fn wait_for_space(&self) {
        loop {
            let has_space = self.has_space.notified();
            if !self.is_full() || self.is_over.get() {
                return;
            }
            has_space.await;
        }
    }

    /// Returns when questions may be read again.
    pub async fn wait_until_drained(&self) -> Result<(), Broken> {
        loop {
            let has_space = self.has_space.notified();
            if self.is_over.get() {
                return Err(Broken::gone());
            }
            let (sealed, queued) = self.waiting();
            if queued > QUEUED_BYTES {
                return Err(Broken::protocol("too many requests during a key exchange"));
            }
            if sealed < FLOODED_BYTES {
                return Ok(());
            }
            has_space.await;
        }
    }

    /// How many bytes are sealed, and how many wait for a key exchange.
    fn waiting(&self) -> (usize, usize) {
        let out = self.out.borrow();
        (out.sealed.len(), out.queued.iter().flatten().map(Vec::len).sum())
    }

    pub fn end(&self) {
        self.is_over.set(true);
        self.changed.notify_one();
        self.has_space.notify_waiters();
    }

    /// Sends until the end, including the messages queued before it.
    pub async fn run(&self, output: mpsc::Sender<Bytes>) {
        loop {
            let sealed = std::mem::take(&mut self.out.borrow_mut().sealed);
            if sealed.is_empty() {
                if self.is_over.get() {
                    return;
                }
                tokio::select! {
                    () = self.changed.notified() => continue,
                    () = output.closed() => return self.end(),
                }
            }
            if output.send(sealed.into()).await.is_err() {
                return self.end();
            }
            self.has_space.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(link: &Link) -> io::Result<usize> {
        link.send_piece(&[94, 0, 0, 0, 0], usize::MAX, |into| Ok(into.len()))
    }

    #[tokio::test(flavor = "current_thread")]
    async fn data_waits_until_the_client_takes_more() {
        let link = Link::new();
        while !link.is_full() {
            assert_eq!(piece(&link).unwrap(), PIECE_BYTES);
        }
        let (output, mut client) = mpsc::channel(1);
        tokio::select! {
            () = link.run(output) => unreachable!("it is not over"),
            () = link.wait_for_space() => {}
        }
        assert!(client.recv().await.unwrap().len() >= FULL_BYTES);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_flood_of_questions_is_not_read_any_further() {
        let link = Link::new();
        assert!(link.wait_until_drained().await.is_ok());
        while link.out.borrow().sealed.len() < FLOODED_BYTES {
            link.send(Message::new(82));
        }
        let later =
            tokio::time::timeout(std::time::Duration::from_millis(1), link.wait_until_drained()).await;
        assert!(later.is_err());
        link.queue_messages();
        link.end();
        assert!(link.wait_until_drained().await.is_err());
    }

    #[tokio::test(flavor = "current_thread")]
    async fn messages_before_the_end_are_still_sent() {
        let link = Link::new();
        link.send_clear(b"last words");
        link.end();
        let (output, mut client) = mpsc::channel(2);
        link.run(output).await;
        assert_eq!(client.recv().await.unwrap(), "last words");
        assert!(client.recv().await.is_none());
    }
}
