//! Makes a machine that was loaded from a snapshot different from others of the same snapshot. Before the user's
//! processes run, it gets new randomness, the time and, as a new session, an identity. The randomness comes first: the
//! identity's random values are drawn from it.
//!
//! Every start waits for this, so the boot before the capture does what can be done ahead: the files exist, are cached
//! and have their blocks, and a loaded machine only overwrites bytes in them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::Response;
use hyper::body::Incoming;
use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Deserializer};
use serde_json::json;

use crate::authority::{Certificate, Encoded};
use crate::body::{self, Body};
use crate::health::health;
use crate::machine::Machine;
use crate::refusal::Refusal;
use crate::regular_file::{self, overwrite};
use crate::settings::Settings;
use crate::terminals::Terminals;
use crate::{clock, freeze, log, users};

const ENTROPY_BYTES: usize = 64;
const HOSTNAME: &str = "etc/hostname";
const HOSTS: &str = "etc/hosts";
const MACHINE_ID: &str = "etc/machine-id";
const HOST_KEYS: &str = "etc/ssh";
const GENERATION: &str = "run/vivarium/generation";
const OWN_BOOT_ID: &str = "run/vivarium/boot_id";
const KERNEL_BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// How long to wait for the files with the machine's names. They are written later if that takes longer.
const NAMES_WITHIN: Duration = Duration::from_secs(5);
const SUDO_WITHIN: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
struct Resumed {
    entropy: String,
    wall_clock_ns: String,
    identity: Option<Identity>,
    /// Leaves the user's processes frozen until a later call: the host has not decided yet whether this machine runs.
    #[serde(default)]
    stay_frozen: bool,
    /// Absent: what the guest trusts stays. null: it trusts no authority of a session.
    #[serde(default, deserialize_with = "present")]
    ca: Option<Option<Encoded>>,
}

/// Tells null from absence.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(value: D) -> Result<Option<T>, D::Error> {
    T::deserialize(value).map(Some)
}

#[derive(Deserialize)]
struct Identity {
    hostname: String,
    machine_id: String,
    no_sudo: bool,
    /// Absent: those of the saved state stay.
    settings: Option<Settings>,
}

pub async fn resumed(
    machine: &Machine,
    terminals: &Terminals,
    body: Incoming,
) -> Result<Response<Body>, Refusal> {
    let request: Resumed = body::read_json(body).await?;
    let entropy = parse_entropy(&request.entropy)?;
    let wall_clock = clock::parse_wall_clock(&request.wall_clock_ns)?;
    if let Some(identity) = &request.identity {
        check_identity(identity)?;
    }
    let authority = request.ca.map(|ca| ca.map(Certificate::parse).transpose()).transpose()?;

    // Without new randomness the machine equals others of its snapshot, so a failure fails the request.
    machine.random.add_entropy(&entropy).map_err(|e| Refusal::internal("reseed", e))?;
    clock::set_wall_clock(wall_clock)?;
    let is_wake = request.identity.is_none();
    let mut names = Names { identity: None, generation: raise_generation(machine) };
    if let Some(identity) = request.identity {
        // The volume belongs to the session that was saved.
        machine.volume.detach().await?;
        rustix::system::sethostname(identity.hostname.as_bytes())
            .map_err(|e| Refusal::internal("take the host's name", e))?;
        machine.host_key.renew().map_err(|e| Refusal::internal("renew the host key", e))?;
        let boot_id = random_uuid().map_err(|e| Refusal::internal("renew the boot id", e))?;
        if identity.no_sudo {
            drop_sudo(machine).await.map_err(|e| Refusal::internal("take sudo away", e))?;
        }
        names.identity = Some((identity, boot_id));
        terminals.end_all();
    }
    let generation = names.generation;
    if machine.chores.within(NAMES_WITHIN, move || names.write(Path::new("/"))).await.is_none() {
        log::line("the files with this machine's names cannot be written at the moment");
    }
    let mut answer = json!({ "reseeded": true, "generation": generation });
    if let Some(authority) = authority {
        let is_trusted = authority.is_some();
        const WHAT: &str = "change the certificates that the guest trusts";
        let set = machine.authority.set(&machine.chores, authority).await;
        // Root in the guest has done this to its own session, which is not lost for it: its programs refuse what the authority
        // signs, and no other session has these files. A new session would not get what its create promises.
        let is_set = match is_wake {
            true => log::warn(WHAT, set).is_some(),
            false => set.map(|()| true).map_err(|e| Refusal::internal(WHAT, e))?,
        };
        if is_trusted {
            answer["ca_trusted"] = is_set.into();
        }
    }
    if !request.stay_frozen {
        freeze::thaw_processes(machine)?;
    }
    answer["health"] = health();
    body::json(&answer)
}

