//! Terminals as a host meets them: real programs on real pseudo-terminals, through the real server.

use std::fs;
use std::path::Path;

use bytes::Bytes;
use hyper::StatusCode;
use serde_json::{Value, json};
use tokio::time::{Duration, sleep, timeout};

use super::backlog::BACKLOG_BYTES;
use crate::testing::{Answer, Exchange, Host, TestMachine, run, until};
use crate::users;

const OPEN: u8 = 0;
const DATA: u8 = 1;
const RESIZE: u8 = 2;
const SIGNAL: u8 = 3;
const EXIT: u8 = 5;

fn script(line: &str) -> Value {
    json!({ "argv": ["/bin/sh", "-c", line], "cwd": "/", "env": { "TERM": "xterm" }, "rows": 30, "cols": 100 })
}

fn named(name: &str, line: &str) -> Value {
    let mut spec = script(line);
    spec["name"] = json!(name);
    spec
}

async fn ask(host: &Host, spec: Value) -> (Exchange, Answer) {
    let mut exchange = host.send("POST", "/v1/terminals");
    exchange.say(OPEN, spec.to_string().as_bytes());
    let answer = exchange.answer().await;
    (exchange, answer)
}

async fn open(host: &Host, spec: Value) -> (Exchange, Answer) {
    let (exchange, mut answer) = ask(host, spec).await;
    if answer.status != StatusCode::OK {
        panic!("{}", answer.json().await);
    }
    (exchange, answer)
}

/// Output up to and with a text.
async fn expect(answer: &mut Answer, text: &str) -> String {
    let mut all = String::new();
    while !all.contains(text) {
        let Some((DATA, payload)) = answer.frame().await else { panic!("ended after {all:?}") };
        all += &String::from_utf8_lossy(&payload);
    }
    all
}

/// All that is left of the output, and the exit code.
async fn finish(mut answer: Answer) -> (String, i32) {
    let (output, last) = answer.until_other(DATA).await;
    let (kind, payload) = last.expect("the stream broke off");
    assert_eq!(kind, EXIT);
    assert_eq!(answer.frame().await, None, "the exit is last");
    (String::from_utf8_lossy(&output).into_owned(), i32::from_be_bytes(payload[..].try_into().unwrap()))
}

async fn until_there(path: &Path) {
    until(|| path.exists()).await;
}

fn open_terminals(machine: &TestMachine) -> usize {
    machine.agent.terminals.running.borrow().len()
}

#[test]
fn a_program_has_a_terminal_of_the_size_that_was_asked_for_and_its_exit_comes_last() {
    run(async {
        let machine = TestMachine::new();
        let host = machine.connect().await;
        let line = "stty size; [ -t 0 ] && [ -t 1 ] && [ -t 2 ] && : </dev/tty && echo $TERM; id -u; exit 3";
        let (_keep, answer) = open(&host, script(line)).await;
        assert_eq!(finish(answer).await, ("30 100\r\nxterm\r\n999\r\n".into(), 3));
        until(|| open_terminals(&machine) == 0).await;
    });
}

#[test]
fn without_a_program_the_users_login_shell_runs() {
    run(async {
        let machine = TestMachine::new();
        let host = machine.connect().await;
        let spec = json!({ "cwd": "/", "env": { "PS1": "> " }, "rows": 24, "cols": 80 });
        let (mut client, answer) = open(&host, spec).await;
        client.say(DATA, b"echo name=$0 $-; exit 7\n");
        let (output, code) = finish(answer).await;
        assert_eq!(code, 7);
        let shell = users::login_shell();
        let name = shell.rsplit('/').next().unwrap();
        let (_, flags) = output.rsplit_once(&format!("name=-{name} ")).expect(&output);
        assert!(flags.lines().next().unwrap().contains('i'), "{output}");
    });
}

