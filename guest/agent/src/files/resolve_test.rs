use std::fs;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::fs::{RenameFlags, renameat_with};

use super::*;
use crate::files::open;
use crate::files::testing::Place;

fn read(place: &Place, path: &str) -> Result<String, Code> {
    place.run(path, |workspace, path, _| {
        let mut text = String::new();
        open::regular_file(&open::existing(workspace, path)?)?.read_to_string(&mut text)?;
        Ok(text)
    })
}

#[test]
fn links_within_the_workspace_work_however_they_are_written() {
    let place = Place::new();
    place.file("a/b/f", "text");
    place.link("absolute", place.path("a/b"));
    place.link("relative", "a/b/../b/./f");
    place.link("a/up", "../a/b/");
    place.link("chain", "absolute");
    place.link("around", "../workspace/a/b");
    place.link("root", place.path("."));
    place.link("a/b/root", "../../.");
    for path in ["absolute/f", "relative", "a/up/f", "chain/f", "around/f", "root/a/b/f", "a/b/root/a/b/f"] {
        assert_eq!(read(&place, path).as_deref(), Ok("text"), "{path}");
    }
}

/// The rule speaks of where a way ends.
#[test]
fn a_link_may_lead_back_in_from_outside() {
    let place = Place::new();
    place.file("f", "text");
    symlink(place.path("f"), place.outside.path().join("back")).unwrap();
    place.link("out-and-in", place.outside.path().join("back"));
    assert_eq!(read(&place, "out-and-in").as_deref(), Ok("text"));
}

#[test]
fn links_that_lead_out_are_refused_whether_or_not_anything_is_there() {
    let place = Place::new();
    fs::write(place.outside.path().join("f"), "outside").unwrap();
    fs::create_dir(place.outside.path().join("workspace-evil")).unwrap();
    for (name, target) in [
        ("file", "../f"),
        ("missing", "../missing"),
        ("deep", "../missing/x"),
        ("twin", "../workspace-evil"),
        ("etc", "/etc"),
        ("shadow", "/etc/shadow"),
        ("zero", "/dev/zero"),
        ("slash", "/"),
        ("beyond", "../../../../../../../../../.."),
    ] {
        place.link(name, target);
        assert_eq!(read(&place, name), Err(Code::OUTSIDE_WORKSPACE), "{name}");
        assert_eq!(read(&place, &format!("{name}/x")), Err(Code::OUTSIDE_WORKSPACE), "{name}/x");
        let made = place.run(&format!("{name}/x/y"), |workspace, path, _| {
            resolve(workspace, path, Last::Follow, Parents::Make).map(drop)
        });
        assert_eq!(made, Err(Code::OUTSIDE_WORKSPACE), "{name}");
    }
    assert_eq!(crate::files::testing::names_in(place.outside.path()), ["f", "workspace", "workspace-evil"]);
}

#[test]
fn links_of_proc_are_not_followed_even_if_they_lead_in() {
    let place = Place::new();
    place.file("f", "text");
    let held = fs::File::open(&place.workspace.path).unwrap();
    place.link("magic", format!("/proc/self/fd/{}", held.as_raw_fd()));
    place.link("own", "/proc/self/root");
    assert_eq!(read(&place, "magic/f"), Err(Code::OUTSIDE_WORKSPACE));
    assert_eq!(read(&place, "own"), Err(Code::OUTSIDE_WORKSPACE));
}

#[test]
fn links_without_an_end_are_refused() {
    let place = Place::new();
    place.link("self", "self");
    place.link("a", "b");
    place.link("b", "a/x");
    place.file("l0", "text");
    for n in 1..=41 {
        place.link(&format!("l{n}"), format!("l{}", n - 1));
    }
    assert_eq!(read(&place, "self"), Err(Code::BAD_PATH));
    assert_eq!(read(&place, "a"), Err(Code::BAD_PATH));
    assert_eq!(read(&place, "l40").as_deref(), Ok("text"));
    assert_eq!(read(&place, "l41"), Err(Code::BAD_PATH));
}

