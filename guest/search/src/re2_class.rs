//! Translates the parts of RE2's syntax that stand for characters: bracketed classes, named classes, and escapes.

const POSIX: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
    "upper", "word", "xdigit",
];

/// Translates a bracketed class, from behind its `[`. A `]` that comes first is one of its characters. Characters are
/// written as numbers, because the engine's syntax has nested sets and set operators, which RE2's has not.
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
        if let Some(mut after) = rest.strip_prefix('\\') {
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

/// The class after a backslash, if it is one: Perl's classes, which are ASCII in RE2, and Unicode classes.
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
        take(rest, |rest| rest.split_once('}')).ok_or("Unicode class \\p{ without }")?
    } else {
        let bytes = rest.chars().next().map_or(1, char::len_utf8);
        take(rest, |rest| rest.split_at_checked(bytes)).ok_or("Unicode class \\p without a name")?
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

/// The character of an escape, from behind its backslash.
pub fn escaped(rest: &mut &str) -> Result<char, String> {
    let c = rest.chars().next().ok_or("\\ at the end")?;
    let after = &rest[c.len_utf8()..];
    match c {
        'x' => {
            *rest = after;
            return hexadecimal(rest);
        }
        '0' => return octal(rest),
        // As in RE2: an octal number with a second octal digit, otherwise a backreference.
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
    code_point(take(rest, |rest| rest.split_at_checked(digits)).unwrap_or_default(), 8)
}

fn hexadecimal(rest: &mut &str) -> Result<char, String> {
    let wrong = "escape \\x; expected two hexadecimal digits, or some in braces";
    let digits = match skip(rest, "{") {
        true => take(rest, |rest| rest.split_once('}')),
        false => take(rest, |rest| rest.split_at_checked(2)),
    };
    let digits = digits.ok_or(wrong)?;
    let is_hex = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_hex { code_point(digits, 16) } else { Err(wrong.into()) }
}

fn code_point(digits: &str, radix: u32) -> Result<char, String> {
    let number = u32::from_str_radix(digits, radix).ok();
    number.and_then(char::from_u32).ok_or_else(|| format!("character number {digits} that does not exist"))
}

/// Skips `text` if the rest begins with it, and returns whether it did.
pub fn skip(rest: &mut &str, text: &str) -> bool {
    let after = rest.strip_prefix(text);
    *rest = after.unwrap_or(rest);
    after.is_some()
}

/// Splits the rest, and takes the first part from it.
pub fn take<'a>(
    rest: &mut &'a str,
    split: impl FnOnce(&'a str) -> Option<(&'a str, &'a str)>,
) -> Option<&'a str> {
    let (text, after) = split(rest)?;
    *rest = after;
    Some(text)
}
