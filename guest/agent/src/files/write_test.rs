use std::fs;
use std::os::unix::fs::PermissionsExt;

use hyper::{Method, StatusCode};
use sending::body;
use tokio::sync::mpsc;

use crate::files::testing::{
    Place, in_loop, json_of, names_in, owner_and_mode, request, served, text, with_mount,
};
use crate::users;

mod sending {
    use super::*;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use bytes::Bytes;
    use http_body_util::BodyExt;
    use hyper::body::{Body, Frame};

    struct Pieces(mpsc::Receiver<std::io::Result<Bytes>>);

    impl Body for Pieces {
        type Data = Bytes;
        type Error = std::io::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
            self.0.poll_recv(cx).map(|piece| piece.map(|piece| piece.map(Frame::data)))
        }
    }

    /// A body that comes as the test sends it.
    pub fn body() -> (mpsc::Sender<std::io::Result<Bytes>>, crate::files::testing::Sent) {
        let (sender, pieces) = mpsc::channel(1);
        (sender, Pieces(pieces).boxed())
    }
}

async fn put(place: &Place, path: &str, bytes: &[u8]) -> (StatusCode, serde_json::Value) {
    let body = text(bytes.to_vec());
    let answer = served(place).await.send_request(request(Method::PUT, path, "", body)).await.unwrap();
    let status = answer.status();
    (status, json_of(answer).await)
}

#[test]
fn a_body_becomes_a_file_of_the_user() {
    let place = Place::new();
    let long: Vec<u8> = (0..2_000_003_u32).map(|n| (n * 7 % 251) as u8).collect();
    in_loop(async {
        for (path, bytes) in [("empty", &b""[..]), ("a/b/short", b"x"), ("long", &long)] {
            let (status, written) = put(&place, path, bytes).await;
            assert_eq!(status, StatusCode::OK);
            assert_eq!(written["bytes"], bytes.len());
            assert!(fs::read(place.path(path)).unwrap() == bytes);
            assert_eq!(owner_and_mode(&place.path(path)), (users::uid(), users::gid(), 0o644));
        }
    });
    assert_eq!(owner_and_mode(&place.path("a/b")), (users::uid(), users::gid(), 0o755));
    assert_eq!(names_in(&place.workspace.path), ["a", "empty", "long"]);
}

#[test]
fn a_body_is_the_same_however_it_is_cut() {
    let place = Place::new();
    let whole: Vec<u8> = (0..1_400_009_u32).map(|n| (n * 7 % 251) as u8).collect();
    in_loop(async {
        let mut sender = served(&place).await;
        let cuts: [&[usize]; 4] = [&[1], &[4095, 1, 8193], &[16_384, 3], &[262_143, 300_001]];
        for lengths in cuts {
            // Of single bytes fewer are enough, still more than one call of the kernel takes.
            let mut rest = if lengths == [1] { &whole[..9_000] } else { &whole[..] };
            let sent = rest;
            let (pieces, body) = body();
            let answer = sender.send_request(request(Method::PUT, "cut", "", body));
            let answer = tokio::task::spawn_local(answer);
            for length in lengths.iter().cycle() {
                let (piece, left) = rest.split_at(rest.len().min(*length));
                pieces.send(Ok(piece.to_vec().into())).await.unwrap();
                rest = left;
                if rest.is_empty() {
                    break;
                }
            }
            drop(pieces);
            assert_eq!(answer.await.unwrap().unwrap().status(), StatusCode::OK);
            assert!(fs::read(place.path("cut")).unwrap() == sent, "{lengths:?}");
        }
    });
}

#[test]
fn an_existing_file_keeps_its_mode_and_a_link_its_target() {
    let place = Place::new();
    let script = place.file("bin/run", "old");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    place.link("run", "bin/run");
    place.link("new", "bin/new");
    in_loop(async {
        put(&place, "run", b"new").await;
        put(&place, "new", b"made").await;
    });
    assert!(place.path("run").is_symlink() && place.path("new").is_symlink());
    assert_eq!(fs::read(&script).unwrap(), b"new");
    assert_eq!(fs::read(place.path("bin/new")).unwrap(), b"made");
    assert_eq!(owner_and_mode(&script), (users::uid(), users::gid(), 0o755));
}

#[test]
fn each_reason_against_a_write_has_its_code_and_changes_nothing() {
    let place = Place::new();
    place.directory("d");
    place.fifo("fifo");
    place.device("null");
    place.link("out", place.outside.path());
    place.file("f", "");
    fs::write(place.path("roots"), "root's").unwrap();
    fs::create_dir(place.path("roots.d")).unwrap();
    let kept = place.file("kept", "kept");
    fs::set_permissions(&kept, fs::Permissions::from_mode(0o444)).unwrap();
    let before = names_in(&place.workspace.path);
    in_loop(async {
        for (path, status, code) in [
            ("d", 400, "is_a_directory"),
            (".", 400, "is_a_directory"),
            ("fifo", 400, "not_a_regular_file"),
            ("null", 400, "not_a_regular_file"),
            ("out/f", 400, "outside_workspace"),
            ("f/x", 404, "parent_not_a_directory"),
            ("roots", 400, "permission_denied"),
            ("kept", 400, "permission_denied"),
            ("roots.d/x", 400, "permission_denied"),
            ("roots.d/x/y", 400, "permission_denied"),
        ] {
            let (got, answer) = put(&place, path, b"new").await;
            assert_eq!((got.as_u16(), answer["code"].as_str()), (status, Some(code)), "{path}");
        }
    });
    assert_eq!(fs::read(&kept).unwrap(), b"kept");
    assert_eq!(names_in(&place.workspace.path), before);
    assert_eq!(names_in(place.outside.path()), ["workspace"]);
}

