//! Connects one client with a terminal until either of them ends.

use std::cell::Cell;
use std::rc::Rc;

use bytes::Bytes;
use hyper::body::Incoming;
use tokio::sync::mpsc;

use super::backlog::ClientId;
use super::frames::{Decoder, Input};
use super::terminal::Terminal;
use crate::body::next_data;
use crate::machine::Machine;

/// Chunks of input queued for a program that does not read. Past them the client's request is not read any further.
const INPUT_CHUNKS: usize = 8;

pub struct Inputs {
    body: Incoming,
    decoder: Decoder,
}

impl Inputs {
    pub fn new(body: Incoming) -> Inputs {
        Inputs { body, decoder: Decoder::default() }
    }

    /// The next input; None when the request has ended or broke off.
    pub async fn next(&mut self) -> Option<Input> {
        loop {
            if let Some(input) = self.decoder.next() {
                return Some(input);
            }
            self.decoder.push(next_data(&mut self.body).await?);
        }
    }
}

/// A client's request: its input, and the channel of its output.
pub struct Connected {
    pub inputs: Inputs,
    pub frames: mpsc::Sender<Bytes>,
}

pub async fn serve(machine: Rc<Machine>, terminal: Rc<Terminal>, client: ClientId, connected: Connected) {
    let Connected { inputs, frames } = connected;
    let has_left = tokio::select! {
        has_left = send_output(&terminal, client, &frames) => has_left,
        () = take_input(&terminal, inputs) => true,
        () = frames.closed() => true,
    };
    terminal.leave(client);
    drop(frames);
    if has_left && terminal.name.is_none() {
        // Not during a capture: the terminal is hung up after it, and in each machine loaded from the snapshot.
        machine.wait_for_thaw().await;
        terminal.ask_to_hang_up();
    }
}

/// Sends frames until the last one. Returns whether the client left before it.
async fn send_output(terminal: &Terminal, client: ClientId, frames: &mpsc::Sender<Bytes>) -> bool {
    loop {
        let (frame, is_last) = terminal.next_frame(client).await;
        let is_sent = frames.send(frame).await.is_ok();
        if is_last || !is_sent {
            return !is_last;
        }
    }
}

/// Passes the client's input to the terminal until the request ends. Resizes and signals overtake unread data.
async fn take_input(terminal: &Terminal, mut inputs: Inputs) {
    let (waiting, waits) = mpsc::channel(INPUT_CHUNKS);
    let waiting_chunks = Cell::new(0);
    let waiting_chunks = &waiting_chunks;
    let read = async move {
        while let Some(input) = inputs.next().await {
            let Some(pty) = terminal.pty() else { continue };
            match input {
                Input::Open(_) => {}
                Input::Resize { rows, cols } => pty.resize(rows, cols),
                Input::Signal(number) => pty.signal(number),
                Input::Data(mut data) => {
                    if waiting_chunks.get() == 0 {
                        drop(data.split_to(pty.write_now(&data).unwrap_or(0)));
                    }
                    drop(pty);
                    if !data.is_empty() {
                        waiting_chunks.set(waiting_chunks.get() + 1);
                        let _ = waiting.send(data).await;
                    }
                }
            }
        }
    };
    tokio::select! {
        () = read => {}
        () = write(terminal, waits, waiting_chunks) => {}
    }
}

async fn write(terminal: &Terminal, mut waits: mpsc::Receiver<Bytes>, waiting_chunks: &Cell<usize>) {
    while let Some(data) = waits.recv().await {
        if let Some(pty) = terminal.pty() {
            let _ = pty.write_all(&data).await;
        }
        waiting_chunks.set(waiting_chunks.get() - 1);
    }
    std::future::pending().await
}
