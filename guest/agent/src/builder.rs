//! PID 1 of a builder: a machine that unpacks one container image, and ends. It is a program of its own, in an initramfs of its
//! own, so that no other machine has its code in memory.

fn main() {
    vivarium_agent::run_builder();
}
