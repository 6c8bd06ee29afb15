//! A host for tests: the user of this process, without programs and terminals.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use tokio::io::unix::AsyncFd;
use tokio::net::TcpStream;

use crate::host::{Host, Later, Started, Streams, Task};
use crate::host_key::HostKey;

#[derive(Default)]
pub struct TestHost(HostKey);

impl Host for TestHost {
    fn user(&self) -> &str {
        "sandbox"
    }

    fn host_key(&self) -> &HostKey {
        &self.0
    }

    fn spawn(&self, _: &Task, _: &BTreeMap<String, String>, _: &Streams<'_>) -> io::Result<Started> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn open_terminal(&self) -> io::Result<(AsyncFd<Rc<OwnedFd>>, OwnedFd)> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn dial<'a>(&'a self, name: &'a str, port: u16) -> Later<'a, io::Result<TcpStream>> {
        Box::pin(TcpStream::connect((name, port)))
    }

    fn as_user(&self, action: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        action()
    }

    fn log_failure(&self, _: &str, _: io::Error) {}
}
