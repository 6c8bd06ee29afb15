//! Java's keystore of trusted certificates, in the format JKS: entries, and a digest of them and the password that Java
//! installations have in common. Keystores of other formats and passwords are not touched.
//!
//!   FEEDFEED, version 2, number of entries                                      4 bytes each
//!   a certificate: 2, alias, date, "X.509", certificate                         4, text, 8, text, bytes
//!   a key:         1, alias, date, key, number of certificates, each as above   4, text, 8, bytes, 4
//!   SHA-1                                                                       20 bytes
//!
//! A text has two bytes of length, bytes have four.

use std::ops::Range;

use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};

const MAGIC: u32 = 0xfeed_feed;
const VERSION: u32 = 2;
const KEY: u32 = 1;
const CERTIFICATE: u32 = 2;
const DIGEST_BYTES: usize = 20;
const ALIAS: &[u8] = b"vivarium-session";
const KIND: &[u8] = b"X.509";
const PASSWORD: &str = "changeit";
/// A constant of the format.
const SALT: &[u8] = b"Mighty Aphrodite";

pub struct Keystore<'a> {
    bytes: &'a [u8],
    entries: Vec<Entry<'a>>,
}

struct Entry<'a> {
    range: Range<usize>,
    alias: &'a [u8],
    /// Absent for a key.
    certificate: Option<&'a [u8]>,
}

impl<'a> Keystore<'a> {
    pub fn parse(bytes: &'a [u8]) -> Result<Self, &'static str> {
        let mut reader = Reader { bytes, at: 0 };
        if reader.number() != Some(MAGIC) || reader.number() != Some(VERSION) {
            return Err("it is of another format than JKS");
        }
        let entries = reader.entries().ok_or("it is damaged")?;
        let content = &bytes[..reader.at];
        if bytes[reader.at..] != digest(content) {
            return Err("it is damaged, or has a password of its own");
        }
        Ok(Keystore { bytes: content, entries })
    }

    pub fn has(&self, der: &[u8]) -> bool {
        self.entries.iter().any(|entry| entry.certificate == Some(der))
    }

    pub fn with(&self, der: &[u8]) -> Vec<u8> {
        let kept = self.entries.iter().filter(|entry| entry.alias != ALIAS);
        // The date is 1970, so that the same keystore is made each time.
        let own = [&CERTIFICATE.to_be_bytes()[..], &text(ALIAS), &[0; 8], &text(KIND), &sized(der)].concat();
        self.of(kept, &own)
    }

    pub fn without(&self, ders: &[Vec<u8>]) -> Vec<u8> {
        let is_known = |der: Option<&[u8]>| der.is_some_and(|der| ders.iter().any(|known| known == der));
        let kept = self.entries.iter().filter(|entry| entry.alias != ALIAS && !is_known(entry.certificate));
        self.of(kept, &[])
    }

    /// A keystore of these entries and an encoded one.
    fn of<'e>(&self, kept: impl Iterator<Item = &'e Entry<'a>>, last: &[u8]) -> Vec<u8>
    where
        'a: 'e,
    {
        let kept: Vec<_> = kept.map(|entry| &self.bytes[entry.range.clone()]).collect();
        let count = kept.len() + usize::from(!last.is_empty());
        let head = [MAGIC, VERSION, count as u32].map(u32::to_be_bytes);
        let content = [head.as_flattened(), &kept.concat(), last].concat();
        [&content[..], &digest(&content)].concat()
    }
}

fn text(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_be_bytes(), bytes].concat()
}

fn sized(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes(), bytes].concat()
}

fn digest(content: &[u8]) -> [u8; DIGEST_BYTES] {
    let mut context = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    PASSWORD.encode_utf16().for_each(|unit| context.update(&unit.to_be_bytes()));
    context.update(SALT);
    context.update(content);
    context.finish().as_ref().try_into().expect("SHA-1 has 20 bytes")
}

