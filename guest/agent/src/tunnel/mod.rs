//! `POST /v1/tunnel`: an SSH server in the agent (the crate `ssh`), so that images need none.

mod host;
mod login;
mod opening;
mod resolve;
#[cfg(debug_assertions)]
mod stdio;

use std::collections::BTreeMap;
use std::rc::Rc;

use hyper::Response;
use hyper::body::Incoming;
use tokio::sync::mpsc;

use crate::body::{self, Body};
use crate::launch;
use crate::machine::Machine;
use crate::refusal::Refusal;
use host::Guest;
use login::Login;

/// Pieces queued between SSH and HTTP/2. Further ones stay in the SSH link.
const PIECES: usize = 1;

pub async fn tunnel(machine: &Rc<Machine>, body: Incoming) -> Result<Response<Body>, Refusal> {
    let (spec, input) = opening::read(body).await?;
    let env = spec.env.clone();
    let login = launch::run_on_thread(&launch::READ_PERMITS, move || {
        let login = Login::of_the_user();
        login.environment(vec![], &env, &BTreeMap::new()).map(|_| login)
    });
    let login = login.await??;
    let machine = machine.clone();
    let (output, stream) = mpsc::channel(PIECES);
    tokio::task::spawn_local(async move {
        let _member = machine.burst.join();
        let guest = Guest { machine: machine.clone(), login, environment: spec.env, has_cgroups: true };
        ssh::serve(Rc::new(guest), input, output).await;
    });
    Ok(body::stream(stream))
}

/// The helper that this process was started as: the SFTP server, or in debug builds SSH over stdio.
pub fn helper() -> Option<fn()> {
    // The kernel passes unknown words of its command line to PID 1.
    if std::process::id() == 1 {
        return None;
    }
    match std::env::args().nth(1)?.as_str() {
        ssh::sftp::NAME => Some(ssh::sftp::serve),
        #[cfg(debug_assertions)]
        stdio::NAME => Some(stdio::serve),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::FrameStream;
    use crate::cgroup::Cgroups;
    use bytes::Bytes;
    use http_body_util::BodyExt;
    use hyper::service::service_fn;
    use hyper::{Request, StatusCode};
    use hyper_util::rt::TokioIo;

    #[derive(Clone)]
    struct Here;

    impl<F: Future + 'static> hyper::rt::Executor<F> for Here {
        fn execute(&self, future: F) {
            tokio::task::spawn_local(async {
                future.await;
            });
        }
    }

    /// A tunnel through HTTP/2, as the node opens it, and a sender for more bytes.
    async fn open(first: &[u8]) -> (mpsc::Sender<Bytes>, Response<Incoming>) {
        let machine = Rc::new(Machine::new(Cgroups::of("/nonexistent")).unwrap());
        let (host, guest) = tokio::io::duplex(64 * 1024);
        let service = service_fn(move |request: Request<Incoming>| {
            let machine = machine.clone();
            async move {
                let answer = tunnel(&machine, request.into_body()).await;
                Ok::<_, std::convert::Infallible>(answer.unwrap_or_else(Refusal::into_response))
            }
        });
        Here.execute_local(
            hyper::server::conn::http2::Builder::new(Here).serve_connection(TokioIo::new(guest), service),
        );
        let (mut requests, connection) =
            hyper::client::conn::http2::handshake(Here, TokioIo::new(host)).await.unwrap();
        Here.execute_local(connection);
        let (sender, body) = mpsc::channel(4);
        sender.send(Bytes::copy_from_slice(first)).await.unwrap();
        let request = Request::post("http://guest/v1/tunnel").body(FrameStream(body)).unwrap();
        (sender, requests.send_request(request).await.unwrap())
    }

    impl Here {
        fn execute_local(&self, future: impl Future + 'static) {
            hyper::rt::Executor::execute(self, future);
        }
    }

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, test);
    }

    const OPENING: &[u8] = b"\0\0\0\0\x0a{\"env\":{}}";

    async fn next(answer: &mut Response<Incoming>) -> Option<Bytes> {
        answer.body_mut().frame().await.map(|frame| frame.unwrap().into_data().unwrap())
    }

    #[test]
    fn a_tunnel_answers_at_once_and_ends_when_the_client_does() {
        run(async {
            let (client, mut answer) = open(OPENING).await;
            assert_eq!(answer.status(), StatusCode::OK);
            assert!(next(&mut answer).await.unwrap().starts_with(b"SSH-2.0-"));
            drop(client);
            while next(&mut answer).await.is_some() {}
        });
    }

    #[test]
    fn a_client_that_breaks_the_protocol_is_disconnected_with_the_reason() {
        run(async {
            let (client, mut answer) = open(OPENING).await;
            client.send(Bytes::from_static(b"GET / HTTP/1.1\r\n")).await.unwrap();
            let mut all = Vec::new();
            while let Some(bytes) = next(&mut answer).await {
                all.extend_from_slice(&bytes);
            }
            assert!(all.windows(20).any(|part| part == b"expected SSH-2.0, go"));
        });
    }

    #[test]
    fn a_tunnel_that_does_not_say_what_it_is_for_is_refused() {
        run(async {
            for first in [&b"\x01\0\0\0\x02{}"[..], b"\0\0\0\0\x11{\"env\":{\"=\":\"\"}} "] {
                let (_client, answer) = open(first).await;
                assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
            }
        });
    }
}
