//! Turns bytes into messages: the versions, the key exchanges and the packets (RFC 4253).

use std::rc::Rc;

use bytes::{Bytes, BytesMut};

use crate::broken::{Broken, Reason};
use crate::cipher::{Cipher, Keys, Opener};
use crate::host_key::Signer;
use crate::kex::{self, Agreement, Greetings, Hash};
use crate::link::Link;
use crate::messages::*;
use crate::wire::{Message, Reader};

/// The server's version. OpenSSH's client sends eow@openssh.com only to servers whose version begins like this.
const VERSION: &str = concat!("SSH-2.0-OpenSSH_compatible_Vivarium_", env!("CARGO_PKG_VERSION"));
const VERSION_BYTES: usize = 255;

/// The client's message that is expected next.
enum Stage {
    /// The client's version line.
    Version,
    /// The client's first KEXINIT.
    Offer,
    /// The client's share of the key exchange.
    Share { client_offer: Bytes, agreement: Agreement },
    /// The client's NEWKEYS.
    NewKeys { cipher: Cipher, keys: Keys, is_strict: bool },
    /// Any message: no key exchange is under way.
    Open,
}

pub struct Transport {
    link: Rc<Link>,
    signer: Signer,
    arrived: BytesMut,
    opener: Opener,
    stage: Stage,
    client_version: Vec<u8>,
    /// This side's last KEXINIT.
    server_offer: Vec<u8>,
    session: Option<Hash>,
    /// Strict key exchange: both sides count packets from zero with every key, and send nothing else during the first
    /// exchange. Without it an attacker in between could drop the first messages unnoticed.
    is_strict: bool,
    /// Number of packets received.
    packets: u64,
    /// Whether the next packet is ignored, as the client's wrong guess.
    ignores_next: bool,
}

impl Transport {
    /// Sends this side's version and offer at once.
    pub fn new(link: Rc<Link>, signer: Signer) -> Result<Self, Broken> {
        link.send_clear(format!("{VERSION}\r\n").as_bytes());
        let mut transport = Transport {
            link,
            signer,
            arrived: BytesMut::new(),
            opener: Opener::default(),
            stage: Stage::Version,
            client_version: Vec::new(),
            server_offer: Vec::new(),
            session: None,
            is_strict: false,
            packets: 0,
            ignores_next: false,
        };
        transport.offer()?;
        Ok(transport)
    }

    fn offer(&mut self) -> Result<(), Broken> {
        self.server_offer = kex::offer()?;
        self.link.queue_messages();
        self.link.send_at_once(&self.server_offer);
        Ok(())
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.arrived.extend_from_slice(bytes);
    }

    /// The next message for the connection; messages of the transport are handled here.
    pub fn next(&mut self) -> Result<Option<Bytes>, Broken> {
        if matches!(self.stage, Stage::Version) && !self.read_version()? {
            return Ok(None);
        }
        while let Some(message) = self.opener.open(&mut self.arrived)? {
            self.packets += 1;
            if std::mem::take(&mut self.ignores_next) {
                continue;
            }
            if let Some(message) = self.take(message)? {
                return Ok(Some(message));
            }
        }
        Ok(None)
    }

    fn read_version(&mut self) -> Result<bool, Broken> {
        let unknown =
            |what| Err(Broken::new(Reason::VersionNotSupported, format!("expected SSH-2.0, got {what}")));
        let Some(end) = self.arrived.iter().take(VERSION_BYTES).position(|byte| *byte == b'\n') else {
            return if self.arrived.len() < VERSION_BYTES { Ok(false) } else { unknown("a line too long") };
        };
        let line = self.arrived.split_to(end + 1);
        let version = line[..end].strip_suffix(b"\r").unwrap_or(&line[..end]);
        if !version.starts_with(b"SSH-2.0-") {
            return unknown("something else");
        }
        self.client_version = version.to_vec();
        self.stage = Stage::Offer;
        Ok(true)
    }

    fn take(&mut self, message: Bytes) -> Result<Option<Bytes>, Broken> {
        let kind = message[0];
        let is_first_exchange = self.session.is_none();
        match (kind, std::mem::replace(&mut self.stage, Stage::Open)) {
            (DISCONNECT, _) => Err(Broken::gone()),
            (KEXINIT, Stage::Open) => {
                self.offer()?;
                self.begin(message)
            }
            (KEXINIT, Stage::Offer) => self.begin(message),
            (KEX_ECDH_INIT, Stage::Share { client_offer, agreement }) => {
                self.finish(&client_offer, &agreement, &message)
            }
            (NEWKEYS, Stage::NewKeys { cipher, keys, is_strict }) => {
                self.opener.rekey(cipher, &keys, is_strict);
                Ok(None)
            }
            (IGNORE | DEBUG | UNIMPLEMENTED, stage) if !(self.is_strict && is_first_exchange) => {
                self.stage = stage;
                Ok(None)
            }
            (_, Stage::Open) if kind >= SERVICE_REQUEST && !(KEXINIT..USERAUTH_REQUEST).contains(&kind) => {
                Ok(Some(message))
            }
            _ => Err(Broken::protocol(format!("message {kind} does not belong here"))),
        }
    }

