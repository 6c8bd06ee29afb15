//! Hostile and ordinary entries, each put into a root that has something beside it.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::build::fault::Code;
use crate::build::testing::{Fields, Place, Tar};

fn entry<'a>(kind: u8, path: &'a str) -> Fields<'a> {
    Fields { kind, path: path.as_bytes(), ..Fields::default() }
}

#[test]
fn files_directories_and_links_have_their_owner_mode_and_time() {
    let place = Place::new();
    let owned =
        |kind, path, mode| Fields { uid: 1234, gid: 5678, mode, mtime: 1_111_111_111, ..entry(kind, path) };
    let tar = Tar::new()
        .entry(owned(b'5', "bin/", 0o2750), b"")
        .entry(owned(b'0', "bin/su", 0o4755), b"program")
        .entry(Fields { link: b"/bin/su", ..owned(b'2', "su", 0o777) }, b"");
    let totals = place.unpack([tar]).unwrap();
    assert_eq!((totals.entries, totals.inodes, totals.bytes, totals.skipped), (3, 3, 7, 0));
    assert_eq!(place.text("bin/su"), "program");
    assert_eq!((place.mode("bin"), place.mode("bin/su")), (0o2750, 0o4755));
    assert_eq!(fs::read_link(place.path("su")).unwrap().to_str(), Some("/bin/su"));
    for name in ["bin", "bin/su", "su"] {
        let meta = fs::symlink_metadata(place.path(name)).unwrap();
        assert_eq!((meta.uid(), meta.gid(), meta.mtime()), (1234, 5678, 1_111_111_111), "{name}");
    }
}

#[test]
fn absolute_paths_stay_inside_and_climbing_ones_are_refused() {
    let place = Place::new();
    let file = format!("{}/file", place.outside().display());
    place.unpack([Tar::new().file(&file, "inside")]).unwrap();
    assert_eq!(place.text(file.trim_start_matches('/')), "inside");
    place.assert_outside_is_whole();
    for path in ["../outside/file", "a/../../outside/file", "/../outside/file", ".."] {
        assert_eq!(place.refusal([Tar::new().file(path, "x")]), Code::Invalid, "{path}");
    }
    assert_eq!(place.refusal([Tar::new().symbolic_link("../outside/link", "x")]), Code::Invalid);
    assert_eq!(place.refusal([Tar::new().directory("../outside/directory")]), Code::Invalid);
    assert_eq!(place.refusal([Tar::new().file("../.wh.outside", "")]), Code::Invalid);
}

#[test]
fn links_that_lead_outside_lead_nowhere() {
    let place = Place::new();
    let outside = place.outside();
    let climbing = "../".repeat(30) + outside.to_str().unwrap();
    let tar = Tar::new()
        .symbolic_link("absolute", outside.to_str().unwrap())
        .file("absolute/file", "1")
        .symbolic_link("climbing", &climbing)
        .file("climbing/file", "2")
        .symbolic_link("up", "../../..")
        .file("up/at-the-root", "3")
        .symbolic_link("loop", "loop")
        .file("loop/file", "4");
    place.unpack([tar]).unwrap();
    place.assert_outside_is_whole();
    assert_eq!((place.text("absolute/file"), place.text("climbing/file")), ("1".into(), "2".into()));
    assert_eq!((place.text("at-the-root"), place.text("loop/file")), ("3".into(), "4".into()));
}

#[test]
fn a_file_is_never_written_through_a_link() {
    let place = Place::new();
    let outside = place.outside().join("file");
    let tar = Tar::new()
        .symbolic_link("link", outside.to_str().unwrap())
        .file("link", "new")
        .file("real", "real")
        .symbolic_link("inner", "real")
        .file("inner", "inner");
    place.unpack([tar]).unwrap();
    place.assert_outside_is_whole();
    assert_eq!(
        (place.text("link"), place.text("real"), place.text("inner")),
        ("new".into(), "real".into(), "inner".into())
    );
}

