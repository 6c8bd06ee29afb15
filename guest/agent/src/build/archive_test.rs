//! Archives of every format, whole, damaged and hostile.

use std::io::Read;

use super::*;
use crate::build::fault::Code;
use crate::build::testing::{Fields, Tar, octal, pax_record, summed};

fn entries(bytes: &[u8]) -> Result<Vec<(Entry, Vec<u8>)>, Fault> {
    let mut archive = Archive::new(bytes);
    let mut all = Vec::new();
    while let Some(entry) = archive.next()? {
        let mut data = Vec::new();
        archive.read_to_end(&mut data)?;
        all.push((entry, data));
    }
    Ok(all)
}

fn only(bytes: &[u8]) -> (Entry, Vec<u8>) {
    let mut all = entries(bytes).unwrap();
    assert_eq!(all.len(), 1);
    all.remove(0)
}

fn code(bytes: &[u8]) -> Code {
    entries(bytes).unwrap_err().code
}

#[test]
fn entries_follow_each_other_whether_their_data_is_read_or_not() {
    let bytes = Tar::new().file("a", [1; 700]).directory("d/").file("b", "two").end();
    let read = entries(&bytes).unwrap();
    let found: Vec<_> =
        read.iter().map(|(entry, data)| (entry.path.as_slice(), entry.kind, data.len())).collect();
    assert_eq!(found, [(&b"a"[..], Kind::File, 700), (b"d/", Kind::Directory, 0), (b"b", Kind::File, 3)]);
    let mut archive = Archive::new(&bytes[..]);
    let mut paths = Vec::new();
    while let Some(entry) = archive.next().unwrap() {
        paths.push(entry.path);
    }
    assert_eq!(paths, [&b"a"[..], b"d/", b"b"]);
}