    fn begin(&mut self, client_offer: Bytes) -> Result<Option<Bytes>, Broken> {
        let agreement = kex::agree(&client_offer)?;
        if self.session.is_none() {
            self.is_strict = agreement.is_strict;
            if self.is_strict && self.packets != 1 {
                return Err(Broken::protocol("the key exchange must come first"));
            }
        }
        self.ignores_next = agreement.is_guess_wrong;
        self.stage = Stage::Share { client_offer, agreement };
        Ok(None)
    }

    fn finish(
        &mut self,
        client_offer: &[u8],
        agreement: &Agreement,
        message: &[u8],
    ) -> Result<Option<Bytes>, Broken> {
        let greetings = Greetings {
            client_version: &self.client_version,
            server_version: VERSION.as_bytes(),
            client_offer,
            server_offer: &self.server_offer,
        };
        let client_share = Reader::new(&message[1..]).string()?;
        let (reply, secrets) = kex::exchange(agreement, &greetings, client_share, &self.signer)?;
        let session = *self.session.get_or_insert(secrets.hash);
        self.link.send_at_once(&reply);
        self.link.send_at_once(Message::new(NEWKEYS).as_ref());
        let keys = secrets.keys(agreement.to_client, &session, *b"BD");
        self.link.rekey(agreement.to_client, &keys, self.is_strict);
        self.link.send_queued();
        let keys = secrets.keys(agreement.from_client, &session, *b"AC");
        self.stage = Stage::NewKeys { cipher: agreement.from_client, keys, is_strict: self.is_strict };
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host_key::HostKey;

    fn transport() -> Transport {
        Transport::new(Rc::new(Link::new()), HostKey::default().signer().unwrap()).unwrap()
    }

    fn clear_packet(message: &[u8]) -> Vec<u8> {
        let mut packet = Vec::new();
        crate::cipher::Sealer::default().seal(&[message], &mut packet).unwrap();
        packet
    }

    fn reason(transport: &mut Transport) -> Reason {
        transport.next().unwrap_err().report.unwrap().0
    }

    #[test]
    fn a_client_of_another_protocol_gets_the_reason() {
        for line in [&b"GET / HTTP/1.1\r\n"[..], b"SSH-1.5-old\r\n", &[b'x'; 300]] {
            let mut transport = transport();
            transport.push(line);
            assert_eq!(reason(&mut transport), Reason::VersionNotSupported);
        }
    }

    #[test]
    fn nothing_but_the_exchange_is_taken_before_there_are_keys() {
        for kind in [SERVICE_REQUEST, USERAUTH_REQUEST, CHANNEL_OPEN, NEWKEYS, KEX_ECDH_INIT] {
            let mut transport = transport();
            transport.push(b"SSH-2.0-test\r\n");
            transport.push(&clear_packet(&[kind, 0, 0, 0, 0]));
            assert_eq!(reason(&mut transport), Reason::ProtocolError, "{kind}");
        }
    }

    #[test]
    fn a_strict_client_must_begin_with_the_key_exchange() {
        let mut transport = transport();
        transport.push(b"SSH-2.0-test\r\n");
        transport.push(&clear_packet(&[IGNORE, 0, 0, 0, 0]));
        let mut offer = kex::offer().unwrap();
        let at = offer.windows(8).position(|part| part == b"strict-s").unwrap();
        offer[at + 7] = b'c';
        transport.push(&clear_packet(&offer));
        assert_eq!(reason(&mut transport), Reason::ProtocolError);
    }

    /// All bytes end the connection or are buffered; none panic.
    #[test]
    fn garbage_is_survived() {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for _ in 0..2_000 {
            let mut transport = transport();
            transport.push(b"SSH-2.0-test\r\n");
            let mut message = match random() % 3 {
                0 => kex::offer().unwrap(),
                _ => (0..random() % 200 + 1).map(|_| random() as u8).collect(),
            };
            for _ in 0..random() % 4 {
                let at = random() as usize % message.len();
                message[at] = random() as u8;
            }
            transport.push(&clear_packet(&message));
            transport.push(&clear_packet(&[&[KEX_ECDH_INIT], &message[..]].concat()));
            while let Ok(Some(_)) = transport.next() {}
        }
    }
}
