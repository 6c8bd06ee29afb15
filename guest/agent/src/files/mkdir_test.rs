use super::*;
use crate::files::faults::Code;
use crate::files::testing::{Place, names_in, owner_and_mode};
use crate::users;

fn make(place: &Place, path: &str) -> Result<(), Code> {
    place.run(path, |workspace, path, _| mkdir(workspace, path)).map(drop)
}

#[test]
fn directories_are_made_with_those_above_and_belong_to_the_user() {
    let place = Place::new();
    make(&place, "a/b/c").unwrap();
    for path in ["a", "a/b", "a/b/c"] {
        assert_eq!(owner_and_mode(&place.path(path)), (users::uid(), users::gid(), 0o755));
    }
}

#[test]
fn one_that_is_there_is_fine_and_a_file_is_not() {
    let place = Place::new();
    place.directory("d");
    place.link("to-d", "d");
    place.file("f", "");
    for path in ["d", "d/", "to-d", ".", place.workspace.text()] {
        assert_eq!(make(&place, path), Ok(()), "{path}");
    }
    place.fifo("fifo");
    assert_eq!(make(&place, "f"), Err(Code::FILE_EXISTS));
    assert_eq!(make(&place, "fifo"), Err(Code::FILE_EXISTS));
    assert_eq!(make(&place, "f/d"), Err(Code::PARENT_NOT_A_DIRECTORY));
    make(&place, "to-d/x").unwrap();
    assert!(place.path("d/x").is_dir());
}

#[test]
fn nothing_is_left_of_a_directory_that_cannot_be_made() {
    let place = Place::new();
    std::fs::create_dir(place.path("roots")).unwrap();
    assert_eq!(make(&place, "roots/a/b"), Err(Code::PERMISSION_DENIED));
    assert_eq!(names_in(&place.path("roots")), [""; 0]);
    assert_eq!(make(&place, &format!("a/{}", "n".repeat(256))), Err(Code::BAD_PATH));
    assert!(!place.path("a").exists());
}
