use crate::pattern::Pattern;

fn matches(pattern: &str, line: &str) -> bool {
    Pattern::compile(pattern, true).unwrap().search().matches(line.as_bytes())
}

fn refusal(pattern: &str) -> String {
    Pattern::compile(pattern, true).err().map(|fault| fault.words).unwrap_or_default()
}

#[test]
fn syntax_that_the_engine_reads_differently_means_the_same_as_in_re2() {
    for (pattern, yes, no) in [
        ("^ab?$", vec!["a", "ab", "ab\r"], vec!["b", "abb", "xa"]),
        (r"\Aab\z", vec!["ab"], vec!["xab", "abx"]),
        (r"a\Cb", vec!["axb"], vec!["ab", "aéb"]),
        (r"a\C\Cb", vec!["aéb"], vec!["axb"]),
        (r"a.b", vec!["aéb", "axb"], vec!["ab"]),
        (r"\Qa.b*\Ec", vec!["a.b*c"], vec!["axbc", "a.bc"]),
        (r"\Qa.b", vec!["a.b"], vec!["axb"]),
        (r"^\Qab\E+$", vec!["abb"], vec!["abab"]),
        (r"^\d+$", vec!["123"], vec!["١٢٣", "x"]),
        (r"^\w$", vec!["a", "_"], vec!["é", "-"]),
        (r"^\_[\_]$", vec!["__"], vec!["_", r"\_"]),
        (r"^\W$", vec!["é", "-"], vec!["a"]),
        (r"a\sb", vec!["a b", "a\tb", "a\x0cb"], vec!["a\x0bb", "a\u{a0}b"]),
        (r"\bé", vec!["aé"], vec!["é", " é"]),
        (r"é\B", vec!["é"], vec!["éa"]),
        (r"^\pL$", vec!["é", "a"], vec!["1"]),
        (r"^\PL$", vec!["1"], vec!["a"]),
        (r"^\p{Greek}+$", vec!["λ"], vec!["a"]),
        (r"^\p{^Greek}$", vec!["a"], vec!["λ"]),
        (r"^\P{^Greek}$", vec!["λ"], vec!["a"]),
        (r"^[\p{Lu}\d]$", vec!["A", "7"], vec!["a"]),
        (r"^\101\x42\x{43}$", vec!["ABC"], vec!["101"]),
        (r"^\060$", vec!["0"], vec![""]),
        (r"^\<a\>$", vec!["<a>"], vec!["a"]),
        (r"a{,2}b", vec!["a{,2}b"], vec!["aab"]),
        (r"^a{2}$", vec!["aa"], vec!["a"]),
        (r"^a{2,}$", vec!["aaa"], vec!["a"]),
        (r"^a{1,2}?$", vec!["aa"], vec!["aaa"]),
        (r"x{y}", vec!["x{y}"], vec!["xy"]),
        ("a{", vec!["a{"], vec!["a"]),
        ("]}", vec!["]}"], vec![]),
        ("^[a&&b]$", vec!["&", "a", "b"], vec!["c"]),
        ("^[a[b]$", vec!["[", "a"], vec!["]"]),
        ("^[]a]$", vec!["]", "a"], vec!["b"]),
        ("^[^]a]$", vec!["b"], vec!["]", "a"]),
        ("^[a-]$", vec!["-", "a"], vec!["b"]),
        ("^[a~~b]$", vec!["~", "a", "b"], vec!["c"]),
        ("^[+--]$", vec!["+", ",", "-"], vec!["."]),
        ("^[[:alpha:]_]$", vec!["a", "_"], vec!["1", "é"]),
        ("^[[:^digit:]]$", vec!["a"], vec!["1"]),
        (r"^[\d\-x]$", vec!["5", "-", "x"], vec!["y"]),
        (r"^[^\s]$", vec!["a"], vec![" "]),
        (r"(?i)straße", vec!["STRAßE"], vec!["strasse"]),
        (r"(?i:a)b", vec!["Ab"], vec!["AB"]),
        (r"(?i)a(?-i)b", vec!["Ab"], vec!["AB"]),
        (r"(?U)^a+$", vec!["aa"], vec!["b"]),
        (r"(?ims-U:^a.b$)", vec!["AxB"], vec!["ab"]),
        (r"(?P<n>a)(?<m>b)", vec!["ab"], vec!["a"]),
        ("a|", vec!["", "x"], vec![]),
        ("()", vec![""], vec![]),
        ("^*a", vec!["a"], vec!["b"]),
        (r"a\nb", vec![], vec!["a\nb"]),
        (r"\a\f\t\r\v", vec!["\x07\x0c\t\r\x0b"], vec![]),
        ("# a", vec!["# a"], vec!["a"]),
    ] {
        for line in yes {
            assert!(matches(pattern, line), "{pattern} and {line:?}");
        }
        for line in no {
            assert!(!matches(pattern, line), "{pattern} but {line:?}");
        }
    }
}