#[test]
fn a_typed_interrupt_ends_the_foreground_and_the_shell_continues() {
    run(async {
        let machine = TestMachine::new();
        let host = machine.connect().await;
        let spec =
            json!({ "argv": ["/bin/bash", "--norc", "-i"], "cwd": "/", "env": {}, "rows": 24, "cols": 80 });
        let (mut client, mut answer) = open(&host, spec).await;
        client.say(DATA, b"echo be''gun; sleep 1000; echo status=$?\n");
        expect(&mut answer, "begun").await;
        sleep(Duration::from_millis(300)).await;
        client.say(DATA, b"\x03");
        expect(&mut answer, "^C").await;
        client.say(DATA, b"echo still he''re; exit 5\n");
        expect(&mut answer, "still here").await;
        assert_eq!(finish(answer).await.1, 5);
    });
}

#[test]
fn a_resize_is_seen_by_the_program_and_one_without_meaning_is_ignored() {
    run(async {
        let machine = TestMachine::new();
        let host = machine.connect().await;
        let line = "trap 'stty size' WINCH; echo ready; while :; do sleep 0.05; done";
        let (mut client, mut answer) = open(&host, script(line)).await;
        expect(&mut answer, "ready").await;
        client.say(RESIZE, &[0, 0, 0, 80]);
        client.say(RESIZE, &[0, 50]);
        client.say(9, b"unknown");
        client.say(RESIZE, &[0, 50, 0, 132]);
        assert_eq!(expect(&mut answer, "132\r\n").await.trim(), "50 132");
        client.say(RESIZE, &[0xff, 0xff, 0xff, 0xff]);
        expect(&mut answer, "65535 65535").await;
    });
}

#[test]
fn signals_go_to_the_foreground_and_9_kills_it_with_an_exit_after_it() {
    run(async {
        let machine = TestMachine::new();
        let host = machine.connect().await;
        let line = "trap 'echo caught' USR1; echo ready; while :; do sleep 0.05; done";
        let (mut client, mut answer) = open(&host, script(line)).await;
        expect(&mut answer, "ready").await;
        client.say(SIGNAL, &[0]);
        client.say(SIGNAL, &[32]);
        client.say(SIGNAL, &[10]);
        expect(&mut answer, "caught").await;
        client.say(SIGNAL, &[9]);
        assert_eq!(finish(answer).await.1, 137);
    });
}

#[test]
fn all_output_comes_before_the_exit_however_much_it_is() {
    run(async {
        let machine = TestMachine::new();
        let host = machine.connect().await;
        let (_keep, answer) = open(&host, script("head -c 3000000 /dev/zero | tr '\\0' x; echo end")).await;
        let (output, code) = finish(answer).await;
        assert_eq!((output.len(), code), (3_000_005, 0));
        assert!(output.ends_with("xend\r\n"));
    });
}

#[test]
fn files_that_cannot_be_opened_are_refused_before_the_answer() {
    run(async {
        let machine = TestMachine::new();
        let host = machine.connect().await;
        let mut wrong_cwd = script("true");
        wrong_cwd["cwd"] = json!("/nowhere");
        let mut wrong_size = script("true");
        wrong_size["rows"] = json!(70_000);
        let mut no_program = script("true");
        no_program["argv"] = json!([]);
        for (spec, code) in [(wrong_cwd, "cwd_not_found"), (wrong_size, "invalid"), (no_program, "invalid")] {
            let (_keep, mut answer) = ask(&host, spec).await;
            assert_eq!(answer.status.as_u16(), 400);
            assert_eq!(answer.json().await["code"], code);
        }
        let mut exchange = host.send("POST", "/v1/terminals");
        exchange.say(DATA, b"hello");
        assert_eq!(exchange.answer().await.status.as_u16(), 400);
        let mut exchange = host.send("POST", "/v1/terminals");
        exchange.body.send_data(Bytes::new(), true).unwrap();
        assert_eq!(exchange.answer().await.status.as_u16(), 400);
        assert_eq!(open_terminals(&machine), 0);
    });
}

#[test]
fn a_program_that_cannot_run_prints_the_reason_and_exits_127() {
    run(async {
        let machine = TestMachine::new();
        let host = machine.connect().await;
        let mut spec = script("");
        spec["argv"] = json!(["/no/such"]);
        let (_keep, answer) = open(&host, spec).await;
        assert_eq!(finish(answer).await, ("/no/such: command not found\r\n".into(), 127));
    });
}

