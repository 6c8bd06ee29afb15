//! The files of guests that are directories of this host.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::json;

use super::keystore::Keystore;
use super::testing::java_keystore;
use super::trust_files::FILE;
use super::{Authority, Certificate};
use crate::chores::Chores;
use crate::launch::{self, Program};
use crate::machine::Machine;
use crate::testing::run;

const DEBIAN: &str = "etc/ssl/certs/ca-certificates.crt";
const FEDORA: &str = "etc/pki/tls/certs/ca-bundle.crt";
const ALPINE_LINK: &str = "etc/ssl/cert.pem";
const KEYSTORE: &str = "etc/ssl/certs/java/cacerts";
const NAMED: &str = "etc/ssl/certs/vivarium-session.pem";
const OTHERS: &str = "# others\n-----BEGIN CERTIFICATE-----\nb3RoZXJz\n-----END CERTIFICATE-----\n";

fn certificate(der: &str) -> Certificate {
    use base64::Engine;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let pem = format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
    let encoded = json!({ "certificate_pem": pem, "subject_hash": format!("{:08x}", der.len()) });
    Certificate::parse(serde_json::from_value(encoded).unwrap()).unwrap()
}

fn one() -> Certificate {
    certificate("one")
}

struct Guest {
    room: tempfile::TempDir,
    authority: Authority,
    chores: Chores,
}

impl Guest {
    /// A guest with these files, all with the certificates of others.
    fn with(bundles: &[&str]) -> Self {
        let room = tempfile::tempdir().unwrap();
        let authority = Authority::below(room.path());
        let guest = Guest { room, authority, chores: Chores::begin().unwrap() };
        for path in bundles {
            guest.put(path, OTHERS);
        }
        guest
    }

    fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        self.room.path().join(path)
    }

    fn put(&self, path: &str, text: impl AsRef<[u8]>) {
        fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
        fs::write(self.at(path), text).unwrap();
    }

    fn read(&self, path: &str) -> String {
        String::from_utf8(fs::read(self.at(path)).unwrap()).unwrap()
    }

    fn set(&self, wanted: Option<Certificate>) -> std::io::Result<()> {
        run(self.authority.set(&self.chores, wanted))
    }

    fn variable(&self, name: &str) -> Option<String> {
        let variables = self.authority.variables();
        variables.into_iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// Every file and link with its content, and the time of its last change.
    fn all(&self) -> Vec<(PathBuf, Vec<u8>, std::time::SystemTime)> {
        let mut all = Vec::new();
        let mut rest = vec![self.at("")];
        while let Some(directory) = rest.pop() {
            for path in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
                let meta = path.symlink_metadata().unwrap();
                if meta.is_dir() {
                    rest.push(path);
                    continue;
                }
                let content = match meta.is_symlink() {
                    true => fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes(),
                    false if meta.is_file() => fs::read(&path).unwrap(),
                    false => Vec::new(),
                };
                all.push((path, content, meta.modified().unwrap()));
            }
        }
        all.sort();
        all
    }

    fn contents(&self) -> Vec<(PathBuf, Vec<u8>)> {
        self.all().into_iter().map(|(path, content, _)| (path, content)).collect()
    }
}

fn make_fifo(path: &Path) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0).unwrap();
}

#[test]
fn the_certificate_is_in_every_place_and_leaves_them_byte_for_byte() {
    let guest = Guest::with(&[DEBIAN, FEDORA]);
    symlink("certs/ca-certificates.crt", guest.at(ALPINE_LINK)).unwrap();
    guest.put(KEYSTORE, java_keystore());
    let before = guest.contents();
    guest.set(Some(one())).unwrap();
    assert_eq!(guest.read(FILE), one().pem);
    for path in [DEBIAN, FEDORA, ALPINE_LINK] {
        let text = guest.read(path);
        assert!(text.starts_with(OTHERS) && text.matches(&one().pem).count() == 1, "{path}: {text}");
    }
    assert!(Keystore::parse(&fs::read(guest.at(KEYSTORE)).unwrap()).unwrap().has(b"one"));
    let link = fs::read_link(guest.at("etc/ssl/certs/00000003.0")).unwrap();
    assert_eq!(link, Path::new("/").join(FILE));
    guest.set(None).unwrap();
    assert_eq!(guest.contents(), before);
}

