//! An SSH server for one connection. The caller has already authorised the connection, so every login of the machine's
//! user is accepted. The host key lets the client recognise the machine.
//!
//! `transport` turns bytes into messages (with `kex`, `cipher`, `host_key`). `connection` dispatches each message to its
//! channel in `mux`. `channel` and `link` limit how much each side sends. `session` and `program` run commands, `forward`
//! connects channels to sockets, `sftp` is a process of its own with the user's rights. `host` is the machine.
//!
//! No library is used because of the flow control: a library that reopens a window before the program has taken the
//! bytes must either buffer all bytes or block every channel for a slow one.

mod broken;
mod channel;
mod cipher;
mod connection;
mod copy;
mod forward;
mod host;
mod host_key;
mod kex;
mod link;
mod messages;
mod mux;
mod program;
mod pty;
mod session;
pub mod sftp;
mod signals;
#[cfg(test)]
mod testing;
mod transport;
mod wire;

pub use connection::{Input, serve};
pub use host::{Failure, Host, Later, Started, Streams, Task};
pub use host_key::HostKey;
