//! The builder: a machine without a network that unpacks one container image into its first disk, and ends. It answers
//! two requests, health and `POST /v1/unpack`, and trusts no byte of the layers.
//!
//! `image` reads the table of layers and unpacks each. `content` decompresses a layer and sums it up, `archive` reads its
//! entries (`header`, `pax`, `sparse`), `entries` puts them into the image's `root` (`names`, `brought`, `attributes`).
//! `environment` adds the variables of the image, `bare` what an image without a shell or certificates lacks. `limits` has all
//! limits, `fault` the words of failures.

mod archive;
mod attributes;
mod bare;
mod brought;
mod content;
mod entries;
mod environment;
mod fault;
mod header;
mod image;
mod limits;
mod names;
mod pax;
mod root;
mod sparse;

#[cfg(test)]
mod testing;

use std::cell::{Cell, RefCell};
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::Response;
use hyper::body::Incoming;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::system::{RebootCommand, reboot};
use serde_json::json;
use tokio::sync::mpsc;

use crate::body::{self, Body};
use crate::channel::Port;
use crate::frames::{self, FrameType};
use crate::health::health;
use crate::refusal::Refusal;
use crate::{boot, log, server};
use bare::{Gifts, Given};
use entries::Totals;
use fault::Fault;
use limits::LIMITS;
use root::Root;

const TARGET: &str = "/dev/vda";
const LAYERS: &str = "/dev/vdb";
const ROOT: &str = "/newroot";
/// As `images/build-initramfs` lays them down.
const SHELL: &str = "/gifts/sh";
const CERTIFICATES: &str = "/gifts/ca-certificates.crt";
/// Interval of the reports of progress.
const REPORT_EVERY: Duration = Duration::from_millis(250);
/// Frames that wait for the host.
const FRAMES: usize = 16;
/// A removal descends into directories by recursion.
const STACK_BYTES: usize = 8 * 1024 * 1024;
/// The most characters of a failure's sentence.
const MESSAGE_CHARS: usize = 500;

/// Serves until the host has what it asked for and hangs up; then the machine ends.
pub fn run() -> io::Result<()> {
    boot::wait_for_disk(TARGET)?;
    boot::wait_for_disk(LAYERS)?;
    fs::create_dir_all(ROOT)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::NOATIME;
    mount(TARGET, ROOT, "ext4", flags, c"noinit_itable")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let port = Port::open().await;
        let work = Rc::new(Work::default());
        while !work.has_begun.get() {
            let connection = port.accept().await;
            server::serve_by(connection, |request| route(work.clone(), request)).await;
        }
        work.wait();
    });
    rustix::fs::sync();
    // The machine type has no power switch; the VMM exits on a restart.
    Ok(reboot(RebootCommand::Restart)?)
}

/// The last frame: the counts, and the parts that the image got.
#[derive(serde::Serialize)]
struct Unpacked {
    #[serde(flatten)]
    totals: Totals,
    given: Vec<Given>,
}

/// The one unpacking of this machine.
#[derive(Default)]
struct Work {
    has_begun: Cell<bool>,
    thread: RefCell<Option<JoinHandle<()>>>,
}

impl Work {
    /// A host that has hung up ends the thread soon.
    fn wait(&self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn route(work: Rc<Work>, request: hyper::Request<Incoming>) -> Result<Response<Body>, Refusal> {
    match (request.method().as_str(), request.uri().path()) {
        ("GET", "/v1/health") => body::json(&health()),
        ("POST", "/v1/unpack") => begin(&work),
        (method, path) => server::unknown(method, path),
    }
}

fn begin(work: &Work) -> Result<Response<Body>, Refusal> {
    if work.has_begun.replace(true) {
        return Err(Refusal::invalid("a builder unpacks one image, once"));
    }
    let (sender, frames) = mpsc::channel(FRAMES);
    let thread = thread::Builder::new().name("unpack".into()).stack_size(STACK_BYTES);
    let thread = thread.spawn(move || unpack(sender)).map_err(|e| Refusal::internal("begin", e))?;
    work.thread.replace(Some(thread));
    Ok(body::stream(frames))
}

fn unpack(frames: mpsc::Sender<Bytes>) {
    let last = match unpack_and_unmount(&frames) {
        Ok(unpacked) => frames::encode(FrameType::Eof, json!(unpacked).to_string().as_bytes()),
        Err(fault) => {
            log::line(&format!("the image is not unpacked: {fault}"));
            let message: String = fault.message.chars().take(MESSAGE_CHARS).collect();
            let failure = json!({ "code": fault.code.word(), "message": message });
            frames::encode(FrameType::Error, failure.to_string().as_bytes())
        }
    };
    let _ = frames.blocking_send(last);
}

/// Returns when the disk has everything.
fn unpack_and_unmount(frames: &mpsc::Sender<Bytes>) -> Result<Unpacked, Fault> {
    let disk = File::open(LAYERS)?;
    let totals = image::unpack(disk, Path::new(ROOT), &LIMITS, &reporting(frames.clone()))?;
    let gifts = Gifts { shell: Path::new(SHELL), certificates: Path::new(CERTIFICATES) };
    let given = bare::complete(&Root::open(Path::new(ROOT))?, gifts)?;
    let unwritten = |errno| Fault::internal("write the disk", errno);
    rustix::fs::syncfs(File::open(ROOT)?).map_err(unwritten)?;
    unmount(ROOT, UnmountFlags::empty()).map_err(unwritten)?;
    Ok(Unpacked { totals, given })
}

/// Sends progress as lines of JSON, not more often than anybody wants to see it.
fn reporting(frames: mpsc::Sender<Bytes>) -> image::Report {
    let due = Cell::new(Instant::now());
    Rc::new(move |layer, bytes| {
        let gone = || Fault::internal("report progress", "the host has gone");
        if Instant::now() < due.get() {
            return if frames.is_closed() { Err(gone()) } else { Ok(()) };
        }
        due.set(Instant::now() + REPORT_EVERY);
        let line = format!("{}\n", json!({ "layer": layer, "bytes": bytes }));
        frames.blocking_send(frames::encode(FrameType::Items, line.as_bytes())).map_err(|_| gone())
    })
}
