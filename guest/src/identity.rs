//! A loaded memory is a copy: before its user processes run it gets its own randomness, the time of day and, as a new
//! session, a name. The order matters: what identity draws at random must already differ from other copies.
//!
//! A session waits for this, so the boot, which is captured, does all that can be done ahead: the files exist, lie in
//! memory and own their blocks, and a copy only overwrites bytes in them.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

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
use crate::server::health;
use crate::{clock, log, sys, users};

const ENTROPY_BYTES: usize = 64;
const HOSTNAME: &str = "/etc/hostname";
const HOSTS: &str = "/etc/hosts";
const MACHINE_ID: &str = "/etc/machine-id";
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
        renew_boot_id().map_err(|e| Refusal::internal("renew the boot id", e))?;
        machine.host_key.renew().map_err(|e| Refusal::internal("renew the host key", e))?;
    }
    if request.identity.is_some() {
        machine.terminals.end_all();
    }
    let generation = raise_generation(machine).map_err(|e| Refusal::internal("count", e))?;
    machine.cgroups.thaw_user().map_err(|e| Refusal::internal("thaw", e))?;
    machine.thawed();
    body::json(&json!({ "reseeded": true, "generation": generation, "health": health() }))
}

/// At boot: everything that `resumed` will write, once.
pub fn prepare() {
    let hostname = rustix::system::uname().nodename().to_string_lossy().into_owned();
    log::warn("write the host's name", write_hostname(&hostname));
    let machine_id = fs::read_to_string(MACHINE_ID).unwrap_or_default();
    if machine_id.trim().is_empty() {
        log::warn("write the machine id", overwrite(MACHINE_ID, "uninitialized\n", 0o444));
    }
    let boot_id = fs::read_to_string(KERNEL_BOOT_ID).unwrap_or_default();
    let mounted = overwrite(OWN_BOOT_ID, &boot_id, 0o444)
        .and_then(|()| Ok(rustix::mount::mount_bind(OWN_BOOT_ID, KERNEL_BOOT_ID)?));
    log::warn("make the boot id renewable", mounted);
    log::warn("write the generation", overwrite(GENERATION, "0\n", 0o644));
    log::warn("look for host keys", host_keys().map(drop));
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
    write_hostname(&identity.hostname)?;
    overwrite(MACHINE_ID, &format!("{}\n", identity.machine_id), 0o444)?;
    remove_host_keys()?;
    if identity.no_sudo {
        users::drop_sudo()?;
    }
    Ok(())
}

fn write_hostname(hostname: &str) -> io::Result<()> {
    overwrite(HOSTNAME, &format!("{hostname}\n"), 0o644)?;
    let hosts = fs::read_to_string(HOSTS).unwrap_or_default();
    overwrite(HOSTS, &with_own_name(&hosts, hostname), 0o644)
}

fn with_own_name(hosts: &str, hostname: &str) -> String {
    let has_name = |line: &str| line.split_whitespace().next() == Some("127.0.1.1");
    let kept = hosts.lines().filter(|line| !has_name(line));
    kept.map(|line| format!("{line}\n")).chain([format!("127.0.1.1 {hostname}\n")]).collect()
}

/// Keys that came with the memory are known to every copy.
fn remove_host_keys() -> io::Result<()> {
    host_keys()?.into_iter().try_for_each(fs::remove_file)
}

fn host_keys() -> io::Result<Vec<PathBuf>> {
    let files = match fs::read_dir("/etc/ssh") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        files => files?.flatten(),
    };
    let keys = files.filter(|file| file.file_name().to_string_lossy().starts_with("ssh_host_"));
    Ok(keys.map(|file| file.path()).collect())
}

fn renew_boot_id() -> io::Result<()> {
    overwrite(OWN_BOOT_ID, &format!("{}\n", random_uuid()?), 0o444)
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
    overwrite(GENERATION, &format!("{generation}\n"), 0o644)?;
    machine.generation.set(generation);
    Ok(generation)
}

/// In place: the boot id's file is mounted elsewhere, watchers keep their descriptor, and a file that is emptied first is
/// written to disk when it is closed. Nothing is synced: what is lost with the machine is of no use without it.
fn overwrite(path: impl AsRef<Path>, text: &str, mode: u32) -> io::Result<()> {
    let mut file = File::options().write(true).create(true).truncate(false).mode(mode).open(path)?;
    file.write_all(text.as_bytes())?;
    let now = file.metadata()?;
    if now.len() != text.len() as u64 {
        file.set_len(text.len() as u64)?;
    }
    if now.permissions().mode() & 0o7777 != mode {
        file.set_permissions(Permissions::from_mode(mode))?;
    }
    Ok(())
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
    fn files_are_overwritten_in_place() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("f");
        overwrite(&path, "a long first text\n", 0o644).unwrap();
        let watcher = File::open(&path).unwrap();
        for text in ["short\n", "a longer text than before\n"] {
            overwrite(&path, text, 0o444).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            assert_eq!(watcher.metadata().unwrap().len(), text.len() as u64);
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o444);
        }
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
