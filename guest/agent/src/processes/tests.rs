//! Named processes as a host meets them: real ones, through the real server.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;

use hyper::StatusCode;
use rustix::process::{Pid, test_kill_process};
use serde_json::{Value, json};
use tokio::time::{Duration, sleep};

use super::log;
use super::process::Process;
use super::table::{ENTRIES, Processes, RUNNING};
use crate::testing::{Answer, Host, TestMachine, run, until};

const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const EOF: u8 = 5;
const ITEMS: u8 = 6;

fn script(name: &str, script: &str) -> Value {
    json!({ "name": name, "argv": ["/bin/sh", "-c", script], "cwd": "/", "env": {}, "keep_alive": false })
}

async fn start(host: &Host, spec: Value) -> Value {
    let (status, process) = host.call("POST", "/v1/processes", spec).await;
    assert_eq!(status, StatusCode::OK, "{process}");
    process
}

async fn get(host: &Host, name: &str) -> Value {
    host.call("GET", &format!("/v1/processes/{name}"), Value::Null).await.1
}

async fn list(host: &Host) -> Vec<Value> {
    let (lines, end) = host.get("/v1/processes").await.until_other(ITEMS).await;
    assert_eq!(end.map(|(kind, payload)| (kind, payload.to_vec())), Some((EOF, b"{}".to_vec())));
    let lines = lines.split_inclusive(|byte| *byte == b'\n');
    lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
}

async fn until_exited(host: &Host, name: &str) -> Value {
    loop {
        let process = get(host, name).await;
        if process["state"] == "exited" {
            return process;
        }
        sleep(Duration::from_millis(10)).await;
    }
}

async fn remove(host: &Host, name: &str) -> Value {
    host.call("DELETE", &format!("/v1/processes/{name}"), Value::Null).await.1
}

struct Logs {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    end: Value,
}

async fn collect(mut answer: Answer) -> Logs {
    let mut logs = Logs { stdout: vec![], stderr: vec![], end: Value::Null };
    while let Some((kind, payload)) = answer.frame().await {
        assert_eq!(logs.end, Value::Null, "the end is last");
        match kind {
            STDOUT => logs.stdout.extend_from_slice(&payload),
            STDERR => logs.stderr.extend_from_slice(&payload),
            EOF => logs.end = serde_json::from_slice(&payload).unwrap(),
            other => panic!("a frame of type {other}"),
        }
    }
    logs
}

async fn read_logs(host: &Host, name: &str, query: &str) -> Logs {
    collect(host.get(&format!("/v1/processes/{name}/logs{query}")).await).await
}

fn whole() -> Value {
    json!({ "stdout_truncated": false, "stderr_truncated": false })
}

fn lives(pid: &Value) -> bool {
    test_kill_process(Pid::from_raw(pid.as_i64().unwrap() as i32).unwrap()).is_ok()
}

#[test]
fn a_process_is_reported_from_its_start_to_its_exit_and_its_logs_outlast_it() {
    run(async {
        let machine = TestMachine::new();
        let host = machine.connect().await;
        let mut spec = script("one", "echo $GREETING; echo no >&2; exit 3");
        spec["env"] = json!({ "GREETING": "hello" });
        spec["keep_alive"] = json!(true);
        let started = start(&host, spec).await;
        assert_eq!((&started["name"], &started["keep_alive"]), (&json!("one"), &json!(true)));
        assert_eq!(started["argv"][0], "/bin/sh");
        assert!(started["pid"].as_i64().unwrap() > 1);
        let exited = until_exited(&host, "one").await;
        assert_eq!((&exited["exit_code"], &exited["pid"]), (&json!(3), &started["pid"]));
        assert!(exited["ended_at_ms"].as_u64() >= exited["started_at_ms"].as_u64());
        let logs = read_logs(&host, "one", "").await;
        assert_eq!((&logs.stdout[..], &logs.stderr[..]), (&b"hello\n"[..], &b"no\n"[..]));
        assert_eq!(logs.end, whole());
    });
}

