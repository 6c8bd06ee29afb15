//! One channel: two streams, each limited by a window. The client's bytes are buffered here, and its window is reopened
//! only when the program has taken them. So a program that does not read costs one window and blocks no other channel.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;

use bytes::{Buf, BytesMut};
use tokio::sync::Notify;

use crate::broken::Broken;
use crate::link::{Link, PIECE_BYTES};
use crate::messages::*;
use crate::wire::Message;

pub const WINDOW_BYTES: u32 = 256 * 1024;
pub const PACKET_BYTES: u32 = PIECE_BYTES as u32;
/// Kind of extended data: the standard error output, the only kind there is.
pub const STDERR: u32 = 1;
/// Largest capacity that an emptied buffer keeps.
const KEPT_BYTES: usize = 4096;

/// Whether the channel is open. A channel that this side asks for is `Asked` until the client answers.
#[derive(Clone, Copy, PartialEq)]
enum Opening {
    Asked,
    Open,
    Refused,
}

pub struct Channel {
    link: Rc<Link>,
    id: u32,
    /// The client's number of the channel.
    peer: Cell<u32>,
    opening: Cell<Opening>,
    /// Bytes that may still be sent to the client.
    peer_window: Cell<u32>,
    /// Limit of the bytes in one packet to the client.
    peer_packet: Cell<u32>,
    /// Bytes that the client may still send.
    window: Cell<u32>,
    /// Bytes that the program has taken since the last WINDOW_ADJUST.
    taken: Cell<u32>,
    input: RefCell<BytesMut>,
    has_input_ended: Cell<bool>,
    /// Whether the client has reported that the reader of its standard output has gone.
    is_unread: Cell<bool>,
    /// Whether the client has closed the channel or gone.
    is_gone: Cell<bool>,
    has_sent_eof: Cell<bool>,
    has_sent_close: Cell<bool>,
    /// Notified by every message of the client.
    changed: Notify,
}

/// The client's number, window and packet size of a channel.
#[derive(Clone, Copy)]
pub struct Peer {
    pub id: u32,
    pub window: u32,
    pub packet: u32,
}

impl Channel {
    /// A channel that the client asked for.
    pub fn accepted(link: Rc<Link>, id: u32, peer: Peer) -> Self {
        let channel = Channel::asked(link, id);
        channel.confirm(peer);
        channel
    }

    /// A channel that this side asks the client for.
    pub fn asked(link: Rc<Link>, id: u32) -> Self {
        Channel {
            link,
            id,
            peer: Cell::new(0),
            opening: Cell::new(Opening::Asked),
            peer_window: Cell::new(0),
            peer_packet: Cell::new(0),
            window: Cell::new(WINDOW_BYTES),
            taken: Cell::new(0),
            input: RefCell::default(),
            has_input_ended: Cell::new(false),
            is_unread: Cell::new(false),
            is_gone: Cell::new(false),
            has_sent_eof: Cell::new(false),
            has_sent_close: Cell::new(false),
            changed: Notify::new(),
        }
    }

    pub fn id(&self) -> u32 {
        self.id
    }

    pub fn confirm(&self, peer: Peer) {
        self.peer.set(peer.id);
        self.peer_window.set(peer.window);
        // With a packet size of 0 sending would loop for ever.
        self.peer_packet.set(peer.packet.max(1));
        self.finish_opening(Opening::Open);
    }

    pub fn refuse(&self) {
        self.finish_opening(Opening::Refused);
    }

    fn finish_opening(&self, opening: Opening) {
        self.opening.set(opening);
        self.changed.notify_waiters();
    }

    pub fn is_asked(&self) -> bool {
        self.opening.get() == Opening::Asked
    }

    /// Waits for the client's answer. Returns whether the channel is open.
    pub async fn opened(&self) -> bool {
        self.until(|| (!self.is_asked() || self.is_gone.get()).then_some(())).await;
        self.opening.get() == Opening::Open && !self.is_gone.get()
    }

