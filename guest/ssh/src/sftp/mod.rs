//! An SFTP server, version 3 (draft-ietf-secsh-filexfer-02) with the extensions that OpenSSH's clients use. It runs as a
//! process of its own with the user's ids, so that the kernel checks the user's access, and a slow disk blocks nothing
//! else. Requests run one after the other; clients send many before they wait for an answer.

mod answer;
mod attributes;
mod extensions;
mod files;
mod handles;
mod request;

use std::io::{BufRead, BufReader, BufWriter, Read, Write};

use crate::sftp::answer::REQUEST_BYTES;
use crate::sftp::request::Server;

/// The first argument with which this program is an SFTP server.
pub const NAME: &str = "sftp";
/// Size of the read and write buffers: several requests of a client that writes.
const BUFFER_BYTES: usize = 128 * 1024;
const LENGTH_BYTES: usize = 4;

pub fn serve() {
    // Returns when the client has gone: the input ends, or the output fails.
    let mut input = BufReader::with_capacity(BUFFER_BYTES, std::io::stdin().lock());
    let mut output = BufWriter::with_capacity(BUFFER_BYTES, std::io::stdout().lock());
    let _ = run(&mut input, &mut output);
}

fn run(input: &mut BufReader<impl Read>, output: &mut impl Write) -> std::io::Result<()> {
    let mut server = Server::default();
    let mut request = Vec::new();
    loop {
        let mut length = [0; LENGTH_BYTES];
        input.read_exact(&mut length)?;
        let length = u32::from_be_bytes(length) as usize;
        if !(1..=REQUEST_BYTES + 1024).contains(&length) {
            return Ok(());
        }
        request.resize(length, 0);
        input.read_exact(&mut request)?;
        let Ok(answer) = server.answer(&request) else { return Ok(()) };
        output.write_all(&(answer.len() as u32).to_be_bytes())?;
        output.write_all(&answer)?;
        // Answers are sent together while more requests are buffered.
        if input.buffer().is_empty() {
            output.flush()?;
            input.fill_buf()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Message;

    fn frame(message: Message) -> Vec<u8> {
        Message::part().string(message).into_bytes()
    }

    #[test]
    fn requests_are_answered_in_their_order_until_the_input_ends() {
        let stat = |id| frame(Message::new(17).u32(id).string("/"));
        let requests = [frame(Message::new(1).u32(3)), stat(7), stat(8)].concat();
        let mut answers = Vec::new();
        let _ = run(&mut BufReader::new(&requests[..]), &mut answers);
        let mut kinds = Vec::new();
        let mut rest = crate::wire::Reader::new(&answers);
        while let Ok(answer) = rest.string() {
            kinds.push((answer[0], answer[4]));
        }
        assert_eq!(kinds, [(2, 3), (105, 7), (105, 8)]);
    }

    #[test]
    fn a_request_of_absurd_length_ends_the_server() {
        let mut answers = Vec::new();
        assert!(run(&mut BufReader::new(&[0xff; 64][..]), &mut answers).is_ok());
        assert!(answers.is_empty());
    }
}
