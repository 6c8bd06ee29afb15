use std::fs;

use super::*;
use crate::files::testing::{Place, pace};

fn plain(path: &Path, pattern: &str) -> Grep {
    Grep {
        path: path.clone(),
        pattern: pattern.to_owned(),
        is_case_sensitive: false,
        file_pattern: None,
        exclude_dirs: vec![],
        context_lines: 0,
        max_results: 1000,
    }
}

fn with(
    place: &Place,
    path: &str,
    pattern: &str,
    change: impl FnOnce(&mut Grep),
) -> Result<(Vec<String>, u64, bool), Code> {
    let result = place.run(path, |workspace, path, pace| {
        let mut grep = plain(path, pattern);
        change(&mut grep);
        super::grep(workspace, &grep, pace)
    })?;
    let root = format!("{}/", place.workspace.text());
    let shown = |found: &GrepMatch| {
        format!("{}:{}:{}", found.path.strip_prefix(&root).unwrap(), found.line_number, found.line)
    };
    Ok((result.matches.iter().map(shown).collect(), result.files_searched, result.truncated))
}

fn lines(place: &Place, path: &str, pattern: &str) -> Vec<String> {
    with(place, path, pattern, |_| {}).unwrap().0
}

#[test]
fn lines_come_in_the_order_of_paths_and_lines() {
    let place = Place::new();
    place.file("b/c", "x\nFoo\nfoo");
    place.file("b.txt", "foo 1\nbar\n");
    place.file(".h/f", "foo");
    place.link("link", "b.txt");
    place.link("b/loop", "..");
    place.fifo("fifo");
    place.device("device");
    let all = [".h/f:1:foo", "b.txt:1:foo 1", "b/c:2:Foo", "b/c:3:foo"];
    assert_eq!(with(&place, ".", "fo+", |_| {}).unwrap(), (all.map(String::from).to_vec(), 3, false));
    assert_eq!(with(&place, ".", "Foo", |grep| grep.is_case_sensitive = true).unwrap().0, ["b/c:2:Foo"]);
    assert_eq!(lines(&place, "b.txt", "foo"), ["b.txt:1:foo 1"]);
    assert_eq!(lines(&place, "link", "foo"), ["link:1:foo 1"]);
    assert_eq!(with(&place, "fifo", "foo", |_| {}), Err(Code::NOT_A_REGULAR_FILE));
    assert_eq!(with(&place, "x", "foo", |_| {}), Err(Code::NO_SUCH_FILE));
    assert_eq!(with(&place, ".", "(", |_| {}), Err(Code::BAD_PATTERN));
}

#[test]
fn files_that_are_being_written_are_not_searched() {
    let place = Place::new();
    for name in [".vivarium-0123456789abcdef", "d/.vivarium-00000000deadbeef", ".vivarium-x", "whole"] {
        place.file(name, "foo");
    }
    let whole = [".vivarium-x:1:foo", "whole:1:foo"].map(String::from).to_vec();
    assert_eq!(with(&place, ".", "foo", |_| {}).unwrap(), (whole, 2, false));
}

#[test]
fn files_and_directories_are_chosen_by_their_names() {
    let place = Place::new();
    for name in ["a.rs", "a.txt", "target/b.rs", "x/target/c.rs", "x/d.rs", "xtarget/e.rs"] {
        place.file(name, "foo");
    }
    let chosen = |grep: &mut Grep| {
        grep.file_pattern = Some(base_names("*.rs").unwrap());
        grep.exclude_dirs = directories(" target,node_modules,");
    };
    let found = with(&place, ".", "foo", chosen).unwrap();
    assert_eq!(
        found,
        (["a.rs:1:foo", "x/d.rs:1:foo", "xtarget/e.rs:1:foo"].map(String::from).to_vec(), 3, false)
    );
    assert!(base_names("a/b").is_err());
}