#[test]
fn a_17th_terminal_is_refused_and_attaching_does_not_count() {
    run(async {
        let machine = TestMachine::new();
        let host = machine.connect().await;
        let mut kept = vec![open(&host, named("n", "exec sleep 1000")).await];
        for _ in 1..16 {
            kept.push(open(&host, script("exec sleep 1000")).await);
        }
        let (_keep, mut answer) = ask(&host, script("true")).await;
        assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(answer.json().await["code"], "terminal_limit");
        kept.push(open(&host, named("n", "exec sleep 1000")).await);
        kept.remove(3);
        until(|| open_terminals(&machine) == 15).await;
        open(&host, script("true")).await;
    });
}

#[test]
fn an_unnamed_terminal_is_hung_up_when_its_client_leaves() {
    run(async {
        let machine = TestMachine::new();
        for leave in ["vanish", "reset", "end"] {
            let host = machine.connect().await;
            let mark = machine.room.path().join(leave);
            let line = format!(
                "trap 'echo > {}; exit' HUP; echo ready; while :; do sleep 0.05; done",
                mark.display()
            );
            let (mut client, mut answer) = open(&host, script(&line)).await;
            expect(&mut answer, "ready").await;
            match leave {
                "vanish" => host.vanish(),
                "reset" => client.body.send_reset(h2::Reason::CANCEL),
                _ => client.body.send_data(Bytes::new(), true).unwrap(),
            }
            until_there(&mark).await;
            until(|| open_terminals(&machine) == 0).await;
        }
    });
}

#[test]
fn a_program_that_ignores_the_hang_up_is_killed_with_its_children() {
    run(async {
        let machine = TestMachine::new();
        let host = machine.connect().await;
        let line = "trap '' HUP; setsid sleep 1000 & echo ready; while :; do sleep 0.05; done";
        let (client, mut answer) = open(&host, script(line)).await;
        expect(&mut answer, "ready").await;
        let terminal = machine.agent.terminals.running.borrow()[0].clone();
        drop((client, answer));
        sleep(Duration::from_millis(500)).await;
        assert!(terminal.leaf.members().len() > 1);
        until(|| terminal.leaf.members().is_empty()).await;
        until(|| open_terminals(&machine) == 0).await;
    });
}

#[test]
fn a_named_terminal_stays_and_replays_its_output() {
    run(async {
        let machine = TestMachine::new();
        let host = machine.connect().await;
        let (go, done) = (machine.room.path().join("go"), machine.room.path().join("done"));
        let line = format!(
            "echo first; while ! [ -e {} ]; do sleep 0.02; done; head -c 1000000 /dev/zero | tr '\\0' x; echo last; \
             echo > {}; cat; exit 4",
            go.display(),
            done.display()
        );
        let (client, mut answer) = open(&host, named("n", &line)).await;
        expect(&mut answer, "first").await;
        drop((client, answer));
        host.vanish();
        fs::write(&go, "").unwrap();
        until_there(&done).await;
        let host = machine.connect().await;
        let mut again = named("n", "echo not started");
        (again["rows"], again["cols"]) = (json!(11), json!(22));
        let (mut client, mut answer) = open(&host, again).await;
        let output = expect(&mut answer, "last\r\n").await;
        assert_eq!(output.len(), BACKLOG_BYTES);
        client.say(DATA, b"typed\n");
        expect(&mut answer, "typed").await;
        client.say(DATA, b"\x04");
        assert_eq!(finish(answer).await.1, 4);
        until(|| open_terminals(&machine) == 0).await;
    });
}

#[test]
fn clients_of_a_named_terminal_share_its_input_output_size_and_end() {
    run(async {
        let machine = TestMachine::new();
        let host = machine.connect().await;
        let line = "echo ready; while read -r word; do echo got $word; stty size; done";
        let (mut one, mut one_answer) = open(&host, named("n", line)).await;
        expect(&mut one_answer, "ready").await;
        one.say(DATA, b"a\n");
        expect(&mut one_answer, "got a\r\n30 100").await;
        let mut spec = named("n", "");
        (spec["rows"], spec["cols"]) = (json!(11), json!(22));
        let (mut two, mut two_answer) = open(&host, spec).await;
        expect(&mut two_answer, "got a").await;
        two.say(DATA, b"b\n");
        expect(&mut one_answer, "got b\r\n11 22").await;
        expect(&mut two_answer, "got b\r\n11 22").await;
        two.say(SIGNAL, &[9]);
        assert_eq!((finish(one_answer).await.1, finish(two_answer).await.1), (137, 137));
    });
}

