use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::files::testing::{Place, names_in, with_mount};

fn remove(place: &Place, path: &str) -> Result<(), Code> {
    place.run(path, |workspace, path, pace| delete(workspace, path, false, pace)).map(drop)
}

fn remove_all(place: &Place, path: &str) -> Result<(), Code> {
    place.run(path, |workspace, path, pace| delete(workspace, path, true, pace)).map(drop)
}

#[test]
fn files_and_empty_directories_go_and_full_ones_only_if_asked() {
    let place = Place::new();
    place.file("f", "");
    place.file("d/f", "");
    place.directory("empty");
    place.fifo("fifo");
    for path in ["f", "empty", "fifo"] {
        remove(&place, path).unwrap();
    }
    assert_eq!(remove(&place, "d"), Err(Code::DIRECTORY_NOT_EMPTY));
    assert_eq!(remove(&place, "f"), Err(Code::NO_SUCH_FILE));
    assert_eq!(remove(&place, "d/f/x"), Err(Code::PARENT_NOT_A_DIRECTORY));
    assert!(place.path("d/f").exists());
    remove_all(&place, "d").unwrap();
    assert_eq!(remove_all(&place, "d"), Err(Code::NO_SUCH_FILE));
    assert_eq!(names_in(&place.workspace.path), [""; 0]);
}

#[test]
fn the_workspace_root_stays_under_all_its_names() {
    let place = Place::new();
    place.file("d/f", "");
    let root = place.workspace.text().to_owned();
    let names = [
        root.clone(),
        ".".into(),
        "./".into(),
        format!("/{root}/"),
        format!("{root}/."),
        format!("{root}/d/.."),
    ];
    for path in names {
        assert_eq!(remove(&place, &path), Err(Code::WORKSPACE_ROOT), "{path}");
        assert_eq!(remove_all(&place, &path), Err(Code::WORKSPACE_ROOT), "{path}");
    }
    assert!(place.path("d/f").exists());
}

#[test]
fn a_link_goes_and_not_what_it_points_to() {
    let place = Place::new();
    place.file("d/f", "");
    place.link("to-d", "d");
    place.link("to-root", ".");
    place.link("to-etc", "/etc");
    for link in ["to-d", "to-root", "to-etc"] {
        remove_all(&place, link).unwrap();
    }
    assert_eq!(names_in(&place.workspace.path), ["d"]);
    place.link("d/up", "..");
    place.link("d/etc", "/etc");
    let outside = place.outside.path().join("kept");
    fs::write(&outside, "").unwrap();
    place.link("d/outside", place.outside.path());
    remove_all(&place, "d").unwrap();
    assert!(outside.exists() && fs::exists("/etc/passwd").unwrap());
}

#[test]
fn a_way_through_a_link_to_the_root_leads_to_the_same_root() {
    let place = Place::new();
    place.file("f", "");
    place.link("root", ".");
    place.link("up", "..");
    assert_eq!(remove_all(&place, "up/workspace"), Err(Code::WORKSPACE_ROOT));
    assert_eq!(remove_all(&place, "root/up/workspace/."), Err(Code::WORKSPACE_ROOT));
    assert_eq!(remove_all(&place, "up/workspace/root"), Ok(()));
    assert_eq!(names_in(&place.workspace.path), ["f", "up"]);
}

#[test]
fn files_of_root_stay() {
    let place = Place::new();
    fs::create_dir(place.path("roots")).unwrap();
    fs::write(place.path("roots/f"), "").unwrap();
    assert_eq!(remove(&place, "roots/f"), Err(Code::PERMISSION_DENIED));
    assert_eq!(remove_all(&place, "roots"), Err(Code::PERMISSION_DENIED));
    assert!(place.path("roots/f").exists());
}

#[test]
fn a_deep_and_wide_tree_goes() {
    let place = Place::new();
    let mut deep = place.directory("t");
    for n in 0..1000 {
        deep = deep.join("d");
        fs::create_dir(&deep).unwrap();
        fs::set_permissions(&deep, fs::Permissions::from_mode(0o777)).unwrap();
        if n % 100 == 0 {
            fs::write(deep.join("f"), "").unwrap();
        }
    }
    let wide = place.directory("t/wide");
    for n in 0..20_000 {
        fs::write(wide.join(n.to_string()), "").unwrap();
    }
    remove_all(&place, "t").unwrap();
    assert_eq!(names_in(&place.workspace.path), [""; 0]);
}

#[test]
fn a_file_system_mounted_below_is_left_alone() {
    let place = Place::new();
    with_mount(&place, "d/mnt", "size=1m,mode=777", || {
        fs::write(place.path("d/mnt/f"), "").unwrap();
        assert_eq!(remove_all(&place, "d"), Err(Code::BUSY));
        assert_eq!(remove_all(&place, "d/mnt/f"), Ok(()));
        assert_eq!(remove_all(&place, "d/mnt"), Err(Code::BUSY));
    });
}
