//! PAX headers: records `LENGTH KEY=VALUE\n`, which replace fields of the header that follows.

use super::fault::Fault;
use super::header::owner;
use super::limits::SPARSE_PARTS;
use super::sparse::{PaxSparse, number};

const ATTRIBUTE: &[u8] = b"SCHILY.xattr.";
const SPARSE: &[u8] = b"GNU.sparse.";

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Time {
    pub seconds: i64,
    pub nanoseconds: u32,
}

/// The fields that count; others are ignored. An empty value stands for the field of the header.
#[derive(Debug, Default)]
pub struct Pax {
    pub path: Option<Vec<u8>>,
    pub link: Option<Vec<u8>>,
    pub size: Option<u64>,
    pub mtime: Option<Time>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    /// Extended attributes that an image may have.
    pub attributes: Vec<(Vec<u8>, Vec<u8>)>,
    pub sparse: PaxSparse,
}

impl Pax {
    pub fn parse(bytes: &[u8]) -> Result<Pax, Fault> {
        let mut pax = Pax::default();
        for record in Records(bytes) {
            let (key, value) = record?;
            pax.take(key, value)?;
        }
        Ok(pax)
    }

    fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), Fault> {
        let given = !value.is_empty();
        match key {
            b"path" => self.path = given.then(|| value.to_vec()),
            b"linkpath" => self.link = given.then(|| value.to_vec()),
            b"size" => self.size = given.then(|| number(value)).transpose()?,
            b"mtime" => self.mtime = given.then(|| time(value)).transpose()?,
            b"uid" => self.uid = given.then(|| owner(number(value)?)).transpose()?,
            b"gid" => self.gid = given.then(|| owner(number(value)?)).transpose()?,
            key => {
                if let Some(name) = key.strip_prefix(ATTRIBUTE).filter(|name| is_kept(name)) {
                    self.attributes.retain(|(known, _)| known != name);
                    self.attributes.push((name.to_vec(), value.to_vec()));
                } else if let Some(key) = key.strip_prefix(SPARSE) {
                    self.sparse.take(key, value, SPARSE_PARTS)?;
                }
            }
        }
        Ok(())
    }
}

/// Other attributes belong to the host of the build, or grant what the guest decides itself.
fn is_kept(name: &[u8]) -> bool {
    !name.contains(&0) && (name.starts_with(b"user.") || name == b"security.capability")
}

/// A header for all entries that follow: one with names or sizes would make them all the same file.
pub fn check_global(bytes: &[u8]) -> Result<(), Fault> {
    for record in Records(bytes) {
        let (key, _) = record?;
        if matches!(key, b"path" | b"linkpath" | b"size") || key.starts_with(SPARSE) {
            return Err(Fault::invalid("a global header of an archive names paths or sizes"));
        }
    }
    Ok(())
}

struct Records<'a>(&'a [u8]);

impl<'a> Iterator for Records<'a> {
    type Item = Result<(&'a [u8], &'a [u8]), Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let record = self.split_off().ok_or_else(|| Fault::invalid("an extended header is malformed"));
        if record.is_err() {
            self.0 = b"";
        }
        Some(record)
    }
}

impl<'a> Records<'a> {
    fn split_off(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        let space = self.0.iter().position(|byte| *byte == b' ')?;
        let length = usize::try_from(number(&self.0[..space]).ok()?).ok()?;
        let (record, rest) = self.0.split_at_checked(length)?;
        let body = record.get(space + 1..)?.strip_suffix(b"\n")?;
        let equals = body.iter().position(|byte| *byte == b'=').filter(|at| *at > 0)?;
        self.0 = rest;
        Some((&body[..equals], &body[equals + 1..]))
    }
}

/// Seconds with any number of decimals, before 1970 too.
fn time(text: &[u8]) -> Result<Time, Fault> {
    let malformed = || Fault::invalid("a time of an archive is malformed");
    let (is_negative, text) = text.strip_prefix(b"-").map_or((false, text), |rest| (true, rest));
    let mut parts = text.splitn(2, |byte| *byte == b'.');
    let whole = parts.next().unwrap_or_default();
    let decimals = parts.next().unwrap_or_default();
    if !decimals.iter().all(u8::is_ascii_digit) {
        return Err(malformed());
    }
    let seconds = i64::try_from(number(whole)?).map_err(|_| malformed())?;
    let digits = decimals.iter().copied().chain(std::iter::repeat(b'0')).take(9);
    let nanoseconds = digits.fold(0, |value, digit| value * 10 + u32::from(digit - b'0'));
    Ok(match (is_negative, nanoseconds) {
        (false, _) => Time { seconds, nanoseconds },
        (true, 0) => Time { seconds: -seconds, nanoseconds },
        (true, _) => Time { seconds: -seconds - 1, nanoseconds: 1_000_000_000 - nanoseconds },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(key: &str, value: &[u8]) -> Vec<u8> {
        let body = [b" ", key.as_bytes(), b"=", value, b"\n"].concat();
        let length = (1..).find(|length: &usize| length.to_string().len() + body.len() == *length).unwrap();
        [length.to_string().as_bytes(), &body].concat()
    }

    #[test]
    fn values_may_hold_any_byte_and_the_last_one_counts() {
        let capability = b"\x01\0\0\x02\n=\n\0";
        let bytes = [
            record("path", b"first"),
            record("path", b"a\nb=c"),
            record("SCHILY.xattr.security.capability", capability),
            record("SCHILY.xattr.security.selinux", b"x"),
            record("SCHILY.xattr.trusted.overlay.opaque", b"y"),
            record("SCHILY.xattr.user.mine", b"1"),
            record("comment", b"anything"),
            record("uid", b"4000000000"),
        ];
        let pax = Pax::parse(&bytes.concat()).unwrap();
        assert_eq!(pax.path.as_deref(), Some(&b"a\nb=c"[..]));
        assert_eq!(pax.uid, Some(4_000_000_000));
        let names: Vec<&[u8]> = pax.attributes.iter().map(|(name, _)| name.as_slice()).collect();
        assert_eq!(names, [&b"security.capability"[..], b"user.mine"]);
        assert_eq!(pax.attributes[0].1, capability);
        assert!(Pax::parse(&record("uid", b"")).unwrap().uid.is_none());
    }

    #[test]
    fn records_are_exactly_as_long_as_they_say() {
        for wrong in [
            "5 a=b\n",
            "7 a=b\n",
            "6 a=b",
            "6 =ab\n",
            "6 abc\n",
            "a=b\n",
            "0 ",
            "99999999999999999999 a=b\n",
            "-1 a=b\n",
        ] {
            assert!(Pax::parse(wrong.as_bytes()).is_err(), "{wrong:?}");
        }
        assert!(Pax::parse(b"6 a=b\n").is_ok());
    }

    #[test]
    fn times_have_decimals_and_may_be_before_1970() {
        let at = |text: &str| time(text.as_bytes()).map(|time| (time.seconds, time.nanoseconds)).ok();
        assert_eq!(at("12"), Some((12, 0)));
        assert_eq!(at("12.5"), Some((12, 500_000_000)));
        assert_eq!(at("12.1234567899"), Some((12, 123_456_789)));
        assert_eq!(at("-1.25"), Some((-2, 750_000_000)));
        for wrong in ["", "x", "1.x", "1e9", "99999999999999999999"] {
            assert_eq!(at(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_global_header_names_no_paths() {
        assert!(check_global(&record("comment", b"a commit")).is_ok());
        for key in ["path", "linkpath", "size", "GNU.sparse.name"] {
            assert!(check_global(&record(key, b"1")).is_err(), "{key}");
        }
    }
}
