//! Encrypts and decrypts packets (RFC 4253, 6). All ciphers also authenticate.

use bytes::{Buf, Bytes, BytesMut};
use ring::aead::chacha20_poly1305_openssh as chacha;
use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, Algorithm, LessSafeKey, Nonce, UnboundKey};

use crate::broken::Broken;

pub const NAMES: [&str; 3] =
    ["chacha20-poly1305@openssh.com", "aes256-gcm@openssh.com", "aes128-gcm@openssh.com"];

/// Limit of a received packet. Data packets are smaller, but a command may be as long as the kernel allows.
const PACKET_BYTES: usize = 256 * 1024;
const LENGTH_BYTES: usize = 4;
const TAG_BYTES: usize = 16;
const NONCE_BYTES: usize = 12;
const MIN_PADDING: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cipher {
    Chacha,
    Aes256,
    Aes128,
}

pub struct Keys {
    pub key: Vec<u8>,
    pub iv: Vec<u8>,
}

impl Cipher {
    pub fn named(name: &str) -> Option<Cipher> {
        let at = NAMES.iter().position(|known| *known == name)?;
        [Cipher::Chacha, Cipher::Aes256, Cipher::Aes128].get(at).copied()
    }

    pub fn key_bytes(self) -> usize {
        match self {
            Cipher::Chacha => chacha::KEY_LEN,
            Cipher::Aes256 => 32,
            Cipher::Aes128 => 16,
        }
    }
}

struct Gcm {
    key: LessSafeKey,
    nonce: [u8; NONCE_BYTES],
}

impl Gcm {
    fn new(algorithm: &'static Algorithm, keys: &Keys) -> Gcm {
        let key = UnboundKey::new(algorithm, &keys.key).expect("the key has its cipher's length");
        let nonce = keys.iv[..NONCE_BYTES].try_into().expect("the slice has this length");
        Gcm { key: LessSafeKey::new(key), nonce }
    }

    /// The nonce of the next packet: its last eight bytes count the packets (RFC 5647, 7.1).
    fn next_nonce(&mut self) -> Nonce {
        let nonce = Nonce::assume_unique_for_key(self.nonce);
        let count = u64::from_be_bytes(self.nonce[4..].try_into().expect("eight bytes"));
        self.nonce[4..].copy_from_slice(&count.wrapping_add(1).to_be_bytes());
        nonce
    }
}

/// Sequence numbers of packets. A number must not be used twice with one key; clients exchange keys long before.
#[derive(Default)]
struct Sequence {
    next: u32,
    under_key: u32,
}

impl Sequence {
    fn take(&mut self) -> Result<u32, Broken> {
        let exhausted = || Broken::protocol("2^32 packets were sent without a key exchange");
        self.under_key = self.under_key.checked_add(1).ok_or_else(exhausted)?;
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        Ok(number)
    }

    fn rekey(&mut self, from_zero: bool) {
        self.under_key = 0;
        if from_zero {
            self.next = 0;
        }
    }
}

#[derive(Default)]
enum Sealing {
    #[default]
    Clear,
    Chacha(chacha::SealingKey),
    Gcm(Box<Gcm>),
}

#[derive(Default)]
pub struct Sealer {
    sealing: Sealing,
    sequence: Sequence,
}

impl Sealer {
    pub fn rekey(&mut self, cipher: Cipher, keys: &Keys, from_zero: bool) {
        self.sealing = match cipher {
            Cipher::Chacha => Sealing::Chacha(chacha::SealingKey::new(&chacha_key(keys))),
            Cipher::Aes256 => Sealing::Gcm(Box::new(Gcm::new(&AES_256_GCM, keys))),
            Cipher::Aes128 => Sealing::Gcm(Box::new(Gcm::new(&AES_128_GCM, keys))),
        };
        self.sequence.rekey(from_zero);
    }

