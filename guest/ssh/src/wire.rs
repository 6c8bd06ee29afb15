//! Reads and writes the data types of SSH (RFC 4251, 5).

use crate::broken::Broken;

/// The unread rest of a message, whose bytes are not trusted.
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader(bytes)
    }

    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], Broken> {
        let (head, rest) = self.0.split_at_checked(count).ok_or_else(Broken::cut_off)?;
        self.0 = rest;
        Ok(head)
    }

    pub fn u8(&mut self) -> Result<u8, Broken> {
        Ok(self.bytes(1)?[0])
    }

    pub fn bool(&mut self) -> Result<bool, Broken> {
        Ok(self.u8()? != 0)
    }

    pub fn u32(&mut self) -> Result<u32, Broken> {
        let bytes = self.bytes(4)?;
        Ok(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    pub fn u64(&mut self) -> Result<u64, Broken> {
        Ok(u64::from(self.u32()?) << 32 | u64::from(self.u32()?))
    }

    pub fn string(&mut self) -> Result<&'a [u8], Broken> {
        let length = self.u32()?;
        self.bytes(length as usize)
    }

    /// A string as text. None if it is not UTF-8, which must fail one request only and not the connection.
    pub fn text(&mut self) -> Result<Option<&'a str>, Broken> {
        Ok(std::str::from_utf8(self.string()?).ok())
    }
}

/// A message, built field by field.
pub struct Message(Vec<u8>);

impl Message {
    pub fn new(kind: u8) -> Self {
        Message(vec![kind])
    }

    /// A part of a message, without a message number.
    pub fn part() -> Self {
        Message(Vec::new())
    }

    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub fn u8(self, value: u8) -> Self {
        self.bytes(&[value])
    }

    pub fn bool(self, value: bool) -> Self {
        self.u8(value.into())
    }

    pub fn u32(self, value: u32) -> Self {
        self.bytes(&value.to_be_bytes())
    }

    pub fn u64(self, value: u64) -> Self {
        self.bytes(&value.to_be_bytes())
    }

    pub fn string(self, bytes: impl AsRef<[u8]>) -> Self {
        let bytes = bytes.as_ref();
        self.u32(bytes.len() as u32).bytes(bytes)
    }

    /// A positive number: big-endian, without leading zeros except one before a highest bit that is set.
    pub fn mpint(self, number: &[u8]) -> Self {
        let leading = number.iter().take_while(|byte| **byte == 0).count();
        let digits = &number[leading..];
        match digits.first() {
            Some(first) if first & 0x80 != 0 => self.string([&[0], digits].concat()),
            _ => self.string(digits),
        }
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

impl AsRef<[u8]> for Message {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_fields_are_read_again() {
        let message = Message::new(7).bool(true).u32(9).u64(1 << 40).string("text").into_bytes();
        let mut reader = Reader::new(&message);
        assert_eq!(reader.u8().unwrap(), 7);
        assert!(reader.bool().unwrap());
        assert_eq!(reader.u32().unwrap(), 9);
        assert_eq!(reader.u64().unwrap(), 1 << 40);
        assert_eq!(reader.text().unwrap(), Some("text"));
        assert!(reader.u8().is_err());
    }

    #[test]
    fn a_length_beyond_the_message_is_an_error() {
        assert!(Reader::new(&[0xff, 0xff, 0xff, 0xff, 1]).string().is_err());
        assert!(Reader::new(&[0, 0, 0]).u32().is_err());
        assert_eq!(Reader::new(&[0, 0, 0, 1, 0xff]).text().unwrap(), None);
    }

    /// The examples of RFC 4251.
    #[test]
    fn numbers_are_as_short_as_they_can_be() {
        let mpint = |number: &[u8]| Message::part().mpint(number).into_bytes();
        assert_eq!(mpint(&[0, 0]), [0, 0, 0, 0]);
        assert_eq!(mpint(&[0, 0x80]), [0, 0, 0, 2, 0, 0x80]);
        assert_eq!(mpint(&[0, 0x7f, 1]), [0, 0, 0, 2, 0x7f, 1]);
    }
}
