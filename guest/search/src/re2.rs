//! Translates RE2 syntax to the engine's, for matching one line without its ending. Syntax that means something else to
//! the engine is rewritten; syntax that RE2 lacks is refused by name. Captures, greediness and the flags `m`, `s` and `U`
//! are ignored: they do not change whether a line matches.

use std::collections::HashSet;

use crate::re2_class;

/// Limit of a repetition's counts, as in RE2.
const REPEATS: u32 = 1000;
/// A class that matches no character.
const NOTHING: &str = r"[^\x00-\x{10FFFF}]";
const LINE_START: &str = "(?m:^)";
/// The end of a line, also before a carriage return.
const LINE_END: &str = r"(?:\r?(?m:$))";

pub fn translate(pattern: &str) -> Result<String, String> {
    let mut translation = Translation {
        rest: pattern,
        out: String::new(),
        before: Before::Nothing,
        groups: 0,
        group_names: HashSet::new(),
    };
    while let Some(c) = translation.next() {
        translation.one(c)?;
    }
    if translation.groups > 0 {
        return Err("missing )".into());
    }
    Ok(translation.out)
}

/// What stands before the present position, for a repetition that may follow.
#[derive(PartialEq)]
enum Before {
    Nothing,
    Something,
    Repetition,
}

struct Translation<'a> {
    rest: &'a str,
    out: String,
    before: Before,
    /// Number of open groups.
    groups: usize,
    group_names: HashSet<&'a str>,
}

impl<'a> Translation<'a> {
    fn next(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    fn skip(&mut self, text: &str) -> bool {
        re2_class::skip(&mut self.rest, text)
    }

    fn until(&mut self, end: &str) -> Option<&'a str> {
        re2_class::take(&mut self.rest, |rest| rest.split_once(end))
    }

    fn atom(&mut self, text: &str) {
        self.out.push_str(text);
        self.before = Before::Something;
    }

    fn literal(&mut self, c: char) {
        match c {
            // No line contains a newline.
            '\n' => self.atom(NOTHING),
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => self.atom(&format!("\\x{{{:x}}}", c as u32)),
            c => self.atom(c.encode_utf8(&mut [0; 4])),
        }
    }

    fn one(&mut self, c: char) -> Result<(), String> {
        match c {
            '^' => self.atom(LINE_START),
            '$' => self.atom(LINE_END),
            '.' => self.atom("."),
            '|' => {
                self.out.push('|');
                self.before = Before::Nothing;
            }
            '(' => self.open_group()?,
            ')' => {
                self.groups = self.groups.checked_sub(1).ok_or("unexpected )")?;
                self.atom(")");
            }
            '[' => {
                let class = re2_class::translate(&mut self.rest)?;
                self.atom(&class);
            }
            '*' | '+' | '?' => self.repeat(c.to_string())?,
            '{' => match self.counts()? {
                Some(counts) => self.repeat(counts)?,
                None => self.literal('{'),
            },
            '\\' => self.escape()?,
            c => self.literal(c),
        }
        Ok(())
    }

    fn repeat(&mut self, operator: String) -> Result<(), String> {
        match self.before {
            Before::Nothing => return Err(format!("nothing before the repetition {operator}")),
            Before::Repetition => return Err(format!("repetition {operator} of a repetition")),
            Before::Something => {}
        }
        self.skip("?");
        self.out.push_str(&operator);
        self.before = Before::Repetition;
        Ok(())
    }

    /// The counts after a `{`; None if it begins no counts and stands for itself.
    fn counts(&mut self) -> Result<Option<String>, String> {
        let Some((inner, rest)) = self.rest.split_once('}') else {
            return Ok(None);
        };
        let (low, high) = inner.split_once(',').unwrap_or((inner, inner));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(low) || !(high.is_empty() || is_number(high)) {
            return Ok(None);
        }
        let within = |text: &str| text.parse::<u32>().ok().filter(|count| *count <= REPEATS);
        let rises = match (within(low), within(high)) {
            (Some(_), None) => high.is_empty(),
            (Some(low), Some(high)) => low <= high,
            _ => false,
        };
        if !rises {
            return Err(format!("repetition {{{inner}}}; expected rising counts of at most {REPEATS}"));
        }
        self.rest = rest;
        Ok(Some(format!("{{{inner}}}")))
    }

    fn open_group(&mut self) -> Result<(), String> {
        if !self.skip("?") {
            return self.enter("(?:");
        }
        for (start, name) in [
            ("=", "lookaround (?="),
            ("!", "lookaround (?!"),
            ("<=", "lookaround (?<="),
            ("<!", "lookaround (?<!"),
            (">", "atomic group (?>"),
            ("#", "comment (?#"),
            ("|", "branch reset (?|"),
            ("(", "conditional (?("),
            ("P=", "backreference (?P="),
            ("P>", "recursion (?P>"),
            ("R", "recursion (?R"),
            ("&", "recursion (?&"),
        ] {
            if self.rest.starts_with(start) {
                return Err(format!("{name} is not supported"));
            }
        }
        if self.skip("P<") || self.skip("<") {
            let name = self.until(">").ok_or("group name without >")?;
            let fits = !name.is_empty() && name.chars().all(|c| c == '_' || c.is_alphanumeric());
            if !fits || !self.group_names.insert(name) {
                return Err(format!("group name {name:?}; expected letters, digits and _, once each"));
            }
            return self.enter("(?:");
        }
        self.flags()
    }

    fn enter(&mut self, opening: &str) -> Result<(), String> {
        self.out.push_str(opening);
        self.groups += 1;
        self.before = Before::Nothing;
        Ok(())
    }

    /// Translates flags, with or without a group. Only `i` has an effect.
    fn flags(&mut self) -> Result<(), String> {
        let (mut on, mut off) = ("", "");
        let (mut is_negated, mut is_dangling) = (false, false);
        loop {
            let c = self.next().ok_or("missing )")?;
            match c {
                'i' if is_negated => off = "-i",
                'i' => on = "i",
                'm' | 's' | 'U' => {}
                '-' if !is_negated => is_negated = true,
                ':' if !is_dangling => return self.enter(&format!("(?{on}{off}:")),
                ')' if !is_dangling => {
                    if !(on.is_empty() && off.is_empty()) {
                        self.out.push_str(&format!("(?{on}{off})"));
                    }
                    self.before = Before::Nothing;
                    return Ok(());
                }
                c => return Err(format!("flag (?{c}; expected i, m, s or U")),
            }
            is_dangling = c == '-';
        }
    }

    fn escape(&mut self) -> Result<(), String> {
        if self.skip("Q") {
            let quoted = self.until("\\E").unwrap_or_else(|| std::mem::take(&mut self.rest));
            quoted.chars().for_each(|c| self.literal(c));
            return Ok(());
        }
        if let Some(class) = re2_class::named(&mut self.rest)? {
            self.atom(&format!("[{class}&&[^\\n]]"));
            return Ok(());
        }
        let assertion = match self.rest.chars().next() {
            Some('A') => LINE_START,
            Some('z') => LINE_END,
            Some('b') => r"(?-u:\b)",
            Some('B') => r"(?-u:\B)",
            Some('C') => r"(?-u:[^\n])",
            _ => {
                let c = re2_class::escaped(&mut self.rest)?;
                self.literal(c);
                return Ok(());
            }
        };
        self.next();
        self.atom(assertion);
        Ok(())
    }
}

#[cfg(test)]
#[path = "re2_test.rs"]
mod tests;
