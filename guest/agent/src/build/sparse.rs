//! Maps of sparse files: where the parts of the data belong. GNU has a format in its own header, and three in PAX.

use std::io::Read;

use super::fault::Fault;
use super::limits::HEADER_BYTES;

/// Size of the file, and offset and length of its parts in ascending order.
#[derive(Debug, PartialEq)]
pub struct Sparse {
    pub size: u64,
    pub parts: Vec<(u64, u64)>,
}

impl Sparse {
    /// `stored`: bytes of data in the archive.
    pub fn check(self, stored: u64) -> Result<Sparse, Fault> {
        let mut end = 0;
        for (offset, length) in &self.parts {
            let next = offset.checked_add(*length).filter(|_| *offset >= end);
            end = next.ok_or_else(|| Fault::invalid("the parts of a sparse file overlap"))?;
        }
        let total: u64 = self.parts.iter().map(|(_, length)| length).sum();
        if end > self.size || total != stored || self.size > i64::MAX as u64 {
            return Err(Fault::invalid("a sparse file has other sizes than its map"));
        }
        Ok(self)
    }
}

/// The records `GNU.sparse.*` of a PAX header.
#[derive(Debug, Default)]
pub struct PaxSparse {
    pub name: Option<Vec<u8>>,
    size: Option<u64>,
    /// Offsets and lengths, alternating.
    numbers: Vec<u64>,
    is_in_header: bool,
    /// The map precedes the data.
    is_in_data: bool,
}

impl PaxSparse {
    pub fn take(&mut self, key: &[u8], value: &[u8], most: usize) -> Result<(), Fault> {
        match key {
            b"major" => self.is_in_data = number(value)? == 1,
            b"name" => self.name = Some(value.to_vec()),
            b"size" | b"realsize" => self.size = Some(number(value)?),
            b"map" => {
                self.is_in_header = true;
                self.numbers = value
                    .split(|byte| *byte == b',')
                    .filter(|text| !text.is_empty())
                    .map(number)
                    .collect::<Result<_, _>>()?;
            }
            b"offset" | b"numbytes" => {
                self.is_in_header = true;
                self.numbers.push(number(value)?);
            }
            _ => {}
        }
        if self.numbers.len() > 2 * most { Err(too_many()) } else { Ok(()) }
    }

    /// The map, and the bytes of data that it took. None for a file that is not sparse.
    pub fn map(self, data: &mut impl Read, stored: u64, most: usize) -> Result<Option<(Sparse, u64)>, Fault> {
        if !self.is_in_data && !self.is_in_header {
            return Ok(None);
        }
        let size = self.size.ok_or_else(malformed)?;
        let (numbers, taken) =
            if self.is_in_data { numbers_before(data, stored, most)? } else { (self.numbers, 0) };
        if numbers.len() % 2 != 0 {
            return Err(malformed());
        }
        let parts = numbers.chunks_exact(2).map(|part| (part[0], part[1])).collect();
        Ok(Some((Sparse { size, parts }.check(stored - taken)?, taken)))
    }
}

/// A count, then offsets and lengths: a decimal number a line, filled up to whole blocks.
fn numbers_before(data: &mut impl Read, stored: u64, most: usize) -> Result<(Vec<u64>, u64), Fault> {
    let (mut numbers, mut line, mut taken) = (Vec::new(), Vec::new(), 0);
    let mut wanted = None;
    while wanted.is_none_or(|wanted| numbers.len() < wanted) {
        let mut block = [0; super::header::BLOCK_BYTES];
        taken += block.len() as u64;
        if taken > stored || taken > HEADER_BYTES {
            return Err(malformed());
        }
        data.read_exact(&mut block)?;
        for byte in block {
            if byte != b'\n' {
                line.push(byte);
                continue;
            }
            let value = number(&std::mem::take(&mut line))?;
            match wanted {
                None if value > most as u64 => return Err(too_many()),
                None => wanted = Some(2 * value as usize),
                Some(wanted) if numbers.len() < wanted => numbers.push(value),
                Some(_) => {}
            }
            if wanted == Some(numbers.len()) {
                break;
            }
        }
    }
    Ok((numbers, taken))
}

/// A decimal number without a sign.
pub fn number(text: &[u8]) -> Result<u64, Fault> {
    let digits = std::str::from_utf8(text).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    digits
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(|| Fault::invalid("an extended header holds no number where one belongs"))
}

fn malformed() -> Fault {
    Fault::invalid("the map of a sparse file is malformed")
}

pub fn too_many() -> Fault {
    Fault::too_large("a sparse file has too many parts")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_in_order_and_within_the_file() {
        let check =
            |size, parts: &[(u64, u64)], stored| Sparse { size, parts: parts.to_vec() }.check(stored).is_ok();
        assert!(check(100, &[(0, 10), (50, 10), (100, 0)], 20));
        assert!(!check(100, &[(50, 10), (0, 10)], 20));
        assert!(!check(100, &[(0, 10), (5, 10)], 20));
        assert!(!check(100, &[(95, 10)], 10));
        assert!(!check(100, &[(0, 10)], 11));
        assert!(!check(u64::MAX, &[(u64::MAX - 1, 2)], 2));
        assert!(!check(u64::MAX, &[], 0));
    }

    #[test]
    fn a_map_before_the_data_fills_whole_blocks() {
        let mut sparse = PaxSparse::default();
        for (key, value) in [("major", "1"), ("minor", "0"), ("realsize", "1000")] {
            sparse.take(key.as_bytes(), value.as_bytes(), 10).unwrap();
        }
        let mut data = b"2\n0\n4\n900\n6\n".to_vec();
        data.resize(512, 0);
        data.extend_from_slice(b"aaaabbbbbb");
        let (map, taken) = sparse.map(&mut &data[..], 522, 10).unwrap().unwrap();
        assert_eq!((map, taken), (Sparse { size: 1000, parts: vec![(0, 4), (900, 6)] }, 512));
    }

    #[test]
    fn a_map_is_bounded() {
        let in_data = |text: &str| {
            let mut sparse = PaxSparse::default();
            sparse.take(b"major", b"1", 10).unwrap();
            sparse.take(b"realsize", b"1", 10).unwrap();
            let mut data = text.as_bytes().to_vec();
            data.resize(512, b'0');
            sparse.map(&mut &data[..], 512, 10).map(drop)
        };
        assert!(in_data("11\n").is_err());
        assert!(in_data("2\n").is_err());
        assert!(in_data("x\n").is_err());
        let mut sparse = PaxSparse::default();
        let added = (0..30).try_for_each(|_| sparse.take(b"offset", b"1", 10));
        assert!(added.is_err());
    }
}
