//! Frames of an exec answer, of a log and of a list: 1 byte type, 4 bytes payload length (big-endian), payload.

use bytes::Bytes;
use serde::Serialize;
use serde_json::json;

/// Largest payload: with its header and that of HTTP/2 (9 bytes) a frame fits one write of 32 KiB to the port.
pub const PAYLOAD_BYTES: usize = 32 * 1024 - 9 - HEADER_BYTES;
pub const HEADER_BYTES: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FrameType {
    Stdout = 0x01,
    Stderr = 0x02,
    Exit = 0x03,
    Error = 0x04,
    Eof = 0x05,
    Items = 0x06,
}

#[derive(Serialize, Debug, Default, PartialEq)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub struct ExecEnd {
    pub exit_code: i32,
    pub timed_out: bool,
    pub duration_us: u64,
    pub stdout_truncated: bool,
    pub stderr_truncated: bool,
}

pub fn encode(kind: FrameType, payload: &[u8]) -> Bytes {
    debug_assert!(payload.len() <= PAYLOAD_BYTES);
    encode_as(kind as u8, payload)
}

/// Encodes a frame whose type is not a `FrameType`, for another stream with the same header.
pub fn encode_as(kind: u8, payload: &[u8]) -> Bytes {
    let mut frame = with_space(kind, payload.len());
    frame.extend_from_slice(payload);
    finish(frame)
}

/// A frame buffer with its header and space for the largest payload.
pub fn begin(kind: FrameType) -> Vec<u8> {
    with_space(kind as u8, PAYLOAD_BYTES)
}

fn with_space(kind: u8, payload_bytes: usize) -> Vec<u8> {
    let mut frame = Vec::with_capacity(HEADER_BYTES + payload_bytes);
    frame.extend_from_slice(&[kind, 0, 0, 0, 0]);
    frame
}

/// Writes the payload's length into the header. A small frame gets a small buffer: many frames may be queued.
pub fn finish(mut frame: Vec<u8>) -> Bytes {
    let length = (frame.len() - HEADER_BYTES) as u32;
    frame[1..HEADER_BYTES].copy_from_slice(&length.to_be_bytes());
    if frame.len() < frame.capacity() / 2 { Bytes::copy_from_slice(&frame) } else { frame.into() }
}

/// Splits a complete frame into type and payload.
pub fn open(mut frame: Bytes) -> (u8, Bytes) {
    let payload = frame.split_off(HEADER_BYTES);
    (frame[0], payload)
}

pub fn exit(end: &ExecEnd) -> Bytes {
    let payload = serde_json::to_vec(end).expect("numbers and booleans are always JSON");
    encode(FrameType::Exit, &payload)
}

/// The last frame of a log, which has no exit code.
pub fn eof(stdout_truncated: bool, stderr_truncated: bool) -> Bytes {
    let end = json!({ "stdout_truncated": stdout_truncated, "stderr_truncated": stderr_truncated });
    encode(FrameType::Eof, end.to_string().as_bytes())
}

/// The frames of a list: its items as lines of JSON, cut into full frames at any byte, then a frame with `end`.
pub fn list(items: &[impl Serialize], end: &impl Serialize) -> serde_json::Result<Bytes> {
    let (mut frames, mut lines) = (Vec::new(), Vec::new());
    for item in items {
        serde_json::to_writer(&mut lines, item)?;
        lines.push(b'\n');
        let full = lines.len() - lines.len() % PAYLOAD_BYTES;
        for payload in lines.drain(..full).as_slice().chunks(PAYLOAD_BYTES) {
            frames.extend_from_slice(&encode(FrameType::Items, payload));
        }
    }
    if !lines.is_empty() {
        frames.extend_from_slice(&encode(FrameType::Items, &lines));
    }
    frames.extend_from_slice(&encode(FrameType::Eof, &serde_json::to_vec(end)?));
    Ok(frames.into())
}

