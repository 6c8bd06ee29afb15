//! Unpacks an image: the layers on the builder's second disk, in the order of its table, into the root of the first one.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;

use serde::Deserialize;

use super::archive::Archive;
use super::content::{Compression, Content, DiffId, Stored};
use super::entries::{Layer, Totals};
use super::environment;
use super::fault::Fault;
use super::limits::Limits;
use super::root::{Root, remove_lost_and_found};

/// The most bytes of the table at the beginning of the disk, which ends with a NUL.
const TABLE_BYTES: u64 = 1024 * 1024;
const BUFFER_BYTES: usize = 256 * 1024;

#[derive(Deserialize)]
struct Table {
    layers: Vec<Row>,
    /// The image's variables, as lines of /etc/environment.
    #[serde(default)]
    environment: String,
}

#[derive(Deserialize)]
struct Row {
    offset: u64,
    bytes: u64,
    compression: Compression,
    diff_id: String,
}

/// Called with a layer's number and the bytes of it that are read. Its fault ends the work.
pub type Report = Rc<dyn Fn(usize, u64) -> Result<(), Fault>>;

pub fn unpack(disk: File, target: &Path, limits: &Limits, report: &Report) -> Result<Totals, Fault> {
    let root = Root::open(target)?;
    remove_lost_and_found(&root)?;
    let table = read_table(&disk)?;
    let disk = Rc::new(disk);
    let mut totals = Totals::default();
    for (number, row) in table.layers.iter().enumerate() {
        let source = Source {
            disk: disk.clone(),
            begin: row.offset,
            at: row.offset,
            end: row.offset + row.bytes,
            number,
            report: report.clone(),
        };
        unpack_layer(&root, source, row, limits, &mut totals).map_err(|fault| Fault {
            message: format!("layer {}: {}", number + 1, fault.message),
            ..fault
        })?;
    }
    if root.is_empty()? {
        return Err(Fault::invalid("the image has no files"));
    }
    environment::append(&root, &table.environment)?;
    Ok(totals)
}

fn read_table(disk: &File) -> Result<Table, Fault> {
    let broken = |error: String| Fault::internal("read the table of layers", error);
    let mut bytes = Vec::new();
    disk.take(TABLE_BYTES).read_to_end(&mut bytes).map_err(|error| broken(error.to_string()))?;
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    serde_json::from_slice(text).map_err(|error| broken(error.to_string()))
}

fn unpack_layer(
    root: &Root,
    source: Source,
    row: &Row,
    limits: &Limits,
    totals: &mut Totals,
) -> Result<(), Fault> {
    let stored = Stored {
        source: BufReader::with_capacity(BUFFER_BYTES, source),
        bytes: row.bytes,
        compression: row.compression,
        diff_id: DiffId::parse(&row.diff_id)?,
    };
    let mut archive = Archive::new(Content::open(stored, limits)?);
    let mut layer = Layer::begin(root, limits, totals);
    while let Some(entry) = archive.next()? {
        layer.put(&entry, &mut archive)?;
    }
    layer.finish()?;
    archive.into_source().finish()
}

/// A layer on the disk.
struct Source {
    disk: Rc<File>,
    begin: u64,
    at: u64,
    end: u64,
    number: usize,
    report: Report,
}

impl Read for Source {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = into.len().min(usize::try_from(self.end - self.at).unwrap_or(usize::MAX));
        let read = self.disk.read_at(&mut into[..most], self.at);
        let count = read.map_err(|error| Fault::internal("read the disk of layers", error))?;
        self.at += count as u64;
        (self.report)(self.number, self.at - self.begin)?;
        Ok(count)
    }
}

#[cfg(test)]
#[path = "image_test.rs"]
mod tests;
