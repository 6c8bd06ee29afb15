//! Forwards a command's output from its pipes into frames, no faster than the host takes them.

use std::io;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use crate::frames::{self, FrameType, HEADER_BYTES};
use crate::launch::Child;
use crate::pipe::Pipe;

/// One output stream of a command.
struct Output {
    pipe: Pipe,
    kind: FrameType,
    limit_bytes: Option<u64>,
}

/// How long background processes may keep the pipes open after the command's end.
pub const PIPES_CLOSE_WITHIN: Duration = Duration::from_millis(500);

/// Forwards both streams of a child until they close, or shortly after its `end`. Returns the end, and whether bytes of
/// stdout and of stderr were dropped.
pub async fn forward_both<T>(
    child: Child,
    limit_bytes: Option<u64>,
    frames: &mpsc::Sender<Bytes>,
    end: impl Future<Output = T>,
) -> (T, (bool, bool)) {
    let (cut, is_cut) = watch::channel(false);
    let one = |pipe, kind| forward(Output { pipe, kind, limit_bytes }, frames.clone(), is_cut.clone());
    let mut outputs = pin!(async {
        tokio::join!(one(child.stdout, FrameType::Stdout), one(child.stderr, FrameType::Stderr))
    });
    let mut end = pin!(end);
    let mut truncated = None;
    let end = loop {
        tokio::select! {
            end = &mut end => break end,
            both = &mut outputs, if truncated.is_none() => truncated = Some(both),
        }
    };
    if truncated.is_none() {
        truncated = timeout(PIPES_CLOSE_WITHIN, &mut outputs).await.ok();
    }
    match truncated {
        Some(truncated) => (end, truncated),
        None => {
            let _ = cut.send(true);
            (end, outputs.await)
        }
    }
}

/// Forwards one stream to its end or, once `cut` turns true, the bytes that are in the pipe at that moment: background
/// processes may keep the pipe open for ever. Returns whether bytes were dropped.
async fn forward(mut output: Output, frames: mpsc::Sender<Bytes>, mut cut: watch::Receiver<bool>) -> bool {
    let mut allowed = output.limit_bytes.unwrap_or(u64::MAX);
    let mut truncated = false;
    let mut last: Option<u64> = None;
    while last != Some(0) {
        let mut frame = frames::begin(output.kind);
        let count = tokio::select! {
            biased;
            // Checked first: a background process that never pauses always has bytes in the pipe.
            true = is_cut(&mut cut), if last.is_none() => {
                last = Some(output.pipe.waiting());
                continue;
            }
            count = output.pipe.read(&mut frame) => count.unwrap_or(0),
        };
        if count == 0 {
            return truncated;
        }
        last = last.map(|last| last.saturating_sub(count as u64));
        let kept = allowed.min(count as u64) as usize;
        allowed -= kept as u64;
        truncated |= kept < count;
        frame.truncate(HEADER_BYTES + kept);
        if kept > 0 && frames.send(frames::finish(frame)).await.is_err() {
            // The host has gone. The command may continue, so its pipe stays open and is drained.
            break;
        }
    }
    tokio::task::spawn_local(drain(output.pipe));
    truncated
}

async fn is_cut(cut: &mut watch::Receiver<bool>) -> bool {
    cut.wait_for(|cut| *cut).await.is_ok()
}

/// Reads and drops the rest: a background process that outlives its command must not die of a closed pipe.
async fn drain(mut pipe: Pipe) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(4096);
    while pipe.read(&mut buffer).await? > 0 {
        buffer.clear();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use tokio::time::sleep;

    fn pipe() -> (Pipe, std::io::PipeWriter) {
        let (reader, writer) = std::io::pipe().unwrap();
        (Pipe::new(reader.into()).unwrap(), writer)
    }

    async fn collect(mut frames: mpsc::Receiver<Bytes>) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some(frame) = frames.recv().await {
            assert!(frame.len() <= frames::PAYLOAD_BYTES + 5);
            all.extend_from_slice(&frame[5..]);
        }
        all
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, future)
    }

    fn output(pipe: Pipe, limit_bytes: Option<u64>) -> Output {
        let kind = FrameType::Stdout;
        Output { pipe, kind, limit_bytes }
    }

    #[test]
    fn output_past_the_limit_is_drained_and_dropped() {
        run(async {
            let (pipe, mut writer) = pipe();
            let (sender, receiver) = mpsc::channel(2);
            let (_cut, never) = watch::channel(false);
            let writing = std::thread::spawn(move || writer.write_all(&[b'x'; 300_000]).unwrap());
            let (truncated, all) =
                tokio::join!(forward(output(pipe, Some(100_001)), sender, never), collect(receiver));
            writing.join().unwrap();
            assert!(truncated);
            assert_eq!(all, vec![b'x'; 100_001]);
        });
    }

    #[test]
    fn a_pipe_held_open_ends_with_what_is_in_it_when_cut() {
        run(async {
            let (pipe, mut writer) = pipe();
            writer.write_all(&[b'y'; 50_000]).unwrap();
            let (sender, receiver) = mpsc::channel(1);
            let (cut, watched) = watch::channel(true);
            let (truncated, all) =
                tokio::join!(forward(output(pipe, None), sender, watched), collect(receiver));
            drop(cut);
            assert!(!truncated);
            assert_eq!(all.len(), 50_000);
            writer.write_all(b"still taken").unwrap();
        });
    }

    #[test]
    fn a_writer_that_never_pauses_does_not_put_off_the_cut() {
        run(async {
            let (pipe, mut writer) = pipe();
            let (sender, mut receiver) = mpsc::channel(1);
            let (cut, watched) = watch::channel(false);
            let is_over = Arc::new(AtomicBool::new(false));
            let until = is_over.clone();
            let writing = std::thread::spawn(move || {
                while !until.load(Relaxed) {
                    writer.write_all(&[b'z'; 64 * 1024]).unwrap();
                }
            });
            let reading = tokio::task::spawn_local(async move {
                while receiver.recv().await.is_some() {
                    sleep(Duration::from_millis(2)).await;
                }
            });
            let forwarding = tokio::task::spawn_local(forward(output(pipe, None), sender, watched));
            sleep(Duration::from_millis(50)).await;
            assert!(!forwarding.is_finished());
            cut.send(true).unwrap();
            let ended = timeout(Duration::from_secs(20), forwarding).await;
            is_over.store(true, Relaxed);
            assert!(!ended.expect("it never ends").unwrap());
            reading.await.unwrap();
            until_done(writing).await;
        });
    }

    /// The rest of the pipe is read on meanwhile.
    async fn until_done(thread: std::thread::JoinHandle<()>) {
        while !thread.is_finished() {
            sleep(Duration::from_millis(1)).await;
        }
        thread.join().unwrap();
    }
}
