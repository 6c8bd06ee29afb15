use std::fs;

use super::*;
use crate::files::faults::Code;
use crate::files::testing::Place;

fn matched(place: &Place, pattern: &str, max_results: usize) -> Result<(Vec<(String, u64)>, bool), Code> {
    let result = place.run(".", |workspace, _, pace| {
        match_files(workspace, &Match { glob: Glob::parse(pattern)?, max_results }, pace)
    })?;
    Ok((result.files.into_iter().map(|file| (file.path, file.bytes)).collect(), result.truncated))
}

fn names(place: &Place, pattern: &str) -> Vec<String> {
    matched(place, pattern, 100).unwrap().0.into_iter().map(|(path, _)| path).collect()
}

#[test]
fn files_have_their_path_below_the_workspace_and_their_size() {
    let place = Place::new();
    place.file("out/a.txt", "12345");
    place.file("out/deep/er/b.txt", "");
    place.file("c.txt", "1");
    let all = [("c.txt", 1), ("out/a.txt", 5), ("out/deep/er/b.txt", 0)]
        .map(|(name, bytes)| (name.to_owned(), bytes));
    assert_eq!(matched(&place, "**", 100).unwrap(), (all.to_vec(), false));
    for (pattern, paths) in [
        ("out/**", vec!["out/a.txt", "out/deep/er/b.txt"]),
        ("out/*.txt", vec!["out/a.txt"]),
        ("out/a.txt", vec!["out/a.txt"]),
        ("**/[ab].txt", vec!["out/a.txt", "out/deep/er/b.txt"]),
        ("out/deep/**/b.???", vec!["out/deep/er/b.txt"]),
        ("out", vec![]),
        ("none/**", vec![]),
        ("c.txt/**", vec![]),
    ] {
        assert_eq!(names(&place, pattern), paths, "{pattern}");
    }
    assert_eq!(matched(&place, "[", 1), Err(Code::BAD_PATTERN));
}

#[test]
fn links_devices_and_unfinished_files_are_left_out() {
    let place = Place::new();
    place.file("d/f", "");
    place.link("link", "d/f");
    place.link("etc", "/etc");
    place.link("d/up", "..");
    place.fifo("fifo");
    place.device("zero");
    place.file(".vivarium-0123456789abcdef", "");
    for pattern in ["**", "*/*", "d/*"] {
        assert_eq!(names(&place, pattern), ["d/f"], "{pattern}");
    }
    for pattern in ["link", "etc/passwd", "etc/**", "d/up/d/f", "fifo", "zero", ".vivarium-0123456789abcdef"]
    {
        assert_eq!(names(&place, pattern), [""; 0], "{pattern}");
    }
}

#[test]
fn names_with_dots_stay_below_the_workspace() {
    let place = Place::new();
    fs::write(place.outside.path().join("x"), "").unwrap();
    for pattern in ["../x", "../*", "a/../../x", "**/../x"] {
        assert_eq!(names(&place, pattern), [""; 0], "{pattern}");
    }
}

#[test]
fn a_sparse_file_has_the_size_that_a_reader_would_get() {
    let place = Place::new();
    fs::File::create(place.file("sparse", "")).unwrap().set_len(1 << 40).unwrap();
    assert_eq!(matched(&place, "*", 10).unwrap().0, [("sparse".to_owned(), 1 << 40)]);
}

#[test]
fn the_files_end_at_their_number_and_say_that_there_were_more() {
    let place = Place::new();
    for name in ["1", "2", "3"] {
        place.file(name, "");
    }
    assert!(!matched(&place, "*", 3).unwrap().1);
    assert_eq!(matched(&place, "*", 2).unwrap(), (vec![("1".into(), 0), ("2".into(), 0)], true));
}
