use std::fs;
use std::os::fd::AsRawFd;

use super::*;
use crate::files::faults::Code;
use crate::files::testing::Place;

const UNFINISHED: &str = ".vivarium-0123456789abcdef";

fn found(place: &Place, path: &str, pattern: &str, max_results: usize) -> Result<(Vec<String>, bool), Code> {
    let result = place.run(path, |workspace, path, pace| {
        let find = Find { path: path.clone(), glob: Glob::parse(pattern)?, max_results };
        super::find(workspace, &find, pace)
    })?;
    let root = format!("{}/", place.workspace.text());
    let below = |path: String| path.strip_prefix(&root).unwrap().to_owned();
    Ok((result.paths.into_iter().map(below).collect(), result.truncated))
}

#[test]
fn paths_are_absolute_in_byte_order_and_of_no_directories() {
    let place = Place::new();
    for name in ["a/x", "a.txt", "a-b/x", "a/.h/y", "b", "A", "ä"] {
        place.file(name, "");
    }
    place.link("link", "a");
    place.link("a/loop", "..");
    place.fifo("fifo");
    let all = ["A", "a-b/x", "a.txt", "a/.h/y", "a/loop", "a/x", "b", "fifo", "link", "ä"];
    assert_eq!(found(&place, ".", "**", 100).unwrap(), (all.map(String::from).to_vec(), false));
    let mut sorted = all;
    sorted.sort();
    assert_eq!(sorted, all);
    for (path, pattern, paths) in [
        ("a", "*", vec!["a/loop", "a/x"]),
        ("a", "**", vec!["a/.h/y", "a/loop", "a/x"]),
        (".", "a/x", vec!["a/x"]),
        (".", "link", vec!["link"]),
        (".", "a", vec![]),
        (".", "a/x/**", vec![]),
        (".", "link/x", vec![]),
        (".", "**/x", vec!["a-b/x", "a/x"]),
        (".", "a/.h/**", vec!["a/.h/y"]),
        ("link", "x", vec!["link/x"]),
        ("link", "?", vec!["link/x"]),
    ] {
        assert_eq!(found(&place, path, pattern, 100).unwrap().0, paths, "{path} {pattern}");
    }
    assert_eq!(found(&place, "b", "*", 1), Err(Code::NOT_A_DIRECTORY));
    assert_eq!(found(&place, "x", "*", 1), Err(Code::NO_SUCH_FILE));
    assert_eq!(found(&place, ".", "[", 1), Err(Code::BAD_PATTERN));
}

#[test]
fn files_that_are_being_written_are_not_found_not_even_by_their_names() {
    let place = Place::new();
    for name in [UNFINISHED, "d/.vivarium-00000000deadbeef", ".vivarium-0123", "whole"] {
        place.file(name, "");
    }
    place.file(".vivarium-fedcba9876543210/x", "");
    let all = [".vivarium-0123", ".vivarium-fedcba9876543210/x", "whole"];
    assert_eq!(found(&place, ".", "**", 100).unwrap(), (all.map(String::from).to_vec(), false));
    for pattern in [UNFINISHED, ".vivarium-????????????????", "d/.vivarium-00000000deadbeef"] {
        assert_eq!(found(&place, ".", pattern, 100).unwrap().0, [""; 0], "{pattern}");
    }
}

#[test]
fn the_results_end_at_their_number_and_say_whether_there_were_more() {
    let place = Place::new();
    for name in ["1", "2", "3"] {
        place.file(name, "");
    }
    place.directory("zzz");
    assert_eq!(found(&place, ".", "*", 3).unwrap(), (vec!["1".into(), "2".into(), "3".into()], false));
    assert_eq!(found(&place, ".", "*", 2).unwrap(), (vec!["1".into(), "2".into()], true));
}

#[test]
fn the_walk_ends_after_ten_thousand_files_but_goes_straight_to_a_plain_path() {
    let place = Place::new();
    let many = place.directory("many");
    for n in 0..10_000 {
        fs::write(many.join(format!("{n:05}")), "").unwrap();
    }
    assert_eq!(found(&place, ".", "**/09999", 10).unwrap(), (vec!["many/09999".into()], false));
    place.file("z/last", "");
    assert_eq!(found(&place, ".", "**/last", 10).unwrap(), (vec![], true));
    assert_eq!(found(&place, ".", "z/last", 10).unwrap(), (vec!["z/last".into()], false));
    assert_eq!(found(&place, ".", "z/*", 10).unwrap(), (vec!["z/last".into()], false));
    assert_eq!(found(&place, ".", "z*/last", 10).unwrap(), (vec!["z/last".into()], false));
}

#[test]
fn trees_too_deep_for_a_path_are_left_out() {
    let place = Place::new();
    place.file("a", "");
    let mut directory = fs::File::open(place.directory("d")).unwrap();
    for _ in 0..2500 {
        rustix::fs::mkdirat(&directory, "d", rustix::fs::Mode::from_raw_mode(0o777)).unwrap();
        let below = rustix::fs::openat(&directory, "d", READ_DIRECTORY, rustix::fs::Mode::empty());
        directory = below.unwrap().into();
        directory.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    }
    raise_open_files();
    assert_eq!(found(&place, ".", "**", 10).unwrap(), (vec!["a".into()], true));
    let below = place.workspace.text().len() + 1;
    let deepest = "d/".repeat((4096 - below - 1) / 2);
    let held = open::existing(&place.workspace, &place.parse(&deepest)).unwrap();
    for name in ["f", "too-long"] {
        fs::write(format!("/proc/self/fd/{}/{name}", held.fd.as_raw_fd()), "").unwrap();
    }
    let paths = found(&place, &deepest, "*", 10).unwrap().0;
    assert_eq!(paths, [deepest.clone() + "f"]);
    assert_eq!(found(&place, &deepest, "too-long", 10).unwrap().0, [""; 0]);
    place
        .run("d", |workspace, path, pace| crate::files::delete::delete(workspace, path, true, pace))
        .unwrap();
}

fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
}
