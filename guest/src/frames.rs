//! Frames of an exec answer and of a log: 1 byte type, 4 bytes payload length (big-endian), payload.

use bytes::Bytes;
use serde::Serialize;
use serde_json::json;

/// With its header and that of HTTP/2 (9 bytes) a frame is one write to the port, which takes 32 KiB at once.
pub const PAYLOAD_BYTES: usize = 32 * 1024 - 9 - HEADER_BYTES;
pub const HEADER_BYTES: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FrameType {
    Stdout = 0x01,
    Stderr = 0x02,
    Exit = 0x03,
    Error = 0x04,
    Eof = 0x05,
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
    let mut frame = with_room(kind, payload.len());
    frame.extend_from_slice(payload);
    finish(frame)
}

/// A frame with room for a payload of full length, which is put behind its header.
pub fn begin(kind: FrameType) -> Vec<u8> {
    with_room(kind, PAYLOAD_BYTES)
}

fn with_room(kind: FrameType, payload_bytes: usize) -> Vec<u8> {
    let mut frame = Vec::with_capacity(HEADER_BYTES + payload_bytes);
    frame.extend_from_slice(&[kind as u8, 0, 0, 0, 0]);
    frame
}

/// Writes the payload's length into the header. A small frame leaves its room behind: many may wait for a window.
pub fn finish(mut frame: Vec<u8>) -> Bytes {
    let length = (frame.len() - HEADER_BYTES) as u32;
    frame[1..HEADER_BYTES].copy_from_slice(&length.to_be_bytes());
    if frame.len() < frame.capacity() / 2 { Bytes::copy_from_slice(&frame) } else { frame.into() }
}

/// A whole frame's type and payload.
pub fn open(mut frame: Bytes) -> (u8, Bytes) {
    let payload = frame.split_off(HEADER_BYTES);
    (frame[0], payload)
}

pub fn exit(end: &ExecEnd) -> Bytes {
    let payload = serde_json::to_vec(end).expect("numbers and booleans are always JSON");
    encode(FrameType::Exit, &payload)
}

/// The end of a log, which has no exit.
pub fn eof(stdout_truncated: bool, stderr_truncated: bool) -> Bytes {
    let end = json!({ "stdout_truncated": stdout_truncated, "stderr_truncated": stderr_truncated });
    encode(FrameType::Eof, end.to_string().as_bytes())
}

pub fn error(message: &str) -> Bytes {
    encode(FrameType::Error, json!({ "message": message }).to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOLDEN: &str = include_str!("../../packages/contract/fixtures/frames.json");

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
    fn the_end_of_a_log_says_of_each_stream_whether_it_is_whole() {
        let frame = eof(false, true);
        assert_eq!(frame[0], 0x05);
        let end: serde_json::Value = serde_json::from_slice(&frame[HEADER_BYTES..]).unwrap();
        assert_eq!(end, json!({ "stdout_truncated": false, "stderr_truncated": true }));
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
