use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use super::*;
use crate::files::faults::Code;
use crate::files::testing::Place;

fn entries(place: &Place, path: &str) -> Result<Vec<String>, Code> {
    let list = place.run(path, list)?;
    assert!(!list.truncated);
    Ok(list.entries)
}

#[test]
fn names_are_in_byte_order_and_directories_end_in_a_slash() {
    let place = Place::new();
    for name in [".hidden", "B", "a", "a.b", "ä", "-rf", "new\nline"] {
        place.file(name, "");
    }
    place.directory("a-d");
    place.directory(".git");
    place.link("to-d", "a-d");
    place.link("to-root", "/");
    place.link("to-f", "a");
    place.link("to-nothing", "nothing");
    place.fifo("fifo");
    let expected = [
        "-rf",
        ".git/",
        ".hidden",
        "B",
        "a",
        "a-d/",
        "a.b",
        "fifo",
        "new\nline",
        "to-d/",
        "to-f",
        "to-nothing",
        "to-root/",
        "ä",
    ];
    assert_eq!(entries(&place, ".").unwrap(), expected);
    assert_eq!(entries(&place, "to-d").unwrap(), [""; 0]);
    assert_eq!(entries(&place, "a"), Err(Code::NOT_A_DIRECTORY));
    assert_eq!(entries(&place, "fifo"), Err(Code::NOT_A_DIRECTORY));
    assert_eq!(entries(&place, "to-root"), Err(Code::OUTSIDE_WORKSPACE));
}

#[test]
fn files_that_are_being_written_are_not_listed() {
    let place = Place::new();
    for name in [".vivarium-0123456789abcdef", ".vivarium-0123456789abcdeF", "whole"] {
        place.file(name, "");
    }
    place.directory(".vivarium-fedcba9876543210");
    let expected = [".vivarium-0123456789abcdeF", ".vivarium-fedcba9876543210/", "whole"];
    assert_eq!(entries(&place, ".").unwrap(), expected);
}

#[test]
fn whatever_is_listed_can_be_asked_for() {
    let place = Place::new();
    let names: [&[u8]; 4] = [b"a\xff", b"\\xff", b"caf\xc3\xa9", &[0xfe; 255]];
    for name in names {
        let directory = place.path("").join(OsStr::from_bytes(name));
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("inside"), "").unwrap();
    }
    let listed = entries(&place, ".").unwrap();
    assert_eq!(listed.len(), names.len());
    for name in listed {
        assert_eq!(entries(&place, &name).unwrap(), ["inside"], "{name}");
    }
}

#[test]
fn a_directory_that_the_user_may_not_read_is_refused() {
    let place = Place::new();
    fs::create_dir(place.path("roots")).unwrap();
    fs::set_permissions(place.path("roots"), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    assert_eq!(entries(&place, "roots"), Err(Code::PERMISSION_DENIED));
    assert_eq!(entries(&place, "roots/x"), Err(Code::PERMISSION_DENIED));
}

#[test]
fn a_hundred_thousand_names_are_listed_and_no_more() {
    let place = Place::new();
    let directory = place.directory("many");
    for n in (0..100_000).rev() {
        rustix::fs::mknodat(
            rustix::fs::CWD,
            directory.join(format!("{n:06}")),
            FileType::RegularFile,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
    }
    assert_eq!(entries(&place, "many").unwrap().len(), 100_000);
    fs::write(directory.join("000000a"), "").unwrap();
    let list = place.run("many", list).unwrap();
    assert!(list.truncated);
    assert_eq!(list.entries.len(), 100_000);
    assert_eq!((list.entries[1].as_str(), list.entries[99_999].as_str()), ("000000a", "099998"));
}