#[test]
fn a_body_that_breaks_off_leaves_nothing_behind() {
    let place = Place::new();
    place.file("f", "old");
    in_loop(async {
        let mut sender = served(&place).await;
        for path in ["f", "new/deep/f"] {
            let (pieces, body) = body();
            let answer = sender.send_request(request(Method::PUT, path, "", body));
            let answer = tokio::task::spawn_local(answer);
            pieces.send(Ok(vec![b'x'; 600_000].into())).await.unwrap();
            let parent = place.path(path).parent().unwrap().to_owned();
            until(|| parent.exists() && names_in(&parent).iter().any(|name| name.starts_with(".vivarium-")))
                .await;
            pieces.send(Err(std::io::Error::other("on purpose"))).await.unwrap();
            assert!(answer.await.unwrap().is_err());
            until(|| names_in(&place.workspace.path) == ["f"]).await;
        }
        let (pieces, body) = body();
        let answer = tokio::task::spawn_local(sender.send_request(request(Method::PUT, "f", "", body)));
        pieces.send(Ok(vec![b'x'; 1000].into())).await.unwrap();
        until(|| names_in(&place.workspace.path).len() == 2).await;
        answer.abort();
        drop((pieces, sender));
        until(|| names_in(&place.workspace.path) == ["f"]).await;
    });
    assert_eq!(fs::read(place.path("f")).unwrap(), b"old");
}

#[test]
fn a_directory_that_takes_nothing_any_more_is_left_as_it_was() {
    let place = Place::new();
    in_loop(async {
        for mode in [0o555, 0o000] {
            let directory = place.path("d");
            assert_eq!(put(&place, "d/old", b"old").await.0, StatusCode::OK);
            let mut sender = served(&place).await;
            let (pieces, body) = body();
            let answer =
                tokio::task::spawn_local(sender.send_request(request(Method::PUT, "d/new", "", body)));
            pieces.send(Ok(vec![b'x'; 600_000].into())).await.unwrap();
            until(|| names_in(&directory).len() == 2).await;
            fs::set_permissions(&directory, fs::Permissions::from_mode(mode)).unwrap();
            drop(pieces);
            assert_eq!(answer.await.unwrap().unwrap().status(), StatusCode::BAD_REQUEST);
            until(|| names_in(&directory) == ["old"]).await;
            fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
        }
    });
}

/// A disk that takes nothing, here a pool that is busy.
#[test]
fn a_body_comes_no_faster_than_it_is_written() {
    let place = Place::new();
    in_loop(async {
        let mut sender = served(&place).await;
        let (pieces, body) = body();
        let answer = tokio::task::spawn_local(sender.send_request(request(Method::PUT, "f", "", body)));
        until(|| names_in(&place.workspace.path).len() == 1).await;
        let (go_on, waits) = std::sync::mpsc::channel::<()>();
        let busy = tokio::task::spawn_blocking(move || waits.recv());
        let mut sent = 0;
        let piece = || bytes::Bytes::from(vec![b'x'; 64 * 1024]);
        let patience = std::time::Duration::from_millis(500);
        while tokio::time::timeout(patience, pieces.send(Ok(piece()))).await.is_ok() {
            sent += piece().len();
            assert!(sent < 8 << 20);
        }
        go_on.send(()).unwrap();
        busy.await.unwrap().unwrap();
        drop(pieces);
        let written = json_of(answer.await.unwrap().unwrap()).await;
        assert_eq!(written["bytes"], sent);
    });
}

async fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

#[test]
fn a_full_disk_is_reported_and_leaves_nothing_behind() {
    let place = Place::new();
    with_mount(&place, "small", "size=1m,mode=777", || {
        // The pool's threads are made here, and see what this thread sees.
        in_loop(async {
            put(&place, "small/old", b"old").await;
            for path in ["small/old", "small/a/b/new"] {
                let (status, answer) = put(&place, path, &vec![b'x'; 3_000_000]).await;
                assert_eq!((status.as_u16(), answer["code"].as_str()), (409, Some("no_space")), "{path}");
            }
        });
        assert_eq!(names_in(&place.path("small")), ["old"]);
        assert_eq!(fs::read(place.path("small/old")).unwrap(), b"old");
    });
}

#[test]
fn a_read_only_file_system_is_reported() {
    let place = Place::new();
    with_mount(&place, "fixed", "ro,size=1m,mode=777", || {
        in_loop(async {
            let (status, answer) = put(&place, "fixed/f", b"new").await;
            assert_eq!((status.as_u16(), answer["code"].as_str()), (400, Some("read_only")));
        });
    });
}
