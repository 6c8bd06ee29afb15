use super::*;
use crate::pattern::Pattern;

fn search(pattern: &str, text: &[u8], context: usize, window: usize) -> (Vec<Match>, Ended) {
    let pattern = Pattern::compile(pattern, false).unwrap();
    let mut search = pattern.search();
    let mut matches = Vec::new();
    let mut take = |found| {
        matches.push(found);
        true
    };
    let ended = Lines::new(&mut search, context, &mut take).run(text, &mut vec![0; window]);
    (matches, ended)
}

fn numbers(pattern: &str, text: &[u8]) -> Vec<u64> {
    search(pattern, text, 0, 1024).0.iter().map(|found| found.line_number).collect()
}

#[test]
fn lines_are_counted_from_one_and_shown_without_their_ending() {
    let (matches, ended) = search("b", b"a\nb1\r\n\nxB2", 0, 1024);
    let shown: Vec<_> = matches.iter().map(|found| (found.line_number, found.line.as_str())).collect();
    assert_eq!(shown, [(2, "b1"), (4, "xB2")]);
    assert_eq!(ended, Ended::Whole { has_cut_line: false });
}

#[test]
fn ends_of_lines_are_ends_for_the_pattern() {
    assert_eq!(numbers("^$", b"a\n\n\r\nb\n"), [2, 3]);
    assert!(numbers("^$", b"").is_empty());
    assert_eq!(numbers("a$", b"ba\r\nba\nab\r\na\rx\n"), [1, 2]);
    assert_eq!(numbers("^..$", b"a\r\nab\r\nab\n"), [2, 3]);
    assert_eq!(numbers(r"\r", b"a\r\na\rb\n"), [2]);
    assert_eq!(numbers(r"a\s*b", b"a\nb\na b\n"), [3]);
    assert_eq!(numbers("[^x]b", b"a\nb\nab"), [3]);
}

/// For every window size, wherever lines begin in it.
#[test]
fn the_window_makes_no_difference() {
    let text: String = (1..400).map(|n| format!("{}line {n}\n", "x".repeat(n % 37))).collect();
    let expected = search("7$", text.as_bytes(), 2, 1 << 20);
    assert_eq!(expected.0.len(), 40);
    for window in [64, 65, 100, 1000, 4096] {
        assert_eq!(search("7$", text.as_bytes(), 2, window), expected);
    }
}

#[test]
fn lines_around_are_shorter_at_the_edges_and_shared() {
    let (matches, _) = search("m", b"m1\na\nm2\nb\nc\nd\nm3\n", 2, 1024);
    let around: Vec<_> =
        matches.iter().map(|found| (found.before.join(" "), found.after.join(" "))).collect();
    let expected = [("", "a m2"), ("m1 a", "b c"), ("c d", "")];
    assert_eq!(around, expected.map(|(before, after)| (before.to_owned(), after.to_owned())));
}

#[test]
fn long_lines_are_cut_at_a_character() {
    let long = format!("{}é{}", "x".repeat(4095), "y".repeat(100));
    assert_eq!(search("x", long.as_bytes(), 0, 1 << 16).0[0].line, "x".repeat(4095));
    let fits = format!("{}é", "x".repeat(4094));
    assert_eq!(search("x", fits.as_bytes(), 0, 1 << 16).0[0].line, fits);
    assert_eq!(search("a", b"a\xff\xfeb", 0, 64).0[0].line, "a\u{fffd}\u{fffd}b");
    let (wide, _) = search("a", &[&b"a"[..], &[0xff; 8192]].concat(), 0, 1 << 16);
    assert!(wide[0].line.len() <= 4096);
}

#[test]
fn a_line_longer_than_the_window_is_looked_at_so_far() {
    let mut text = vec![b'x'; 1_000_000];
    text[10] = b'm';
    text[900_000] = b'n';
    text.extend_from_slice(b"\nm after\n");
    let (matches, ended) = search("m", &text, 0, 4096);
    assert_eq!(matches.iter().map(|found| found.line_number).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(ended, Ended::Whole { has_cut_line: true });
    assert_eq!(search("n", &text, 0, 4096).0, []);
}

#[test]
fn files_with_a_nul_near_their_beginning_are_no_text() {
    assert_eq!(search("a", b"a\0", 0, 1024).1, Ended::Binary);
    let mut late = vec![b'a'; 8192];
    late.push(0);
    assert_eq!(search("a", &late, 0, 1 << 16).1, Ended::Whole { has_cut_line: false });
    late[8191] = 0;
    assert_eq!(search("a", &late, 0, 1 << 16).1, Ended::Binary);
}

#[test]
fn whoever_wants_no_more_gets_no_more() {
    let pattern = Pattern::compile("a", false).unwrap();
    let mut taken = 0;
    let mut take = |_| {
        taken += 1;
        taken < 2
    };
    let mut search = pattern.search();
    let ended = Lines::new(&mut search, 1, &mut take).run(&b"a\na\na\na\n"[..], &mut [0; 64]);
    assert_eq!((ended, taken), (Ended::Stopped, 2));
}