    async fn until<T>(&self, check: impl Fn() -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            if let Some(found) = check() {
                return found;
            }
            changed.await;
        }
    }

    // Called for messages of the client.

    pub fn receive(&self, data: &[u8]) -> Result<(), Broken> {
        let window = u32::try_from(data.len()).ok().and_then(|count| self.window.get().checked_sub(count));
        self.window.set(window.ok_or_else(|| Broken::protocol("more data than the window allows"))?);
        match self.has_sent_close.get() {
            true => self.credit(data.len() as u32),
            false => self.input.borrow_mut().extend_from_slice(data),
        }
        self.changed.notify_waiters();
        Ok(())
    }

    pub fn receive_eof(&self) {
        self.has_input_ended.set(true);
        self.changed.notify_waiters();
    }

    pub fn receive_unread(&self) {
        self.is_unread.set(true);
        self.changed.notify_waiters();
    }

    pub fn widen(&self, by: u32) {
        self.peer_window.set(self.peer_window.get().saturating_add(by));
        self.changed.notify_waiters();
    }

    /// Marks the channel as closed by the client, or the client as gone.
    pub fn leave(&self) {
        self.is_gone.set(true);
        self.receive_eof();
    }

    // Called for the program.

    pub async fn gone(&self) {
        self.until(|| self.is_gone.get().then_some(())).await
    }

    pub async fn unread(&self) {
        self.until(|| self.is_unread.get().then_some(())).await
    }

    /// Waits for input; false at its end. Bytes that arrived before the client went can still be taken.
    pub async fn has_input(&self) -> bool {
        let check = || match (self.input.borrow().is_empty(), self.has_input_ended.get()) {
            (false, _) => Some(true),
            (true, true) => Some(false),
            (true, false) => None,
        };
        self.until(check).await
    }

    /// Offers the bytes that have arrived; `put` returns how many of them it took.
    pub fn take(&self, put: impl FnOnce(&[u8]) -> io::Result<usize>) -> io::Result<()> {
        let mut input = self.input.borrow_mut();
        let count = put(&input)?;
        input.advance(count);
        if input.is_empty() && input.capacity() > KEPT_BYTES {
            *input = BytesMut::new();
        }
        drop(input);
        self.credit(count as u32);
        Ok(())
    }

    /// Reopens the window once half of it was taken.
    fn credit(&self, count: u32) {
        let taken = self.taken.get() + count;
        if taken < WINDOW_BYTES / 2 || self.has_input_ended.get() {
            return self.taken.set(taken);
        }
        self.taken.set(0);
        self.window.set(self.window.get() + taken);
        self.send(Message::new(CHANNEL_WINDOW_ADJUST).u32(self.peer.get()).u32(taken));
    }

    /// Waits until data may be sent; false when no more data may be sent at all.
    pub async fn has_space(&self) -> bool {
        loop {
            let check = || (self.is_gone.get() || self.peer_window.get() > 0).then_some(());
            self.until(check).await;
            // A link that has ended never empties: waiting for space would be a busy loop that blocks the agent.
            if self.is_gone.get() || self.has_sent_eof.get() || self.link.is_over() {
                return false;
            }
            if !self.link.is_full() {
                return true;
            }
            tokio::select! {
                () = self.link.wait_for_space() => {}
                () = self.gone() => {}
            }
        }
    }

    /// Sends the bytes that `fill` puts into a buffer of the allowed size. Without space `fill` is not called.
    pub fn send_piece(
        &self,
        kind: Option<u32>,
        fill: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let limit = self.peer_window.get().min(self.peer_packet.get());
        if limit == 0 || self.link.is_full() || self.has_sent_eof.get() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let head = match kind {
            None => Message::new(CHANNEL_DATA).u32(self.peer.get()),
            Some(kind) => Message::new(CHANNEL_EXTENDED_DATA).u32(self.peer.get()).u32(kind),
        };
        let count = self.link.send_piece(head.as_ref(), limit as usize, fill)?;
        self.peer_window.set(self.peer_window.get() - count as u32);
        Ok(count)
    }

    pub async fn send_all(&self, kind: Option<u32>, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.has_space().await {
            let sent = self.send_piece(kind, |into| {
                let count = bytes.len().min(into.len());
                into[..count].copy_from_slice(&bytes[..count]);
                Ok(count)
            });
            bytes = &bytes[sent.unwrap_or(0)..];
        }
    }

    pub fn request(&self, name: &str, details: Message) {
        let message = Message::new(CHANNEL_REQUEST).u32(self.peer.get()).string(name).bool(false);
        self.send(message.bytes(details.as_ref()));
    }

    /// Answers a request of the client.
    pub fn answer(&self, is_done: bool) {
        let kind = if is_done { CHANNEL_SUCCESS } else { CHANNEL_FAILURE };
        self.send(Message::new(kind).u32(self.peer.get()));
    }

    pub fn ask(&self, kind: &str, details: Message) -> Message {
        let message = Message::new(CHANNEL_OPEN).string(kind).u32(self.id);
        message.u32(WINDOW_BYTES).u32(PACKET_BYTES).bytes(details.as_ref())
    }

    pub fn confirm_to_client(&self) {
        let confirmation = Message::new(CHANNEL_OPEN_CONFIRMATION).u32(self.peer.get()).u32(self.id);
        self.send(confirmation.u32(WINDOW_BYTES).u32(PACKET_BYTES));
    }

    pub fn send_eof(&self) {
        if !self.has_sent_eof.replace(true) {
            self.send(Message::new(CHANNEL_EOF).u32(self.peer.get()));
        }
    }

    /// Sends the CLOSE of this side. The channel ends once both sides have sent one.
    pub fn close(&self) {
        if self.has_sent_close.get() || self.opening.get() != Opening::Open {
            return;
        }
        self.send(Message::new(CHANNEL_CLOSE).u32(self.peer.get()));
        self.has_sent_close.set(true);
        self.has_sent_eof.set(true);
    }

    fn send(&self, message: Message) {
        if !self.has_sent_close.get() {
            self.link.send(message);
        }
    }
}

#[cfg(test)]
#[path = "channel_test.rs"]
mod tests;
