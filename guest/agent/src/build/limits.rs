//! Limits of one image. They are counted where bytes are written, so what a later layer replaces counts too.

const MIB: u64 = 1024 * 1024;
const GIB: u64 = 1024 * MIB;

#[derive(Clone, Copy)]
pub struct Limits {
    /// Bytes of files.
    pub bytes: u64,
    /// Files, directories and links; the disk has 524,288 inodes.
    pub inodes: u64,
    /// Names of one layer, which are remembered while it is unpacked.
    pub names: u64,
    /// Unpacked bytes of a layer for each byte that was fetched, past the first `ratio_free` bytes.
    pub ratio: u64,
    pub ratio_free: u64,
}

pub const LIMITS: Limits =
    Limits { bytes: 7 * GIB, inodes: 450_000, names: 2_000_000, ratio: 200, ratio_free: 100 * MIB };

/// Bytes of a path in an archive.
pub const PATH_BYTES: usize = 1024;
/// Names of a path in an archive.
pub const PATH_LEVELS: usize = 256;
/// The longest target of a symbolic link that the kernel takes.
pub const LINK_BYTES: usize = 4095;
/// Bytes of a PAX header, and of the map of a sparse file.
pub const HEADER_BYTES: u64 = MIB;
/// Parts of a sparse file.
pub const SPARSE_PARTS: usize = 65_536;
/// Directories below each other that a removal descends. Links let archives nest them deeper than their paths.
pub const REMOVAL_LEVELS: usize = 512;
