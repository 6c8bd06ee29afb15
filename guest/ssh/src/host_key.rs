//! The host key, by which clients recognise a session. It is only in the agent's memory, so it is saved and loaded with
//! the machine. A loaded machine that becomes a new session draws a new key, after its random generator was reseeded.

use std::cell::Cell;
use std::io;

use ring::signature::{Ed25519KeyPair, KeyPair};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::wire::Message;

pub const ALGORITHM: &str = "ssh-ed25519";
type Seed = [u8; 32];

/// Keeps the key's seed only, which is quick to draw at a start. The key is made from it for each connection.
#[derive(Default)]
pub struct HostKey {
    seed: Cell<Option<Seed>>,
}

pub struct Signer(Ed25519KeyPair);

impl HostKey {
    /// Draws a new seed. Done at the start and not at the first login: a checkpoint from before that login would be
    /// restored with another key than clients have seen since.
    pub fn renew(&self) -> io::Result<()> {
        let mut seed = Seed::default();
        getrandom(&mut seed, GetRandomFlags::empty())?;
        self.seed.set(Some(seed));
        Ok(())
    }

    pub fn signer(&self) -> io::Result<Signer> {
        if self.seed.get().is_none() {
            self.renew()?;
        }
        let seed = self.seed.get().unwrap_or_default();
        Ed25519KeyPair::from_seed_unchecked(&seed)
            .map(Signer)
            .map_err(|error| io::Error::other(error.to_string()))
    }
}

impl Signer {
    pub fn public(&self) -> Vec<u8> {
        Message::part().string(ALGORITHM).string(self.0.public_key()).into_bytes()
    }

    pub fn sign(&self, data: &[u8]) -> Vec<u8> {
        Message::part().string(ALGORITHM).string(self.0.sign(data)).into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_keeps_its_key_until_it_gets_a_new_identity() {
        let key = HostKey::default();
        let first = key.signer().unwrap().public();
        assert_eq!(key.signer().unwrap().public(), first);
        key.renew().unwrap();
        assert_ne!(key.signer().unwrap().public(), first);
    }

    #[test]
    fn two_machines_have_different_keys() {
        let public = || HostKey::default().signer().unwrap().public();
        assert_ne!(public(), public());
    }
}
