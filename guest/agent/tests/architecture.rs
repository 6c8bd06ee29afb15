//! The shape of the three crates: no circle between files, none between the top-level modules of a crate, and no library
//! of requests below the agent.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

/// A module's path below its crate, as `["processes", "log"]`. The crate's own file is the empty path.
type Module = Vec<String>;
type Arrows = BTreeMap<Module, BTreeSet<Module>>;

const CRATES: [&str; 3] = ["agent", "ssh", "search"];

/// Read when the test runs: the directory that it was compiled in may be gone.
fn guest() -> PathBuf {
    PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).parent().unwrap().into()
}

/// The source of each module, without comments and tests.
fn modules_in(krate: &str) -> BTreeMap<Module, String> {
    let root = guest().join(krate).join("src");
    let mut modules = BTreeMap::new();
    let mut directories = vec![root.clone()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let mut module: Module = path
                .strip_prefix(&root)
                .unwrap()
                .with_extension("")
                .iter()
                .map(|part| part.to_str().unwrap().to_owned())
                .collect();
            let name = module.last().unwrap().clone();
            if path.is_dir() && name != "fuzz" {
                directories.push(path);
            } else if path.is_file() && !is_test(&name) {
                if matches!(name.as_str(), "mod" | "lib") {
                    module.pop();
                }
                modules.insert(module, code_of(&fs::read_to_string(path).unwrap()));
            }
        }
    }
    modules
}

fn is_test(name: &str) -> bool {
    name.ends_with("_test") || matches!(name, "tests" | "testing")
}

fn code_of(text: &str) -> String {
    let tested = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let lines = tested.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Every path that the code begins with `crate::`, `super::` or a module of its own, `use` trees written out.
fn paths_in(code: &str, children: &BTreeSet<String>) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let mut rest = code;
    while let Some(start) = rest.find(is_path) {
        rest = &rest[start..];
        let end = rest.find(|c| !is_path(c)).unwrap_or(rest.len());
        let (head, after) = rest.split_at(end);
        rest = after;
        let parts: Vec<&str> = head.split("::").collect();
        if parts.len() < 2 || !(matches!(parts[0], "crate" | "super") || children.contains(parts[0])) {
            continue;
        }
        let path: Vec<String> =
            parts.iter().filter(|part| !part.is_empty()).map(|part| (*part).to_owned()).collect();
        match rest.strip_prefix('{') {
            Some(tree) if head.ends_with("::") => rest = expand(&path, tree, &mut paths),
            _ => paths.push(path),
        }
    }
    paths
}

/// Takes one `{…}` apart, and returns what follows it.
fn expand<'a>(prefix: &[String], mut tree: &'a str, paths: &mut Vec<Vec<String>>) -> &'a str {
    loop {
        let end = tree.find(['{', ',', '}']).expect("a tree ends");
        let (item, after) = (tree[..end].trim(), &tree[end + 1..]);
        let path = || {
            prefix
                .iter()
                .cloned()
                .chain(item.split("::").filter(|part| !matches!(*part, "" | "self")).map(String::from))
        };
        match tree.as_bytes()[end] {
            b'{' => tree = expand(&path().collect::<Vec<_>>(), after, paths),
            close => {
                if !item.is_empty() {
                    paths.push(path().collect());
                }
                if close == b'}' {
                    return after;
                }
                tree = after;
            }
        }
    }
}

fn arrows_between(modules: &BTreeMap<Module, String>) -> Arrows {
    let mut arrows = Arrows::new();
    for (module, code) in modules {
        let children =
            modules.keys().filter(|other| other.len() == module.len() + 1 && other.starts_with(module));
        let children = children.map(|child| child.last().unwrap().clone()).collect();
        for path in paths_in(code, &children) {
            let mut target = if path[0] == "crate" { vec![] } else { module.clone() };
            for part in path.iter().skip_while(|part| *part == "crate") {
                match part.as_str() {
                    "super" => drop(target.pop()),
                    part => target.push(part.to_owned()),
                }
            }
            while !modules.contains_key(&target) {
                target.pop().expect("the crate itself is a module");
            }
            if target != *module {
                arrows.entry(module.clone()).or_default().insert(target);
            }
        }
    }
    arrows
}

