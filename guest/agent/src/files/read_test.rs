use http_body_util::BodyExt;
use hyper::{Method, StatusCode};

use crate::files::testing::{Place, in_loop, json_of, request, served, text};

async fn code(place: &Place, path: &str, parameters: &str) -> (StatusCode, String) {
    let answer =
        served(place).await.send_request(request(Method::GET, path, parameters, text(""))).await.unwrap();
    let status = answer.status();
    (status, json_of(answer).await["code"].as_str().unwrap().to_owned())
}

#[test]
fn a_file_comes_whole_with_its_length() {
    let place = Place::new();
    let long: Vec<u8> = (0..3_000_001_u32).map(|n| (n * 7 % 251) as u8).collect();
    for (name, bytes) in [("empty", &b""[..]), ("short", b"x"), ("long", &long)] {
        place.file(name, bytes);
        in_loop(async {
            let mut sender = served(&place).await;
            let answer = sender.send_request(request(Method::GET, name, "", text(""))).await.unwrap();
            assert_eq!(answer.status(), StatusCode::OK);
            assert_eq!(answer.headers()["content-length"], bytes.len().to_string());
            let read = answer.into_body().collect().await.unwrap().to_bytes();
            assert!(read == bytes, "{name}");
        });
    }
}

#[test]
fn a_file_that_grows_is_cut_and_one_that_shrinks_breaks_the_answer_off() {
    let place = Place::new();
    let bytes = vec![b'x'; 5_000_000];
    let (grows, shrinks) = (place.file("grows", &bytes), place.file("shrinks", &bytes));
    in_loop(async {
        let mut sender = served(&place).await;
        let growing = sender.send_request(request(Method::GET, "grows", "", text(""))).await.unwrap();
        let mut grows = std::fs::File::options().append(true).open(&grows).unwrap();
        std::io::Write::write_all(&mut grows, &[b'x'; 1_000_000]).unwrap();
        assert_eq!(growing.into_body().collect().await.unwrap().to_bytes().len(), 5_000_000);
        let shrinking = sender.send_request(request(Method::GET, "shrinks", "", text(""))).await.unwrap();
        assert_eq!(shrinking.headers()["content-length"], "5000000");
        std::fs::write(&shrinks, "short").unwrap();
        assert!(shrinking.into_body().collect().await.is_err());
    });
}

#[test]
fn other_objects_and_unreadable_files_are_refused_without_opening_them() {
    let place = Place::new();
    place.directory("d");
    place.fifo("fifo");
    place.device("zero");
    place.link("to-fifo", "fifo");
    place.link("to-device", "/dev/zero");
    let _socket = std::os::unix::net::UnixListener::bind(place.path("socket")).unwrap();
    std::fs::write(place.path("roots"), "secret").unwrap();
    std::fs::set_permissions(place.path("roots"), std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .unwrap();
    place.file("f", "12345");
    in_loop(async {
        for (path, parameters, status, name) in [
            ("d", "", 400, "is_a_directory"),
            (".", "", 400, "is_a_directory"),
            ("fifo", "", 400, "not_a_regular_file"),
            ("to-fifo", "", 400, "not_a_regular_file"),
            ("zero", "", 400, "not_a_regular_file"),
            ("socket", "", 400, "not_a_regular_file"),
            ("to-device", "", 400, "outside_workspace"),
            ("roots", "", 400, "permission_denied"),
            ("f/x", "", 404, "parent_not_a_directory"),
            ("x", "", 404, "no_such_file"),
            ("", "", 400, "bad_path"),
            ("f", "&max_bytes=4", 400, "too_large"),
            ("f", "&max_bytes=x", 400, "invalid"),
        ] {
            let (got, code) = code(&place, path, parameters).await;
            assert_eq!((got.as_u16(), code.as_str()), (status, name), "{path}");
        }
        let fits = request(Method::GET, "f", "&max_bytes=5", text(""));
        assert_eq!(served(&place).await.send_request(fits).await.unwrap().status(), StatusCode::OK);
    });
}

/// What was read before the host took it is still there when the file has gone; the rest was not read.
#[test]
fn nobody_reads_far_ahead_of_the_host() {
    let place = Place::new();
    let path = place.file("sparse", "");
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_len(1 << 33).unwrap();
    in_loop(async {
        let mut sender = served(&place).await;
        let answer = sender.send_request(request(Method::GET, "sparse", "", text(""))).await.unwrap();
        assert_eq!(answer.headers()["content-length"], (1_u64 << 33).to_string());
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        file.set_len(0).unwrap();
        let mut body = answer.into_body();
        let mut bytes = 0;
        while let Some(Ok(frame)) = body.frame().await {
            bytes += frame.into_data().unwrap().len();
        }
        assert!(bytes < 8 << 20, "{bytes}");
    });
}

#[test]
fn a_plain_read_follows_no_link_anywhere_in_the_path() {
    let place = Place::new();
    place.file("d/f", "12345");
    place.link("link", "d/f");
    place.link("to-d", "d");
    place.link("root", ".");
    in_loop(async {
        for path in ["link", "to-d/f", "root/d/f", "to-d/../d/link"] {
            assert_ne!(code(&place, path, "&plain=true").await.0, StatusCode::OK, "{path}");
        }
        assert_eq!(code(&place, "d", "&plain=true").await.1, "is_a_directory");
        assert_eq!(code(&place, "none", "&plain=true").await.1, "no_such_file");
        let mut sender = served(&place).await;
        let answer = sender.send_request(request(Method::GET, "d/f", "&plain=true", text(""))).await.unwrap();
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "12345");
    });
}