#[test]
fn links_of_lower_layers_to_directories_are_followed_inside() {
    let place = Place::new();
    let lower =
        Tar::new().directory("usr/lib").symbolic_link("lib", "usr/lib").symbolic_link("abs", "/usr/lib");
    let upper = Tar::new().file("lib/a.so", "a").file("abs/b.so", "b");
    place.unpack([lower, upper]).unwrap();
    assert_eq!(place.tree(), ["abs", "lib", "usr/", "usr/lib/", "usr/lib/a.so", "usr/lib/b.so"]);
}

#[test]
fn what_is_in_the_place_of_a_parent_is_replaced_by_a_directory() {
    let place = Place::new();
    let lower = Tar::new().file("file", "x").symbolic_link("dangling", "nowhere");
    place.unpack([lower, Tar::new().file("file/below", "1").file("dangling/below", "2")]).unwrap();
    assert_eq!(place.tree(), ["dangling/", "dangling/below", "file/", "file/below"]);
    assert_eq!(place.mode("file"), 0o755);
}

#[test]
fn an_object_replaces_any_other_of_its_name() {
    let place = Place::new();
    let lower = Tar::new()
        .file("file", "old")
        .hard_link("second", "file")
        .file("directory/deep/file", "old")
        .symbolic_link("link", "directory");
    let upper = Tar::new().file("file", "new").file("directory", "a file").directory("link");
    place.unpack([lower, upper]).unwrap();
    assert_eq!(place.tree(), ["directory", "file", "link/", "second"]);
    assert_eq!((place.text("file"), place.text("second")), ("new".into(), "old".into()));
    place.unpack([Tar::new().directory("file").symbolic_link("link", "file")]).unwrap();
    assert_eq!(place.tree(), ["directory", "file/", "link", "second"]);
}

#[test]
fn a_hard_link_shares_a_file_of_the_image() {
    let place = Place::new();
    let lower = Tar::new().file("a", "text").symbolic_link("s", "/a").directory("d").symbolic_link("e", "d");
    let upper = Tar::new()
        .hard_link("b", "a")
        .hard_link("c", "/a")
        .hard_link("d/s", "s")
        .hard_link("f", "e/s")
        .hard_link("a", "a");
    place.unpack([lower, upper]).unwrap();
    assert_eq!((place.inode("b"), place.inode("c")), (place.inode("a"), place.inode("a")));
    assert_eq!((place.inode("d/s"), place.inode("f")), (place.inode("s"), place.inode("s")));
}

#[test]
fn a_hard_link_to_anything_else_is_refused() {
    let place = Place::new();
    let outside = place.outside().join("file");
    let outside = outside.to_str().unwrap();
    for (case, tar) in [
        ("outside, absolute", Tar::new().hard_link("b", outside)),
        ("outside, climbing", Tar::new().hard_link("b", "../outside/file")),
        ("through a link", Tar::new().symbolic_link("up", "../outside").hard_link("b", "up/file")),
        ("missing", Tar::new().hard_link("b", "missing")),
        ("a directory", Tar::new().directory("d").hard_link("b", "d")),
        ("the root", Tar::new().hard_link("b", "/")),
        ("nothing", Tar::new().hard_link("b", "")),
        ("what it replaces", Tar::new().file("d/f", "x").hard_link("d", "d/f")),
    ] {
        assert_eq!(place.refusal([tar]), Code::Invalid, "{case}");
    }
    // A link with this target is one of the image, as the text of any link.
    place.unpack([Tar::new().symbolic_link("s", outside).hard_link("t", "s")]).unwrap();
    assert_eq!(fs::metadata(outside).unwrap().nlink(), 1);
}