/// Writes all files of `resumed` once, at boot.
pub fn prepare() {
    let root = Path::new("/");
    let hostname = rustix::system::uname().nodename().to_string_lossy().into_owned();
    log::warn("write the host's name", write_hostname(root, &hostname));
    log::warn("name this machine in /etc/hosts", write_hosts(root, &hostname));
    let machine_id = root.join(MACHINE_ID);
    if fs::read_to_string(&machine_id).unwrap_or_default().trim().is_empty() {
        log::warn("write the machine id", overwrite(machine_id, "uninitialized\n", 0o444));
    }
    let boot_id = fs::read_to_string(KERNEL_BOOT_ID).unwrap_or_default();
    let own = root.join(OWN_BOOT_ID);
    let mounted =
        overwrite(&own, &boot_id, 0o444).and_then(|()| Ok(rustix::mount::mount_bind(&own, KERNEL_BOOT_ID)?));
    log::warn("make the boot id renewable", mounted);
    log::warn("write the generation", overwrite(root.join(GENERATION), "0\n", 0o644));
    log::warn("look for host keys", host_keys(root).map(drop));
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

/// The files with a machine's identity and generation. One that root in the guest made unwritable is logged and skipped.
struct Names {
    /// The new identity with its boot id.
    identity: Option<(Identity, String)>,
    generation: u64,
}

impl Names {
    fn write(&self, root: &Path) {
        if let Some((Identity { hostname, machine_id, .. }, boot_id)) = &self.identity {
            log::warn("write the host's name", write_hostname(root, hostname));
            log::warn("name this machine in /etc/hosts", write_hosts(root, hostname));
            let id = format!("{machine_id}\n");
            log::warn("write the machine id", overwrite(root.join(MACHINE_ID), &id, 0o444));
            remove_host_keys(root);
            let id = format!("{boot_id}\n");
            log::warn("renew the boot id", overwrite(root.join(OWN_BOOT_ID), &id, 0o444));
        }
        if let Some(settings) = self.identity.as_ref().and_then(|(identity, _)| identity.settings.as_ref()) {
            log::warn("write the operator's settings", settings.write(root));
        }
        let generation = format!("{}\n", self.generation);
        log::warn("write the generation", overwrite(root.join(GENERATION), &generation, 0o644));
    }
}

fn write_hostname(root: &Path, hostname: &str) -> io::Result<()> {
    overwrite(root.join(HOSTNAME), &format!("{hostname}\n"), 0o644)
}

fn write_hosts(root: &Path, hostname: &str) -> io::Result<()> {
    let path = root.join(HOSTS);
    let hosts = match regular_file::open(&path, fs::File::options().read(true)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        file => regular_file::read(&mut file?)?,
    };
    overwrite(path, &with_own_name(&hosts, hostname), 0o644)
}

/// Removes the user's sudo rights. An error if that takes too long, so that success means that they are gone.
async fn drop_sudo(machine: &Machine) -> io::Result<()> {
    let dropped = machine.chores.within(SUDO_WITHIN, users::drop_sudo).await;
    dropped.unwrap_or_else(|| Err(io::Error::new(io::ErrorKind::TimedOut, "the files cannot be written")))
}

fn with_own_name(hosts: &str, hostname: &str) -> String {
    let has_name = |line: &str| line.split_whitespace().next() == Some("127.0.1.1");
    let kept = hosts.lines().filter(|line| !has_name(line));
    kept.map(|line| format!("{line}\n")).chain([format!("127.0.1.1 {hostname}\n")]).collect()
}

/// Removes SSH host keys of the image: every machine of this image has them.
fn remove_host_keys(root: &Path) {
    for key in log::warn("look for host keys", host_keys(root)).unwrap_or_default() {
        log::warn("remove a host key", fs::remove_file(key));
    }
}

fn host_keys(root: &Path) -> io::Result<Vec<PathBuf>> {
    let files = match fs::read_dir(root.join(HOST_KEYS)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        files => files?.flatten(),
    };
    let keys = files.filter(|file| file.file_name().to_string_lossy().starts_with("ssh_host_"));
    Ok(keys.map(|file| file.path()).collect())
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

/// Counts the loads of this machine. Programs with random state of their own can watch the file with this number.
fn raise_generation(machine: &Machine) -> u64 {
    let generation = machine.generation.get() + 1;
    machine.generation.set(generation);
    generation
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

    fn names() -> Names {
        let id = "0123456789abcdef0123456789abcdef";
        let identity =
            Identity { hostname: "copy".into(), machine_id: id.into(), no_sudo: false, settings: None };
        Names { identity: Some((identity, uuid_text([0xff; 16]))), generation: 7 }
    }

    fn guest() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for dir in ["etc/ssh", "run/vivarium"] {
            fs::create_dir_all(root.path().join(dir)).unwrap();
        }
        fs::write(root.path().join("etc/hosts"), "127.0.0.1 localhost\n127.0.1.1 old\n").unwrap();
        fs::write(root.path().join("etc/ssh/ssh_host_rsa_key"), "secret").unwrap();
        root
    }

    #[test]
    fn a_copy_gets_its_names_in_files() {
        let root = guest();
        names().write(root.path());
        let read = |path| fs::read_to_string(root.path().join(path)).unwrap();
        assert_eq!(read(HOSTNAME), "copy\n");
        assert_eq!(read(HOSTS), "127.0.0.1 localhost\n127.0.1.1 copy\n");
        assert_eq!(read(MACHINE_ID), "0123456789abcdef0123456789abcdef\n");
        assert_eq!(read(OWN_BOOT_ID), "ffffffff-ffff-4fff-bfff-ffffffffffff\n");
        assert_eq!(read(GENERATION), "7\n");
        assert_eq!(fs::read_dir(root.path().join(HOST_KEYS)).unwrap().count(), 0);
    }

    #[test]
    fn one_unwritable_file_keeps_no_other_from_being_written() {
        let root = guest();
        let at = |path| root.path().join(path);
        fs::create_dir(at(HOSTNAME)).unwrap();
        fs::remove_file(at(HOSTS)).unwrap();
        let fifo = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, at(HOSTS), fifo, rustix::fs::Mode::RWXU, 0).unwrap();
        fs::create_dir(at("etc/ssh/ssh_host_a")).unwrap();
        fs::write(at("elsewhere"), "kept").unwrap();
        std::os::unix::fs::symlink(at("elsewhere"), at(MACHINE_ID)).unwrap();
        names().write(root.path());
        assert_eq!(fs::read_to_string(at(GENERATION)).unwrap(), "7\n");
        assert!(!at("etc/ssh/ssh_host_rsa_key").exists());
        assert_eq!(fs::read_to_string(at("elsewhere")).unwrap(), "kept");
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
            settings: None,
        };
        let id = "0123456789abcdef0123456789abcdef";
        assert!(check_identity(&identity("abc", id)).is_ok());
        assert!(check_identity(&identity("", id)).is_err());
        assert!(check_identity(&identity("a b", id)).is_err());
        assert!(check_identity(&identity("abc", &id.to_uppercase())).is_err());
    }

    #[test]
    fn an_authority_may_be_absent_or_none_or_one() {
        let ca = |field: &str| {
            let text = format!(r#"{{"entropy":"","wall_clock_ns":"0"{field}}}"#);
            serde_json::from_str::<Resumed>(&text).unwrap().ca.map(|ca| ca.is_some())
        };
        assert_eq!(ca(""), None);
        assert_eq!(ca(r#","ca":null"#), Some(false));
        assert_eq!(ca(r#","ca":{"certificate_pem":"","subject_hash":""}"#), Some(true));
    }

    #[test]
    fn boot_ids_are_random_uuids() {
        assert_eq!(uuid_text([0xff; 16]), "ffffffff-ffff-4fff-bfff-ffffffffffff");
    }
}
