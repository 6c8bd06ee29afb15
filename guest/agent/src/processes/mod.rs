//! Named processes (`packages/contract/src/guest/processes.ts`): a table in the agent's memory, which is saved and loaded
//! with the machine, and logs on the guest's disk. Nothing here depends on the host's connection.

mod log;
mod logs;
mod process;
mod requests;
mod ring;
mod run;
mod table;
#[cfg(test)]
mod tests;

pub use logs::logs;
pub use requests::{list, one, remove, start};
pub use table::Processes;