#[test]
fn packages_that_come_later_find_the_certificate_where_debian_links_it() {
    let guest = Guest::with(&[DEBIAN]);
    let before = guest.contents();
    guest.set(Some(one())).unwrap();
    assert_eq!(fs::read_link(guest.at(NAMED)).unwrap(), Path::new("/").join(FILE));
    guest.set(None).unwrap();
    assert_eq!(guest.contents(), before);
    // A file of this name that is not ours stays as it is.
    guest.put(NAMED, OTHERS);
    let before = guest.contents();
    guest.set(Some(one())).unwrap();
    assert_eq!(guest.read(NAMED), OTHERS);
    guest.set(None).unwrap();
    assert_eq!(guest.contents(), before);
}

#[test]
fn a_repeated_install_writes_nothing() {
    let guest = Guest::with(&[DEBIAN]);
    guest.put(KEYSTORE, java_keystore());
    guest.set(Some(one())).unwrap();
    let first = guest.all();
    guest.set(Some(one())).unwrap();
    assert_eq!(guest.all(), first);
    guest.set(Some(certificate("another"))).unwrap();
    assert_ne!(guest.all(), first);
}

#[test]
fn another_certificate_takes_the_place_of_an_earlier_one() {
    let guest = Guest::with(&[DEBIAN]);
    guest.put(KEYSTORE, java_keystore());
    let before = guest.contents();
    let two = certificate("second");
    guest.set(Some(one())).unwrap();
    guest.set(Some(two.clone())).unwrap();
    assert_eq!(guest.read(FILE), two.pem);
    let text = guest.read(DEBIAN);
    assert!(text.contains(&two.pem) && !text.contains(&one().pem), "{text}");
    let keystore = fs::read(guest.at(KEYSTORE)).unwrap();
    let keystore = Keystore::parse(&keystore).unwrap();
    assert!(keystore.has(b"second") && !keystore.has(b"one"));
    assert!(!guest.at("etc/ssl/certs/00000003.0").is_symlink());
    assert!(guest.at("etc/ssl/certs/00000006.0").is_symlink());
    guest.set(None).unwrap();
    assert_eq!(guest.contents(), before);
}

#[test]
fn a_guest_without_a_bundle_gets_one_and_loses_it_again() {
    let guest = Guest::with(&[]);
    guest.set(Some(one())).unwrap();
    assert!(guest.read(DEBIAN).contains(&one().pem));
    assert_eq!(fs::metadata(guest.at(DEBIAN)).unwrap().permissions().mode() & 0o7777, 0o644);
    assert_eq!(guest.variable("SSL_CERT_FILE").unwrap(), format!("/{DEBIAN}"));
    guest.set(None).unwrap();
    assert_eq!(guest.contents(), []);
    // An empty one is not ours.
    guest.put(FEDORA, "");
    let before = guest.contents();
    guest.set(Some(one())).unwrap();
    assert!(guest.read(FEDORA).contains(&one().pem) && !guest.at(DEBIAN).exists());
    guest.set(None).unwrap();
    assert_eq!(guest.contents(), before);
}

#[test]
fn a_bundle_may_be_a_link_to_where_certificates_are() {
    let guest = Guest::with(&["etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"]);
    fs::create_dir_all(guest.at("etc/pki/tls/certs")).unwrap();
    fs::create_dir_all(guest.at("etc/ssl")).unwrap();
    symlink("../../ca-trust/extracted/pem/tls-ca-bundle.pem", guest.at(FEDORA)).unwrap();
    symlink("../pki/tls/certs", guest.at("etc/ssl/certs")).unwrap();
    let before = guest.contents();
    guest.set(Some(one())).unwrap();
    assert!(guest.read(FEDORA).contains(&one().pem) && guest.at(FEDORA).is_symlink());
    assert_eq!(guest.variable("CURL_CA_BUNDLE").unwrap(), format!("/{FEDORA}"));
    assert!(guest.at("etc/pki/tls/certs/00000003.0").is_symlink());
    guest.set(None).unwrap();
    assert_eq!(guest.contents(), before);
}