    /// Encrypts a message that is given in parts, and appends its packet.
    pub fn seal(&mut self, parts: &[&[u8]], out: &mut Vec<u8>) -> Result<(), Broken> {
        let number = self.sequence.take()?;
        // Padding fills the cipher's blocks. Its length field counts only while it is not encrypted.
        let (block, counted) = match self.sealing {
            Sealing::Clear => (8, LENGTH_BYTES),
            Sealing::Chacha(_) => (8, 0),
            Sealing::Gcm(_) => (16, 0),
        };
        let payload: usize = parts.iter().map(|part| part.len()).sum();
        let mut padding = block - (counted + 1 + payload) % block;
        if padding < MIN_PADDING {
            padding += block;
        }
        let begin = out.len();
        out.extend_from_slice(&((1 + payload + padding) as u32).to_be_bytes());
        out.push(padding as u8);
        parts.iter().for_each(|part| out.extend_from_slice(part));
        out.resize(out.len() + padding, 0);
        let mut tag = [0; TAG_BYTES];
        match &mut self.sealing {
            Sealing::Clear => return Ok(()),
            Sealing::Chacha(key) => key.seal_in_place(number, &mut out[begin..], &mut tag),
            Sealing::Gcm(gcm) => {
                let nonce = gcm.next_nonce();
                let (length, rest) = out[begin..].split_at_mut(LENGTH_BYTES);
                let sealed = gcm.key.seal_in_place_separate_tag(nonce, Aad::from(&*length), rest);
                tag.copy_from_slice(sealed.expect("a packet is not too long to seal").as_ref());
            }
        }
        out.extend_from_slice(&tag);
        Ok(())
    }
}

#[derive(Default)]
enum Opening {
    #[default]
    Clear,
    Chacha(Box<chacha::OpeningKey>),
    Gcm(Box<Gcm>),
}

#[derive(Default)]
pub struct Opener {
    opening: Opening,
    sequence: Sequence,
    /// Sequence number and length of the packet that has begun to arrive.
    begun: Option<(u32, usize)>,
}

impl Opener {
    pub fn rekey(&mut self, cipher: Cipher, keys: &Keys, from_zero: bool) {
        self.opening = match cipher {
            Cipher::Chacha => Opening::Chacha(Box::new(chacha::OpeningKey::new(&chacha_key(keys)))),
            Cipher::Aes256 => Opening::Gcm(Box::new(Gcm::new(&AES_256_GCM, keys))),
            Cipher::Aes128 => Opening::Gcm(Box::new(Gcm::new(&AES_128_GCM, keys))),
        };
        self.sequence.rekey(from_zero);
    }

    /// The next message; None until its packet has arrived completely.
    pub fn open(&mut self, arrived: &mut BytesMut) -> Result<Option<Bytes>, Broken> {
        let (number, length) = match self.begun {
            Some(begun) => begun,
            None => {
                let Some(head) = arrived.first_chunk() else { return Ok(None) };
                let begun = self.begin(*head)?;
                *self.begun.insert(begun)
            }
        };
        let tag_bytes = if matches!(self.opening, Opening::Clear) { 0 } else { TAG_BYTES };
        if arrived.len() < LENGTH_BYTES + length + tag_bytes {
            return Ok(None);
        }
        self.begun = None;
        let mut packet = arrived.split_to(LENGTH_BYTES + length);
        let tag = arrived.split_to(tag_bytes);
        self.decipher(number, &mut packet, &tag)?;
        unpad(packet.freeze()).map(Some)
    }

    fn begin(&mut self, head: [u8; LENGTH_BYTES]) -> Result<(u32, usize), Broken> {
        let number = self.sequence.take()?;
        let head = match &self.opening {
            Opening::Chacha(key) => key.decrypt_packet_length(number, head),
            _ => head,
        };
        let length = u32::from_be_bytes(head) as usize;
        match (MIN_PADDING + 2..=PACKET_BYTES).contains(&length) {
            true => Ok((number, length)),
            false => Err(Broken::protocol(format!("a packet of {length} bytes cannot be taken"))),
        }
    }

