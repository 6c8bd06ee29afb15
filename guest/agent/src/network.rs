//! Configures the network at boot. All machines have the same address, each in a network of its own on the host.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;

use crate::{log, regular_file, sys};

const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 200, 0, 2);
const NETMASK: Ipv4Addr = Ipv4Addr::new(255, 255, 255, 252);
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 200, 0, 1);
const RESOLV_CONF: &str = "/etc/resolv.conf";

pub fn configure() {
    log::warn("bring up lo", sys::bring_up("lo"));
    if Path::new("/sys/class/net/eth0").exists() {
        log::warn("bring up eth0", configure_eth0());
        log::warn("write resolv.conf", write_resolv_conf());
    }
    let hostname = regular_file::text("/etc/hostname");
    let hostname = hostname.lines().next().filter(|name| !name.is_empty());
    let set = rustix::system::sethostname(hostname.unwrap_or("vivarium").as_bytes());
    log::warn("set the hostname", set);
}

fn configure_eth0() -> io::Result<()> {
    sys::set_address("eth0", ADDRESS, NETMASK)?;
    sys::bring_up("eth0")?;
    sys::add_default_route(GATEWAY)
}

/// Writes the name server. A link of the image is replaced: it leads to a resolver that does not run here.
fn write_resolv_conf() -> io::Result<()> {
    let text = format!("nameserver {GATEWAY}\n");
    let is_link = fs::symlink_metadata(RESOLV_CONF).is_ok_and(|meta| meta.is_symlink());
    if is_link {
        fs::remove_file(RESOLV_CONF)?;
    } else if regular_file::text(RESOLV_CONF) == text {
        return Ok(());
    }
    fs::write(RESOLV_CONF, text)
}
