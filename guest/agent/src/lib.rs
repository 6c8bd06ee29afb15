//! The library of two programs: PID 1 of a Vivarium machine boots it in named steps, then serves the host's requests over one
//! virtio-serial port on one thread; PID 1 of a builder unpacks a container image. The wire is defined in
//! `packages/contract/src/guest`.

mod authority;
mod body;
mod boot;
#[cfg(feature = "builder")]
mod build;
mod cgroup;
mod channel;
mod chores;
mod clock;
mod commands;
mod credentials;
mod exec;
mod files;
mod frame_lengths;
mod frames;
mod freeze;
#[cfg(test)]
mod fuzz;
mod health;
mod identity;
mod launch;
mod log;
mod machine;
mod memory;
mod network;
mod open_pty;
mod output;
mod pipe;
mod places;
mod power;
mod processes;
mod reaper;
mod refusal;
mod regular_file;
mod resync;
mod server;
mod settings;
mod sys;
mod terminals;
#[cfg(test)]
mod testing;
mod tunnel;
mod unable;
mod users;
mod volume;

use std::rc::Rc;

use log::or_die;

/// Boots a machine and serves it.
pub fn run() {
    if let Some(helper) = tunnel::helper() {
        return helper();
    }
    begin();
    or_die("find the root disk", boot::wait_for_disk(boot::DISK));
    or_die("mount the root disk", boot::mount_root());
    or_die("move to the root disk", boot::switch_root());
    boot::mount_rest();
    places::prepare(std::path::Path::new("/"));
    boot::raise_limits();
    let cgroups = or_die("set up cgroups", cgroup::Cgroups::set_up());
    users::ensure_sandbox();
    boot::ensure_workspace();
    network::configure();
    identity::prepare();
    let mut machine = or_die("make what requests share", machine::Machine::new(cgroups));
    machine.volume.take_spare_disk();
    let agent = server::Agent::new(Rc::new(machine));
    log::warn("forget the logs of another life", agent.processes.forget_old_logs());
    or_die("serve", serve(Rc::new(agent)));
}

/// Boots a builder, and unpacks an image in it.
#[cfg(feature = "builder")]
pub fn run_builder() {
    begin();
    or_die("build", build::run());
}

fn begin() {
    sys::keep_one_heap();
    or_die("mount the first file systems", boot::mount_first());
    boot::load_modules();
}

fn serve(agent: Rc<server::Agent>) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(4)
        .thread_keep_alive(std::time::Duration::from_secs(1))
        .thread_stack_size(search::pattern::STACK_BYTES)
        .build()?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        tokio::task::spawn_local(agent.machine.reaper.clone().run()?);
        let port = channel::Port::open().await;
        log::line(&format!("ready after {} ms", clock::uptime_ms()));
        loop {
            let connection = port.accept().await;
            server::serve(&agent, connection).await;
        }
    })
}
