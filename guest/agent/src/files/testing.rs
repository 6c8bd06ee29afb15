//! A workspace of its own for each test, below a directory that is outside of it, and the user's hands in it.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path as FilePath, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn as client;
use hyper::client::conn::http2::SendRequest;
use hyper::server::conn as server;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use search::pace::Pace;

use super::faults::{Code, Fault};
use super::open::Links;
use super::paths::{Path, Workspace};
use super::query::Query;
use super::{read, write};
use crate::body::{self, Body};
use crate::credentials::{Rights, as_user};
use crate::server::LocalExecutor;
use crate::users;

pub struct Place {
    pub outside: tempfile::TempDir,
    pub workspace: Workspace,
}

impl Place {
    pub fn new() -> Place {
        let outside = tempfile::tempdir().unwrap();
        fs::set_permissions(outside.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let path = outside.path().join("workspace");
        fs::create_dir(&path).unwrap();
        chown(&path, Some(users::uid()), Some(users::gid())).unwrap();
        Place { outside, workspace: Workspace { path } }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.workspace.path.join(name)
    }

    /// The user's, with the directories above it.
    pub fn file(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        as_user(&Rights::of_sandbox(), || {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
        })
        .unwrap();
        path
    }

    pub fn directory(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        as_user(&Rights::of_sandbox(), || fs::create_dir_all(&path).unwrap()).unwrap();
        path
    }

    pub fn link(&self, name: &str, target: impl AsRef<FilePath>) {
        symlink(target, self.path(name)).unwrap();
    }

    pub fn fifo(&self, name: &str) {
        let mode = rustix::fs::Mode::from_raw_mode(0o666);
        rustix::fs::mknodat(rustix::fs::CWD, self.path(name), rustix::fs::FileType::Fifo, mode, 0).unwrap();
    }

    pub fn device(&self, name: &str) {
        let mode = rustix::fs::Mode::from_raw_mode(0o666);
        let zero = rustix::fs::makedev(1, 5);
        let kind = rustix::fs::FileType::CharacterDevice;
        rustix::fs::mknodat(rustix::fs::CWD, self.path(name), kind, mode, zero).unwrap();
    }

    pub fn parse(&self, path: &str) -> Path {
        Path::parse(&self.workspace, path).unwrap()
    }

    /// One operation as a request does it.
    pub fn run<T>(
        &self,
        path: &str,
        work: impl FnOnce(&Workspace, &Path, &Pace) -> Result<T, Fault>,
    ) -> Result<T, Code> {
        let path = Path::parse(&self.workspace, path).map_err(|fault| fault.code)?;
        let done = as_user(&Rights::of_sandbox(), || work(&self.workspace, &path, &pace()));
        done.unwrap().map_err(|fault| fault.code)
    }
}

pub fn pace() -> Pace {
    Pace::new(Duration::from_secs(20))
}

pub fn owner_and_mode(path: &FilePath) -> (u32, u32, u32) {
    let meta = fs::symlink_metadata(path).unwrap();
    (meta.uid(), meta.gid(), meta.mode() & 0o7777)
}

/// The names in a directory, sorted.
pub fn names_in(path: &FilePath) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Runs on a thread whose mounts are its own, below a file system of that size mounted in the workspace.
pub fn with_mount(place: &Place, name: &str, options: &str, work: impl FnOnce() + Send) {
    use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
    let target = place.directory(name);
    let options = std::ffi::CString::new(options).unwrap();
    std::thread::scope(|scope| {
        let inside = scope.spawn(|| {
            unshare_mounts();
            mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
            mount("tmpfs", &target, "tmpfs", MountFlags::empty(), options.as_c_str()).unwrap();
            work();
        });
        inside.join().unwrap();
    });
}

#[allow(deprecated, reason = "safe for a namespace of mounts, which no other thread of the test looks at")]
fn unshare_mounts() {
    rustix::thread::unshare(rustix::thread::UnshareFlags::NEWNS).unwrap();
}

/// Read and write of a workspace as they are served, and who asks for them.
pub async fn served(place: &Place) -> SendRequest<Sent> {
    let workspace = place.workspace.clone();
    let (near, far) = tokio::io::duplex(64 * 1024);
    let service = service_fn(move |request: Request<Incoming>| {
        let workspace = workspace.clone();
        async move { Ok::<_, std::convert::Infallible>(answer(workspace, request).await) }
    });
    let builder = server::http2::Builder::new(LocalExecutor);
    tokio::task::spawn_local(builder.serve_connection(TokioIo::new(far), service));
    let (sender, connection) = client::http2::handshake(LocalExecutor, TokioIo::new(near)).await.unwrap();
    tokio::task::spawn_local(connection);
    sender
}

async fn answer(workspace: Workspace, request: Request<Incoming>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let query = Query::parse(head.uri.query().unwrap_or(""));
    let answer = async {
        let path = Path::parse(&workspace, &query.text("path")?)?;
        if head.method == Method::GET {
            let links = if query.flag("plain")? { Links::Refuse } else { Links::Follow };
            return read::read(workspace, path, read::Read { max_bytes: query.number("max_bytes")?, links })
                .await;
        }
        let written = write::write(workspace, path, body).await?;
        body::json(&written).map_err(|_| Fault::new(Code::INTERNAL, "no text"))
    };
    answer.await.unwrap_or_else(|fault| fault.into_refusal().into_response())
}

/// What a test sends: the pieces it likes, and an error if it breaks off.
pub type Sent = BoxBody<Bytes, std::io::Error>;

pub fn request(method: Method, path: &str, parameters: &str, body: Sent) -> Request<Sent> {
    let path: String = form_urlencoded::byte_serialize(path.as_bytes()).collect();
    let uri = format!("http://agent/?path={path}{parameters}");
    Request::builder().method(method).uri(uri).body(body).unwrap()
}

pub fn text(text: impl Into<Bytes>) -> Sent {
    Full::new(text.into()).map_err(|never| match never {}).boxed()
}

pub async fn json_of(response: Response<Incoming>) -> serde_json::Value {
    serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap()
}

/// Every file operation's future needs the loop of the agent. With one thread beside it, which a test can keep busy.
pub fn in_loop<T>(future: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, future)
}
