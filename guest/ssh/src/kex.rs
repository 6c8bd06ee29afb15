//! Key exchange (RFC 4253, 7 and 8): agrees on algorithms, and computes the shared secrets.

use ml_kem::kem::{Encapsulate, TryKeyInit};
use ml_kem::ml_kem_768::EncapsulationKey;
use ring::agreement::{EphemeralPrivateKey, UnparsedPublicKey, X25519, agree_ephemeral};
use ring::digest::{Context, SHA256, digest};
use ring::rand::SystemRandom;

use crate::broken::{Broken, Reason};
use crate::cipher::{self, Cipher, Keys};
use crate::host_key::{self, Signer};
use crate::messages::{KEX_ECDH_REPLY, KEXINIT};
use crate::wire::{Message, Reader};

/// The preferred method. It also resists a quantum computer that decrypts a recording later; clients warn without it.
const HYBRID: &str = "mlkem768x25519-sha256";
const METHODS: [&str; 3] = [HYBRID, "curve25519-sha256", "curve25519-sha256@libssh.org"];
const STRICT_SERVER: &str = "kex-strict-s-v00@openssh.com";
const STRICT_CLIENT: &str = "kex-strict-c-v00@openssh.com";
/// Offered because some clients insist on a common one. Not used: the ciphers authenticate.
const MACS: &str = "hmac-sha2-256-etm@openssh.com,hmac-sha2-256";
const COOKIE_BYTES: usize = 16;
const CURVE_BYTES: usize = 32;

pub type Hash = [u8; 32];

pub fn offer() -> Result<Vec<u8>, Broken> {
    let mut cookie = [0; COOKIE_BYTES];
    ring::rand::SecureRandom::fill(&SystemRandom::new(), &mut cookie).map_err(|_| failed("no randomness"))?;
    let ciphers = cipher::NAMES.join(",");
    let methods = format!("{},{STRICT_SERVER}", METHODS.join(","));
    let mut message = Message::new(KEXINIT).bytes(&cookie).string(methods).string(host_key::ALGORITHM);
    for list in [&ciphers, &ciphers, MACS, MACS, "none", "none", "", ""] {
        message = message.string(list);
    }
    Ok(message.bool(false).u32(0).into_bytes())
}

#[derive(Debug)]
pub struct Agreement {
    pub is_hybrid: bool,
    pub from_client: Cipher,
    pub to_client: Cipher,
    pub is_strict: bool,
    /// Whether the client guessed another method: its first message of the exchange is then ignored.
    pub is_guess_wrong: bool,
}

pub fn agree(client_offer: &[u8]) -> Result<Agreement, Broken> {
    let mut reader = Reader::new(client_offer);
    reader.bytes(1 + COOKIE_BYTES)?;
    // A name that is not UTF-8 is replaced by one that matches none of ours.
    let text = |name| std::str::from_utf8(name).unwrap_or("?");
    let mut list =
        || Ok::<Vec<&str>, Broken>(reader.string()?.split(|byte| *byte == b',').map(text).collect());
    let (methods, host_keys, from_client, to_client) = (list()?, list()?, list()?, list()?);
    for _ in 0..6 {
        list()?;
    }
    let guesses = reader.bool()?;
    let method = first_of("key exchange method", &methods, &METHODS)?;
    first_of("host key algorithm", &host_keys, &[host_key::ALGORITHM])?;
    let cipher = |lists: &[&str]| {
        let name = first_of("cipher", lists, &cipher::NAMES)?;
        Cipher::named(name).ok_or_else(|| failed("no cipher"))
    };
    let is_first = methods.first() == METHODS.first() && host_keys.first() == Some(&host_key::ALGORITHM);
    Ok(Agreement {
        is_hybrid: method == HYBRID,
        from_client: cipher(&from_client)?,
        to_client: cipher(&to_client)?,
        is_strict: methods.contains(&STRICT_CLIENT),
        is_guess_wrong: guesses && !is_first,
    })
}

fn first_of<'a>(what: &str, theirs: &[&'a str], ours: &[&str]) -> Result<&'a str, Broken> {
    theirs.iter().find(|name| ours.contains(name)).copied().ok_or_else(|| {
        failed(format!("no common {what}: this server has {}, use one of these", ours.join(", ")))
    })
}

fn failed(message: impl Into<String>) -> Broken {
    Broken::new(Reason::KeyExchangeFailed, message)
}

/// The messages of both sides before the exchange. The exchange hash covers them.
pub struct Greetings<'a> {
    pub client_version: &'a [u8],
    pub server_version: &'a [u8],
    pub client_offer: &'a [u8],
    pub server_offer: &'a [u8],
}

pub struct Secrets {
    /// The shared secret, encoded with its length.
    shared: Vec<u8>,
    /// The exchange hash. That of the first exchange identifies the session.
    pub hash: Hash,
}

/// Computes the answer to the client's share, and the secrets.
pub fn exchange(
    agreement: &Agreement,
    greetings: &Greetings,
    client_share: &[u8],
    signer: &Signer,
) -> Result<(Vec<u8>, Secrets), Broken> {
    let (server_share, shared) = match agreement.is_hybrid {
        true => hybrid(client_share)?,
        false => {
            let (share, secret) = curve25519(client_share)?;
            (share, Message::part().mpint(&secret).into_bytes())
        }
    };
    let host_key = signer.public();
    let transcript = Message::part()
        .string(greetings.client_version)
        .string(greetings.server_version)
        .string(greetings.client_offer)
        .string(greetings.server_offer)
        .string(&host_key)
        .string(client_share)
        .string(&server_share)
        .bytes(&shared);
    let hash = sha256(&[transcript.as_ref()]);
    let reply = Message::new(KEX_ECDH_REPLY).string(&host_key).string(&server_share);
    Ok((reply.string(signer.sign(&hash)).into_bytes(), Secrets { shared, hash }))
}