#[test]
fn the_list_is_oldest_first_with_running_and_exited_and_unknown_names_are_not_found() {
    run(async {
        let machine = TestMachine::new();
        let host = machine.connect().await;
        for (name, line) in [("b", "true"), ("a", "exec sleep 1000")] {
            start(&host, script(name, line)).await;
        }
        until_exited(&host, "b").await;
        let list = list(&host).await;
        let told = |at: usize| (list[at]["name"].clone(), list[at]["state"].clone());
        assert_eq!(told(0), (json!("b"), json!("exited")));
        assert_eq!(told(1), (json!("a"), json!("running")));
        assert_eq!(list[1].get("exit_code"), None);
        for (method, path) in [("GET", "nope"), ("DELETE", "nope"), ("GET", "nope/logs"), ("GET", "..")] {
            let (status, error) = host.call(method, &format!("/v1/processes/{path}"), Value::Null).await;
            assert_eq!((status.as_u16(), &error["code"]), (404, &json!("process_not_found")), "{path}");
        }
    });
}

#[test]
fn a_name_is_taken_while_its_process_runs_and_free_with_an_empty_log_afterwards() {
    run(async {
        let machine = TestMachine::new();
        let host = machine.connect().await;
        start(&host, script("web", "echo first; exec sleep 1000")).await;
        let (status, error) = host.call("POST", "/v1/processes", script("web", "true")).await;
        assert_eq!((status.as_u16(), &error["code"]), (409, &json!("process_exists")));
        assert_eq!(remove(&host, "web").await["exit_code"], 143);
        start(&host, script("web", "echo second >&2")).await;
        until_exited(&host, "web").await;
        let logs = read_logs(&host, "web", "").await;
        assert_eq!((logs.stdout.len(), &logs.stderr[..]), (0, &b"second\n"[..]));
        assert_eq!(list(&host).await.len(), 1);
    });
}

#[test]
fn of_two_starts_under_one_name_at_once_one_is_refused() {
    run(async {
        let machine = TestMachine::new();
        let host = machine.connect().await;
        let post = || host.call("POST", "/v1/processes", script("web", "exec sleep 1000"));
        let (one, two) = tokio::join!(post(), post());
        let mut statuses = [one.0.as_u16(), two.0.as_u16()];
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 409]);
    });
}

#[test]
fn a_33rd_running_process_is_refused_and_exited_ones_do_not_count() {
    run(async {
        let machine = TestMachine::new();
        let host = machine.connect().await;
        for at in 0..RUNNING {
            start(&host, script(&format!("done-{at}"), "true")).await;
            until_exited(&host, &format!("done-{at}")).await;
            start(&host, script(&format!("p-{at}"), "exec sleep 1000")).await;
        }
        let (status, error) = host.call("POST", "/v1/processes", script("more", "true")).await;
        assert_eq!((status.as_u16(), &error["code"]), (409, &json!("process_limit")));
        remove(&host, "p-7").await;
        start(&host, script("more", "true")).await;
    });
}

#[test]
fn a_command_that_cannot_run_has_exited_with_its_reason_on_stderr() {
    run(async {
        let machine = TestMachine::new();
        let host = machine.connect().await;
        for (argv, exit_code, word) in
            [("/no/such", 127, "command not found"), ("/etc/passwd", 126, "denied")]
        {
            let spec = json!({ "name": "x", "argv": [argv], "cwd": "/", "env": {}, "keep_alive": false });
            let process = start(&host, spec).await;
            assert_eq!((&process["state"], &process["exit_code"]), (&json!("exited"), &json!(exit_code)));
            assert_eq!(process.get("pid"), None);
            let logs = read_logs(&host, "x", "?follow=true").await;
            assert!(String::from_utf8(logs.stderr).unwrap().contains(word));
        }
        for (cwd, code) in [("/nowhere", "cwd_not_found"), ("/etc/passwd", "cwd_not_a_directory")] {
            let mut spec = script("y", "true");
            spec["cwd"] = json!(cwd);
            let (status, error) = host.call("POST", "/v1/processes", spec).await;
            assert_eq!((status.as_u16(), &error["code"]), (400, &json!(code)));
        }
        let (status, _) = host.call("GET", "/v1/processes/y", Value::Null).await;
        assert_eq!(status.as_u16(), 404);
    });
}