#[test]
fn nothing_is_written_elsewhere_and_no_fifo_is_waited_for() {
    let guest = Guest::with(&["etc/passwd", "home/file"]);
    for directory in ["etc/ssl/certs/java", "etc/pki/tls/certs", "usr/local/share/ca-certificates"] {
        fs::create_dir_all(guest.at(directory)).unwrap();
    }
    symlink(guest.at("etc/passwd"), guest.at(DEBIAN)).unwrap();
    make_fifo(&guest.at(FEDORA));
    symlink("ring.pem", guest.at("etc/ssl/ring.pem")).unwrap();
    symlink("ring.pem", guest.at(ALPINE_LINK)).unwrap();
    symlink(guest.at("home/file"), guest.at(FILE)).unwrap();
    make_fifo(&guest.at(KEYSTORE));
    let before = guest.contents();
    guest.put("run/vivarium", "");
    assert!(guest.set(Some(one())).unwrap_err().to_string().contains("no file of certificates"));
    assert_eq!(guest.authority.variables(), []);
    guest.set(None).unwrap();
    fs::remove_file(guest.at("run/vivarium")).unwrap();
    // The link that is no file of ours has gone; nothing behind it was touched.
    let kept = before.into_iter().filter(|(path, _)| *path != guest.at(FILE));
    assert_eq!(guest.contents(), kept.collect::<Vec<_>>());
    // The same guest with one sound bundle is served.
    fs::remove_file(guest.at(FEDORA)).unwrap();
    guest.put(FEDORA, OTHERS);
    guest.set(Some(one())).unwrap();
    assert_eq!(guest.variable("PIP_CERT").unwrap(), format!("/{FEDORA}"));
}

#[test]
fn a_guest_whose_files_cannot_be_written_has_a_bundle_in_memory() {
    let guest = Guest::with(&[DEBIAN, "run/vivarium/other"]);
    let mounted = ReadOnly::mount(&guest.at("etc"));
    // A directory in the place of the file, as root in the guest could make it.
    fs::create_dir_all(guest.at(FILE)).unwrap();
    let before = guest.contents();
    guest.set(Some(one())).unwrap();
    for name in ["SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"] {
        assert_eq!(guest.variable(name).unwrap(), "/run/vivarium/ca-certificates.crt");
    }
    let bundle = guest.read("run/vivarium/ca-certificates.crt");
    assert!(bundle.starts_with(OTHERS) && bundle.contains(&one().pem), "{bundle}");
    guest.set(None).unwrap();
    assert_eq!(guest.contents(), before);
    assert_eq!(guest.authority.variables(), []);
    drop(mounted);
}

#[test]
fn a_disk_of_an_earlier_life_loses_the_authority_that_this_life_has_not_installed() {
    let guest = Guest::with(&[DEBIAN, FEDORA]);
    guest.put(KEYSTORE, java_keystore());
    let before = guest.contents();
    guest.set(Some(one())).unwrap();
    let rebuilt = format!("{OTHERS}{}", one().pem);
    guest.put(FEDORA, &rebuilt);
    let next = Guest { authority: Authority::found_below(guest.room.path()), ..guest };
    next.set(None).unwrap();
    assert_eq!(next.contents(), before);
    // The marks suffice without the file.
    next.set(Some(one())).unwrap();
    fs::remove_file(next.at(FILE)).unwrap();
    let last = Guest { authority: Authority::found_below(next.room.path()), ..next };
    last.set(None).unwrap();
    assert_eq!(last.contents(), before);
    // A disk that never had one is not touched.
    let fresh = Guest { authority: Authority::found_below(last.room.path()), ..last };
    let untouched = fresh.all();
    fresh.set(None).unwrap();
    assert_eq!(fresh.all(), untouched);
}

#[test]
fn a_directory_of_certificates_that_leads_elsewhere_gets_no_link() {
    let guest = Guest::with(&["home/file"]);
    fs::create_dir_all(guest.at("etc/ssl")).unwrap();
    symlink(guest.at("home"), guest.at("etc/ssl/certs")).unwrap();
    guest.set(Some(one())).unwrap();
    assert_eq!(fs::read_dir(guest.at("home")).unwrap().count(), 1);
    assert_eq!((guest.variable("SSL_CERT_FILE"), guest.read(FILE)), (None, one().pem));
}

#[test]
fn a_file_that_is_no_bundle_is_left_alone() {
    let guest = Guest::with(&[FEDORA]);
    guest.put(DEBIAN, "not one certificate\n");
    guest.set(Some(one())).unwrap();
    assert_eq!(guest.read(DEBIAN), "not one certificate\n");
    assert_eq!(guest.variable("GIT_SSL_CAINFO").unwrap(), format!("/{FEDORA}"));
}

#[test]
fn a_guest_that_can_only_be_read_refuses() {
    let guest = Guest::with(&[DEBIAN]);
    let _mounted = ReadOnly::mount(guest.room.path());
    assert!(guest.set(Some(one())).is_err());
    assert_eq!(guest.authority.variables(), []);
    // Nothing was written, so nothing has to be removed.
    guest.set(None).unwrap();
}