fn curve25519(client_share: &[u8]) -> Result<(Vec<u8>, Vec<u8>), Broken> {
    let wrong = |_| failed("the key exchange's share is no point of the curve");
    let private = EphemeralPrivateKey::generate(&X25519, &SystemRandom::new()).map_err(wrong)?;
    let public = private.compute_public_key().map_err(wrong)?.as_ref().to_vec();
    let peer = UnparsedPublicKey::new(&X25519, client_share);
    let secret = agree_ephemeral(private, &peer, |secret| secret.to_vec()).map_err(wrong)?;
    Ok((public, secret))
}

/// The hybrid method (draft-ietf-sshm-mlkem-hybrid-kex): the shares are concatenated, the secrets hashed into one.
fn hybrid(client_share: &[u8]) -> Result<(Vec<u8>, Vec<u8>), Broken> {
    let wrong = || failed("the key exchange's share is not one of its method");
    let curve_at = client_share.len().checked_sub(CURVE_BYTES).ok_or_else(wrong)?;
    let (lattice, curve) = client_share.split_at(curve_at);
    let key = EncapsulationKey::new_from_slice(lattice).map_err(|_| wrong())?;
    let (sealed, lattice_secret) = key.encapsulate();
    let (curve_share, curve_secret) = curve25519(curve)?;
    let secret = sha256(&[lattice_secret.as_slice(), &curve_secret]);
    Ok(([sealed.as_slice(), &curve_share].concat(), Message::part().string(secret).into_bytes()))
}

fn sha256(parts: &[&[u8]]) -> Hash {
    let mut context = Context::new(&SHA256);
    parts.iter().for_each(|part| context.update(part));
    context.finish().as_ref().try_into().expect("the hash has this length")
}

impl Secrets {
    /// The keys of one direction, by their letters (RFC 4253, 7.2).
    pub fn keys(&self, cipher: Cipher, session: &Hash, [iv, key]: [u8; 2]) -> Keys {
        Keys { iv: self.derive(iv, session, 12), key: self.derive(key, session, cipher.key_bytes()) }
    }

    fn derive(&self, letter: u8, session: &Hash, bytes: usize) -> Vec<u8> {
        let begin = [&self.shared[..], &self.hash].concat();
        let mut derived = sha256(&[&begin, &[letter], session]).to_vec();
        while derived.len() < bytes {
            let more = digest(&SHA256, &[&begin[..], &derived].concat());
            derived.extend_from_slice(more.as_ref());
        }
        derived.truncate(bytes);
        derived
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client_offer(methods: &str, ciphers: &str, guesses: bool) -> Vec<u8> {
        let mut message = Message::new(KEXINIT).bytes(&[0; COOKIE_BYTES]).string(methods);
        for list in ["ssh-ed25519", ciphers, ciphers, MACS, MACS, "none", "none", "", ""] {
            message = message.string(list);
        }
        message.bool(guesses).u32(0).into_bytes()
    }

    #[test]
    fn the_clients_first_choice_that_is_known_here_is_taken() {
        let offer = client_offer("sntrup,curve25519-sha256", "aes256-ctr,aes128-gcm@openssh.com", false);
        let agreement = agree(&offer).unwrap();
        assert!(!agreement.is_hybrid && !agreement.is_strict && !agreement.is_guess_wrong);
        assert_eq!(agreement.from_client, Cipher::Aes128);
        assert!(agree(&client_offer(HYBRID, cipher::NAMES[0], false)).unwrap().is_hybrid);
    }

    #[test]
    fn a_wrong_guess_is_noticed() {
        let wrong = |methods| agree(&client_offer(methods, cipher::NAMES[0], true)).unwrap().is_guess_wrong;
        assert!(wrong("curve25519-sha256,mlkem768x25519-sha256"));
        assert!(!wrong("mlkem768x25519-sha256,curve25519-sha256"));
    }

    #[test]
    fn a_client_without_a_common_cipher_gets_the_list_of_ciphers() {
        let refused = agree(&client_offer(HYBRID, "3des-cbc", false)).unwrap_err();
        let (reason, message) = refused.report.unwrap();
        assert_eq!(reason, Reason::KeyExchangeFailed);
        assert!(message.contains("chacha20-poly1305@openssh.com"), "{message}");
    }

    #[test]
    fn an_own_offer_can_be_agreed_with() {
        let agreement = agree(&offer().unwrap()).unwrap();
        assert!(agreement.is_hybrid);
        assert_eq!(agreement.to_client, Cipher::Chacha);
    }

    #[test]
    fn invalid_shares_are_refused() {
        for share in [&[][..], &[0; 31], &[0; 32], &[9; 33]] {
            assert!(curve25519(share).is_err(), "{share:?}");
            assert!(hybrid(share).is_err(), "{share:?}");
        }
        assert!(hybrid(&[0xff; 1216]).is_err());
    }
}
