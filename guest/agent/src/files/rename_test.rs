use std::fs;

use super::*;
use crate::files::faults::Code;
use crate::files::testing::{Place, names_in};

fn move_to(place: &Place, path: &str, dest: &str) -> Result<(), Code> {
    let dest = Path::parse(&place.workspace, dest).map_err(|fault| fault.code)?;
    let fault = |misfit| match misfit {
        Misfit::Path(fault) | Misfit::Dest(fault) => fault,
    };
    place.run(path, |workspace, path, _| rename(workspace, path, &dest).map_err(fault)).map(drop)
}

#[test]
fn files_and_directories_move_and_parents_are_made() {
    let place = Place::new();
    place.file("f", "new");
    place.file("old", "old");
    place.file("d/x", "");
    move_to(&place, "f", "a/b/f").unwrap();
    move_to(&place, "a/b/f", "old").unwrap();
    move_to(&place, "d", "a/d").unwrap();
    assert_eq!(fs::read(place.path("old")).unwrap(), b"new");
    assert_eq!(names_in(&place.workspace.path), ["a", "old"]);
    assert_eq!(names_in(&place.path("a")), ["b", "d"]);
}

#[test]
fn a_link_moves_itself_and_is_replaced_itself() {
    let place = Place::new();
    place.file("d/f", "kept");
    place.link("l", "d/f");
    move_to(&place, "l", "l2").unwrap();
    assert!(place.path("l2").is_symlink() && place.path("d/f").exists());
    place.file("g", "");
    move_to(&place, "g", "l2").unwrap();
    assert!(!place.path("l2").is_symlink());
    assert_eq!(fs::read(place.path("d/f")).unwrap(), b"kept");
}

#[test]
fn each_reason_against_a_rename_has_its_code() {
    let place = Place::new();
    place.file("f", "");
    place.file("full/x", "");
    place.directory("empty");
    place.directory("d");
    place.link("out", "/tmp");
    for (path, dest, code) in [
        ("d", "full", Code::DIRECTORY_NOT_EMPTY),
        ("f", "full", Code::DIRECTORY_NOT_EMPTY),
        ("d", "f", Code::NOT_A_DIRECTORY),
        ("f", "d", Code::IS_A_DIRECTORY),
        ("full", "full/x/y", Code::PARENT_NOT_A_DIRECTORY),
        ("full", "full/y", Code::BAD_PATH),
        ("missing", "new/x", Code::NO_SUCH_FILE),
        ("f/x", "y", Code::PARENT_NOT_A_DIRECTORY),
        (".", "x", Code::WORKSPACE_ROOT),
        ("f", ".", Code::WORKSPACE_ROOT),
        ("f", "out/x", Code::OUTSIDE_WORKSPACE),
        ("out/x", "f", Code::OUTSIDE_WORKSPACE),
        ("f", "../x", Code::OUTSIDE_WORKSPACE),
    ] {
        assert_eq!(move_to(&place, path, dest), Err(code), "{path} to {dest}");
    }
    assert!(!place.path("new").exists());
    move_to(&place, "d", "empty").unwrap();
    move_to(&place, "f", "f").unwrap();
    assert_eq!(names_in(&place.workspace.path), ["empty", "f", "full", "out"]);
}
