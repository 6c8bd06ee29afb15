//! PID 1 of a Vivarium machine.

fn main() {
    vivarium_agent::run();
}