#[test]
fn a_process_killed_by_a_signal_exits_with_128_and_its_number() {
    run(async {
        let machine = TestMachine::new();
        let host = machine.connect().await;
        start(&host, script("x", "kill -SEGV $$")).await;
        assert_eq!(until_exited(&host, "x").await["exit_code"], 139);
    });
}

#[test]
fn a_delete_answers_for_all_who_ask_once_the_process_has_exited_and_changes_nothing_later() {
    run(async {
        let machine = TestMachine::new();
        let host = machine.connect().await;
        start(&host, script("x", "trap 'sleep 0.3; exit 7' TERM; echo ready; while :; do sleep 0.05; done"))
            .await;
        let mut logs = host.get("/v1/processes/x/logs?follow=true").await;
        assert_eq!(logs.frame().await.unwrap().1, "ready\n");
        let (one, two) = tokio::join!(remove(&host, "x"), remove(&host, "x"));
        assert_eq!((&one["state"], &one["exit_code"]), (&json!("exited"), &json!(7)));
        assert_eq!(one, two);
        assert_eq!(remove(&host, "x").await, one);
    });
}

#[test]
fn a_process_that_ignores_sigterm_is_killed_with_its_children() {
    run(async {
        let machine = TestMachine::new();
        let host = machine.connect().await;
        let line = "trap '' TERM; setsid sleep 1000 & echo $!; while :; do sleep 0.05; done";
        start(&host, script("x", line)).await;
        let mut logs = host.get("/v1/processes/x/logs?follow=true").await;
        let grandchild: Value = serde_json::from_slice(&logs.frame().await.unwrap().1).unwrap();
        assert!(lives(&grandchild));
        assert_eq!(remove(&host, "x").await["exit_code"], 137);
        until(|| !lives(&grandchild)).await;
    });
}

#[test]
fn processes_left_after_a_delete_are_killed_when_their_time_is_up() {
    run(async {
        let machine = TestMachine::new();
        let host = machine.connect().await;
        start(&host, script("x", "setsid sleep 1000 & echo $!; exec sleep 1000")).await;
        let mut logs = host.get("/v1/processes/x/logs?follow=true").await;
        let grandchild: Value = serde_json::from_slice(&logs.frame().await.unwrap().1).unwrap();
        assert_eq!(remove(&host, "x").await["exit_code"], 143);
        assert!(lives(&grandchild));
        until(|| !lives(&grandchild)).await;
    });
}

#[test]
fn a_process_that_closes_its_output_and_lives_on_is_running_and_its_log_open() {
    run(async {
        let machine = TestMachine::new();
        let host = machine.connect().await;
        start(&host, script("x", "echo last; exec >&- 2>&-; exec sleep 1000")).await;
        let mut logs = host.get("/v1/processes/x/logs?follow=true").await;
        assert_eq!(logs.frame().await.unwrap().1, "last\n");
        sleep(Duration::from_millis(700)).await;
        assert_eq!(get(&host, "x").await["state"], "running");
        let (_, ended) = tokio::join!(remove(&host, "x"), logs.frame());
        assert_eq!(ended.unwrap().0, EOF);
    });
}

#[test]
fn grandchildren_outlive_their_process_but_not_its_log() {
    run(async {
        let machine = TestMachine::new();
        let host = machine.connect().await;
        let (go, mark) = (machine.room.path().join("go"), machine.room.path().join("late"));
        let line = format!(
            "(until [ -e {} ]; do sleep 0.02; done; echo dropped; echo x > {}; sleep 1000) & echo $!",
            go.display(),
            mark.display()
        );
        start(&host, script("x", &line)).await;
        let logs = read_logs(&host, "x", "?follow=true").await;
        assert_eq!(logs.end, whole());
        fs::write(&go, "").unwrap();
        let grandchild: Value = serde_json::from_slice(&logs.stdout).unwrap();
        until(|| mark.exists()).await;
        assert!(lives(&grandchild));
        assert_eq!(read_logs(&host, "x", "").await.stdout, logs.stdout);
    });
}

