//! The table of open terminals.

use std::cell::RefCell;
use std::rc::Rc;

use hyper::StatusCode;
use tokio::sync::Mutex;

use super::terminal::Terminal;
use crate::refusal::Refusal;

const TERMINALS: usize = 16;

#[derive(Default)]
pub struct Terminals {
    pub running: RefCell<Vec<Rc<Terminal>>>,
    /// Locked while a terminal starts, so that of two requests for one name the second attaches.
    pub starting: Mutex<()>,
}

impl Terminals {
    pub fn find(&self, name: Option<&str>) -> Option<Rc<Terminal>> {
        let running = self.running.borrow();
        running.iter().find(|terminal| name.is_some() && terminal.name.as_deref() == name).cloned()
    }

    pub fn check_limit(&self) -> Result<(), Refusal> {
        if self.running.borrow().len() < TERMINALS {
            return Ok(());
        }
        let message = format!("{TERMINALS} terminals are open, the most there may be; close one");
        Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, "terminal_limit", message))
    }

    pub fn remove(&self, terminal: &Rc<Terminal>) {
        self.running.borrow_mut().retain(|other| !Rc::ptr_eq(other, terminal));
    }

    /// Kills all terminals: a loaded machine that becomes a new session begins without them.
    pub fn end_all(&self) {
        for terminal in self.running.take() {
            terminal.leaf.kill();
        }
    }
}
