//! Queries, paths, globs and patterns that nearly fit.

use super::faults::Code;
use super::find::Find;
use super::grep::Grep;
use super::names;
use super::paths::{PATH_BYTES, Path, Workspace};
use super::query::Query;
use crate::fuzz::{Random, inputs};
use search::glob::Glob;
use search::pattern::Pattern;

const QUERIES: [&str; 3] = [
    "path=a%2Fb&pattern=**%2F%7Ba,b%7D%5B!x-z%5D%3F&max_results=10",
    "path=%2Fworkspace&pattern=(a%7Cb)%2B%5Cd&case_sensitive=false&file_pattern=*.rs&exclude_dirs=a&context_lines=3",
    "path=..%2Fworkspace%2F.%2F%5Cxff&pattern=x&max_results=0&recursive=true",
];
const PATHS: [&str; 4] = ["/workspace/a/../b", "a//./b\\xff", "../workspace/x/..", "n/\\x5cxff/\u{1f9c0}"];
const GLOBS: [&str; 4] = ["**/*.{rs,ts}", "a?[!b-d]/[]x]", "{a,{b,c}}/**", "\\*[[:alpha:]]"];
const PATTERNS: [&str; 5] = [
    r"(?i)^(foo|ba[rz])+\s*$",
    r"\x{41}\Q[a\E]*?\pL{2,5}",
    r"(?P<n>[[:alpha:]_]\w*)(?:\b|\B)[^\d\D]?",
    r"((a*)*)*\A\z",
    r"[a-\]&&^b]{1,1000}",
];

fn text(random: &mut Random, choices: &[&'static str]) -> String {
    let chosen = random.pick(choices).as_bytes();
    String::from_utf8_lossy(&random.mutated(chosen)).into_owned()
}

#[test]
fn queries_are_read_or_refused() {
    let workspace = Workspace::of_machine();
    let (mut read, mut refused) = (0, 0);
    for mut random in inputs(8_000) {
        let query = Query::parse(&text(&mut random, &QUERIES));
        let outcomes = [
            Find::parse(&workspace, &query).is_ok(),
            Grep::parse(&workspace, &query).is_ok(),
            query.flag("recursive").is_ok() && query.number("max_results").is_ok(),
        ];
        read += outcomes.iter().filter(|is_ok| **is_ok).count();
        refused += outcomes.iter().filter(|is_ok| !**is_ok).count();
    }
    assert!(read > 2_000 && refused > 2_000, "{read} {refused}");
}

#[test]
fn paths_name_what_is_below_the_workspace_or_are_refused() {
    let workspace = Workspace::of_machine();
    for mut random in inputs(8_000) {
        let said = text(&mut random, &PATHS);
        match Path::parse(&workspace, &said) {
            Err(fault) => assert!(matches!(fault.code, Code::BAD_PATH | Code::OUTSIDE_WORKSPACE), "{said:?}"),
            Ok(path) => {
                assert!(path.absolute(&workspace).len() <= 2 * PATH_BYTES);
                for name in &path.names {
                    let is_plain = !name.is_empty() && name != b"." && name != b"..";
                    assert!(is_plain && !name.contains(&b'/') && !name.contains(&0), "{said:?}");
                    assert_eq!(names::to_bytes(&names::to_text(name)), *name);
                }
            }
        }
    }
}

#[test]
fn globs_match_or_are_refused() {
    for mut random in inputs(4_000) {
        if let Ok(glob) = Glob::parse(&text(&mut random, &GLOBS)) {
            let start = glob.positions_after(0);
            let below = glob.enter(&start, &random.bytes(12));
            glob.matches(&below, &random.bytes(12));
            glob.literal_start();
        }
    }
}

#[test]
fn patterns_search_or_are_refused() {
    for mut random in inputs(3_000) {
        if let Ok(pattern) = Pattern::compile(&text(&mut random, &PATTERNS), random.one_in(2)) {
            pattern.search().matches(&random.bytes(200));
        }
    }
}