#[test]
fn syntax_that_re2_lacks_is_refused_by_name() {
    for (pattern, name) in [
        ("(?=a)", "lookaround (?="),
        ("(?!a)", "lookaround (?!"),
        ("(?<=a)", "lookaround (?<="),
        ("(?<!a)", "lookaround (?<!"),
        (r"(a)\1", r"backreference \1"),
        (r"(?P<n>a)(?P=n)", "backreference (?P="),
        (r"\k<n>", r"backreference \k"),
        ("(?>a)", "atomic group"),
        ("(?#a)", "comment"),
        ("(?|a)", "branch reset"),
        ("(?(1)a)", "conditional"),
        ("(?R)", "recursion"),
        (r"a\Z", r"escape \Z"),
        (r"\h", r"escape \h"),
        (r"\R", r"escape \R"),
        (r"\8", r"backreference \8"),
        (r"\é", r"escape \é"),
        (r"[\b]", r"escape \b"),
        ("(?x)a b", "flag (?x"),
        ("(?i-)a", "flag (?)"),
        ("a**", "repetition * of a repetition"),
        ("a++", "repetition + of a repetition"),
        ("a{2}{3}", "repetition {3} of a repetition"),
        ("*a", "nothing before the repetition *"),
        ("a|*", "nothing before the repetition *"),
        ("a{1001}", "repetition {1001}"),
        ("a{2,1}", "repetition {2,1}"),
        ("(a", "missing )"),
        ("a)", "unexpected )"),
        ("[a", "missing ]"),
        ("[b-a]", "range b-a"),
        ("[[:foo:]]", "[:foo:]"),
        (r"\p{Foo}", "Unicode"),
        (r"\p{", "without }"),
        (r"\xg0", r"escape \x"),
        (r"\x{110000}", "110000"),
        (r"\x{d800}", "d800"),
        ("(?P<n>a)(?P<n>b)", "group name"),
        ("(?P<a-b>a)", "group name"),
        ("\\", "\\ at the end"),
        (&"(".repeat(5000), "missing )"),
        (&("(".repeat(1000) + &")".repeat(1000)), "nest"),
        ("((a{100}){100}){100}", "larger than this machine compiles"),
        (&"a".repeat(9000), "at most 8192 bytes"),
    ] {
        let words = refusal(pattern);
        assert!(words.contains(name), "{pattern}: {words}");
    }
}

/// On half of the stack that a thread of the pool has. Unoptimised, as tests are, the compiler needs more of it.
#[test]
fn the_deepest_pattern_fits_the_stack() {
    let compile = || {
        for (open, close) in [("(", ")"), ("(a|", ")*"), ("(?:x(b", "c)?)+"), ("(?i:", "é)")] {
            let deep = |depth| open.repeat(depth) + "a" + &close.repeat(depth);
            let is_taken = |depth: &usize| Pattern::compile(&deep(*depth), false).is_ok();
            let deepest = (1..600).rev().find(is_taken).unwrap();
            assert!(deepest > 40, "{open}{close}: {deepest}");
        }
    };
    std::thread::Builder::new()
        .stack_size(crate::pattern::STACK_BYTES / 2)
        .spawn(compile)
        .unwrap()
        .join()
        .unwrap();
}

/// Ten nasty patterns, in steps and not in seconds: twice the text may take about twice the time. An engine that goes
/// back would not end at all.
#[test]
fn nasty_patterns_end() {
    let text = "a".repeat(1024 * 1024);
    for pattern in [
        "(a+)+$x",
        "(a*)*b",
        "(a|a)*b",
        "(a|aa)+b",
        "(.*)(.*)(.*)(.*)b",
        "(?:a?){64}a{64}b",
        "((a+)*)*b",
        "^(([a-z])+.)+[A-Z]([a-z])+b$",
        "(.*a){20}b",
        "[ab]*a[ab]{30}b",
    ] {
        let pattern = Pattern::compile(pattern, true).unwrap();
        let window = &text.as_bytes()[..pattern.window_bytes()];
        assert!(!pattern.search().matches(window));
    }
}

/// Random patterns of everything that has a meaning: none panics, and what is translated the engine
/// understands. It alone knows which properties there are.
#[test]
fn every_accepted_translation_is_accepted_by_the_engine() {
    let pieces = [
        "a",
        "é",
        "\n",
        "-",
        "^",
        "$",
        ".",
        "|",
        "(",
        ")",
        "(?:",
        "(?i)",
        "(?P<n>",
        "(?",
        "[",
        "[^",
        "]",
        "[:alpha:]",
        "*",
        "+",
        "?",
        "{",
        "{2}",
        "{1,3}",
        "{2,1}",
        "}",
        "\\",
        "\\d",
        "\\W",
        "\\pL",
        "\\p{Greek}",
        "\\P",
        "\\Q",
        "\\E",
        "\\b",
        "\\C",
        "\\x41",
        "\\x{1F9C0}",
        "\\x",
        "\\07",
        "\\1",
        "\\z",
        "&&",
        "~~",
        "--",
        "<",
        ">",
        "#",
        " ",
        "/",
    ];
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below as u64) as usize
    };
    let mut accepted = 0;
    for _ in 0..50_000 {
        let pattern: String = (0..1 + random(9)).map(|_| pieces[random(pieces.len())]).collect();
        if let Ok(translated) = crate::re2::translate(&pattern) {
            accepted += 1;
            let parsed = regex_syntax::ParserBuilder::new().utf8(false).build().parse(&translated);
            let is_unknown_property =
                matches!(&parsed, Err(error) if error.to_string().contains("Unicode property not found"));
            assert!(parsed.is_ok() || is_unknown_property, "{pattern:?} became {translated:?}: {parsed:?}");
        }
    }
    assert!(accepted > 5_000, "{accepted}");
}
