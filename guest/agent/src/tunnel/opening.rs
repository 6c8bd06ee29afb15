//! Reads a tunnel's request: one frame with the session's variables, then the SSH client's bytes.

use std::collections::BTreeMap;

use bytes::{Buf, Bytes, BytesMut};
use hyper::body::Incoming;
use serde::Deserialize;
use ssh::Input;

use crate::body::next_data;
use crate::frames::HEADER_BYTES;
use crate::refusal::Refusal;

const OPEN: u8 = 0x00;
/// Limit of the frame: variables of the largest size, escaped.
const SPEC_BYTES: usize = 1024 * 1024;

#[derive(Debug, Deserialize)]
pub struct TunnelSpec {
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

pub struct Rest {
    /// Bytes that came with the opening frame.
    first: Bytes,
    body: Incoming,
}

pub async fn read(mut body: Incoming) -> Result<(TunnelSpec, Rest), Refusal> {
    let mut arrived = BytesMut::new();
    loop {
        if let Some(spec) = parse(&mut arrived)? {
            return Ok((spec, Rest { first: arrived.freeze(), body }));
        }
        let bytes = next_data(&mut body).await;
        let bytes = bytes.ok_or_else(|| Refusal::invalid("body: it ends before its first frame"))?;
        arrived.extend_from_slice(&bytes);
    }
}

/// Takes the opening frame from the bytes; None until it is complete.
fn parse(arrived: &mut BytesMut) -> Result<Option<TunnelSpec>, Refusal> {
    let Some(header) = arrived.get(..HEADER_BYTES) else { return Ok(None) };
    let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize;
    if header[0] != OPEN || length > SPEC_BYTES {
        let got = format!("type {:#04x} of {length} bytes", header[0]);
        return Err(Refusal::invalid(format!(
            "body: expected a frame 0x00 of at most {SPEC_BYTES} bytes, got {got}"
        )));
    }
    if arrived.len() < HEADER_BYTES + length {
        return Ok(None);
    }
    arrived.advance(HEADER_BYTES);
    let spec = serde_json::from_slice(&arrived.split_to(length));
    spec.map(Some).map_err(|error| Refusal::invalid(format!("body: {error}")))
}

impl Input for Rest {
    async fn next(&mut self) -> Option<Bytes> {
        match self.first.is_empty() {
            false => Some(std::mem::take(&mut self.first)),
            true => next_data(&mut self.body).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, json: &str) -> BytesMut {
        let header = [&[kind][..], &(json.len() as u32).to_be_bytes()].concat();
        BytesMut::from(&[&header[..], json.as_bytes()].concat()[..])
    }

    #[test]
    fn the_first_frame_is_read_and_what_follows_it_is_left() {
        let whole = frame(OPEN, r#"{"env":{"A":"1"}}"#);
        for length in 0..whole.len() {
            assert!(parse(&mut BytesMut::from(&whole[..length])).unwrap().is_none(), "{length}");
        }
        let mut arrived = whole;
        arrived.extend_from_slice(b"SSH-2.0-");
        assert_eq!(parse(&mut arrived).unwrap().unwrap().env["A"], "1");
        assert_eq!(&arrived[..], b"SSH-2.0-");
    }

    #[test]
    fn anything_else_is_refused() {
        for mut wrong in [frame(1, "{}"), frame(OPEN, "["), frame(OPEN, r#"{"env":1}"#)] {
            assert!(parse(&mut wrong).is_err(), "{wrong:?}");
        }
        assert!(parse(&mut BytesMut::from(&[0, 1, 0, 0, 0][..])).is_err());
    }

    #[test]
    fn openings_that_nearly_fit_are_read_refused_or_waited_for() {
        let valid = frame(OPEN, r#"{"env":{"A":"1","B":"\u00e4"}}"#);
        let mut outcomes = [0; 3];
        for mut random in crate::fuzz::inputs(6_000) {
            let said = random.mutated(&valid);
            let mut arrived = BytesMut::from(&said[..]);
            let outcome = match parse(&mut arrived) {
                Ok(Some(_)) => 0,
                Ok(None) => 1,
                Err(_) => 2,
            };
            assert!(outcome == 2 || said.ends_with(&arrived));
            outcomes[outcome] += 1;
        }
        assert!(outcomes.iter().all(|count| *count > 100), "{outcomes:?}");
    }
}