fn by_room(arrows: &Arrows) -> Arrows {
    let room = |module: &Module| module.iter().take(1).cloned().collect::<Module>();
    let mut rooms = Arrows::new();
    for (from, to) in arrows.iter().flat_map(|(from, all)| all.iter().map(move |to| (room(from), room(to)))) {
        if from != to {
            rooms.entry(from).or_default().insert(to);
        }
    }
    rooms
}

/// A way from a module back to itself, for each module that has one.
fn circles_in(arrows: &Arrows) -> Vec<String> {
    let circle = |start: &Module| {
        let mut ways = vec![vec![start.clone()]];
        let mut seen = BTreeSet::new();
        while let Some(way) = ways.pop() {
            for next in arrows.get(way.last().unwrap()).into_iter().flatten() {
                let longer: Vec<Module> = way.iter().chain([next]).cloned().collect();
                if next == start {
                    return Some(
                        longer.iter().map(|module| module.join("::")).collect::<Vec<_>>().join(" -> "),
                    );
                }
                if seen.insert(next.clone()) {
                    ways.insert(0, longer);
                }
            }
        }
        None
    };
    arrows.keys().filter_map(circle).collect()
}

#[test]
fn no_two_files_and_no_two_rooms_need_each_other() {
    for krate in CRATES {
        let arrows = arrows_between(&modules_in(krate));
        assert!(arrows.len() > 2, "{krate}");
        assert_eq!(circles_in(&arrows), Vec::<String>::new(), "files of {krate}");
        assert_eq!(circles_in(&by_room(&arrows)), Vec::<String>::new(), "rooms of {krate}");
    }
}

#[test]
fn a_circle_is_found_however_it_is_written() {
    let circles = |files: &[(&str, &str)]| {
        let module =
            |path: &str| path.split("::").filter(|part| !part.is_empty()).map(String::from).collect();
        let modules = files.iter().map(|(path, code)| (module(path), (*code).to_owned())).collect();
        let arrows = arrows_between(&modules);
        (circles_in(&arrows).len(), circles_in(&by_room(&arrows)).len())
    };
    let root = ("", "mod a; mod b; mod r; fn main() { a::run() }");
    assert_eq!(circles(&[root, ("a", "use crate::b::B;"), ("b", "fn f() {}")]), (0, 0));
    assert_eq!(
        circles(&[root, ("a", "use crate::{b::{self, B}};"), ("b", "fn f() { crate::a::g() }")]),
        (2, 2)
    );
    assert_eq!(circles(&[root, ("r", "mod c; fn f() { c::g() }"), ("r::c", "use super::R;")]), (2, 0));
    assert_eq!(
        circles(&[
            root,
            ("r", "pub use c::C;"),
            ("r::c", ""),
            ("r::d", "use crate::a::A;"),
            ("a", "use crate::r::C;")
        ]),
        (0, 2)
    );
}

#[test]
fn what_is_below_the_agent_knows_no_requests_and_not_the_agent() {
    for (krate, allowed) in [
        ("ssh", vec!["bytes", "ml-kem", "ring", "rustix", "tokio"]),
        ("search", vec!["memchr", "regex-automata", "regex-syntax", "rustix"]),
    ] {
        let manifest = fs::read_to_string(guest().join(krate).join("Cargo.toml")).unwrap();
        let dependencies = manifest.split("[dependencies]\n").nth(1).unwrap().split("\n[").next().unwrap();
        let names = dependencies.lines().filter_map(|line| line.split_once(" = ")).map(|(name, _)| name);
        assert_eq!(names.collect::<Vec<_>>(), allowed, "{krate}");
    }
}
