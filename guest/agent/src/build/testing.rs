//! Archives that tests write byte by byte, and a place where images are unpacked: a root with something beside it.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use serde_json::json;

use super::entries::Totals;
use super::fault::{Code, Fault};
use super::header::{BLOCK_BYTES, Block};
use super::image;
use super::limits::{LIMITS, Limits};

const DISK_ALIGNMENT: u64 = 4096;

/// A header of format ustar, whose fields tests change.
pub struct Fields<'a> {
    pub kind: u8,
    pub path: &'a [u8],
    pub link: &'a [u8],
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub mtime: u64,
}

impl Default for Fields<'_> {
    fn default() -> Self {
        Fields { kind: b'0', path: b"", link: b"", mode: 0o644, uid: 0, gid: 0, size: 0, mtime: 1_000_000 }
    }
}

impl Fields<'_> {
    pub fn block(&self) -> Block {
        let mut block = [0; BLOCK_BYTES];
        block[..self.path.len()].copy_from_slice(self.path);
        octal(&mut block[100..108], self.mode.into());
        octal(&mut block[108..116], self.uid.into());
        octal(&mut block[116..124], self.gid.into());
        octal(&mut block[124..136], self.size);
        octal(&mut block[136..148], self.mtime);
        block[156] = self.kind;
        block[157..157 + self.link.len()].copy_from_slice(self.link);
        block[257..265].copy_from_slice(b"ustar\x0000");
        summed(block)
    }
}

pub fn octal(field: &mut [u8], value: u64) {
    let text = format!("{value:0width$o}", width = field.len() - 1);
    field[..text.len()].copy_from_slice(text.as_bytes());
}

/// With the right checksum.
pub fn summed(mut block: Block) -> Block {
    block[148..156].fill(b' ');
    let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
    octal(&mut block[148..155], sum);
    block
}

#[derive(Clone, Default)]
pub struct Tar(Vec<u8>);

impl Tar {
    pub fn new() -> Tar {
        Tar::default()
    }

    pub fn raw(mut self, block: Block, data: &[u8]) -> Tar {
        self.0.extend_from_slice(&block);
        self.0.extend_from_slice(data);
        self.0.resize(self.0.len().next_multiple_of(BLOCK_BYTES), 0);
        self
    }

    pub fn entry(self, fields: Fields<'_>, data: &[u8]) -> Tar {
        self.raw(Fields { size: data.len() as u64, ..fields }.block(), data)
    }

    pub fn file(self, path: &str, data: impl AsRef<[u8]>) -> Tar {
        self.entry(Fields { path: path.as_bytes(), ..Fields::default() }, data.as_ref())
    }

    pub fn directory(self, path: &str) -> Tar {
        self.entry(Fields { kind: b'5', path: path.as_bytes(), mode: 0o755, ..Fields::default() }, b"")
    }

    pub fn symbolic_link(self, path: &str, link: &str) -> Tar {
        let (path, link) = (path.as_bytes(), link.as_bytes());
        self.entry(Fields { kind: b'2', path, link, ..Fields::default() }, b"")
    }

    pub fn hard_link(self, path: &str, link: &str) -> Tar {
        let (path, link) = (path.as_bytes(), link.as_bytes());
        self.entry(Fields { kind: b'1', path, link, ..Fields::default() }, b"")
    }

    pub fn pax(self, records: &[(&str, &[u8])]) -> Tar {
        let content: Vec<u8> = records.iter().flat_map(|(key, value)| pax_record(key, value)).collect();
        self.entry(Fields { kind: b'x', path: b"PaxHeaders/x", ..Fields::default() }, &content)
    }

    /// With the two blocks at its end.
    pub fn end(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 2 * BLOCK_BYTES, 0);
        self.0
    }

    /// Without an end.
    pub fn open(self) -> Vec<u8> {
        self.0
    }
}

pub fn pax_record(key: &str, value: &[u8]) -> Vec<u8> {
    let body = [b" ", key.as_bytes(), b"=", value, b"\n"].concat();
    let length = (1..).find(|length: &usize| length.to_string().len() + body.len() == *length).unwrap();
    [length.to_string().as_bytes(), &body].concat()
}