pub fn error(message: &str) -> Bytes {
    encode(FrameType::Error, json!({ "message": message }).to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOLDEN: &str = include_str!("../../../packages/contract/fixtures/frames.json");

    fn bytes(hex: &serde_json::Value) -> Vec<u8> {
        let hex = hex.as_str().unwrap();
        let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (0..hex.len()).step_by(2).map(byte).collect()
    }

    fn golden() -> serde_json::Value {
        serde_json::from_str(GOLDEN).unwrap()
    }

    fn golden_frames(kind: &str) -> Vec<serde_json::Value> {
        let frames = golden()["frames"].as_array().unwrap().clone();
        frames.into_iter().filter(|frame| frame["type"] == kind).collect()
    }

    #[test]
    fn frames_are_those_the_host_reads() {
        for (name, kind) in [
            ("stdout", FrameType::Stdout),
            ("stderr", FrameType::Stderr),
            ("exit", FrameType::Exit),
            ("error", FrameType::Error),
        ] {
            let frames = golden_frames(name);
            assert!(!frames.is_empty(), "{name}");
            for frame in frames {
                let encoded = encode(kind, &bytes(&frame["payload_hex"]));
                assert_eq!(encoded, bytes(&frame["hex"]), "{}", frame["name"]);
            }
        }
    }

    #[test]
    fn ends_are_written_byte_for_byte_as_the_host_reads_them() {
        for frame in golden_frames("exit") {
            let end: ExecEnd = serde_json::from_value(frame["json"].clone()).unwrap();
            assert_eq!(exit(&end), bytes(&frame["hex"]), "{}", frame["name"]);
        }
        for frame in golden_frames("error") {
            let message = frame["json"]["message"].as_str().unwrap();
            assert_eq!(error(message), bytes(&frame["hex"]), "{}", frame["name"]);
        }
    }

    #[test]
    fn the_end_of_a_log_reports_of_each_stream_whether_it_is_complete() {
        let frame = eof(false, true);
        assert_eq!(frame[0], 0x05);
        let end: serde_json::Value = serde_json::from_slice(&frame[HEADER_BYTES..]).unwrap();
        assert_eq!(end, json!({ "stdout_truncated": false, "stderr_truncated": true }));
    }

    #[test]
    fn the_items_of_a_list_are_lines_that_continue_from_frame_to_frame() {
        let items: Vec<String> = (0..200).map(|n| "\u{1}ä".repeat(n * 7)).collect();
        let mut bytes = list(&items, &json!({ "truncated": true })).unwrap();
        let (mut lines, mut kinds) = (Vec::new(), Vec::new());
        while !bytes.is_empty() {
            let length = u32::from_be_bytes(bytes[1..HEADER_BYTES].try_into().unwrap()) as usize;
            assert!(length <= PAYLOAD_BYTES);
            let (kind, payload) = open(bytes.split_to(HEADER_BYTES + length));
            kinds.push(kind);
            match kind {
                0x06 => lines.extend_from_slice(&payload),
                _ => assert_eq!(payload, &b"{\"truncated\":true}"[..]),
            }
        }
        assert!(kinds.len() > 10 && kinds.pop() == Some(0x05) && kinds.iter().all(|kind| *kind == 0x06));
        let read = lines.split_inclusive(|byte| *byte == b'\n');
        assert_eq!(
            read.map(|line| serde_json::from_slice::<String>(line).unwrap()).collect::<Vec<_>>(),
            items
        );
        assert_eq!(list(&[""; 0], &json!({})).unwrap()[..], *b"\x05\0\0\0\x02{}");
    }

    #[test]
    fn no_frame_is_larger_than_the_host_takes() {
        let refused = golden()["refused"].as_array().unwrap().clone();
        let over = refused.iter().map(|frame| bytes(&frame["hex"])).find(|frame| frame[0] == 0x01).unwrap();
        let length = u32::from_be_bytes(over[1..5].try_into().unwrap()) as usize;
        assert!(PAYLOAD_BYTES < length);
    }

    #[test]
    fn the_exit_frame_carries_every_field() {
        let frame = exit(&ExecEnd { exit_code: -1, timed_out: true, duration_us: 7, ..Default::default() });
        assert_eq!(frame[0], 0x03);
        let end: serde_json::Value = serde_json::from_slice(&frame[HEADER_BYTES..]).unwrap();
        assert_eq!(
            end,
            json!({ "exit_code": -1, "timed_out": true, "duration_us": 7,
                    "stdout_truncated": false, "stderr_truncated": false })
        );
    }
}