#[test]
fn processes_survive_the_host_that_started_them() {
    run(async {
        let machine = TestMachine::new();
        let host = machine.connect().await;
        let started = start(&host, script("x", "echo a; exec sleep 1000")).await;
        let mut follower = host.get("/v1/processes/x/logs?follow=true").await;
        assert_eq!(follower.frame().await.unwrap().1, "a\n");
        host.vanish();
        assert_eq!(follower.frame().await, None);
        let host = machine.connect().await;
        assert_eq!(get(&host, "x").await, started);
        assert_eq!(read_logs(&host, "x", "").await.stdout, b"a\n");
    });
}

#[test]
fn a_start_whose_host_went_away_is_carried_out() {
    run(async {
        let machine = TestMachine::new();
        let host = machine.connect().await;
        let mut exchange = host.send("POST", "/v1/processes");
        exchange.body.send_data(script("x", "exec sleep 1000").to_string().into(), true).unwrap();
        // Answered on the same connection: what was sent before it has been taken.
        host.get("/v1/processes").await;
        host.vanish();
        let host = machine.connect().await;
        until(|| machine.agent.processes.find("x").is_ok()).await;
        assert_eq!(get(&host, "x").await["state"], "running");
    });
}

#[test]
fn any_number_follow_live_and_end_with_the_process() {
    run(async {
        let machine = TestMachine::new();
        let host = machine.connect().await;
        let go = machine.room.path().join("go");
        let line = format!("echo early; while ! [ -e {} ]; do sleep 0.02; done; echo late", go.display());
        start(&host, script("x", &line)).await;
        let mut followers = Vec::new();
        for _ in 0..20 {
            let mut logs = host.get("/v1/processes/x/logs?follow=true").await;
            assert_eq!(logs.frame().await.unwrap().1, "early\n");
            followers.push(logs);
        }
        drop(followers.pop());
        fs::write(&go, "").unwrap();
        for follower in followers {
            let logs = collect(follower).await;
            assert_eq!((&logs.stdout[..], logs.end), (&b"late\n"[..], whole()));
        }
    });
}

#[test]
fn a_slow_follower_blocks_nothing_and_skips_overwritten_bytes() {
    run(async {
        let machine = TestMachine::new();
        let host = machine.connect().await;
        let line = "head -c 31457280 /dev/zero | tr '\\0' x; echo end";
        start(&host, script("x", line)).await;
        let slow = machine.connect().await.get("/v1/processes/x/logs?follow=true").await;
        until_exited(&host, "x").await;
        let logs = collect(slow).await;
        assert_eq!(logs.end["stdout_truncated"], true);
        assert!(logs.stdout.ends_with(b"xend\n"));
        assert!(logs.stdout.len() < 12 * 1024 * 1024);
        let logs = read_logs(&host, "x", "").await;
        assert_eq!((logs.stdout.len() as u64, &logs.end["stdout_truncated"]), (log::LOG_BYTES, &json!(true)));
        let logs = read_logs(&host, "x", "?tail_bytes=5").await;
        assert_eq!((&logs.stdout[..], &logs.end["stdout_truncated"]), (&b"xend\n"[..], &json!(true)));
    });
}

#[test]
fn logs_are_the_users_to_read_and_not_to_write() {
    run(async {
        let machine = TestMachine::new();
        let host = machine.connect().await;
        start(&host, script("x", "echo a")).await;
        until_exited(&host, "x").await;
        assert_eq!(read_logs(&host, "x", "").await.stdout, b"a\n");
        let log = machine.room.path().join("processes/x.stdout");
        assert_eq!(fs::read(&log).unwrap(), b"a\n");
        for (path, mode) in [(log.parent().unwrap(), 0o755), (&log, 0o644)] {
            let meta = fs::metadata(path).unwrap();
            assert_eq!((meta.uid(), meta.mode() & 0o7777), (0, mode), "{}", path.display());
        }
        machine.agent.processes.forget_old_logs().unwrap();
        assert!(!log.exists());
    });
}

#[test]
fn a_delete_during_a_freeze_takes_effect_after_it() {
    run(async {
        let machine = TestMachine::new();
        let host = machine.connect().await;
        start(&host, script("x", "exec sleep 1000")).await;
        assert_eq!(host.call("POST", "/v1/freeze", Value::Null).await.0, StatusCode::OK);
        let delete = remove(&host, "x");
        let thaw = async {
            sleep(Duration::from_millis(200)).await;
            assert_eq!(get(&host, "x").await["state"], "running");
            host.call("POST", "/v1/thaw", Value::Null).await
        };
        assert_eq!(tokio::join!(delete, thaw).0["exit_code"], 143);
    });
}

