//! The parts of RE2's syntax that stand for characters: classes in brackets, named classes, and escapes.

const POSIX: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
    "upper", "word", "xdigit",
];

/// After the `[`. The engine's own syntax knows sets within sets and set operators, RE2's does not: every character is
/// written by its number. A `]` that comes first is one of them.
pub fn translate(rest: &mut &str) -> Result<String, String> {
    let negation = if skip(rest, "^") { "^" } else { "" };
    let mut items = String::new();
    loop {
        if !items.is_empty() && skip(rest, "]") {
            return Ok(format!("[[{negation}{items}]&&[^\\n]]"));
        }
        if let Some(class) = posix(rest)? {
            items.push_str(&class);
            continue;
        }
        if let Some(after) = rest.strip_prefix('\\') {
            let mut after = after;
            if let Some(class) = named(&mut after)? {
                items.push_str(&class);
                *rest = after;
                continue;
            }
        }
        let low = character(rest)?;
        let is_range = rest.starts_with('-') && !rest.starts_with("-]");
        let high = if is_range && skip(rest, "-") { character(rest)? } else { low };
        if low > high {
            return Err(format!("character class range {low}-{high} that falls"));
        }
        items.push_str(&format!("\\x{{{:x}}}-\\x{{{:x}}}", low as u32, high as u32));
    }
}

fn posix(rest: &mut &str) -> Result<Option<String>, String> {
    let Some((inner, after)) = rest.strip_prefix("[:").and_then(|inner| inner.split_once(":]")) else {
        return Ok(None);
    };
    let name = inner.strip_prefix('^').unwrap_or(inner);
    if !POSIX.contains(&name) {
        return Err(format!("character class [:{inner}:]; expected one of {}", POSIX.join(", ")));
    }
    *rest = after;
    Ok(Some(format!("[[:{inner}:]]")))
}

/// After a backslash: Perl's classes, which are ASCII in RE2, and those of Unicode.
pub fn named(rest: &mut &str) -> Result<Option<String>, String> {
    let class = match rest.chars().next() {
        Some('d') => "[0-9]",
        Some('D') => "[^0-9]",
        Some('s') => r"[\t\n\x0c\r\x20]",
        Some('S') => r"[^\t\n\x0c\r\x20]",
        Some('w') => "[0-9A-Za-z_]",
        Some('W') => "[^0-9A-Za-z_]",
        Some('p' | 'P') => return property(rest).map(Some),
        _ => return Ok(None),
    };
    *rest = &rest[1..];
    Ok(Some(class.into()))
}

fn property(rest: &mut &str) -> Result<String, String> {
    let is_upper = rest.starts_with('P');
    *rest = &rest[1..];
    let name = if skip(rest, "{") {
        let (name, after) = rest.split_once('}').ok_or("Unicode class \\p{ without }")?;
        *rest = after;
        name
    } else {
        let end = rest.chars().next().ok_or("Unicode class \\p without a name")?.len_utf8();
        let (name, after) = rest.split_at(end);
        *rest = after;
        name
    };
    let positive = name.strip_prefix('^').unwrap_or(name);
    if positive.is_empty() || !positive.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_') {
        return Err(format!("Unicode class \\p{{{name}}}; expected the name of a category or a script"));
    }
    let p = if is_upper != (positive.len() < name.len()) { 'P' } else { 'p' };
    Ok(format!("\\{p}{{{positive}}}"))
}

fn character(rest: &mut &str) -> Result<char, String> {
    let c = rest.chars().next().ok_or("missing ]")?;
    *rest = &rest[c.len_utf8()..];
    if c == '\\' { escaped(rest) } else { Ok(c) }
}

/// After a backslash that begins no class.
pub fn escaped(rest: &mut &str) -> Result<char, String> {
    let c = rest.chars().next().ok_or("\\ at the end")?;
    let after = &rest[c.len_utf8()..];
    match c {
        'x' => {
            *rest = after;
            return hexadecimal(rest);
        }
        '0' => return octal(rest),
        // As in RE2: with a second octal digit it is a number, else it would be a backreference.
        '1'..='7' if after.starts_with(|c| matches!(c, '0'..='7')) => return octal(rest),
        _ => {}
    }
    *rest = after;
    match c {
        'a' => Ok('\x07'),
        'f' => Ok('\x0c'),
        't' => Ok('\t'),
        'n' => Ok('\n'),
        'r' => Ok('\r'),
        'v' => Ok('\x0b'),
        '1'..='9' | 'k' | 'g' => Err(format!("backreference \\{c} is not supported")),
        c if c.is_ascii() && !c.is_ascii_alphanumeric() => Ok(c),
        c => Err(format!("escape \\{c} is not supported")),
    }
}

fn octal(rest: &mut &str) -> Result<char, String> {
    let digits = rest.bytes().take(3).take_while(|byte| matches!(byte, b'0'..=b'7')).count();
    let (digits, after) = rest.split_at(digits);
    *rest = after;
    code_point(digits, 8)
}

fn hexadecimal(rest: &mut &str) -> Result<char, String> {
    let wrong = "escape \\x; expected two hexadecimal digits, or some in braces";
    let digits = if skip(rest, "{") {
        let (digits, after) = rest.split_once('}').ok_or(wrong)?;
        *rest = after;
        digits
    } else {
        let (digits, after) = rest.split_at_checked(2).ok_or(wrong)?;
        *rest = after;
        digits
    };
    let is_hex = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_hex { code_point(digits, 16) } else { Err(wrong.into()) }
}

fn code_point(digits: &str, radix: u32) -> Result<char, String> {
    let number = u32::from_str_radix(digits, radix).ok();
    number.and_then(char::from_u32).ok_or_else(|| format!("character number {digits} that does not exist"))
}

fn skip(rest: &mut &str, text: &str) -> bool {
    let after = rest.strip_prefix(text);
    *rest = after.unwrap_or(rest);
    after.is_some()
}
