//! File work runs beside the serving thread, with the user's rights, and ends soon after the caller has gone.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Response;
use search::pace::Pace;
use serde::Serialize;

use super::faults::{Code, Fault};
use crate::body::{self, Body};
use crate::credentials::{Rights, as_user};
use crate::frames;
use crate::machine::Machine;
use crate::refusal::Refusal;

/// Time limit of a search. It answers with the results so far.
const SEARCHES_WITHIN: Duration = Duration::from_secs(20);

/// Runs on a thread of the pool as the user. `Err` of the pool means that it is closed, which it never is.
pub async fn run_as_user<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    let done = tokio::task::spawn_blocking(|| as_user(&Rights::of_sandbox(), work)?).await;
    done.unwrap_or_else(|error| Err(Fault::new(Code::Internal, error.to_string())))
}

#[derive(PartialEq)]
pub enum Takes {
    Short,
    /// A few at a time, so that short work is not kept from the pool.
    Long,
}

pub async fn answer<T: Serialize>(
    machine: &Machine,
    takes: Takes,
    work: impl FnOnce(&Pace) -> Result<T, Fault> + Send + 'static,
) -> Result<Response<Body>, Refusal> {
    written(machine, takes, move |pace| Ok(serde_json::to_vec(&work(pace)?).map(Bytes::from))).await
}

pub async fn answer_list<T: Serialize, E: Serialize>(
    machine: &Machine,
    takes: Takes,
    work: impl FnOnce(&Pace) -> Result<(Vec<T>, E), Fault> + Send + 'static,
) -> Result<Response<Body>, Refusal> {
    written(machine, takes, move |pace| {
        let (items, end) = work(pace)?;
        Ok(frames::list(&items, &end))
    })
    .await
}

/// Serialises the answer on the same thread: some answers are large.
async fn written(
    machine: &Machine,
    takes: Takes,
    work: impl FnOnce(&Pace) -> Result<serde_json::Result<Bytes>, Fault> + Send + 'static,
) -> Result<Response<Body>, Refusal> {
    let _member = machine.burst.join();
    let _turn = if takes == Takes::Long { machine.long_work.acquire().await.ok() } else { None };
    let pace = Pace::new(SEARCHES_WITHIN);
    let _waiting = pace.waiting();
    let text =
        run_as_user(move || work(&pace)?.map_err(|error| Fault::new(Code::Internal, error.to_string())));
    Ok(Response::new(body::whole(Full::new(text.await.map_err(Fault::into_refusal)?))))
}

#[derive(Serialize)]
pub struct Done {}