fn exited(processes: &Processes, name: String, argv: Vec<String>) -> Rc<Process> {
    let process = Rc::new(Process::new(&processes.directory, name, argv, false, None));
    process.ended(0);
    process.drained();
    processes.add(process.clone());
    process
}

#[test]
fn past_10_000_entries_the_exited_that_began_first_are_forgotten() {
    let processes = Processes::below("/nowhere");
    let running = Process::new(&processes.directory, "running".into(), vec![], false, None);
    processes.add(Rc::new(running));
    for at in 0..ENTRIES + 5 {
        exited(&processes, format!("p-{at}"), vec!["true".into()]);
    }
    assert_eq!(processes.entries.borrow().len(), ENTRIES);
    assert!(processes.find("running").is_ok() && processes.find("p-6").is_ok());
    assert!(processes.find("p-5").is_err());
}

fn told(processes: &Processes, name: &str) -> Value {
    serde_json::to_value(processes.find(name).unwrap().report()).unwrap()
}

#[test]
fn past_8_mib_of_records_the_exited_that_began_first_keep_all_but_the_length_of_their_command() {
    let processes = Processes::below("/nowhere");
    for at in 0..20 {
        exited(&processes, format!("p-{at}"), vec!["sh".into(), "x".repeat(1_000_000)]);
    }
    assert_eq!(processes.entries.borrow().len(), 20);
    let oldest = told(&processes, "p-0");
    assert_eq!((&oldest["state"], &oldest["exit_code"]), (&json!("exited"), &json!(0)));
    assert!(oldest["started_at_ms"].is_u64() && oldest["ended_at_ms"].is_u64());
    assert_eq!(oldest["argv"][0], "sh");
    assert!(oldest["argv"][1].as_str().unwrap().ends_with("x…"));
    let whole =
        |at: usize| told(&processes, &format!("p-{at}"))["argv"][1].as_str().unwrap().len() == 1_000_000;
    assert_eq!((0..20).map(whole).collect::<Vec<_>>(), [[false; 12].as_slice(), &[true; 8]].concat());
}

#[test]
fn running_processes_keep_their_commands_and_are_refused_when_these_grow_too_long() {
    let processes = Processes::below("/nowhere");
    exited(&processes, "done".into(), vec!["x".repeat(1_000_000)]);
    for at in 0..8 {
        let argv = vec!["x".repeat(1_000_000)];
        assert!(processes.reserve("more", &argv).is_ok());
        let running = Process::new(&processes.directory, format!("running-{at}"), argv, false, None);
        processes.add(Rc::new(running));
    }
    assert_eq!(told(&processes, "running-0")["argv"][0].as_str().unwrap().len(), 1_000_000);
    assert!(told(&processes, "done")["argv"][0].as_str().unwrap().len() < 1_000);
    let refusal = processes.reserve("more", &["x".repeat(1_000_000)]).err().unwrap();
    assert!(format!("{refusal:?}").contains("process_limit"));
    assert!(processes.reserve("more", &["true".into()]).is_ok());
}

/// `PROCESSES_ANSWER_BYTES` of the host.
const ANSWER_BYTES: usize = 16 * 1024 * 1024;

#[test]
fn the_longest_list_is_one_that_the_host_takes() {
    let processes = Processes::below("/nowhere");
    for at in 0..ENTRIES {
        let name = format!("{at:0>63}");
        exited(&processes, name, vec!["\u{1}".repeat(1_000)]);
    }
    for at in 0..8 {
        let argv = vec!["x".repeat(1_000_000)];
        let running = Process::new(&processes.directory, format!("running-{at}"), argv, false, None);
        processes.add(Rc::new(running));
    }
    assert_eq!(processes.entries.borrow().len(), ENTRIES);
    let entries = processes.entries.borrow();
    let bytes: usize =
        entries.iter().map(|entry| serde_json::to_vec(&entry.report()).unwrap().len() + 1).sum();
    assert!(bytes < ANSWER_BYTES, "{bytes}");
}
