//! Writes a file for the service itself (`PUT /v1/files`), completely or not at all, also outside the workspace. The file
//! is below one of the directories in `PLACES`; the kernel resolves the path beneath it, so links and `..` cannot lead out.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Response, StatusCode};
use rustix::fs::{Mode, OFlags, ResolveFlags, fchown, mkdirat, openat2};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use serde_json::json;
use tokio::io::AsyncWriteExt;

use super::faults::Fault;
use super::query::Query;
use super::unfinished::Unfinished;
use crate::body::{self, Body};
use crate::refusal::Refusal;
use crate::users;

const PLACES: [&str; 3] = ["/workspace", "/tmp", users::HOME];
const DEFAULT_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;
const STAYS_BELOW: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

#[derive(Debug, PartialEq)]
struct Target {
    /// One of `PLACES`.
    place: &'static str,
    /// Paths of the directories above the file, below the place, from the top down.
    parents: Vec<PathBuf>,
    name: PathBuf,
    mode: u32,
}

pub async fn put(query: &str, body: Incoming) -> Result<Response<Body>, Refusal> {
    let target = parse_query(query)?;
    let parent = open_parent(&target).map_err(|e| refused(&target, e))?;
    let unfinished = Unfinished::create(parent).map_err(|e| refused(&target, e.into()))?;
    let bytes = write_body(&unfinished, body).await.map_err(|e| refused(&target, e))?;
    finish(unfinished, &target).map_err(|e| refused(&target, e))?;
    body::json(&json!({ "bytes": bytes }))
}

fn parse_query(query: &str) -> Result<Target, Refusal> {
    let query = Query::parse(query);
    let mode = query.optional("mode").map_or(Ok(DEFAULT_MODE), |text| parse_mode(&text))?;
    let path = query.text("path").map_err(Fault::into_refusal)?;
    let (place, below) = split_path(&path).ok_or_else(|| {
        Refusal::invalid(format!(
            "path: expected an absolute path of a file below {}, got {path:?}",
            PLACES.join(", ")
        ))
    })?;
    let name = below.file_name().map(PathBuf::from).unwrap_or_default();
    let mut parents: Vec<PathBuf> =
        below.ancestors().skip(1).filter(|parent| *parent != Path::new("")).map(PathBuf::from).collect();
    parents.reverse();
    Ok(Target { place, parents, name, mode })
}

fn parse_mode(text: &str) -> Result<u32, Refusal> {
    u32::from_str_radix(text, 8)
        .ok()
        .filter(|mode| *mode <= 0o777)
        .ok_or_else(|| Refusal::invalid(format!("mode: expected octal up to 0777, got {text:?}")))
}

fn split_path(path: &str) -> Option<(&'static str, PathBuf)> {
    if path.ends_with('/') || path.contains('\0') {
        return None;
    }
    let place = PLACES.into_iter().find(|place| Path::new(path).starts_with(place))?;
    let below = Path::new(path).strip_prefix(place).ok()?;
    let is_plain = |part: Component| matches!(part, Component::Normal(_));
    let fits = below != Path::new("") && below.components().all(is_plain);
    fits.then(|| (place, below.components().collect()))
}

/// Opens the file's directory. Missing directories are made for the user.
fn open_parent(target: &Target) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let place = rustix::fs::open(target.place, flags, Mode::empty())?;
    let below = |path: &Path| openat2(&place, path, flags, Mode::empty(), STAYS_BELOW);
    let mut parent = below(Path::new("."))?;
    for path in &target.parents {
        parent = match below(path) {
            Err(Errno::NOENT) => {
                let name = path.file_name().unwrap_or_default();
                mkdirat(&parent, name, Mode::from_raw_mode(DIRECTORY_MODE))?;
                let made = below(path)?;
                own(&made)?;
                made
            }
            other => other?,
        };
    }
    Ok(parent)
}

fn own(fd: impl AsFd) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(users::uid()), Gid::from_raw(users::gid()));
    Ok(fchown(fd, Some(uid), Some(gid))?)
}

fn finish(unfinished: Unfinished, target: &Target) -> io::Result<()> {
    own(&unfinished.file)?;
    Ok(unfinished.finish(target.name.as_os_str().as_encoded_bytes(), target.mode)?)
}

async fn write_body(unfinished: &Unfinished, mut body: Incoming) -> io::Result<u64> {
    let mut file = tokio::fs::File::from_std(unfinished.file.try_clone()?);
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(io::Error::other)?;
        if let Some(data) = frame.data_ref() {
            file.write_all(data).await?;
            bytes += data.len() as u64;
        }
    }
    file.flush().await?;
    Ok(bytes)
}

fn refused(target: &Target, error: io::Error) -> Refusal {
    let name = Path::new(target.place)
        .join(target.parents.last().map_or(OsStr::new(""), |p| p.as_os_str()))
        .join(&target.name);
    let message = format!("{}: {error}", name.display());
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOSPC | Errno::DQUOT) => {
            Refusal::new(StatusCode::INSUFFICIENT_STORAGE, "no_space", message)
        }
        Some(_) => Refusal::invalid(format!("path: {message}")),
        None => Refusal::internal("write the file", message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_below_the_users_places() {
        let target = parse_query("path=%2Fworkspace%2Fa%2Fb%2Fc.txt&mode=0755").unwrap();
        assert_eq!(
            target,
            Target {
                place: "/workspace",
                parents: vec!["a".into(), "a/b".into()],
                name: "c.txt".into(),
                mode: 0o755,
            }
        );
        assert_eq!(parse_query("path=/tmp/x").unwrap().mode, DEFAULT_MODE);
        for wrong in [
            "",
            "path=",
            "path=x",
            "path=/workspace",
            "path=/workspace/",
            "path=/workspace/a/",
            "path=/workspacex/a",
            "path=/workspace/../etc/passwd",
            "path=/etc/passwd",
            "path=/workspace/a%00b",
            "path=/tmp/a&mode=9",
            "path=/tmp/a&mode=4755",
        ] {
            assert!(parse_query(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn links_cannot_lead_out_of_a_place() {
        let room = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc", room.path().join("out")).unwrap();
        let target = |parents: &[&str]| Target {
            place: Box::leak(room.path().to_str().unwrap().to_owned().into_boxed_str()),
            parents: parents.iter().map(PathBuf::from).collect(),
            name: "f".into(),
            mode: DEFAULT_MODE,
        };
        assert!(open_parent(&target(&["out"])).is_err());
        assert!(open_parent(&target(&[])).is_ok());
    }
}
