//! The table of a connection's channels, by this side's numbers.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use crate::channel::{Channel, Peer};
use crate::host::Host;
use crate::link::Link;
use crate::messages::CHANNEL_OPEN_FAILURE;
use crate::wire::Message;

/// Limit of channels, enough for an editor and a browser at once.
pub const CHANNELS: usize = 256;

pub struct Mux {
    pub host: Rc<dyn Host>,
    pub link: Rc<Link>,
    is_over: Cell<bool>,
    next: Cell<u32>,
    channels: RefCell<HashMap<u32, Rc<Channel>>>,
}

impl Mux {
    pub fn new(host: Rc<dyn Host>, link: Rc<Link>) -> Self {
        Mux { host, link, is_over: Cell::new(false), next: Cell::new(0), channels: RefCell::default() }
    }

    pub fn count(&self) -> usize {
        self.channels.borrow().len()
    }

    pub fn channel(&self, id: u32) -> Option<Rc<Channel>> {
        self.channels.borrow().get(&id).cloned()
    }

    pub fn remove(&self, id: u32) {
        self.channels.borrow_mut().remove(&id);
    }

    pub fn leave(&self) {
        self.is_over.set(true);
        self.channels.take().into_values().for_each(|channel| channel.leave());
    }

    /// Opens a channel that the client asked for. None once the client has gone.
    pub fn accept(&self, peer: Peer) -> Option<Rc<Channel>> {
        let channel = Rc::new(Channel::accepted(self.link.clone(), self.next_id(), peer));
        channel.confirm_to_client();
        self.enter(channel)
    }

    pub fn refuse(&self, peer: Peer, reason: u32, words: &str) {
        let refusal = Message::new(CHANNEL_OPEN_FAILURE).u32(peer.id).u32(reason);
        self.link.send(refusal.string(words).string(""));
    }

    /// Asks the client for a channel. None if the client refuses, or there are too many.
    pub async fn open(&self, kind: &str, details: Message) -> Option<Rc<Channel>> {
        if self.count() >= CHANNELS {
            return None;
        }
        let channel = self.enter(Rc::new(Channel::asked(self.link.clone(), self.next_id())))?;
        self.link.send(channel.ask(kind, details));
        channel.opened().await.then_some(channel)
    }

    /// Adds a channel. None once the client has gone: such a channel would never end.
    fn enter(&self, channel: Rc<Channel>) -> Option<Rc<Channel>> {
        if self.is_over.get() {
            return None;
        }
        self.channels.borrow_mut().insert(channel.id(), channel.clone());
        Some(channel)
    }

    fn next_id(&self) -> u32 {
        let channels = self.channels.borrow();
        let mut id = self.next.get();
        while channels.contains_key(&id) {
            id = id.wrapping_add(1);
        }
        self.next.set(id.wrapping_add(1));
        id
    }
}
