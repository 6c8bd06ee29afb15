//! A loaded memory is a copy: before its user processes run it gets its own randomness, the time of day and, as a new
//! session, a name. The order matters: what identity draws at random must already differ from other copies.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::Response;
use hyper::body::Incoming;
use rustix::rand::{GetRandomFlags, getrandom};
use serde::Deserialize;
use serde_json::json;

use crate::body::{self, Body};
use crate::machine::Machine;
use crate::refusal::Refusal;
use crate::{clock, sys, users};

const ENTROPY_BYTES: usize = 64;
const GENERATION: &str = "/run/vivarium/generation";
const OWN_BOOT_ID: &str = "/run/vivarium/boot_id";
const KERNEL_BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

#[derive(Deserialize)]
struct Resumed {
    entropy: String,
    wall_clock_ns: String,
    identity: Option<Identity>,
}

#[derive(Deserialize)]
struct Identity {
    hostname: String,
    machine_id: String,
    no_sudo: bool,
}

pub async fn resumed(machine: &Machine, body: Incoming) -> Result<Response<Body>, Refusal> {
    let request: Resumed = body::read_json(body).await?;
    let entropy = parse_entropy(&request.entropy)?;
    let wall_clock = clock::parse_wall_clock(&request.wall_clock_ns)?;
    if let Some(identity) = &request.identity {
        check_identity(identity)?;
    }

    sys::add_entropy(&entropy).map_err(|e| Refusal::internal("reseed", e))?;
    clock::set_wall_clock(wall_clock)?;
    if let Some(identity) = &request.identity {
        become_session(identity).map_err(|e| Refusal::internal("take the identity", e))?;
        renew_boot_id(machine).map_err(|e| Refusal::internal("renew the boot id", e))?;
    }
    let generation = raise_generation(machine).map_err(|e| Refusal::internal("count", e))?;
    machine.cgroups.thaw_user().map_err(|e| Refusal::internal("thaw", e))?;
    body::json(&json!({ "reseeded": true, "generation": generation }))
}

fn parse_entropy(text: &str) -> Result<[u8; ENTROPY_BYTES], Refusal> {
    let bytes = STANDARD.decode(text).unwrap_or_default();
    bytes
        .try_into()
        .map_err(|_| Refusal::invalid(format!("entropy: expected {ENTROPY_BYTES} bytes in base64")))
}

fn check_identity(identity: &Identity) -> Result<(), Refusal> {
    let is_label = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    let hostname = &identity.hostname;
    if hostname.is_empty() || hostname.len() > 64 || !hostname.bytes().all(is_label) {
        return Err(Refusal::invalid("identity.hostname: expected 1 to 64 of A-Z a-z 0-9 - ."));
    }
    let id = &identity.machine_id;
    if id.len() != 32 || !id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
        return Err(Refusal::invalid("identity.machine_id: expected 32 lower-case hex characters"));
    }
    Ok(())
}

fn become_session(identity: &Identity) -> io::Result<()> {
    rustix::system::sethostname(identity.hostname.as_bytes())?;
    fs::write("/etc/hostname", format!("{}\n", identity.hostname))?;
    let hosts = fs::read_to_string("/etc/hosts").unwrap_or_default();
    fs::write("/etc/hosts", with_own_name(&hosts, &identity.hostname))?;
    write_with_mode("/etc/machine-id", &format!("{}\n", identity.machine_id), 0o444)?;
    remove_host_keys()?;
    if identity.no_sudo {
        users::drop_sudo()?;
    }
    Ok(())
}

fn with_own_name(hosts: &str, hostname: &str) -> String {
    let has_name = |line: &str| line.split_whitespace().next() == Some("127.0.1.1");
    let kept = hosts.lines().filter(|line| !has_name(line));
    kept.map(|line| format!("{line}\n")).chain([format!("127.0.1.1 {hostname}\n")]).collect()
}

/// Keys that came with the memory are known to every copy.
fn remove_host_keys() -> io::Result<()> {
    let Ok(files) = fs::read_dir("/etc/ssh") else {
        return Ok(());
    };
    for file in files.flatten() {
        if file.file_name().to_string_lossy().starts_with("ssh_host_") {
            fs::remove_file(file.path())?;
        }
    }
    Ok(())
}

fn renew_boot_id(machine: &Machine) -> io::Result<()> {
    write_with_mode(OWN_BOOT_ID, &format!("{}\n", random_uuid()?), 0o444)?;
    if !machine.has_own_boot_id.replace(true) {
        rustix::mount::mount_bind(OWN_BOOT_ID, KERNEL_BOOT_ID)?;
    }
    Ok(())
}

fn random_uuid() -> io::Result<String> {
    let mut bytes = [0; 16];
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(uuid_text(bytes))
}

fn uuid_text(mut bytes: [u8; 16]) -> String {
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// Programs that keep random state of their own can watch this file.
fn raise_generation(machine: &Machine) -> io::Result<u64> {
    let generation = machine.generation.get() + 1;
    write_with_mode(GENERATION, &format!("{generation}\n"), 0o644)?;
    machine.generation.set(generation);
    Ok(generation)
}

/// In place: the boot id's file is mounted elsewhere, and watchers keep their descriptor.
fn write_with_mode(path: impl AsRef<Path>, text: &str, mode: u32) -> io::Result<()> {
    fs::write(&path, text)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hosts_file_names_the_machine_once() {
        let hosts = "127.0.0.1 localhost\n127.0.1.1 old\n";
        assert_eq!(with_own_name(hosts, "abc"), "127.0.0.1 localhost\n127.0.1.1 abc\n");
        assert_eq!(with_own_name("", "abc"), "127.0.1.1 abc\n");
    }

    #[test]
    fn entropy_is_64_bytes_of_base64() {
        assert_eq!(parse_entropy(&STANDARD.encode([7; 64])).unwrap(), [7; 64]);
        assert!(parse_entropy(&STANDARD.encode([7; 63])).is_err());
        assert!(parse_entropy("!").is_err());
    }

    #[test]
    fn identities_are_checked_before_anything_changes() {
        let identity = |hostname: &str, machine_id: &str| Identity {
            hostname: hostname.into(),
            machine_id: machine_id.into(),
            no_sudo: false,
        };
        let id = "0123456789abcdef0123456789abcdef";
        assert!(check_identity(&identity("abc", id)).is_ok());
        assert!(check_identity(&identity("", id)).is_err());
        assert!(check_identity(&identity("a b", id)).is_err());
        assert!(check_identity(&identity("abc", &id.to_uppercase())).is_err());
    }

    #[test]
    fn boot_ids_are_random_uuids() {
        assert_eq!(uuid_text([0xff; 16]), "ffffffff-ffff-4fff-bfff-ffffffffffff");
    }
}