#[test]
fn a_missing_directory_and_a_file_have_different_codes() {
    let place = Place::new();
    place.file("f", "");
    place.fifo("fifo");
    place.link("dangling", "nothing");
    assert_eq!(read(&place, "x"), Err(Code::NO_SUCH_FILE));
    assert_eq!(read(&place, "x/y"), Err(Code::NO_SUCH_FILE));
    assert_eq!(read(&place, "dangling"), Err(Code::NO_SUCH_FILE));
    assert_eq!(read(&place, "f/x"), Err(Code::PARENT_NOT_A_DIRECTORY));
    assert_eq!(read(&place, "fifo/x"), Err(Code::PARENT_NOT_A_DIRECTORY));
}

#[test]
fn directories_made_on_the_way_go_again_unless_they_are_kept() {
    let place = Place::new();
    let make = |path: &str, is_kept: bool| {
        place.run(path, |workspace, path, _| {
            let below = resolve(workspace, path, Last::Follow, Parents::Make)?.below_root()?;
            assert!(below.object.is_none());
            if is_kept {
                below.made.keep();
            }
            Ok(())
        })
    };
    make("a/b/c", false).unwrap();
    assert!(!place.path("a").exists());
    make("a/b/c", true).unwrap();
    assert!(place.path("a/b").is_dir() && !place.path("a/b/c").exists());
    let sandbox = crate::users::uid();
    assert_eq!(crate::files::testing::owner_and_mode(&place.path("a/b")), (sandbox, sandbox, 0o755));
}

/// Thousands of reads and as many writes of a path of which one name changes between a directory and a link that leads
/// out, as fast as the kernel can exchange the two.
#[test]
fn a_link_swapped_in_meanwhile_leads_nowhere() {
    let place = Place::new();
    fs::write(place.outside.path().join("f"), "outside").unwrap();
    fs::set_permissions(place.outside.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    place.file("d/f", "inside");
    place.link("l", place.outside.path());
    let seen = Counts::default();
    while_swapping(&place, || {
        for _ in 0..4_000 {
            seen.add(read(&place, "d/f"));
            let written = place.run("d/new", |workspace, path, _| {
                let below = resolve(workspace, path, Last::Follow, Parents::Make)?.below_root()?;
                crate::files::unfinished::Unfinished::create(below.parent)?.finish(&below.name, 0o644)?;
                Ok("inside".to_owned())
            });
            seen.add(written);
        }
    });
    // Both sides of the swap were met, or nothing was shown.
    assert!(seen.inside.load(Ordering::Relaxed) > 100 && seen.refused.load(Ordering::Relaxed) > 100);
    assert_eq!(seen.outside.load(Ordering::Relaxed), 0);
    assert_eq!(crate::files::testing::names_in(place.outside.path()), ["f", "workspace"]);
}

/// That the test above can fail: a check of the path and then an opening of the path do get out.
#[test]
fn a_check_before_the_opening_would_get_out() {
    let place = Place::new();
    fs::write(place.outside.path().join("f"), "outside").unwrap();
    place.file("d/f", "inside");
    place.link("l", place.outside.path());
    let path = place.path("d/f");
    let mut escapes = 0;
    while_swapping(&place, || {
        for _ in 0..1_000_000 {
            let is_inside = fs::canonicalize(&path).is_ok_and(|path| path.starts_with(&place.workspace.path));
            let text = fs::read_to_string(&path).unwrap_or_default();
            escapes += usize::from(is_inside && text == "outside");
            if escapes > 0 {
                break;
            }
        }
    });
    assert!(escapes > 0);
}

#[derive(Default)]
struct Counts {
    inside: AtomicUsize,
    refused: AtomicUsize,
    outside: AtomicUsize,
}

impl Counts {
    fn add(&self, read: Result<String, Code>) {
        let count = match read.as_deref() {
            Ok("inside") => &self.inside,
            Ok(_) => &self.outside,
            Err(_) => &self.refused,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// `d` and `l` change places all the time.
fn while_swapping(place: &Place, work: impl FnOnce()) {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (d, l) = (place.path("d"), place.path("l"));
            while !is_done.load(Ordering::Relaxed) {
                renameat_with(CWD, &d, CWD, &l, RenameFlags::EXCHANGE).unwrap();
            }
        });
        // Also when the work panics: the scope would wait for ever.
        let _done = Done(&is_done);
        work();
    });
    struct Done<'a>(&'a AtomicBool);
    impl Drop for Done<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}