#[test]
fn long_names_come_from_gnu_and_pax_headers_and_pax_counts_more() {
    let (long, other) = ("l".repeat(150), "o".repeat(150));
    let gnu = |kind, text: &str| {
        (Fields { kind, path: b"././@LongLink", ..Fields::default() }, [text.as_bytes(), b"\0"].concat())
    };
    let with = |tar: Tar, (fields, text): (Fields<'_>, Vec<u8>)| tar.entry(fields, &text);
    let tar = with(with(Tar::new(), gnu(b'L', &long)), gnu(b'K', &other)).symbolic_link("short", "short");
    let (entry, _) = only(&tar.end());
    assert_eq!((entry.path, entry.link), (long.clone().into_bytes(), other.clone().into_bytes()));
    let tar = with(Tar::new().pax(&[("path", other.as_bytes())]), gnu(b'L', &long)).file("short", "");
    assert_eq!(only(&tar.end()).0.path, other.into_bytes());
    let two = Tar::new().pax(&[("path", b"first")]).file("a", "").file("b", "");
    let paths: Vec<_> = entries(&two.end()).unwrap().into_iter().map(|(entry, _)| entry.path).collect();
    assert_eq!(paths, [&b"first"[..], b"b"]);
}

#[test]
fn a_prefix_is_part_of_a_ustar_path() {
    let mut block = Fields { path: b"name", ..Fields::default() }.block();
    block[345..351].copy_from_slice(b"prefix");
    assert_eq!(only(&Tar::new().raw(summed(block), b"").end()).0.path, b"prefix/name");
    block[257..265].copy_from_slice(b"ustar  \0");
    assert_eq!(only(&Tar::new().raw(summed(block), b"").end()).0.path, b"name");
}

#[test]
fn a_size_in_pax_counts_for_the_data() {
    let block = Fields { path: b"a", size: 0, ..Fields::default() }.block();
    let tar = Tar::new().pax(&[("size", b"5")]).raw(block, b"12345").file("b", "");
    let read = entries(&tar.end()).unwrap();
    assert_eq!((read.len(), read[0].1.as_slice()), (2, &b"12345"[..]));
}

#[test]
fn only_files_have_data_whatever_their_header_says() {
    for kind in [b'1', b'2', b'3', b'4', b'5', b'6'] {
        let block = Fields { kind, path: b"a", link: b"b", size: 4096, ..Fields::default() }.block();
        let read = entries(&Tar::new().raw(block, b"").file("b", "data").end()).unwrap();
        assert_eq!((read.len(), read[1].1.as_slice()), (2, &b"data"[..]));
    }
}

#[test]
fn sparse_files_of_gnu_have_a_map_in_their_header() {
    let gnu = |parts: &[(u64, u64)], size: u64, has_more: bool| {
        let stored = parts.iter().map(|(_, length)| length).sum();
        let mut block = Fields { kind: b'S', path: b"s", size: stored, ..Fields::default() }.block();
        block[257..265].copy_from_slice(b"ustar  \0");
        for (at, (offset, length)) in parts.iter().enumerate() {
            octal(&mut block[386 + 24 * at..398 + 24 * at], *offset);
            octal(&mut block[398 + 24 * at..410 + 24 * at], *length);
        }
        block[482] = has_more.into();
        octal(&mut block[483..495], size);
        block
    };
    let parts = [(0, 3), (10_000, 4)];
    let (entry, data) = only(&Tar::new().raw(summed(gnu(&parts, 20_000, false)), b"abcdefg").end());
    assert_eq!((entry.content, data), (Sparse { size: 20_000, parts: parts.to_vec() }, b"abcdefg".to_vec()));

    let mut more = [0; BLOCK_BYTES];
    octal(&mut more[..12], 15_000);
    octal(&mut more[12..24], 2);
    let mut block = gnu(&parts, 20_000, true);
    octal(&mut block[124..136], 9);
    let with_more = Tar::new().raw(summed(block), &[&more[..], b"abcdefgXY"].concat());
    let (entry, data) = only(&with_more.end());
    assert_eq!((entry.content.parts.len(), data.as_slice()), (3, &b"abcdefgXY"[..]));

    for (wrong, size) in
        [(vec![(10, 3), (0, 4)], 100), (vec![(0, 3), (2, 4)], 100), (vec![(90, 7), (97, 4)], 100)]
    {
        let block = summed(gnu(&wrong, size, false));
        assert_eq!(code(&Tar::new().raw(block, &[0; 11]).end()), Code::Invalid, "{wrong:?}");
    }
    let endless = (0..4000).fold(Tar::new().raw(summed(gnu(&[], 1 << 32, true)), b""), |tar, number| {
        let mut block = [0; BLOCK_BYTES];
        for part in 0..21 {
            octal(&mut block[24 * part..24 * part + 12], number * 21 + part as u64);
            octal(&mut block[24 * part + 12..24 * part + 24], 0);
        }
        block[504] = 1;
        tar.raw(block, b"")
    });
    assert_eq!(code(&endless.end()), Code::TooLarge);
}

#[test]
fn sparse_files_of_pax_have_a_map_in_either_place() {
    let old = Tar::new()
        .pax(&[("GNU.sparse.size", b"1000"), ("GNU.sparse.map", b"0,2,900,3"), ("GNU.sparse.name", b"real")])
        .file("GNUSparseFile.0/real", "abcde");
    let (entry, _) = only(&old.end());
    assert_eq!(entry.path, b"real");
    assert_eq!(entry.content, Sparse { size: 1000, parts: vec![(0, 2), (900, 3)] });
    let mut data = b"1\n900\n3\n".to_vec();
    data.resize(BLOCK_BYTES, 0);
    data.extend_from_slice(b"xyz");
    let new = Tar::new()
        .pax(&[("GNU.sparse.major", b"1"), ("GNU.sparse.minor", b"0"), ("GNU.sparse.realsize", b"1000")])
        .file("s", data)
        .file("next", "");
    let read = entries(&new.end()).unwrap();
    assert_eq!(
        (&read[0].0.content, &read[0].1[..]),
        (&Sparse { size: 1000, parts: vec![(900, 3)] }, &b"xyz"[..])
    );
    assert_eq!(read[1].0.path, b"next");
}

#[test]
fn damaged_archives_are_refused() {
    let whole = Tar::new().file("a", "data").end();
    let mut wrong_sum = whole.clone();
    wrong_sum[0] ^= 1;
    assert_eq!(code(&wrong_sum), Code::Invalid);
    for end in [1, 511, 513, 515, 600] {
        assert_eq!(code(&whole[..end]), Code::Invalid, "{end}");
    }
    let unknown = Fields { kind: b'V', path: b"a", ..Fields::default() };
    assert_eq!(code(&Tar::new().entry(unknown, b"").end()), Code::Invalid);
    let mut continued = Tar::new().file("a", "").open();
    continued.resize(continued.len() + BLOCK_BYTES, 0);
    continued.extend(Tar::new().file("b", "").end());
    assert_eq!(code(&continued), Code::Invalid);
    assert_eq!(entries(b"").unwrap().len(), 0);
    assert_eq!(entries(&Tar::new().file("a", "").open()).unwrap().len(), 1);
}

#[test]
fn extension_headers_are_bounded_and_name_no_files_for_all() {
    let long = |kind| Fields { kind, path: b"x", size: 2 << 20, ..Fields::default() }.block();
    for kind in [b'x', b'g', b'L', b'K'] {
        assert_eq!(code(&Tar::new().raw(long(kind), &[b'a'; 1024]).end()), Code::TooLarge);
    }
    let global = |key: &str| {
        let fields = Fields { kind: b'g', path: b"pax_global_header", ..Fields::default() };
        Tar::new().entry(fields, &pax_record(key, b"1")).file("a", "")
    };
    assert_eq!(only(&global("comment").end()).0.path, b"a");
    assert_eq!(code(&global("path").end()), Code::Invalid);
    let huge = Fields { path: b"a", size: 0, ..Fields::default() };
    let tar = Tar::new().pax(&[("size", b"18446744073709551615")]).entry(huge, b"");
    assert!(matches!(code(&tar.end()), Code::TooLarge | Code::Invalid));
}
