//! `GET /v1/files/read`: what a file held when it was opened, as fast as the host takes it.

use std::fs::File;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::Response;
use hyper::header::CONTENT_LENGTH;
use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use tokio::sync::mpsc;

use super::faults::{Code, Fault};
use super::open;
use super::paths::{Path, Workspace};
use super::work::beside;
use crate::body::{self, Body, SizedStream};

const PIECE_BYTES: u64 = 256 * 1024;

pub async fn read(workspace: Workspace, path: Path, max_bytes: Option<u64>) -> Result<Response<Body>, Fault> {
    let (file, bytes) = beside(move || open_file(&workspace, &path, max_bytes)).await?;
    let mut response =
        Response::new(if bytes == 0 { body::whole(Full::default()) } else { stream(file, bytes) });
    response.headers_mut().insert(CONTENT_LENGTH, bytes.into());
    Ok(response)
}

fn open_file(workspace: &Workspace, path: &Path, max_bytes: Option<u64>) -> Result<(File, u64), Fault> {
    let file = open::regular_file(&open::existing(workspace, path)?)?;
    let bytes = file.metadata()?.len();
    match max_bytes {
        Some(most) if bytes > most => {
            Err(Fault::new(Code::TooLarge, format!("expected at most {most} bytes, got a file of {bytes}")))
        }
        _ => Ok((file, bytes)),
    }
}

fn stream(file: File, bytes: u64) -> Body {
    let (pieces, stream) = mpsc::channel(1);
    tokio::task::spawn_local(pump(Arc::new(file), bytes, pieces));
    Either::Left(Either::Right(SizedStream { pieces: stream, bytes_left: bytes }))
}

/// One piece waits while the next is being read. A piece that failed ends the stream.
async fn pump(file: Arc<File>, bytes: u64, pieces: mpsc::Sender<io::Result<Bytes>>) {
    let mut at = 0;
    while at < bytes {
        let (file, count) = (file.clone(), (bytes - at).min(PIECE_BYTES));
        let piece = tokio::task::spawn_blocking(move || read_piece(&file, at, count));
        let piece = piece.await.unwrap_or_else(|error| Err(io::Error::other(error)));
        let is_last = piece.is_err();
        if pieces.send(piece).await.is_err() || is_last {
            return;
        }
        at += count;
    }
}

/// All of it: a file that has become shorter than it said is an error.
fn read_piece(file: &File, at: u64, count: u64) -> io::Result<Bytes> {
    let mut piece = Vec::with_capacity(count as usize);
    while piece.len() < count as usize {
        let from = at + piece.len() as u64;
        match rustix::io::pread(file, spare_capacity(&mut piece), from) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(Errno::INTR) | Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
    }
    piece.truncate(count as usize);
    Ok(piece.into())
}

#[cfg(test)]
#[path = "read_test.rs"]
mod tests;
