//! Queues messages for the client, encrypted in their order, with limits on how much may wait.

use std::cell::{Cell, RefCell};
use std::io;

use bytes::Bytes;
use tokio::sync::{Notify, mpsc};

use crate::broken::Broken;
use crate::cipher::{Cipher, Keys, Sealer};
use crate::wire::Message;

/// Encrypted bytes in the queue at which no more data is taken.
const FULL_BYTES: usize = 64 * 1024;
/// Encrypted bytes in the queue at which no more requests are read, because answers are queued without a limit.
const FLOODED_BYTES: usize = 256 * 1024;
/// Limit of the messages queued during a key exchange, when requests must still be read. Past it the connection ends.
const QUEUED_BYTES: usize = 1024 * 1024;
/// Largest piece of data: the packet size of OpenSSH.
pub const PIECE_BYTES: usize = 32 * 1024;

pub struct Link {
    out: RefCell<Out>,
    /// Notified when there are bytes to send, or the connection ends.
    changed: Notify,
    /// Notified when there may be space for data.
    has_space: Notify,
    is_over: Cell<bool>,
    /// Buffer for a piece. One for all channels is enough: a piece is filled and encrypted without an await.
    scratch: RefCell<Box<[u8]>>,
}

#[derive(Default)]
struct Out {
    sealer: Sealer,
    sealed: Vec<u8>,
    /// Messages queued until the end of a key exchange; None without one.
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

    /// Sends also during a key exchange: its own messages, and the disconnect.
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

    /// Queues all messages from now on, except those of the key exchange.
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

    /// Sends `head`, then the length and bytes of a piece that `fill` provides, at most `limit`. Returns that length.
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

    /// Returns when requests may be read again.
    pub async fn wait_until_drained(&self) -> Result<(), Broken> {
        loop {
            let has_space = self.has_space.notified();
            if self.is_over.get() {
                return Err(Broken::gone());
            }
            let (sealed, queued): (usize, usize) = {
                let out = self.out.borrow();
                (out.sealed.len(), out.queued.iter().flatten().map(Vec::len).sum())
            };
            if queued > QUEUED_BYTES {
                return Err(Broken::protocol("too many requests during a key exchange"));
            }
            if sealed < FLOODED_BYTES {
                return Ok(());
            }
            has_space.await;
        }
    }

    pub fn end(&self) {
        self.is_over.set(true);
        self.changed.notify_one();
        self.has_space.notify_waiters();
    }

    /// Sends the queued bytes until the link ends, including those queued before its end.
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
