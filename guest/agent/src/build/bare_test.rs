//! Bare images: what they get, and that nothing which an image has is replaced.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::build::testing::{Fields, Place, Tar};

const HOME: &str = ".vivarium/sh";
const CERTIFICATES: &str = "etc/ssl/certs/ca-certificates.crt";
const BOTH: [Given; 2] = [Given::Shell, Given::Certificates];

struct Completed {
    place: Place,
    given: Vec<Given>,
}

/// Unpacks an image and completes it, from gifts that are "shell" and "bundle".
fn completed(tar: Tar) -> Completed {
    let place = Place::new();
    place.unpack([tar]).unwrap();
    let gifts = tempfile::tempdir().unwrap();
    let [shell, certificates] = ["shell", "bundle"].map(|name| gifts.path().join(name));
    fs::write(&shell, "shell").unwrap();
    fs::write(&certificates, "bundle").unwrap();
    let root = Root::open(&place.root()).unwrap();
    let given = complete(&root, Gifts { shell: &shell, certificates: &certificates }).unwrap();
    // A machine that was made of the result gets nothing more.
    assert_eq!(complete(&root, Gifts { shell: &shell, certificates: &certificates }).unwrap(), []);
    place.assert_outside_is_whole();
    Completed { place, given }
}

fn program(path: &str) -> Tar {
    Tar::new().entry(Fields { path: path.as_bytes(), mode: 0o755, ..Fields::default() }, b"own")
}

fn is_there(place: &Place, name: &str) -> bool {
    fs::symlink_metadata(place.path(name)).is_ok()
}

#[test]
fn an_image_with_one_program_gets_a_shell_and_certificates() {
    let Completed { place, given } = completed(program("app"));
    assert_eq!(given, BOTH);
    assert_eq!((place.text(HOME).as_str(), place.mode(HOME)), ("shell", 0o755));
    assert_eq!(fs::read_link(place.path("bin/sh")).unwrap().to_str(), Some("/.vivarium/sh"));
    assert_eq!((place.text(CERTIFICATES).as_str(), place.mode(CERTIFICATES)), ("bundle", 0o644));
    assert_eq!(place.text("etc/ssl/cert.pem"), "bundle");
    assert_eq!(place.mode("etc/ssl"), 0o755);
}

#[test]
fn the_link_goes_to_where_programs_of_a_merged_image_are() {
    let Completed { place, given } =
        completed(program("usr/bin/app").symbolic_link("bin", "usr/bin").file(CERTIFICATES, "own"));
    assert_eq!(given, [Given::Shell]);
    assert!(fs::symlink_metadata(place.path("usr/bin/sh")).unwrap().is_symlink());
    assert!(fs::symlink_metadata(place.path("bin")).unwrap().is_symlink());
    assert_eq!(place.text(CERTIFICATES), "own");
}

#[test]
fn an_image_with_a_shell_and_certificates_stays_as_it_is() {
    for shell in [
        program("bin/sh"),
        program("usr/bin/dash").symbolic_link("bin", "/usr/bin").symbolic_link("usr/bin/sh", "dash"),
        program("bin/busybox").symbolic_link("bin/sh", "/bin/busybox"),
    ] {
        for bundle in ["etc/ssl/cert.pem", "etc/pki/tls/certs/ca-bundle.crt", CERTIFICATES] {
            let place = Place::new();
            place.unpack([shell.clone().file(bundle, "own")]).unwrap();
            let before = place.tree();
            let Completed { place, given } = completed(shell.clone().file(bundle, "own"));
            assert_eq!((given, place.tree()), (vec![], before));
        }
    }
}

#[test]
fn what_cannot_be_used_stays_and_the_shell_is_where_the_agent_looks() {
    for tar in [
        program("app").symbolic_link("bin/sh", "/nowhere"),
        program("app").file("bin/sh", "no program"),
        program("app").file("bin/sh/x", "a directory"),
        program("app").file("bin", "no directory"),
        program("app").symbolic_link("bin", "loop").symbolic_link("loop", "bin"),
    ] {
        let place = Place::new();
        place.unpack([tar.clone()]).unwrap();
        let kept = fs::symlink_metadata(place.path("bin")).unwrap().file_type();
        let Completed { place, given } = completed(tar);
        assert_eq!(given, BOTH);
        assert_eq!(place.text(HOME), "shell");
        assert_eq!(fs::symlink_metadata(place.path("bin")).unwrap().file_type(), kept);
        assert_ne!(fs::read_link(place.path("bin/sh")).ok().as_deref(), Some(Path::new(GIVEN_SHELL)));
    }
}

#[test]
fn an_image_that_has_the_places_themselves_keeps_them() {
    let Completed { place, given } = completed(
        program("app").file(".vivarium/sh", "own").file("etc/ssl/certs/ca-certificates.crt/x", "a directory"),
    );
    assert_eq!(given, []);
    assert_eq!(place.text(HOME), "own");
    assert!(!is_there(&place, "bin/sh"));
    for taken in [program("app").file(".vivarium", "own"), program("app").symbolic_link(".vivarium", "/x")] {
        let Completed { place, given } = completed(taken.file("etc/ssl", "own"));
        assert_eq!(given, []);
        assert!(!is_there(&place, "bin") && place.text("etc/ssl") == "own");
    }
}

#[test]
fn links_of_the_image_lead_nowhere_but_into_it() {
    let Completed { place, given } = completed(
        program("app")
            .symbolic_link(".vivarium", "../outside")
            .symbolic_link("etc", "/../../outside")
            .symbolic_link("bin", "../../../outside"),
    );
    assert_eq!(given, []);
    assert_eq!(place.tree().len(), 4);
    let Completed { place, given } =
        completed(program("app").directory("real").symbolic_link(".vivarium", "../../real"));
    assert_eq!(given, BOTH);
    assert_eq!(place.text("real/sh"), "shell");
    assert_eq!(fs::metadata(place.path("real/sh")).unwrap().permissions().mode() & 0o777, 0o755);
}
