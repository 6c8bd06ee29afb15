//! Ends long work early: at its time limit, or when its caller has gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub struct Pace {
    gone: Arc<AtomicBool>,
    until: Instant,
}

/// Held by the caller's request. Dropped with it, it marks the caller as gone.
pub struct Waiting(Arc<AtomicBool>);

impl Pace {
    pub fn new(within: Duration) -> Pace {
        Pace { gone: Arc::default(), until: Instant::now() + within }
    }

    pub fn waiting(&self) -> Waiting {
        Waiting(self.gone.clone())
    }

    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    pub fn is_over(&self) -> bool {
        self.is_gone() || Instant::now() >= self.until
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_ends_when_the_caller_has_gone_or_the_time_is_over() {
        let pace = Pace::new(Duration::from_secs(20));
        let waiting = pace.waiting();
        assert!(!pace.is_gone() && !pace.is_over());
        drop(waiting);
        assert!(pace.is_gone() && pace.is_over());
        let late = Pace::new(Duration::ZERO);
        assert!(late.is_over() && !late.is_gone());
    }
}