#[test]
fn a_certificate_that_cannot_be_removed_is_an_error_until_it_can() {
    let guest = Guest::with(&[DEBIAN]);
    let before = guest.contents();
    guest.set(Some(one())).unwrap();
    let mounted = ReadOnly::mount(guest.room.path());
    assert!(guest.set(None).is_err());
    drop(mounted);
    guest.set(None).unwrap();
    assert_eq!(guest.contents(), before);
}

/// A directory that can only be read as long as this lives.
struct ReadOnly(PathBuf);

impl ReadOnly {
    fn mount(path: &Path) -> Self {
        use rustix::mount::{MountFlags, mount_bind, mount_remount};
        mount_bind(path, path).expect("these tests run as root");
        let flags = MountFlags::RDONLY | MountFlags::BIND;
        mount_remount(path, flags, "").expect("mount a directory read-only");
        ReadOnly(path.into())
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH).unwrap();
    }
}

#[test]
fn a_hashed_name_that_is_taken_gets_the_next_number() {
    let guest = Guest::with(&[DEBIAN, "etc/ssl/certs/00000003.0"]);
    let before = guest.contents();
    guest.set(Some(one())).unwrap();
    guest.set(Some(one())).unwrap();
    assert_eq!(guest.read("etc/ssl/certs/00000003.0"), OTHERS);
    assert!(guest.at("etc/ssl/certs/00000003.1").is_symlink());
    assert!(!guest.at("etc/ssl/certs/00000003.2").is_symlink());
    guest.set(None).unwrap();
    assert_eq!(guest.contents(), before);
}

#[test]
fn what_update_ca_certificates_made_of_it_goes_too() {
    let guest = Guest::with(&[DEBIAN]);
    let before = guest.contents();
    guest.set(Some(one())).unwrap();
    // The bundle is built anew, without marks. The tool finds its link there, and makes the other one anew.
    guest.put(DEBIAN, format!("{OTHERS}{}", one().pem));
    assert_eq!(fs::read_link(guest.at(NAMED)).unwrap(), Path::new("/").join(FILE));
    let certs = guest.at("etc/ssl/certs");
    fs::remove_file(certs.join("00000003.0")).unwrap();
    symlink("vivarium-session.pem", certs.join("00000003.0")).unwrap();
    guest.set(None).unwrap();
    assert_eq!(guest.contents(), before);
}

#[test]
fn without_an_earlier_certificate_there_is_nothing_to_do() {
    let guest = Guest::with(&[]);
    // A file of the guest's own under our name shows that none is looked for.
    guest.put(FILE, "the guest's own");
    guest.set(None).unwrap();
    assert_eq!(guest.read(FILE), "the guest's own");
}

#[test]
fn new_processes_have_variables_as_long_as_the_authority_is_trusted() {
    run(async {
        let room = tempfile::tempdir().unwrap();
        let mut machine = Machine::new(crate::cgroup::Cgroups::of("/nonexistent")).unwrap();
        machine.authority = Authority::below(room.path());
        let argv = ["true".to_owned()];
        let own = [("PIP_CERT".to_owned(), "/own".to_owned())].into();
        let environment = async || {
            let program = Program { argv: &argv, cwd: Some("/"), env: &own };
            let launch = launch::prepare(&machine, &program).await.unwrap();
            launch.env.into_iter().map(|text| text.into_string().unwrap()).collect::<Vec<_>>()
        };
        assert!(!environment().await.iter().any(|text| text.contains("vivarium-session")));
        machine.authority.set(&machine.chores, Some(one())).await.unwrap();
        let variables = environment().await;
        for text in [
            "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt",
            "REQUESTS_CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt",
            "CURL_CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt",
            "GIT_SSL_CAINFO=/etc/ssl/certs/ca-certificates.crt",
            "AWS_CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt",
            "PIP_CERT=/own",
            "NODE_EXTRA_CA_CERTS=/usr/local/share/ca-certificates/vivarium-session.crt",
            "DENO_CERT=/usr/local/share/ca-certificates/vivarium-session.crt",
        ] {
            assert!(variables.iter().any(|variable| variable == text), "{text} in {variables:?}");
        }
        machine.authority.set(&machine.chores, None).await.unwrap();
        assert!(!environment().await.iter().any(|text| text.contains("ca-certificates")));
    });
}