#[test]
fn a_whiteout_removes_what_lower_layers_have_made() {
    let place = Place::new();
    let lower = Tar::new().file("keep", "k").file("gone", "g").file("d/a/b", "x").symbolic_link("s", "d/a");
    let upper = Tar::new()
        .file(".wh.gone", "")
        .file("d/.wh.a", "")
        .file(".wh.never-was", "")
        .file("no/such/.wh.x", "");
    place.unpack([lower, upper]).unwrap();
    assert_eq!(place.tree(), ["d/", "keep", "s"]);
}

#[test]
fn a_whiteout_removes_nothing_that_its_own_layer_brings() {
    for is_first in [true, false] {
        let place = Place::new();
        let lower = Tar::new().file("f", "old").file("d/old", "old").file("d/both", "old");
        let whiteouts = |tar: Tar| tar.file(".wh.f", "").file(".wh.d", "");
        let things = |tar: Tar| tar.file("f", "new").file("d/both", "new").file("d/e/new", "new");
        let upper = if is_first { things(whiteouts(Tar::new())) } else { whiteouts(things(Tar::new())) };
        place.unpack([lower, upper]).unwrap();
        assert_eq!(place.tree(), ["d/", "d/both", "d/e/", "d/e/new", "f"], "first: {is_first}");
        assert_eq!((place.text("f"), place.text("d/both")), ("new".into(), "new".into()));
        // For the next layer they are all lower ones.
        place.unpack([Tar::new().file(".wh.d", "").file("g", "")]).unwrap();
        assert_eq!(place.tree(), ["f", "g"]);
    }
}

#[test]
fn an_opaque_directory_keeps_only_what_its_own_layer_brings() {
    for is_first in [true, false] {
        let place = Place::new();
        let lower = Tar::new().file("d/old", "old").file("d/e/old", "old").symbolic_link("l", "d");
        let opaque = |tar: Tar| tar.file("l/.wh..wh..opq", "");
        let things = |tar: Tar| tar.file("d/new", "new").file("d/e/new", "new");
        let upper = if is_first { things(opaque(Tar::new())) } else { opaque(things(Tar::new())) };
        place.unpack([lower, upper]).unwrap();
        assert_eq!(place.tree(), ["d/", "d/e/", "d/e/new", "d/new", "l"], "first: {is_first}");
    }
}

#[test]
fn a_whiteout_follows_no_link_out_of_the_image() {
    let place = Place::new();
    let outside = place.outside();
    let lower = Tar::new()
        .symbolic_link("link", outside.to_str().unwrap())
        .symbolic_link("up", "../outside")
        .symbolic_link("d/link", outside.to_str().unwrap())
        .file("stays", "");
    let upper = Tar::new()
        .file("link/.wh.file", "")
        .file("up/.wh.file", "")
        .file("up/.wh..wh..opq", "")
        .file(".wh.d", "")
        .file(".wh.link", "");
    place.unpack([lower, upper]).unwrap();
    place.assert_outside_is_whole();
    assert_eq!(place.tree(), ["stays", "up"]);
    for name in [".wh.", ".wh..", ".wh...", "d/.wh..", "d/.wh..."] {
        assert_eq!(place.refusal([Tar::new().file(name, "")]), Code::Invalid, "{name}");
    }
}

#[test]
fn devices_and_fifos_are_left_out_and_counted() {
    let place = Place::new();
    let tar = Tar::new()
        .entry(entry(b'3', "dev/mem"), b"")
        .entry(entry(b'4', "dev/sda"), b"")
        .entry(entry(b'6', "dev/fifo"), b"")
        .file("file", "");
    assert_eq!(place.unpack([tar]).unwrap().skipped, 3);
    assert_eq!(place.tree(), ["file"]);
}

#[test]
fn the_root_takes_an_owner_and_a_mode_and_is_a_directory() {
    let place = Place::new();
    let root = Fields { mode: 0o711, uid: 7, ..entry(b'5', "./") };
    place.unpack([Tar::new().entry(root, b"").file("./file", "")]).unwrap();
    assert_eq!((place.mode(""), fs::metadata(place.root()).unwrap().uid()), (0o711, 7));
    for kind in [b'2', b'1', b'7'] {
        assert_eq!(
            place.refusal([Tar::new().entry(Fields { link: b"file", ..entry(kind, ".") }, b"")]),
            Code::Invalid
        );
    }
}

