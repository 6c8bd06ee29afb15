//! `GET /v1/processes/{name}/logs`: the bytes that both logs have and, with `follow`, later ones. A slow reader skips
//! overwritten bytes and does not slow the process down.

use bytes::Bytes;
use hyper::Response;
use tokio::sync::mpsc;

use super::log::Log;
use super::process::Process;
use super::table::Processes;
use crate::body::{self, Body};
use crate::frames::{self, FrameType, PAYLOAD_BYTES};
use crate::refusal::Refusal;

/// Frames queued for a reader.
const FRAMES: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Wanted {
    tail_bytes: u64,
    follow: bool,
}

pub fn logs(processes: &Processes, name: &str, query: &str) -> Result<Response<Body>, Refusal> {
    let wanted = parse_query(query)?;
    let process = processes.find(name)?;
    let (frames, stream) = mpsc::channel(FRAMES);
    tokio::task::spawn_local(async move {
        tokio::select! {
            _ = answer(&process, wanted, &frames) => {}
            () = frames.closed() => {}
        }
    });
    Ok(body::stream(stream))
}

fn parse_query(query: &str) -> Result<Wanted, Refusal> {
    let mut wanted = Wanted { tail_bytes: u64::MAX, follow: false };
    for (key, value) in form_urlencoded::parse(query.as_bytes()) {
        let refused = |expected| Refusal::invalid(format!("{key}: expected {expected}, got {value:?}"));
        match key.as_ref() {
            "tail_bytes" => wanted.tail_bytes = value.parse().map_err(|_| refused("a number of bytes"))?,
            "follow" => wanted.follow = value.parse().map_err(|_| refused("true or false"))?,
            _ => {}
        }
    }
    Ok(wanted)
}

type Gone = mpsc::error::SendError<Bytes>;

async fn answer(process: &Process, wanted: Wanted, frames: &mpsc::Sender<Bytes>) -> Result<(), Gone> {
    // The logs of an exited process are answered once its last output is in them.
    while !wanted.follow && !process.is_running() && !process.is_over() {
        process.next_change().await;
    }
    let mut stdout = Reader::new(&process.stdout, FrameType::Stdout, wanted.tail_bytes);
    let mut stderr = Reader::new(&process.stderr, FrameType::Stderr, wanted.tail_bytes);
    if wanted.follow {
        loop {
            let is_over = process.is_over();
            let have_come =
                stdout.send_some(u64::MAX, frames).await? | stderr.send_some(u64::MAX, frames).await?;
            match (have_come, is_over) {
                (true, _) => {}
                (false, true) => break,
                (false, false) if stdout.is_behind() || stderr.is_behind() || process.is_over() => {}
                (false, false) => process.next_change().await,
            }
        }
    } else {
        let ends = (stdout.log.end(), stderr.log.end());
        while stdout.send_some(ends.0, frames).await? {}
        while stderr.send_some(ends.1, frames).await? {}
    }
    frames.send(frames::eof(stdout.is_truncated(), stderr.is_truncated())).await
}

struct Reader<'a> {
    log: &'a Log,
    kind: FrameType,
    at: u64,
    has_skipped: bool,
}

impl<'a> Reader<'a> {
    fn new(log: &'a Log, kind: FrameType, tail_bytes: u64) -> Self {
        let at = log.start().max(log.end().saturating_sub(tail_bytes));
        Reader { log, kind, at, has_skipped: at > 0 }
    }

    fn is_truncated(&self) -> bool {
        self.has_skipped || self.log.has_lost()
    }

    fn is_behind(&self) -> bool {
        self.at < self.log.end()
    }

    /// Sends one frame of the bytes before `end`. Returns false if there are none.
    async fn send_some(&mut self, end: u64, frames: &mpsc::Sender<Bytes>) -> Result<bool, Gone> {
        let wanted = end.min(self.log.end()).saturating_sub(self.at).min(PAYLOAD_BYTES as u64);
        if wanted == 0 {
            return Ok(false);
        }
        let Ok((from, bytes)) = self.log.read(self.at, wanted as usize).await else {
            // Root in the guest may have removed the file. The reader skips to the end.
            (self.at, self.has_skipped) = (end.min(self.log.end()), true);
            return Ok(true);
        };
        self.has_skipped |= from > self.at;
        self.at = from + bytes.len() as u64;
        if !bytes.is_empty() {
            frames.send(frames::encode(self.kind, &bytes)).await?;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_asked_for_by_its_tail_or_followed() {
        let parsed = |query| parse_query(query).ok();
        assert_eq!(parsed(""), Some(Wanted { tail_bytes: u64::MAX, follow: false }));
        assert_eq!(parsed("tail_bytes=10"), Some(Wanted { tail_bytes: 10, follow: false }));
        assert_eq!(parsed("follow=true&other=1"), Some(Wanted { tail_bytes: u64::MAX, follow: true }));
        for wrong in ["tail_bytes=", "tail_bytes=-1", "follow=1", "follow=yes"] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }
}