/// A layer as a registry has it.
pub struct Packed {
    pub compression: &'static str,
    pub bytes: Vec<u8>,
    pub diff_id: String,
}

pub fn plain(tar: Vec<u8>) -> Packed {
    Packed { compression: "none", diff_id: sha256(&tar), bytes: tar }
}

pub fn gzip(tar: &[u8]) -> Packed {
    Packed { compression: "gzip", diff_id: sha256(tar), bytes: gzipped(tar) }
}

pub fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub fn sha256(bytes: &[u8]) -> String {
    let sum = ring::digest::digest(&ring::digest::SHA256, bytes);
    format!("sha256:{}", sum.as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

/// A root for images, in a directory with a file that no image may touch.
pub struct Place {
    place: tempfile::TempDir,
    pub limits: Limits,
}

impl Place {
    pub fn new() -> Place {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("root")).unwrap();
        fs::create_dir(place.path().join("outside")).unwrap();
        fs::write(place.path().join("outside/file"), "outside").unwrap();
        Place { place, limits: LIMITS }
    }

    pub fn root(&self) -> PathBuf {
        self.place.path().join("root")
    }

    pub fn outside(&self) -> PathBuf {
        self.place.path().join("outside")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    pub fn unpack_packed(&self, layers: &[Packed]) -> Result<Totals, Fault> {
        let disk = self.disk(layers);
        image::unpack(disk, &self.root(), &self.limits, &(Rc::new(|_, _| Ok(())) as image::Report))
    }

    /// The builder's second disk, as the host makes it.
    fn disk(&self, layers: &[Packed]) -> File {
        let path = self.place.path().join("layers");
        let disk = File::options().create(true).truncate(true).read(true).write(true).open(path).unwrap();
        let end = Cell::new(DISK_ALIGNMENT * 8);
        let rows: Vec<_> = layers
            .iter()
            .map(|layer| {
                let (offset, bytes) = (end.get(), layer.bytes.len() as u64);
                disk.write_all_at(&layer.bytes, offset).unwrap();
                end.set((offset + bytes).next_multiple_of(DISK_ALIGNMENT));
                let (compression, diff_id) = (layer.compression, &layer.diff_id);
                json!({ "offset": offset, "bytes": bytes, "compression": compression, "diff_id": diff_id })
            })
            .collect();
        disk.write_all_at(json!({ "layers": rows }).to_string().as_bytes(), 0).unwrap();
        disk
    }

    /// Unpacks archives that are layers of one image.
    pub fn unpack(&self, layers: impl IntoIterator<Item = Tar>) -> Result<Totals, Fault> {
        let packed: Vec<Packed> = layers.into_iter().map(|tar| plain(tar.end())).collect();
        self.unpack_packed(&packed)
    }

    pub fn refusal(&self, layers: impl IntoIterator<Item = Tar>) -> Code {
        let code = self.unpack(layers).unwrap_err().code;
        self.assert_outside_is_whole();
        code
    }

    pub fn assert_outside_is_whole(&self) {
        assert_eq!(names_in(&self.outside()), ["file"]);
        assert_eq!(fs::read_to_string(self.outside().join("file")).unwrap(), "outside");
        let mut beside = names_in(self.place.path());
        beside.retain(|name| name != "layers");
        assert_eq!(beside, ["outside", "root"]);
    }

    pub fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// Every name below the root, sorted; directories end with a slash.
    pub fn tree(&self) -> Vec<String> {
        let (root, mut found) = (self.root(), Vec::new());
        walk(&root, &root, &mut found);
        found.sort();
        found
    }

    pub fn mode(&self, name: &str) -> u32 {
        fs::symlink_metadata(self.path(name)).unwrap().permissions().mode() & 0o7777
    }

    pub fn inode(&self, name: &str) -> u64 {
        fs::symlink_metadata(self.path(name)).unwrap().ino()
    }
}

fn walk(root: &Path, directory: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let name = entry.path().strip_prefix(root).unwrap().to_str().unwrap().to_owned();
        let is_directory = entry.file_type().unwrap().is_dir();
        found.push(if is_directory { name + "/" } else { name });
        if is_directory {
            walk(root, &entry.path(), found);
        }
    }
}

fn names_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
