//! The content of a layer: decompressed, summed, and bounded by the size that was fetched.

use std::io::{self, BufRead, Read};

use ring::digest::{Algorithm, Context, SHA256, SHA512};
use serde::Deserialize;

use super::fault::Fault;
use super::limits::Limits;

const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// A frame without content, by its last three bytes.
const ZSTD_SKIPPED: &[u8] = &[0x2a, 0x4d, 0x18];
/// 128 MiB, the largest window that zstd itself makes without being asked for more.
const ZSTD_WINDOW_LOG: u32 = 27;

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    None,
    Gzip,
    Zstd,
}

pub struct Content {
    decoder: Box<dyn Read>,
    diff_id: DiffId,
    sum: Context,
    seen: u64,
    most: u64,
}

/// A layer as it was fetched.
pub struct Stored<R> {
    pub source: R,
    pub bytes: u64,
    /// By the type that its registry gave it.
    pub compression: Compression,
    /// Digest of the content, by the configuration.
    pub diff_id: DiffId,
}

pub struct DiffId {
    algorithm: &'static Algorithm,
    hex: String,
}

impl DiffId {
    pub fn parse(text: &str) -> Result<DiffId, Fault> {
        let (name, hex) = text.split_once(':').unwrap_or_default();
        let algorithm = match name {
            "sha256" => &SHA256,
            "sha512" => &SHA512,
            _ => return Err(Fault::internal("read the table of layers", format!("{text:?} is no digest"))),
        };
        Ok(DiffId { algorithm, hex: hex.to_owned() })
    }
}

impl Content {
    pub fn open<R: BufRead + 'static>(layer: Stored<R>, limits: &Limits) -> Result<Content, Fault> {
        let Stored { mut source, bytes, compression, diff_id } = layer;
        let found = compression_of(source.fill_buf()?);
        if found != compression {
            let message = format!("a layer is compressed as {found:?}, and its type says {compression:?}");
            return Err(Fault::invalid(message));
        }
        let decoder: Box<dyn Read> = match compression {
            Compression::None => Box::new(source),
            // Each further member must be whole, so that nothing can follow the last one.
            Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(source)),
            Compression::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(source)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG)?;
                Box::new(decoder)
            }
        };
        let most = limits.ratio_free.max(limits.ratio.saturating_mul(bytes));
        Ok(Content { decoder, sum: Context::new(diff_id.algorithm), diff_id, seen: 0, most })
    }

    /// Reads the rest, which an archive has behind its end, and compares the sum of all.
    pub fn finish(mut self) -> Result<(), Fault> {
        io::copy(&mut self, &mut io::sink())?;
        let sum = self.sum.finish();
        let hex: String = sum.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        if hex == self.diff_id.hex {
            return Ok(());
        }
        Err(Fault::invalid("a layer has another content than the image's configuration says"))
    }
}

impl Read for Content {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.decoder.read(into).map_err(undecoded)?;
        self.seen += count as u64;
        if self.seen > self.most {
            return Err(Fault::too_large("a layer unpacks to far more than was fetched").into());
        }
        self.sum.update(&into[..count]);
        Ok(count)
    }
}

fn compression_of(head: &[u8]) -> Compression {
    if head.starts_with(GZIP) {
        return Compression::Gzip;
    }
    let is_skipped = head.get(1..4) == Some(ZSTD_SKIPPED) && head[0] & 0xf0 == 0x50;
    if head.starts_with(ZSTD) || is_skipped { Compression::Zstd } else { Compression::None }
}

/// An error of the decoder is one of the layer. The source's own errors are faults, and pass through the decoder.
fn undecoded(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::Interrupted || error.get_ref().is_some_and(|inner| inner.is::<Fault>())
    {
        return error;
    }
    Fault::invalid(format!("a layer cannot be decompressed: {error}")).into()
}

#[cfg(test)]
#[path = "content_test.rs"]
mod tests;
