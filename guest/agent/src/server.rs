//! Serves one HTTP/2 connection, and dispatches its requests.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::rc::Rc;

use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::body::{self, Body};
use crate::machine::Machine;
use crate::processes::Processes;
use crate::refusal::Refusal;
use crate::terminals::Terminals;
use crate::{exec, files, freeze, health, identity, log, power, processes, terminals, tunnel, volume};

const STREAMS: u32 = 256;
const STREAM_WINDOW: u32 = 256 * 1024;
/// Receive window of the connection, larger than the unread input of many terminals, which must not block requests.
const CONNECTION_WINDOW: u32 = 8 * 1024 * 1024;
const SEND_BUFFER: usize = 64 * 1024;
const PROCESS: &str = "/v1/processes/";
/// Limit of a request's headers: a path and a pattern of their full lengths, with every byte escaped.
const HEADER_LIST: u32 = 64 * 1024;

pub struct Agent {
    pub machine: Rc<Machine>,
    pub processes: Rc<Processes>,
    pub terminals: Rc<Terminals>,
}

impl Agent {
    pub fn new(machine: Rc<Machine>) -> Agent {
        Agent { machine, processes: Rc::default(), terminals: Rc::default() }
    }
}

/// Serves a connection until it ends. Its requests are dropped then, and their commands end.
pub async fn serve(agent: &Rc<Agent>, connection: impl AsyncRead + AsyncWrite + Unpin + 'static) {
    serve_by(connection, |request| {
        let agent = agent.clone();
        async move { route(&agent, request).await }
    })
    .await;
}

/// Serves a connection whose requests are answered by `route`.
pub async fn serve_by<Answer>(
    connection: impl AsyncRead + AsyncWrite + Unpin + 'static,
    route: impl Fn(Request<Incoming>) -> Answer,
) where
    Answer: Future<Output = Result<Response<Body>, Refusal>> + 'static,
{
    let service = service_fn(|request| {
        let answer = route(request);
        async move { Ok::<_, Infallible>(answer.await.unwrap_or_else(Refusal::into_response)) }
    });
    let served = http2::Builder::new(LocalExecutor)
        .max_concurrent_streams(STREAMS)
        .max_pending_accept_reset_streams(STREAMS as usize)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .max_header_list_size(HEADER_LIST)
        .auto_date_header(false)
        .serve_connection(TokioIo::new(connection), service)
        .await;
    // A hang-up of the host is not logged: every start of a machine has one, and the console is slow.
    if let Some(error) = served.err().filter(|error| !is_hang_up(error)) {
        log::line(&format!("connection ended: {error}"));
    }
}

fn is_hang_up(error: &hyper::Error) -> bool {
    std::iter::successors(error.source(), |&cause| cause.source())
        .any(|cause| cause.downcast_ref().map(io::Error::kind) == Some(io::ErrorKind::ConnectionReset))
}

async fn route(agent: &Agent, request: Request<Incoming>) -> Result<Response<Body>, Refusal> {
    let machine = &agent.machine;
    let (head, body) = request.into_parts();
    let query = head.uri.query().unwrap_or("");
    match (head.method.as_str(), head.uri.path()) {
        ("GET", "/v1/health") => body::json(&health::full_health()),
        ("POST", "/v1/exec") => exec::exec(machine, body).await,
        ("GET", "/v1/commands") => exec::list_unheard(machine),
        ("PUT", "/v1/files") => files::put(query, body).await,
        ("DELETE", "/v1/files") => files::delete(machine, query).await,
        ("GET", "/v1/files/read") => files::read(query).await,
        ("GET", "/v1/files/list") => files::list(machine, query).await,
        ("GET", "/v1/files/find") => files::find(machine, query).await,
        ("GET", "/v1/files/match") => files::match_files(machine, query).await,
        ("GET", "/v1/files/grep") => files::grep(machine, query).await,
        ("PUT", "/v1/files/write") => files::write(machine, query, body).await,
        ("POST", "/v1/files/mkdir") => files::mkdir(machine, body).await,
        ("POST", "/v1/files/rename") => files::rename(machine, body).await,
        ("POST", "/v1/freeze") => freeze::freeze(machine).await,
        ("POST", "/v1/resumed") => identity::resumed(machine, &agent.terminals, body).await,
        ("POST", "/v1/tunnel") => tunnel::tunnel(machine, body).await,
        ("POST", "/v1/thaw") => freeze::thaw(machine),
        ("POST", "/v1/volume/attach") => volume::attach_volume(&machine.volume).await,
        ("POST", "/v1/volume/detach") => volume::detach_volume(&machine.volume).await,
        ("POST", "/v1/power-off") => power::power_off(machine),
        ("POST", "/v1/terminals") => terminals::open(machine, &agent.terminals, body).await,
        ("POST", "/v1/processes") => processes::start(machine, &agent.processes, body).await,
        ("GET", "/v1/processes") => processes::list(&agent.processes),
        (method, path) if path.starts_with(PROCESS) => {
            process(&agent.processes, method, &path[PROCESS.len()..], query).await
        }
        (method, path) => unknown(method, path),
    }
}

async fn process(
    processes: &Processes,
    method: &str,
    below: &str,
    query: &str,
) -> Result<Response<Body>, Refusal> {
    match (method, below.split_once('/')) {
        ("GET", None) => processes::one(processes, below),
        ("DELETE", None) => processes::remove(processes, below).await,
        ("GET", Some((name, "logs"))) => processes::logs(processes, name, query),
        _ => unknown(method, &format!("{PROCESS}{below}")),
    }
}

pub fn unknown(method: &str, path: &str) -> Result<Response<Body>, Refusal> {
    let message = format!("{method} {path} is no request of this agent");
    Err(Refusal::new(StatusCode::NOT_FOUND, "not_found", message))
}

/// Spawns hyper's tasks on the one serving thread, so that they need not be `Send`.
#[derive(Clone, Copy)]
pub struct LocalExecutor;

impl<F: Future + 'static> hyper::rt::Executor<F> for LocalExecutor {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(async {
            future.await;
        });
    }
}