#[test]
fn names_and_links_that_no_file_system_takes_are_refused() {
    let place = Place::new();
    let long = "n".repeat(256);
    let nul = [("path", &b"a\0b"[..])];
    for (case, tar) in [
        ("a long name", Tar::new().pax(&[("path", long.as_bytes())]).file("x", "")),
        ("a NUL", Tar::new().pax(&nul).file("x", "")),
        ("a NUL in a link", Tar::new().pax(&[("linkpath", b"a\0b")]).symbolic_link("x", "y")),
        ("an empty link", Tar::new().symbolic_link("x", "")),
        ("a long link", Tar::new().pax(&[("linkpath", &[b'a'; 4096])]).symbolic_link("x", "y")),
        ("no name", Tar::new().file("", "")),
        ("no owner", Tar::new().pax(&[("uid", b"4294967295")]).file("x", "")),
        ("a long attribute", Tar::new().pax(&[("SCHILY.xattr.user.x", &[b'a'; 70_000])]).file("x", "")),
    ] {
        assert_eq!(place.refusal([tar]), Code::Invalid, "{case}");
    }
    let deep = "d/".repeat(257);
    assert_eq!(place.refusal([Tar::new().pax(&[("path", deep.as_bytes())]).file("x", "")]), Code::TooLarge);
}

#[test]
fn bytes_files_and_names_have_limits() {
    let mut place = Place::new();
    place.limits.bytes = 10;
    assert_eq!(
        place.refusal([Tar::new().file("a", "123456"), Tar::new().file("b", "12345")]),
        Code::TooLarge
    );
    place.unpack([Tar::new().file("a", "123456"), Tar::new().file("b", "1234")]).unwrap();
    place.limits.inodes = 3;
    let many = |count: usize| (0..count).fold(Tar::new(), |tar, number| tar.file(&number.to_string(), ""));
    place.unpack([many(3)]).unwrap();
    assert_eq!(place.refusal([many(4)]), Code::TooLarge);
    place.limits.inodes = 1000;
    place.limits.names = 3;
    place.unpack([many(3), many(3)]).unwrap();
    assert_eq!(place.refusal([many(4)]), Code::TooLarge);
    assert_eq!(place.refusal([Tar::new().file("1/2/3/4", "")]), Code::TooLarge);
    let roots = |count: usize| (0..count).fold(Tar::new().file("a", ""), |tar, _| tar.directory("./"));
    place.unpack([roots(2)]).unwrap();
    assert_eq!(place.refusal([roots(3)]), Code::TooLarge);
}

#[test]
fn directories_that_links_nest_deeper_than_any_path_are_removed_up_to_a_depth() {
    let deep = "d/".repeat(250);
    let nest = |times: usize| {
        let links =
            (1..times).fold(Tar::new().pax(&[("path", deep.as_bytes())]).directory("x"), |tar, time| {
                let (link, target) = (format!("l{time}"), format!("l{}/{deep}", time - 1));
                let target = if time == 1 { deep.clone() } else { target };
                let below = format!("{link}/{deep}");
                tar.pax(&[("linkpath", target.as_bytes())])
                    .symbolic_link(&link, "")
                    .pax(&[("path", below.as_bytes())])
                    .directory("x")
            });
        links.file("file", "")
    };
    let place = Place::new();
    place.unpack([nest(2), Tar::new().file(".wh.d", "")]).unwrap();
    assert!(!place.path("d").exists());
    let place = Place::new();
    assert_eq!(place.refusal([nest(3), Tar::new().file(".wh.d", "")]), Code::TooLarge);
}
