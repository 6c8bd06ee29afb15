//! HTTP bodies: requests of JSON, read completely up to a limit, and answers that are one buffer or a stream.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::Response;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::mpsc;

use crate::refusal::Refusal;

pub type Body = Either<Either<Full<Bytes>, SizedStream>, FrameStream>;

/// Limit of a JSON request: an argument list of the kernel's limit and an environment, escaped.
const JSON_BYTES: usize = 8 * 1024 * 1024;

pub fn whole(body: Full<Bytes>) -> Body {
    Either::Left(Either::Left(body))
}

pub fn stream(frames: mpsc::Receiver<Bytes>) -> Response<Body> {
    Response::new(Either::Right(FrameStream(frames)))
}

pub fn json(value: &impl Serialize) -> Result<Response<Body>, Refusal> {
    let text = serde_json::to_vec(value).map_err(|e| Refusal::internal("write the answer", e))?;
    Ok(Response::new(whole(Full::from(text))))
}

impl Refusal {
    pub fn into_response(self) -> Response<Body> {
        let text = json!({ "code": self.code, "message": self.message }).to_string();
        let mut response = Response::new(whole(Full::from(text)));
        *response.status_mut() = self.status;
        response
    }
}

pub async fn read_json<T: DeserializeOwned>(body: Incoming) -> Result<T, Refusal> {
    let bytes = Limited::new(body, JSON_BYTES)
        .collect()
        .await
        .map_err(|error| {
            Refusal::invalid(format!("body: expected at most {JSON_BYTES} bytes, read failed: {error}"))
        })?
        .to_bytes();
    serde_json::from_slice(&bytes).map_err(|error| Refusal::invalid(format!("body: {error}")))
}

/// The next bytes of a request. None at its end, and when the host breaks it off.
pub async fn next_data(body: &mut Incoming) -> Option<Bytes> {
    loop {
        if let Ok(data) = body.frame().await?.ok()?.into_data() {
            return Some(data);
        }
    }
}

/// An answer of frames from a channel. A full channel is the back-pressure; the channel closes when the host has gone.
pub struct FrameStream(pub mpsc::Receiver<Bytes>);

impl HttpBody for FrameStream {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    /// True as soon as the end is known, so that it is marked on the last frame and costs no frame of its own.
    fn is_end_stream(&self) -> bool {
        self.0.is_closed() && self.0.is_empty()
    }
}

/// An answer of a size announced in its headers. Ends with an error when fewer bytes come.
pub struct SizedStream {
    pub pieces: mpsc::Receiver<io::Result<Bytes>>,
    pub bytes_left: u64,
}

impl HttpBody for SizedStream {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.bytes_left == 0 {
            return Poll::Ready(None);
        }
        self.pieces.poll_recv(cx).map(|piece| {
            let piece = piece.unwrap_or_else(|| Err(io::ErrorKind::UnexpectedEof.into()));
            if let Ok(bytes) = &piece {
                self.bytes_left = self.bytes_left.saturating_sub(bytes.len() as u64);
            }
            Some(piece.map(Frame::data))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.bytes_left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes_left)
    }
}