/// Reads forward; None past the end.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn entries(&mut self) -> Option<Vec<Entry<'a>>> {
        // A damaged number of entries must not reserve memory.
        let count = self.number()?;
        (0..count).map(|_| self.entry()).collect()
    }

    fn entry(&mut self) -> Option<Entry<'a>> {
        let start = self.at;
        let kind = self.number()?;
        let alias = self.text()?;
        self.take(8)?;
        let certificate = match kind {
            CERTIFICATE => Some(self.certificate()?),
            KEY => {
                self.sized()?;
                for _ in 0..self.number()? {
                    self.certificate()?;
                }
                None
            }
            _ => return None,
        };
        Some(Entry { range: start..self.at, alias, certificate })
    }

    fn certificate(&mut self) -> Option<&'a [u8]> {
        self.text()?;
        self.sized()
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let length = self.take(2)?;
        self.take(u16::from_be_bytes(length.try_into().ok()?).into())
    }

    fn sized(&mut self) -> Option<&'a [u8]> {
        let length = self.number()?;
        self.take(length as usize)
    }

    fn number(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(count)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::java_keystore;
    use super::*;

    /// A keystore with this number of entries, which are given encoded.
    fn keystore(count: u32, entries: &[&[u8]]) -> Vec<u8> {
        let content = [b"\xfe\xed\xfe\xed\0\0\0\x02", &count.to_be_bytes()[..], &entries.concat()].concat();
        [&content[..], &digest(&content)].concat()
    }

    fn aliases(bytes: &[u8]) -> Vec<&[u8]> {
        Keystore::parse(bytes).unwrap().entries.iter().map(|entry| entry.alias).collect()
    }

    #[test]
    fn a_keystore_of_java_gets_a_certificate_and_loses_it_byte_for_byte() {
        let before = java_keystore();
        let parsed = Keystore::parse(&before).unwrap();
        assert!(!parsed.has(b"ours"));
        let after = parsed.with(b"ours");
        assert_eq!(aliases(&after), [b"debian:a.pem", ALIAS]);
        let after = Keystore::parse(&after).unwrap();
        assert!(after.has(b"ours") && after.has(parsed.entries[0].certificate.unwrap()));
        assert_eq!(after.without(&[]), before);
        // A later one takes the place of an earlier one.
        assert_eq!(after.with(b"other"), parsed.with(b"other"));
    }

    #[test]
    fn a_copy_under_another_alias_is_found_and_taken_out() {
        let before = java_keystore();
        let parsed = Keystore::parse(&before).unwrap();
        let der = parsed.entries[0].certificate.unwrap().to_vec();
        assert_eq!(parsed.without(&[b"else".to_vec()]), before);
        assert_eq!(parsed.without(&[der]), keystore(0, &[]));
    }

    #[test]
    fn keys_stay_as_they_are() {
        let key = b"\0\0\0\x01\0\x01k\0\0\0\0\0\0\0\0\0\0\0\x02kk\0\0\0\x01\0\x05X.509\0\0\0\x01c";
        let before = keystore(1, &[key]);
        let after = Keystore::parse(&before).unwrap().with(b"c");
        assert_eq!(aliases(&after), [b"k", ALIAS]);
        assert_eq!(Keystore::parse(&after).unwrap().without(&[b"c".to_vec()]), before);
    }

    #[test]
    fn other_formats_passwords_and_damage_are_refused() {
        let good = java_keystore();
        assert!(Keystore::parse(&good).is_ok());
        for length in 0..good.len() {
            assert!(Keystore::parse(&good[..length]).is_err(), "{length}");
        }
        for at in 0..good.len() {
            let mut damaged = good.clone();
            damaged[at] ^= 0x40;
            assert!(Keystore::parse(&damaged).is_err(), "{at}");
        }
        assert!(Keystore::parse(&keystore(u32::MAX, &[])).is_err());
        assert!(Keystore::parse(&keystore(1, &[b"\0\0\0\x03\0\0\0\0\0\0\0\0\0\0"])).is_err());
        assert!(Keystore::parse(b"\x30\x82\x01\x00PKCS12 is a sequence").is_err());
    }
}