#[test]
fn of_two_that_open_one_name_at_once_one_starts_it_and_the_other_attaches() {
    run(async {
        let machine = TestMachine::new();
        let host = machine.connect().await;
        let line = "echo pid $$; cat";
        let (one, two) = tokio::join!(open(&host, named("n", line)), open(&host, named("n", line)));
        let (mut one, mut two) = (one.1, two.1);
        assert_eq!(expect(&mut one, "\r\n").await, expect(&mut two, "\r\n").await);
        assert_eq!(open_terminals(&machine), 1);
    });
}

#[test]
fn a_slow_client_of_a_shared_terminal_does_not_block_the_others() {
    run(async {
        let machine = TestMachine::new();
        let (host, other) = (machine.connect().await, machine.connect().await);
        let line = "read -r go; head -c 5000000 /dev/zero | tr '\\0' x; echo end";
        let (_slow, slow_answer) = open(&other, named("n", line)).await;
        let (mut fast, fast_answer) = open(&host, named("n", line)).await;
        fast.say(DATA, b"go\n");
        let (output, _) = finish(fast_answer).await;
        assert_eq!(output.len(), "go\r\n".len() + 5_000_000 + "end\r\n".len());
        let (output, _) = finish(slow_answer).await;
        assert!(output.len() < 1_000_000 && output.ends_with("xend\r\n"));
    });
}

#[test]
fn a_client_that_never_reads_blocks_the_terminal_and_loses_nothing() {
    run(async {
        let machine = TestMachine::new();
        let host = machine.connect().await;
        let done = machine.room.path().join("done");
        let line = format!("head -c 2000000 /dev/zero | tr '\\0' x; echo > {}", done.display());
        let (_keep, answer) = open(&host, script(&line)).await;
        sleep(Duration::from_millis(1000)).await;
        assert!(!done.exists());
        assert_eq!(finish(answer).await, ("x".repeat(2_000_000), 0));
        assert!(done.exists());
    });
}

#[test]
fn input_that_the_program_does_not_read_is_not_taken_and_arrives_whole_when_it_does() {
    run(async {
        const INPUT_BYTES: usize = 4 * 1024 * 1024;
        let machine = TestMachine::new();
        let host = machine.connect().await;
        let go = machine.room.path().join("go");
        let line = format!(
            "stty raw -echo; echo ready; while ! [ -e {} ]; do sleep 0.02; done; head -c {INPUT_BYTES} | cksum",
            go.display()
        );
        let (mut client, mut answer) = open(&host, script(&line)).await;
        expect(&mut answer, "ready").await;
        let input: Vec<u8> = (0..INPUT_BYTES).map(|at| (at / 253 + at) as u8).collect();
        let mut header = vec![DATA];
        header.extend((INPUT_BYTES as u32).to_be_bytes());
        client.body.send_data(header.into(), false).unwrap();
        let mut sent = 0;
        // What the other side takes grows until it takes no more.
        while let Ok(count) =
            timeout(Duration::from_millis(700), send_some(&mut client, &input[sent..])).await
        {
            sent += count;
        }
        assert!(sent < 1024 * 1024, "{sent}");
        fs::write(&go, "").unwrap();
        while sent < INPUT_BYTES {
            sent += send_some(&mut client, &input[sent..]).await;
        }
        let (output, _) = finish(answer).await;
        let file = machine.room.path().join("input");
        fs::write(&file, &input).unwrap();
        let sum = std::process::Command::new("cksum").stdin(fs::File::open(&file).unwrap()).output().unwrap();
        assert_eq!(output.trim(), String::from_utf8(sum.stdout).unwrap().trim());
    });
}

