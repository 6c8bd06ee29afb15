//! Requests about files below `/workspace`, done with the rights of the guest user. The contract is `files.ts`.
//!
//! `paths` and `names` parse a request's path, `resolve` and `open` turn it into handles, and each operation is one file; the handlers of requests are here.
//! `work` runs operations on a thread with the user's rights. `find` and `grep` use the crate `search`. `upload` is for
//! the service itself, and writes outside the workspace too.

mod answers;
mod delete;
mod faults;
mod find;
mod grep;
mod list;
mod matching;
mod mkdir;
mod names;
mod open;
mod paths;
mod query;
mod read;
mod rename;
mod resolve;
mod unfinished;
mod upload;
mod work;
mod write;

#[cfg(test)]
mod fuzz_test;
#[cfg(test)]
mod testing;

use hyper::Response;
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::json;

use crate::body::{self, Body};
use crate::machine::Machine;
use crate::refusal::Refusal;
use faults::Fault;
use open::Links;
use paths::{Path, Workspace};
use query::Query;
use read::Read;
use work::Takes;

pub use upload::put;

#[derive(Deserialize)]
struct Mkdir {
    path: String,
}

#[derive(Deserialize)]
struct Rename {
    path: String,
    dest_path: String,
}

pub async fn read(query: &str) -> Result<Response<Body>, Refusal> {
    let (workspace, query, text, path) = parse(query)?;
    let max_bytes = query.number("max_bytes").map_err(Fault::into_refusal)?;
    let links = if query.flag("plain").map_err(Fault::into_refusal)? { Links::Refuse } else { Links::Follow };
    read::read(workspace, path, Read { max_bytes, links })
        .await
        .map_err(|fault| fault.about(&text).into_refusal())
}

pub async fn write(machine: &Machine, query: &str, body: Incoming) -> Result<Response<Body>, Refusal> {
    let _member = machine.burst.join();
    let (workspace, _, text, path) = parse(query)?;
    let written = write::write(workspace, path, body).await;
    body::json(&written.map_err(|fault| fault.about(&text).into_refusal())?)
}

pub async fn list(machine: &Machine, query: &str) -> Result<Response<Body>, Refusal> {
    let (workspace, _, text, path) = parse(query)?;
    work::answer_list(machine, Takes::Short, move |pace| {
        let listed = list::list(&workspace, &path, pace).map_err(|fault| fault.about(&text))?;
        Ok((listed.entries, json!({ "truncated": listed.truncated })))
    })
    .await
}

pub async fn find(machine: &Machine, query: &str) -> Result<Response<Body>, Refusal> {
    let workspace = Workspace::of_machine();
    let find = find::Find::parse(&workspace, &Query::parse(query)).map_err(Fault::into_refusal)?;
    work::answer_list(machine, Takes::Long, move |pace| {
        let found = find::find(&workspace, &find, pace)?;
        let end = json!({ "truncated": found.truncated, "duration_us": found.duration_us });
        Ok((found.paths, end))
    })
    .await
}

pub async fn match_files(machine: &Machine, query: &str) -> Result<Response<Body>, Refusal> {
    let wanted = matching::Match::parse(&Query::parse(query)).map_err(Fault::into_refusal)?;
    work::answer_list(machine, Takes::Long, move |pace| {
        let matched = matching::match_files(&Workspace::of_machine(), &wanted, pace)?;
        let end = json!({ "truncated": matched.truncated, "duration_us": matched.duration_us });
        Ok((matched.files, end))
    })
    .await
}

pub async fn grep(machine: &Machine, query: &str) -> Result<Response<Body>, Refusal> {
    let workspace = Workspace::of_machine();
    let grep = grep::Grep::parse(&workspace, &Query::parse(query)).map_err(Fault::into_refusal)?;
    work::answer_list(machine, Takes::Long, move |pace| {
        let found = grep::grep(&workspace, &grep, pace)?;
        let end = json!({
            "files_searched": found.files_searched,
            "truncated": found.truncated,
            "duration_us": found.duration_us,
        });
        Ok((found.matches, end))
    })
    .await
}

pub async fn delete(machine: &Machine, query: &str) -> Result<Response<Body>, Refusal> {
    let (workspace, query, text, path) = parse(query)?;
    let recursive = query.flag("recursive").map_err(Fault::into_refusal)?;
    let takes = if recursive { Takes::Long } else { Takes::Short };
    work::answer(machine, takes, move |pace| {
        delete::delete(&workspace, &path, recursive, pace).map_err(|fault| fault.about(&text))
    })
    .await
}

pub async fn mkdir(machine: &Machine, body: Incoming) -> Result<Response<Body>, Refusal> {
    let Mkdir { path: text } = body::read_json(body).await?;
    let workspace = Workspace::of_machine();
    work::answer(machine, Takes::Short, move |_| {
        let made = Path::parse(&workspace, &text).and_then(|path| mkdir::mkdir(&workspace, &path));
        made.map_err(|fault| fault.about(&text))
    })
    .await
}

pub async fn rename(machine: &Machine, body: Incoming) -> Result<Response<Body>, Refusal> {
    let Rename { path: text, dest_path } = body::read_json(body).await?;
    let workspace = Workspace::of_machine();
    work::answer(machine, Takes::Short, move |_| {
        let path = Path::parse(&workspace, &text).map_err(|fault| fault.about(&text))?;
        let dest = Path::parse(&workspace, &dest_path).map_err(|fault| fault.about(&dest_path))?;
        rename::rename(&workspace, &path, &dest).map_err(|misfit| match misfit {
            rename::Misfit::Path(fault) => fault.about(&text),
            rename::Misfit::Dest(fault) => fault.about(&dest_path),
        })
    })
    .await
}

/// The parts of a query with a path: the path as text and parsed, and the other parameters.
fn parse(query: &str) -> Result<(Workspace, Query, String, Path), Refusal> {
    let (workspace, query) = (Workspace::of_machine(), Query::parse(query));
    let text = query.text("path").map_err(Fault::into_refusal)?;
    let path = Path::parse(&workspace, &text).map_err(|fault| fault.about(&text).into_refusal())?;
    Ok((workspace, query, text, path))
}