    fn decipher(&mut self, number: u32, packet: &mut BytesMut, tag: &[u8]) -> Result<(), Broken> {
        let tag = || tag.try_into().expect("the slice has this length");
        let opened = match &mut self.opening {
            Opening::Clear => return Ok(()),
            Opening::Chacha(key) => key.open_in_place(number, packet, &tag()).map(drop),
            Opening::Gcm(gcm) => {
                let nonce = gcm.next_nonce();
                let (length, rest) = packet.split_at_mut(LENGTH_BYTES);
                let aad = Aad::from(&*length);
                gcm.key.open_in_place_separate_tag(nonce, aad, tag().into(), rest, 0..).map(drop)
            }
        };
        opened.map_err(|_| Broken::protocol("a packet was changed on its way"))
    }
}

fn chacha_key(keys: &Keys) -> [u8; chacha::KEY_LEN] {
    keys.key.as_slice().try_into().expect("the key has its cipher's length")
}

fn unpad(mut packet: Bytes) -> Result<Bytes, Broken> {
    packet.advance(LENGTH_BYTES);
    let padding = packet.get_u8() as usize;
    let payload = packet.len().checked_sub(padding).filter(|payload| *payload > 0);
    let payload = payload.ok_or_else(|| Broken::protocol("a packet is all padding"))?;
    packet.truncate(payload);
    Ok(packet)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Option<Cipher>; 4] = [None, Some(Cipher::Chacha), Some(Cipher::Aes256), Some(Cipher::Aes128)];

    fn pair(cipher: Option<Cipher>) -> (Sealer, Opener) {
        let (mut sealer, mut opener) = (Sealer::default(), Opener::default());
        if let Some(cipher) = cipher {
            let keys = Keys { key: vec![7; cipher.key_bytes()], iv: vec![9; 12] };
            sealer.rekey(cipher, &keys, false);
            opener.rekey(cipher, &keys, false);
        }
        (sealer, opener)
    }

    #[test]
    fn messages_of_every_length_survive_every_cipher_byte_by_byte() {
        for cipher in ALL {
            let (mut sealer, mut opener) = pair(cipher);
            for length in 1..70 {
                let message = vec![length as u8; length];
                let mut sealed = Vec::new();
                sealer.seal(&[&message[..1], &message[1..]], &mut sealed).unwrap();
                let mut arrived = BytesMut::new();
                let (last, first) = sealed.split_last().unwrap();
                for byte in first {
                    arrived.extend_from_slice(&[*byte]);
                    assert!(opener.open(&mut arrived).unwrap().is_none(), "{cipher:?} {length}");
                }
                arrived.extend_from_slice(&[*last]);
                assert_eq!(opener.open(&mut arrived).unwrap().unwrap(), message, "{cipher:?} {length}");
                assert!(arrived.is_empty());
            }
        }
    }

    #[test]
    fn a_changed_packet_is_refused() {
        for cipher in ALL.into_iter().flatten() {
            let mut sealed = Vec::new();
            pair(Some(cipher)).0.seal(&[b"message"], &mut sealed).unwrap();
            for at in LENGTH_BYTES..sealed.len() {
                let mut arrived = BytesMut::from(&sealed[..]);
                arrived[at] ^= 1;
                assert!(pair(Some(cipher)).1.open(&mut arrived).is_err(), "{cipher:?} {at}");
            }
        }
    }

    #[test]
    fn a_packet_that_came_before_is_refused() {
        for cipher in ALL.into_iter().flatten() {
            let (mut sealer, mut opener) = pair(Some(cipher));
            let mut sealed = Vec::new();
            sealer.seal(&[b"message"], &mut sealed).unwrap();
            assert!(opener.open(&mut BytesMut::from(&sealed[..])).unwrap().is_some());
            assert!(!matches!(opener.open(&mut BytesMut::from(&sealed[..])), Ok(Some(_))), "{cipher:?}");
        }
    }

    #[test]
    fn absurd_lengths_are_refused_before_they_arrive() {
        for length in [0u32, 5, PACKET_BYTES as u32 + 1, u32::MAX] {
            let mut arrived = BytesMut::from(&length.to_be_bytes()[..]);
            assert!(Opener::default().open(&mut arrived).is_err(), "{length}");
        }
        let all_padding = [0, 0, 0, 12, 11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert!(Opener::default().open(&mut BytesMut::from(&all_padding[..])).is_err());
    }
}