async fn send_some(client: &mut Exchange, bytes: &[u8]) -> usize {
    let wanted = bytes.len().min(16 * 1024);
    client.body.reserve_capacity(wanted);
    let count = loop {
        let available = client.body.capacity().min(wanted);
        if available > 0 {
            break available;
        }
        std::future::poll_fn(|cx| client.body.poll_capacity(cx)).await.unwrap().unwrap();
    };
    client.body.send_data(Bytes::copy_from_slice(&bytes[..count]), false).unwrap();
    count
}

#[test]
fn a_signal_passes_unread_input() {
    run(async {
        let machine = TestMachine::new();
        let host = machine.connect().await;
        let (mut client, mut answer) =
            open(&host, script("stty raw -echo; echo ready; exec sleep 1000")).await;
        expect(&mut answer, "ready").await;
        for _ in 0..8 {
            client.say(DATA, &[b'x'; 10_000]);
        }
        client.say(SIGNAL, &[9]);
        assert_eq!(finish(answer).await.1, 137);
    });
}

#[test]
fn background_processes_outlive_the_shell_but_not_its_terminal() {
    run(async {
        let machine = TestMachine::new();
        let host = machine.connect().await;
        let mark = machine.room.path().join("late");
        let line = format!("trap '' HUP; (sleep 1; echo x > {}; sleep 1000) & echo said", mark.display());
        let (_keep, answer) = open(&host, script(&line)).await;
        assert_eq!(finish(answer).await, ("said\r\n".into(), 0));
        until_there(&mark).await;
    });
}

#[test]
fn a_client_that_leaves_during_a_freeze_is_missed_once_the_machine_runs_on() {
    run(async {
        let machine = TestMachine::new();
        let host = machine.connect().await;
        let unnamed = open(&host, script("exec sleep 1000")).await;
        let _named = open(&host, named("n", "exec sleep 1000")).await;
        let other = machine.connect().await;
        assert_eq!(other.call("POST", "/v1/freeze", Value::Null).await.0, StatusCode::OK);
        drop(unnamed);
        host.vanish();
        sleep(Duration::from_millis(300)).await;
        assert_eq!(open_terminals(&machine), 2);
        other.call("POST", "/v1/thaw", Value::Null).await;
        until(|| open_terminals(&machine) == 1).await;
        assert!(machine.agent.terminals.find(Some("n")).is_some());
    });
}

#[test]
fn a_machine_of_its_own_begins_without_terminals_that_it_was_saved_with() {
    run(async {
        let machine = TestMachine::new();
        let host = machine.connect().await;
        let mark = machine.room.path().join("mark");
        let line = format!("trap '' HUP; echo ready; read -r x; echo > {}; sleep 1000", mark.display());
        let (_keep, mut answer) = open(&host, named("n", &line)).await;
        expect(&mut answer, "ready").await;
        let terminal = machine.agent.terminals.find(Some("n")).unwrap();
        let other = machine.connect().await;
        other.call("POST", "/v1/freeze", Value::Null).await;
        host.vanish();
        machine.agent.terminals.end_all();
        assert_eq!(open_terminals(&machine), 0);
        other.call("POST", "/v1/thaw", Value::Null).await;
        until(|| terminal.leaf.members().is_empty()).await;
        let (mut client, mut answer) = open(&other, named("n", "echo another; cat")).await;
        expect(&mut answer, "another").await;
        client.say(SIGNAL, &[9]);
        assert_eq!(finish(answer).await.1, 137);
    });
}

#[test]
fn an_unnamed_terminal_of_a_machine_that_was_loaded_has_no_client_and_is_hung_up() {
    run(async {
        let machine = TestMachine::new();
        let (host, other) = (machine.connect().await, machine.connect().await);
        let _unnamed = open(&host, script("exec sleep 1000")).await;
        other.call("POST", "/v1/freeze", Value::Null).await;
        host.vanish();
        sleep(Duration::from_millis(200)).await;
        machine.machine.generation.set(1);
        assert_eq!(open_terminals(&machine), 1);
        other.call("POST", "/v1/thaw", Value::Null).await;
        until(|| open_terminals(&machine) == 0).await;
    });
}
