//! Whole images: what several layers make together, and what no byte of them can do.

use super::*;
use crate::build::fault::Code;
use crate::build::testing::{Packed, Place, Tar, gzip, gzipped, plain, sha256};

fn code(place: &Place, layers: &[Packed]) -> Code {
    place.unpack_packed(layers).unwrap_err().code
}

#[test]
fn layers_of_all_compressions_make_one_image() {
    let place = Place::new();
    let zstd = Tar::new().file("z", "z").end();
    let bytes = zstd::stream::encode_all(&zstd[..], 3).unwrap();
    let layers = [
        plain(Tar::new().file("n", "n").file("both", "1").end()),
        gzip(&Tar::new().file("g", "g").file("both", "2").end()),
        Packed { compression: "zstd", diff_id: sha256(&zstd), bytes },
    ];
    let totals = place.unpack_packed(&layers).unwrap();
    assert_eq!((totals.entries, totals.bytes), (5, 5));
    assert_eq!(place.tree(), ["both", "g", "n", "z"]);
    assert_eq!(place.text("both"), "2");
}

#[test]
fn an_image_without_a_file_is_refused() {
    let place = Place::new();
    for layers in [
        vec![],
        vec![plain(Tar::new().end())],
        vec![plain(Tar::new().file(".wh.gone", "").file("d/.wh..wh..opq", "").end())],
        vec![plain(Tar::new().file("a", "").end()), plain(Tar::new().file(".wh.a", "").end())],
    ] {
        assert_eq!(code(&place, &layers), Code::Invalid);
    }
}

#[test]
fn a_layer_is_whole_before_the_next_one() {
    let place = Place::new();
    let good = Tar::new().file("a", "").end();
    let wrong = Packed { diff_id: sha256(b"other"), ..plain(good.clone()) };
    assert_eq!(code(&place, &[wrong, plain(good.clone())]), Code::Invalid);
    // The sum is of everything, also of what follows the archive's end.
    let padded = [good.clone(), vec![0; 10_240]].concat();
    place.unpack_packed(&[gzip(&padded)]).unwrap();
    let short = Packed { diff_id: sha256(&good), ..gzip(&padded) };
    assert_eq!(code(&place, &[short]), Code::Invalid);
    let followed = Packed { bytes: [gzipped(&good), b"more".to_vec()].concat(), ..gzip(&good) };
    assert_eq!(code(&place, &[followed]), Code::Invalid);
}

#[test]
fn the_bytes_behind_an_archive_count_for_its_ratio() {
    let mut place = Place::new();
    place.limits.ratio_free = 100_000;
    let bomb = [Tar::new().file("a", "").end(), vec![0; 1_000_000]].concat();
    assert_eq!(code(&place, &[gzip(&bomb)]), Code::TooLarge);
}

#[test]
fn sparse_files_and_zeros_take_no_blocks() {
    use std::os::unix::fs::MetadataExt;
    let place = Place::new();
    let mut zeros = vec![0; 8 << 20];
    zeros[5_000_000] = 1;
    let sparse = [("GNU.sparse.size", &b"1073741824"[..]), ("GNU.sparse.map", b"1073741823,1")];
    let tar = Tar::new().file("zeros", &zeros).pax(&sparse).file("sparse", "x");
    place.unpack([tar]).unwrap();
    let meta = |name| std::fs::metadata(place.path(name)).unwrap();
    assert_eq!((meta("zeros").len(), meta("sparse").len()), (8 << 20, 1 << 30));
    assert!(std::fs::read(place.path("zeros")).unwrap() == zeros);
    assert!(meta("zeros").blocks() * 512 <= 1 << 20 && meta("sparse").blocks() * 512 <= 1 << 20);
}

#[test]
fn attributes_that_an_image_may_have_are_kept() {
    let place = Place::new();
    let capability = b"\x01\0\0\x02\0\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let tar = Tar::new()
        .pax(&[
            ("SCHILY.xattr.security.capability", &capability[..]),
            ("SCHILY.xattr.trusted.x", b"no"),
            ("SCHILY.xattr.security.selinux", b"no"),
        ])
        .file("ping", "program");
    place.unpack([tar]).unwrap();
    let mut names = [0_u8; 256];
    let length = rustix::fs::listxattr(place.path("ping"), &mut names[..]).unwrap();
    let names: Vec<&[u8]> =
        names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
    assert!(names.contains(&&b"security.capability"[..]) && !names.contains(&&b"trusted.x"[..]), "{names:?}");
}

