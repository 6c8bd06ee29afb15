//! The fields of a tar header: the old format, ustar, GNU and PAX. What an extension header says instead is not known here.

use super::fault::Fault;

pub const BLOCK_BYTES: usize = 512;
pub type Block = [u8; BLOCK_BYTES];

const CHECKSUM: std::ops::Range<usize> = 148..156;
/// Where GNU puts the map of a sparse file: parts, a flag for more of them in a further block, the size of the file.
const GNU_PARTS: std::ops::Range<usize> = 386..482;
const GNU_HAS_MORE: usize = 482;
const GNU_SIZE: std::ops::Range<usize> = 483..495;
const MORE_PARTS: std::ops::Range<usize> = 0..504;
const MORE_HAS_MORE: usize = 504;
const PART_BYTES: usize = 24;

pub struct Header<'a>(&'a Block);

impl<'a> Header<'a> {
    /// Fails if the checksum is wrong.
    pub fn parse(block: &'a Block) -> Result<Header<'a>, Fault> {
        let is_summed = |at: &usize| !CHECKSUM.contains(at);
        let spaces = u64::from(b' ') * CHECKSUM.len() as u64;
        let unsigned: u64 = (0..BLOCK_BYTES).filter(is_summed).map(|at| u64::from(block[at])).sum();
        let signed: i64 = (0..BLOCK_BYTES).filter(is_summed).map(|at| i64::from(block[at] as i8)).sum();
        let said = number(&block[CHECKSUM])?;
        if said != unsigned + spaces && said as i64 != signed + spaces as i64 {
            return Err(Fault::invalid("the archive is damaged: a header has another checksum than it says"));
        }
        Ok(Header(block))
    }

    pub fn kind(&self) -> u8 {
        self.0[156]
    }

    /// Bytes that follow the header.
    pub fn size(&self) -> Result<u64, Fault> {
        number(&self.0[124..136])
    }

    pub fn mode(&self) -> Result<u32, Fault> {
        Ok(number(&self.0[100..108])? as u32 & 0o7777)
    }

    pub fn uid(&self) -> Result<u32, Fault> {
        owner(number(&self.0[108..116])?)
    }

    pub fn gid(&self) -> Result<u32, Fault> {
        owner(number(&self.0[116..124])?)
    }

    /// Seconds since 1970.
    pub fn mtime(&self) -> Result<i64, Fault> {
        signed(&self.0[136..148])
    }

    pub fn path(&self) -> Vec<u8> {
        let name = text(&self.0[..100]);
        let prefix = if self.is_ustar() { text(&self.0[345..500]) } else { b"" };
        if prefix.is_empty() { name.to_vec() } else { [prefix, b"/", name].concat() }
    }

    pub fn link(&self) -> Vec<u8> {
        text(&self.0[157..257]).to_vec()
    }

    fn is_ustar(&self) -> bool {
        self.0[257..263] == *b"ustar\0"
    }

    pub fn sparse_size(&self) -> Result<u64, Fault> {
        number(&self.0[GNU_SIZE])
    }

    /// The first parts of a sparse file, and whether a block with more of them follows.
    pub fn sparse_parts(&self) -> Result<(Vec<(u64, u64)>, bool), Fault> {
        Ok((parts(&self.0[GNU_PARTS])?, self.0[GNU_HAS_MORE] != 0))
    }
}

/// The parts in a block that follows the header of a sparse file.
pub fn more_parts(block: &Block) -> Result<(Vec<(u64, u64)>, bool), Fault> {
    Ok((parts(&block[MORE_PARTS])?, block[MORE_HAS_MORE] != 0))
}

/// Offset and length each. A part without an offset is the first unused one.
fn parts(bytes: &[u8]) -> Result<Vec<(u64, u64)>, Fault> {
    let used = bytes.chunks_exact(PART_BYTES).take_while(|part| part[0] != 0);
    used.map(|part| Ok((number(&part[..12])?, number(&part[12..])?))).collect()
}

/// The number that `chown` reads as "leave it" owns nothing.
pub fn owner(number: u64) -> Result<u32, Fault> {
    let owner = u32::try_from(number).ok().filter(|owner| *owner != u32::MAX);
    owner.ok_or_else(|| Fault::invalid(format!("{number} is no number of a user or group")))
}

fn text(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn number(field: &[u8]) -> Result<u64, Fault> {
    u64::try_from(signed(field)?).map_err(|_| malformed())
}

/// Octal digits, or, marked by the first bit, the big-endian two's complement of GNU.
fn signed(field: &[u8]) -> Result<i64, Fault> {
    if field[0] & 0x80 != 0 {
        let (first, rest) = (field[0], &field[1..]);
        let sign = if first & 0x40 != 0 { -1 } else { 0 };
        let start = (sign << 6) | i128::from(first & 0x3f);
        let value = rest.iter().fold(start, |value, byte| (value << 8) | i128::from(*byte));
        return i64::try_from(value).map_err(|_| malformed());
    }
    let is_padding = |byte: &u8| matches!(*byte, b' ' | 0);
    let mut digits = field.iter().skip_while(|byte| is_padding(byte)).take_while(|byte| !is_padding(byte));
    digits.try_fold(0, |value: i64, digit| match digit {
        b'0'..=b'7' => {
            value.checked_mul(8).map(|value| value + i64::from(digit - b'0')).ok_or_else(malformed)
        }
        _ => Err(malformed()),
    })
}

fn malformed() -> Fault {
    Fault::invalid("the archive is damaged: a field of a header is not a number")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_octal_or_binary() {
        let value = |field: &[u8]| signed(field).ok();
        assert_eq!(value(b"0000644\0"), Some(0o644));
        assert_eq!(value(b"   644 \0"), Some(0o644));
        assert_eq!(value(b"77777777777 "), Some(0o77777777777));
        assert_eq!(value(b"\0\0\0\0\0\0\0\0"), Some(0));
        assert_eq!(value(b"\x80\0\0\0\0\0\0\x02\0\0\0\x01"), Some((2 << 32) + 1));
        assert_eq!(value(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xfe"), Some(-2));
        assert_eq!(value(b"\x80\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), None);
        for wrong in [&b"0000648\0"[..], b"-000001\0", b"0x00001\0"] {
            assert_eq!(value(wrong), None);
        }
        assert!(number(b"\xff\xff\xff\xff\xff\xff\xff\xff").is_err());
    }

    #[test]
    fn nobody_is_the_owner_that_chown_would_leave_alone() {
        assert_eq!(owner(65_534).unwrap(), 65_534);
        assert_eq!(owner(0xffff_fffe).unwrap(), 0xffff_fffe);
        for wrong in [0xffff_ffff, 1 << 32] {
            assert!(owner(wrong).is_err());
        }
    }
}
