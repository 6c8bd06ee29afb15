//! Reads a tar archive, entry by entry: extension headers are applied, and their sizes bounded. No library does that with
//! bounds: they read whatever an extension header says into memory.

use std::io::{self, Read};

use super::fault::Fault;
use super::header::{BLOCK_BYTES, Block, Header, more_parts};
use super::limits::{HEADER_BYTES, SPARSE_PARTS};
use super::pax::{Pax, Time, check_global};
use super::sparse::{Sparse, too_many};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    File,
    HardLink,
    SymbolicLink,
    Directory,
    /// A device or a FIFO.
    Special,
}

#[derive(Debug)]
pub struct Entry {
    pub path: Vec<u8>,
    pub kind: Kind,
    /// The target of a link.
    pub link: Vec<u8>,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub mtime: Time,
    /// The file's data in the archive, in ascending order.
    pub content: Sparse,
    pub attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

pub struct Archive<R> {
    source: R,
    /// Bytes of the current entry's data that are unread.
    data: u64,
    /// Bytes that fill its last block.
    padding: u64,
}

/// Extension headers before an entry.
#[derive(Default)]
struct Extensions {
    pax: Pax,
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
}

impl<R: Read> Archive<R> {
    pub fn new(source: R) -> Archive<R> {
        Archive { source, data: 0, padding: 0 }
    }

    /// The source, behind the archive's end.
    pub fn into_source(self) -> R {
        self.source
    }

    /// Reads up to the next entry's data. None at the end: two blocks of zeros, or the end of the source.
    pub fn next(&mut self) -> Result<Option<Entry>, Fault> {
        let mut extensions = Extensions::default();
        loop {
            self.skip_data()?;
            let Some(block) = self.block()? else { return Ok(None) };
            if block.iter().all(|byte| *byte == 0) {
                return self.end().map(|()| None);
            }
            let header = Header::parse(&block)?;
            match header.kind() {
                b'x' => extensions.pax = Pax::parse(&self.extension(&header)?)?,
                b'g' => check_global(&self.extension(&header)?)?,
                b'L' => extensions.path = Some(until_nul(self.extension(&header)?)),
                b'K' => extensions.link = Some(until_nul(self.extension(&header)?)),
                _ => return self.entry(&header, extensions).map(Some),
            }
        }
    }

    fn entry(&mut self, header: &Header<'_>, extensions: Extensions) -> Result<Entry, Fault> {
        let Extensions { pax, path, link } = extensions;
        let path = pax.sparse.name.clone().or(pax.path).or(path).unwrap_or_else(|| header.path());
        let kind = kind_of(header.kind(), &path).map_err(|fault| fault.about(&path))?;
        // Other kinds have no data, whatever their header says.
        let stored = if kind == Kind::File { pax.size.map_or_else(|| header.size(), Ok)? } else { 0 };
        let gnu_map = if header.kind() == b'S' { Some(self.gnu_map(header, stored)?) } else { None };
        self.expect(stored)?;
        let content = match gnu_map {
            Some(map) => map,
            None => self.pax_map(pax.sparse, stored)?,
        };
        Ok(Entry {
            kind,
            content,
            link: pax.link.or(link).unwrap_or_else(|| header.link()),
            mode: header.mode()?,
            uid: pax.uid.map_or_else(|| header.uid(), Ok)?,
            gid: pax.gid.map_or_else(|| header.gid(), Ok)?,
            mtime: match pax.mtime {
                Some(time) => time,
                None => Time { seconds: header.mtime()?, nanoseconds: 0 },
            },
            attributes: pax.attributes,
            path,
        })
    }

    fn gnu_map(&mut self, header: &Header<'_>, stored: u64) -> Result<Sparse, Fault> {
        let (mut parts, mut has_more) = header.sparse_parts()?;
        while has_more {
            let block = self.block()?.ok_or_else(cut_short)?;
            let (more, again) = more_parts(&block)?;
            parts.extend(more);
            if parts.len() > SPARSE_PARTS {
                return Err(too_many());
            }
            has_more = again;
        }
        Sparse { size: header.sparse_size()?, parts }.check(stored)
    }

    /// The map that a PAX header gives or announces. A file without one is a single part.
    fn pax_map(&mut self, sparse: super::sparse::PaxSparse, stored: u64) -> Result<Sparse, Fault> {
        match sparse.map(self, stored, SPARSE_PARTS)? {
            Some((map, _)) => Ok(map),
            None => Sparse { size: stored, parts: vec![(0, stored)] }.check(stored),
        }
    }

    /// The content of an extension header.
    fn extension(&mut self, header: &Header<'_>) -> Result<Vec<u8>, Fault> {
        let size = header.size()?;
        if size > HEADER_BYTES {
            return Err(Fault::too_large("an extended header of an archive is over its limit"));
        }
        self.expect(size)?;
        let mut content = vec![0; size as usize];
        self.read_exact(&mut content).map_err(Fault::from)?;
        Ok(content)
    }

    fn expect(&mut self, bytes: u64) -> Result<(), Fault> {
        let whole = bytes.checked_next_multiple_of(BLOCK_BYTES as u64);
        let whole = whole.ok_or_else(|| Fault::too_large("a file is larger than any disk"))?;
        (self.data, self.padding) = (bytes, whole - bytes);
        Ok(())
    }

    fn skip_data(&mut self) -> Result<(), Fault> {
        let left = self.data.saturating_add(self.padding);
        let skipped = io::copy(&mut (&mut self.source).take(left), &mut io::sink())?;
        (self.data, self.padding) = (0, 0);
        if skipped < left { Err(cut_short()) } else { Ok(()) }
    }

    /// None at the end of the source.
    fn block(&mut self) -> Result<Option<Block>, Fault> {
        let mut block = [0; BLOCK_BYTES];
        let mut filled = 0;
        while filled < BLOCK_BYTES {
            match self.source.read(&mut block[filled..]) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => return Err(cut_short()),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Some(block))
    }

    /// Behind the first block of zeros there is another one, or nothing.
    fn end(&mut self) -> Result<(), Fault> {
        match self.block()? {
            Some(block) if block.iter().any(|byte| *byte != 0) => {
                Err(Fault::invalid("the archive continues behind its end"))
            }
            _ => Ok(()),
        }
    }
}

/// Reads the current entry's data.
impl<R: Read> Read for Archive<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = into.len().min(usize::try_from(self.data).unwrap_or(usize::MAX));
        if most == 0 {
            return Ok(0);
        }
        let count = self.source.read(&mut into[..most])?;
        if count == 0 {
            return Err(cut_short().into());
        }
        self.data -= count as u64;
        Ok(count)
    }
}

/// A regular file whose name ends with a slash is a directory of the oldest format.
fn kind_of(kind: u8, path: &[u8]) -> Result<Kind, Fault> {
    match kind {
        b'0' | 0 if path.ends_with(b"/") => Ok(Kind::Directory),
        b'0' | 0 | b'7' | b'S' => Ok(Kind::File),
        b'1' => Ok(Kind::HardLink),
        b'2' => Ok(Kind::SymbolicLink),
        b'5' => Ok(Kind::Directory),
        b'3' | b'4' | b'6' => Ok(Kind::Special),
        other => Err(Fault::invalid(format!("an entry has the unknown type {:?}", char::from(other)))),
    }
}

fn until_nul(mut text: Vec<u8>) -> Vec<u8> {
    text.truncate(text.iter().position(|byte| *byte == 0).unwrap_or(text.len()));
    text
}

fn cut_short() -> Fault {
    Fault::invalid("the archive is cut short")
}

#[cfg(test)]
#[path = "archive_test.rs"]
mod tests;
