//! Runs file work on pool threads with the user's rights. Work ends soon after its caller has gone.

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

/// Time limit of a search, which then answers with the results so far.
const SEARCHES_WITHIN: Duration = Duration::from_secs(20);

/// Runs work on a pool thread as the user.
pub async fn run_as_user<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    let done = tokio::task::spawn_blocking(|| as_user(&Rights::of_sandbox(), work)?).await;
    done.unwrap_or_else(|error| Err(Fault::new(Code::INTERNAL, error.to_string())))
}

/// How long work takes.
#[derive(PartialEq)]
pub enum Takes {
    Short,
    /// Waits for a permit of `Machine::long_work`, so that pool threads are left for short work.
    Long,
}

pub async fn answer(
    machine: &Machine,
    takes: Takes,
    work: impl FnOnce(&Pace) -> Result<(), Fault> + Send + 'static,
) -> Result<Response<Body>, Refusal> {
    written(machine, takes, |pace| work(pace).map(|()| Ok(Bytes::from_static(b"{}")))).await
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

/// Runs work and serialises its result on the same pool thread: some answers are large.
async fn written(
    machine: &Machine,
    takes: Takes,
    work: impl FnOnce(&Pace) -> Result<serde_json::Result<Bytes>, Fault> + Send + 'static,
) -> Result<Response<Body>, Refusal> {
    let _member = machine.burst.join();
    let _permit = if takes == Takes::Long { machine.long_work.acquire().await.ok() } else { None };
    let pace = Pace::new(SEARCHES_WITHIN);
    let _waiting = pace.waiting();
    let text =
        run_as_user(move || work(&pace)?.map_err(|error| Fault::new(Code::INTERNAL, error.to_string())));
    Ok(Response::new(body::whole(Full::new(text.await.map_err(Fault::into_refusal)?))))
}