#[test]
fn progress_is_reported_and_can_end_the_work() {
    use std::cell::RefCell;
    let place = Place::new();
    let seen = Rc::new(RefCell::new(Vec::new()));
    let path = place.outside().join("layers");
    let layer = plain(Tar::new().file("a", vec![1; 600_000]).end());
    let table = serde_json::json!({ "layers": [{
        "offset": 4096, "bytes": layer.bytes.len(), "compression": "none", "diff_id": layer.diff_id,
    }] });
    let mut disk = table.to_string().into_bytes();
    disk.resize(4096, 0);
    disk.extend_from_slice(&layer.bytes);
    std::fs::write(&path, disk).unwrap();
    let into = seen.clone();
    let report: Report = Rc::new(move |layer, bytes| {
        into.borrow_mut().push((layer, bytes));
        Ok(())
    });
    let limits = super::super::limits::LIMITS;
    unpack(File::open(&path).unwrap(), &place.root(), &limits, &report).unwrap();
    let seen = seen.borrow();
    assert!(seen.is_sorted() && seen.last() == Some(&(0, layer.bytes.len() as u64)), "{seen:?}");
    let gone: Report = Rc::new(|_, _| Err(Fault::internal("report", "gone")));
    let ended = unpack(File::open(&path).unwrap(), &place.root(), &limits, &gone);
    assert_eq!(ended.unwrap_err().code, Code::Internal);
}

/// Every field of an archive that tests read, and everything that they refuse.
fn rich() -> Vec<u8> {
    let mut data = b"1\n900\n3\n".to_vec();
    data.resize(512, 0);
    data.extend_from_slice(b"xyz");
    Tar::new()
        .directory("d/")
        .file("d/file", [7; 700])
        .hard_link("d/hard", "d/file")
        .symbolic_link("link", "../../outside")
        .file("link/file", "x")
        .file("d/.wh.file", "")
        .file("link/.wh..wh..opq", "")
        .pax(&[("path", b"long/path"), ("mtime", b"12.5"), ("uid", b"7"), ("SCHILY.xattr.user.a", b"b")])
        .file("short", "y")
        .pax(&[("GNU.sparse.major", b"1"), ("GNU.sparse.realsize", b"1000")])
        .file("sparse", data)
        .end()
}

/// Xorshift, so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

#[test]
fn damaged_bytes_are_refused_or_unpacked_inside() {
    let whole = rich();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut accepted = 0;
    for _ in 0..400 {
        let mut tar = whole.clone();
        for _ in 0..=random.below(4) {
            let at = random.below(tar.len());
            tar[at] = random.below(256) as u8;
        }
        if random.below(8) == 0 {
            tar.truncate(random.below(tar.len()));
        }
        // With right checksums, so that the fields themselves are read.
        for block in tar.chunks_exact_mut(512).filter(|block| block[257..262] == *b"ustar") {
            let summed = crate::build::testing::summed(block.as_ref().try_into().unwrap());
            block.copy_from_slice(&summed);
        }
        let mut place = Place::new();
        place.limits.bytes = 1 << 20;
        accepted += u32::from(place.unpack_packed(&[plain(tar)]).is_ok());
        place.assert_outside_is_whole();
    }
    assert!(accepted > 10, "{accepted} of 400");
}

#[test]
fn damaged_compressed_bytes_are_refused() {
    let whole = rich();
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    for number in 0..400 {
        let mut packed = gzip(&whole);
        if number % 2 == 0 {
            packed.compression = "zstd";
            packed.bytes = zstd::stream::encode_all(&whole[..], 1).unwrap();
        }
        let before = packed.bytes.clone();
        let at = 4 + random.below(packed.bytes.len() - 4);
        packed.bytes[at] ^= 1 + random.below(255) as u8;
        let place = Place::new();
        let unpacked = place.unpack_packed(&[packed]);
        place.assert_outside_is_whole();
        // A header of gzip has fields that say nothing about the content.
        if let Err(fault) = unpacked {
            assert_ne!(fault.code, Code::Internal, "{at} of {}: {fault}", before.len());
        }
    }
}
