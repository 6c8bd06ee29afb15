//! Layers of every compression, whole, damaged and hostile.

use super::*;
use crate::build::fault::Code;
use crate::build::limits::LIMITS;
use crate::build::testing::{gzipped, sha256};

const TEXT: &[u8] = b"what a layer holds";

fn read(bytes: Vec<u8>, compression: Compression, content: &[u8]) -> Result<Vec<u8>, Code> {
    read_within(bytes, compression, content, &LIMITS)
}

fn read_within(
    bytes: Vec<u8>,
    compression: Compression,
    content: &[u8],
    limits: &Limits,
) -> Result<Vec<u8>, Code> {
    let length = bytes.len() as u64;
    let diff_id = DiffId::parse(&sha256(content)).unwrap();
    let layer = Stored { source: io::Cursor::new(bytes), bytes: length, compression, diff_id };
    let read = || {
        let mut content = Content::open(layer, limits)?;
        let mut all = Vec::new();
        content.read_to_end(&mut all)?;
        content.finish()?;
        Ok(all)
    };
    read().map_err(|fault: Fault| fault.code)
}

fn zstd(content: &[u8]) -> Vec<u8> {
    zstd::stream::encode_all(content, 1).unwrap()
}

#[test]
fn every_compression_gives_the_content_back() {
    assert_eq!(read(TEXT.to_vec(), Compression::None, TEXT).unwrap(), TEXT);
    assert_eq!(read(gzipped(TEXT), Compression::Gzip, TEXT).unwrap(), TEXT);
    assert_eq!(read(zstd(TEXT), Compression::Zstd, TEXT).unwrap(), TEXT);
}

#[test]
fn members_and_frames_may_follow_each_other() {
    let twice = [TEXT, TEXT].concat();
    assert_eq!(read([gzipped(TEXT), gzipped(TEXT)].concat(), Compression::Gzip, &twice).unwrap(), twice);
    assert_eq!(read([zstd(TEXT), zstd(TEXT)].concat(), Compression::Zstd, &twice).unwrap(), twice);
    let skipped = [b"\x50\x2a\x4d\x18\x02\0\0\0xx".to_vec(), zstd(TEXT)].concat();
    assert_eq!(read(skipped, Compression::Zstd, TEXT).unwrap(), TEXT);
}

#[test]
fn bytes_behind_the_last_member_are_refused() {
    for more in [&b"x"[..], b"\0", &[0; 512], b"\x1f\x8b", b"garbage that is no member"] {
        assert_eq!(
            read([&gzipped(TEXT), more].concat(), Compression::Gzip, TEXT),
            Err(Code::Invalid),
            "{more:?}"
        );
        assert_eq!(
            read([&zstd(TEXT), more].concat(), Compression::Zstd, TEXT),
            Err(Code::Invalid),
            "{more:?}"
        );
    }
}

#[test]
fn a_layer_that_is_cut_short_or_damaged_is_refused() {
    for (bytes, compression) in [(gzipped(TEXT), Compression::Gzip), (zstd(TEXT), Compression::Zstd)] {
        for end in 4..bytes.len() {
            assert_eq!(
                read(bytes[..end].to_vec(), compression, TEXT),
                Err(Code::Invalid),
                "{compression:?} {end}"
            );
        }
    }
    let mut damaged = gzipped(TEXT);
    let last = damaged.len() - 5;
    damaged[last] ^= 1;
    assert_eq!(read(damaged, Compression::Gzip, TEXT), Err(Code::Invalid));
}

#[test]
fn the_compression_is_that_of_the_type() {
    for (bytes, found) in [
        (TEXT.to_vec(), Compression::None),
        (gzipped(TEXT), Compression::Gzip),
        (zstd(TEXT), Compression::Zstd),
    ] {
        for said in [Compression::None, Compression::Gzip, Compression::Zstd] {
            let is_so = read(bytes.clone(), said, TEXT).is_ok();
            assert_eq!(is_so, said == found, "{found:?} said to be {said:?}");
        }
    }
}

#[test]
fn another_content_than_the_diff_id_says_is_refused() {
    assert_eq!(read(TEXT.to_vec(), Compression::None, b"other"), Err(Code::Invalid));
    assert_eq!(read(gzipped(TEXT), Compression::Gzip, b"other"), Err(Code::Invalid));
    assert!(DiffId::parse("md5:00").is_err());
}

#[test]
fn a_bomb_ends_at_its_ratio() {
    let limits = Limits { ratio: 200, ratio_free: 100_000, ..LIMITS };
    let bomb = |bytes: usize| gzipped(&vec![0; bytes]);
    let content = vec![0; 100_000];
    assert!(read_within(bomb(100_000), Compression::Gzip, &content, &limits).is_ok());
    assert_eq!(read_within(bomb(1_000_000), Compression::Gzip, &content, &limits), Err(Code::TooLarge));
    let dense: Vec<u8> = (0..500_000_u32).flat_map(u32::to_le_bytes).collect();
    assert!(read_within(gzipped(&dense), Compression::Gzip, &dense, &limits).is_ok());
}

/// A frame with a window of this size, and one empty block.
fn frame_with_window(log: u8) -> Vec<u8> {
    [ZSTD, &[0, (log - 10) << 3, 1, 0, 0]].concat()
}

#[test]
fn a_window_of_zstd_has_at_most_128_mebibytes() {
    assert_eq!(read(frame_with_window(27), Compression::Zstd, b"").unwrap(), b"");
    for log in [28, 31, 41] {
        assert_eq!(read(frame_with_window(log), Compression::Zstd, b""), Err(Code::Invalid), "{log}");
    }
}
