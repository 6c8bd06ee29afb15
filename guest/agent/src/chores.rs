//! File work that root in the guest can block for ever, for example by freezing a file system. One separate thread does
//! it in the order of the calls, so that an older write never overwrites a newer one.

use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

type Chore = Box<dyn FnOnce() + Send>;

pub struct Chores(mpsc::Sender<Chore>);

impl Chores {
    pub fn begin() -> io::Result<Chores> {
        let (sender, chores) = mpsc::channel::<Chore>();
        thread::Builder::new()
            .name("chores".into())
            .spawn(move || chores.into_iter().for_each(|chore| chore()))?;
        Ok(Chores(sender))
    }

    /// Queues the chore and waits for it up to `limit`. None if the time runs out, also behind a slow chore; the chore
    /// still runs.
    pub async fn within<T: Send + 'static>(
        &self,
        limit: Duration,
        chore: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (done, outcome) = oneshot::channel();
        let chore = move || drop(done.send(chore()));
        self.0.send(Box::new(chore)).ok()?;
        timeout(limit, outcome).await.ok()?.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::run;
    use std::sync::{Arc, Mutex};

    const SOON: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn slow_work_blocks_no_caller_and_runs_in_order() {
        run(async {
            let chores = Chores::begin().unwrap();
            let said = Arc::new(Mutex::new(Vec::new()));
            let (go_on, waits) = mpsc::channel::<()>();
            let say = |word: &'static str| {
                let said = said.clone();
                move || said.lock().unwrap().push(word)
            };
            let first = say("first");
            let stuck = move || {
                let _ = waits.recv();
                first();
            };
            assert_eq!(chores.within(SOON, stuck).await, None);
            assert_eq!(chores.within(SOON, say("second")).await, None);
            go_on.send(()).unwrap();
            assert_eq!(chores.within(LONG, say("third")).await, Some(()));
            assert_eq!(*said.lock().unwrap(), ["first", "second", "third"]);
        });
    }
}
