//! `GET /v1/files/read`: sends a file, of the size that it had when it was opened, as fast as the host takes it.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http_body_util::{Either, Full};
use hyper::Response;
use hyper::header::CONTENT_LENGTH;
use rustix::io::{ReadWriteFlags, preadv2};
use tokio::sync::mpsc;

use super::faults::{Code, Fault};
use super::open::{self, Links};
use super::paths::{Path, Workspace};
use super::work::run_as_user;
use crate::body::{self, Body, SizedStream};

/// Size of a piece: the largest frame of HTTP/2 that the host takes. With its header (9 bytes) it fills whole writes.
const PIECE_BYTES: u64 = 256 * 1024 - 9;
/// Buffers in use: one piece is being sent, one is queued, and one is being read.
const BUFFERS: usize = 3;

pub struct Read {
    pub max_bytes: Option<u64>,
    pub links: Links,
}

pub async fn read(workspace: Workspace, path: Path, read: Read) -> Result<Response<Body>, Fault> {
    let (file, bytes) = run_as_user(move || open_file(&workspace, &path, read)).await?;
    let mut response =
        Response::new(if bytes == 0 { body::whole(Full::default()) } else { stream(file, bytes) });
    response.headers_mut().insert(CONTENT_LENGTH, bytes.into());
    Ok(response)
}

fn open_file(workspace: &Workspace, path: &Path, read: Read) -> Result<(File, u64), Fault> {
    let object = match read.links {
        Links::Follow => open::existing(workspace, path)?,
        Links::Refuse => open::plain(workspace, path)?,
    };
    let file = open::regular_file(&object)?;
    let bytes = file.metadata()?.len();
    match read.max_bytes {
        Some(most) if bytes > most => {
            Err(Fault::new(Code::TOO_LARGE, format!("expected at most {most} bytes, got a file of {bytes}")))
        }
        _ => Ok((file, bytes)),
    }
}

fn stream(file: File, bytes: u64) -> Body {
    let (pieces, stream) = mpsc::channel(1);
    tokio::task::spawn_local(pump(Arc::new(file), bytes, pieces));
    Either::Left(Either::Right(SizedStream { pieces: stream, bytes_left: bytes }))
}

/// Reads piece after piece; one is queued while the next is read. A failed read ends the stream.
async fn pump(file: Arc<File>, bytes: u64, pieces: mpsc::Sender<io::Result<Bytes>>) {
    let (mut at, mut buffers) = (0, Buffers::default());
    while at < bytes {
        let count = (bytes - at).min(PIECE_BYTES);
        let piece = piece_of(&file, at, buffers.take(count as usize)).await;
        let is_last = piece.is_err();
        if let Ok(piece) = &piece {
            buffers.0.push_back(piece.clone());
        }
        if pieces.send(piece).await.is_err() || is_last {
            return;
        }
        at += count;
    }
}

/// Reads a piece: at once from the page cache, otherwise on a pool thread.
async fn piece_of(file: &Arc<File>, at: u64, mut buffer: BytesMut) -> io::Result<Bytes> {
    let in_memory = preadv2(file, &mut [IoSliceMut::new(&mut buffer)], at, ReadWriteFlags::NOWAIT);
    if in_memory == Ok(buffer.len()) {
        return Ok(buffer.freeze());
    }
    let file = file.clone();
    let read = tokio::task::spawn_blocking(move || {
        // A file that is shorter than its reported size is an error.
        file.read_exact_at(&mut buffer, at).map(|()| buffer.freeze())
    });
    read.await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// The buffers of the last pieces. Sent ones are reused: new memory costs a page fault for each page.
#[derive(Default)]
struct Buffers(VecDeque<Bytes>);

impl Buffers {
    fn take(&mut self, bytes: usize) -> BytesMut {
        let oldest = if self.0.len() == BUFFERS { self.0.pop_front() } else { None };
        match oldest.map(Bytes::try_into_mut) {
            Some(Ok(mut sent)) if sent.len() >= bytes => {
                sent.truncate(bytes);
                sent
            }
            _ => BytesMut::zeroed(bytes),
        }
    }
}

#[cfg(test)]
#[path = "read_test.rs"]
mod tests;