#[test]
fn binary_and_unreadable_files_are_passed_over() {
    let place = Place::new();
    place.file("binary", b"foo\0");
    place.file("text", "foo");
    fs::write(place.path("roots"), "foo").unwrap();
    fs::set_permissions(place.path("roots"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(with(&place, ".", "foo", |_| {}).unwrap(), (vec!["text:1:foo".into()], 1, false));
    assert_eq!(with(&place, "roots", "foo", |_| {}), Err(Code::PERMISSION_DENIED));
    assert_eq!(with(&place, "binary", "foo", |_| {}).unwrap(), (vec![], 0, false));
}

#[test]
fn the_number_of_results_counts_files() {
    let place = Place::new();
    for name in ["1", "2", "3"] {
        place.file(name, "foo\nfoo\n");
    }
    place.file("4", "bar");
    let at_most = |count| with(&place, ".", "foo", |grep| grep.max_results = count).unwrap();
    assert_eq!((at_most(3).0.len(), at_most(3).2), (6, false));
    assert_eq!((at_most(2).0.len(), at_most(2).2), (4, true));
}

#[test]
fn lines_around_are_there_only_if_asked() {
    let place = Place::new();
    place.file("f", "1\n2\nfoo\n4\n");
    let result = |context_lines| {
        let text = place.run(".", |workspace, path, pace| {
            let grep = Grep { context_lines, ..plain(path, "foo") };
            Ok(serde_json::to_value(super::grep(workspace, &grep, pace)?.matches).unwrap())
        });
        let mut found = text.unwrap()[0].clone();
        found.as_object_mut().unwrap().remove("path");
        found
    };
    assert_eq!(result(0), serde_json::json!({ "line_number": 3, "line": "foo" }));
    let around = serde_json::json!({ "line_number": 3, "line": "foo", "before": ["1", "2"], "after": ["4"] });
    assert_eq!(result(10), around);
}

#[test]
fn ten_thousand_files_are_searched_and_no_more() {
    let place = Place::new();
    for directory in ["a", "b"] {
        let directory = place.directory(directory);
        (0..5000).for_each(|n| fs::write(directory.join(n.to_string()), "x").unwrap());
    }
    assert_eq!(with(&place, ".", "foo", |_| {}).unwrap(), (vec![], 10_000, false));
    place.file("c", "foo");
    assert_eq!(with(&place, ".", "foo", |_| {}).unwrap(), (vec![], 10_000, true));
}

/// A gigabyte without a newline, most of it never read, and what was found before it.
#[test]
fn a_quarter_of_a_gigabyte_is_read_and_no_more() {
    let place = Place::new();
    place.file("a", "foo");
    let huge = place.file("b", "foo ".repeat(4096));
    fs::File::options().write(true).open(&huge).unwrap().set_len(1 << 30).unwrap();
    place.file("c", "foo");
    let (found, files, truncated) = with(&place, ".", "foo", |_| {}).unwrap();
    assert_eq!((found.len(), files, truncated), (2, 2, true));
    assert!(found[1].len() <= 4096 + "b:1:".len());
}

#[test]
fn answers_end_at_eight_mebibytes() {
    let place = Place::new();
    place.file("a", (String::from("foo") + &"\u{1}".repeat(1000) + "\n").repeat(3000));
    let result =
        place.run(".", |workspace, path, pace| super::grep(workspace, &plain(path, "foo"), pace)).unwrap();
    assert!(result.truncated);
    let bytes = serde_json::to_vec(&result.matches).unwrap().len();
    assert!((7 << 20..8 << 20).contains(&bytes), "{bytes}");
}

#[test]
fn a_search_ends_when_its_time_is_up() {
    let place = Place::new();
    place.file("a", "foo");
    let over = Pace::new(std::time::Duration::ZERO);
    let grep = plain(&place.parse("."), "foo");
    assert!(super::grep(&place.workspace, &grep, &over).unwrap().truncated);
    assert!(!super::grep(&place.workspace, &grep, &pace()).unwrap().truncated);
}

#[test]
fn parameters_have_their_defaults_and_caps() {
    let workspace = Workspace::of_machine();
    let parse = |query: &str| Grep::parse(&workspace, &Query::parse(query));
    let grep = parse("path=/workspace&pattern=a").unwrap();
    assert!((grep.max_results, grep.context_lines, grep.is_case_sensitive) == (1000, 0, false));
    let grep = parse("path=a&pattern=b&max_results=20000&context_lines=99&case_sensitive=true").unwrap();
    assert!((grep.max_results, grep.context_lines, grep.is_case_sensitive) == (10_000, 10, true));
    for wrong in
        ["path=a", "pattern=b", "path=a&pattern=b&max_results=0", "path=a&pattern=b&file_pattern=a/b"]
    {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
}
