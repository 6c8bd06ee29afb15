//! The certificate of an authority, as a request brings it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use crate::refusal::Refusal;

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// The form of a request.
#[derive(Deserialize)]
pub struct Encoded {
    certificate_pem: String,
    subject_hash: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Certificate {
    /// Ends with one end of a line.
    pub pem: String,
    pub der: Vec<u8>,
    pub subject_hash: String,
}

impl Certificate {
    pub fn parse(Encoded { certificate_pem, subject_hash }: Encoded) -> Result<Self, Refusal> {
        let pem = certificate_pem.trim();
        let der = decode(pem)
            .ok_or_else(|| Refusal::invalid("ca.certificate_pem: expected one certificate in PEM"))?;
        if subject_hash.len() != 8 || !subject_hash.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(Refusal::invalid("ca.subject_hash: expected 8 lower-case hex characters"));
        }
        Ok(Certificate { pem: format!("{pem}\n"), der, subject_hash })
    }
}

impl Certificate {
    /// The certificate that a file consists of. Its subject's hash is not known.
    pub fn of_file(text: &str) -> Option<Self> {
        let pem = text.trim();
        Some(Certificate { pem: format!("{pem}\n"), der: decode(pem)?, subject_hash: String::new() })
    }
}

fn decode(pem: &str) -> Option<Vec<u8>> {
    let text = pem.strip_prefix(BEGIN)?.strip_suffix(END)?;
    let der = STANDARD.decode(text.split_ascii_whitespace().collect::<String>()).ok()?;
    (!der.is_empty()).then_some(der)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_one_block_of_pem_and_a_hash() {
        let parse = |pem: &str, hash: &str| {
            Certificate::parse(Encoded { certificate_pem: pem.into(), subject_hash: hash.into() })
        };
        let pem = format!("{BEGIN}\nb25l\ncw==\n{END}");
        let parsed = parse(&format!("\n{pem}\n\n"), "0123abcd").unwrap();
        assert_eq!((parsed.pem, parsed.der), (format!("{pem}\n"), b"ones".to_vec()));
        for hash in ["0123abc", "0123ABCD", "../../x/", ""] {
            assert!(parse(&pem, hash).is_err(), "{hash}");
        }
        let two = format!("{pem}\n{pem}");
        for wrong in ["", "b25l", &two, &format!("{BEGIN}{END}"), &format!("{BEGIN}!{END}")] {
            assert!(parse(wrong, "0123abcd").is_err(), "{wrong}");
        }
    }
}
