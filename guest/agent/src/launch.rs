//! Prepares and starts programs: the directory, the environment, and the files that a command's name may mean.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fmt::Display;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::thread;
use std::time::Duration;

use hyper::StatusCode;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use crate::cgroup::Leaf;
use crate::machine::Machine;
use crate::pipe::Pipe;
use crate::refusal::Refusal;
use crate::{regular_file, sys, users};

pub const WORKSPACE: &str = "/workspace";
const ENVIRONMENT: &str = "/etc/environment";
/// Time limit of the file reads before a program starts.
const READS_WITHIN: Duration = Duration::from_secs(5);
/// Permits for reads before a program starts. A read whose caller has given up keeps its permit until it ends.
pub static READ_PERMITS: Semaphore = Semaphore::const_new(32);
const READ_STACK_BYTES: usize = 256 * 1024;
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

pub type Variables = Vec<(String, String)>;

/// The part of a request that describes a program.
pub struct Program<'a> {
    pub argv: &'a [String],
    pub cwd: Option<&'a str>,
    pub env: &'a BTreeMap<String, String>,
}

pub struct Child {
    pub pid: Pid,
    pub stdout: Pipe,
    pub stderr: Pipe,
    /// A pipe that ends empty once the program runs, and otherwise contains a `sys::Failure`.
    pub report: Receiver,
}

/// Prepares a start on another thread: root in the guest may have mounted a file system that never answers.
pub async fn prepare(machine: &Machine, program: &Program<'_>) -> Result<sys::Launch, Refusal> {
    let (argv, cwd) = (program.argv.to_vec(), program.cwd.map(str::to_owned));
    let env = program.env.clone();
    let authority = machine.authority.variables();
    let prepared = run_on_thread(&READ_PERMITS, move || {
        prepare_here(&Program { argv: &argv, cwd: cwd.as_deref(), env: &env }, authority)
    });
    prepared.await?
}

/// Runs `read` on a new thread, once `permits` has one free: all threads of the shared pool may be blocked in file
/// systems that do not answer, and unmounting such a file system needs a command.
pub async fn run_on_thread<T: Send + 'static>(
    permits: &'static Semaphore,
    read: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refusal> {
    let failed = |error: &dyn Display| Refusal::internal("read the machine's files", error);
    let done = async {
        let permit = permits.acquire().await.map_err(|error| failed(&error))?;
        let (answer, done) = oneshot::channel();
        thread::Builder::new()
            .stack_size(READ_STACK_BYTES)
            .spawn(move || {
                // Fails if the caller has given up.
                let _ = answer.send(read());
                drop(permit);
            })
            .map_err(|error| failed(&error))?;
        done.await.map_err(|error| failed(&error))
    };
    timeout(READS_WITHIN, done).await.map_err(|_| failed(&"they do not answer"))?
}

fn prepare_here(program: &Program<'_>, authority: Variables) -> Result<sys::Launch, Refusal> {
    let name = program.argv.first().filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| Refusal::invalid("argv: expected a command, got none"))?;
    let environment = environment(authority, program.env)?;
    let path = environment.get("PATH").map_or(PATH, String::as_str);
    Ok(sys::Launch {
        files: c_strings("argv", candidates(name, path))?,
        argv: c_strings("argv", program.argv.to_vec())?,
        env: c_strings("env", environment.iter().map(|(k, v)| format!("{k}={v}")).collect())?,
        cwd: c_string("cwd", check_cwd(program.cwd)?)?,
        uid: users::uid(),
        gid: users::gid(),
        groups: users::supplementary_groups(),
    })
}

pub fn spawn(launch: &sys::Launch, leaf: &Leaf) -> io::Result<Child> {
    let (stdout, stdout_end) = pipe_with(PipeFlags::CLOEXEC)?;
    let (stderr, stderr_end) = pipe_with(PipeFlags::CLOEXEC)?;
    let fds = sys::ChildFds {
        cgroup: Some(leaf.dir.as_fd()),
        stdin: None,
        owns_terminal: false,
        stdout: stdout_end.as_fd(),
        stderr: stderr_end.as_fd(),
    };
    let (pid, report) = spawn_on(launch, &fds)?;
    Ok(Child { pid, stdout: Pipe::new(stdout)?, stderr: Pipe::new(stderr)?, report })
}

/// Starts a program on descriptors of the caller. Returns its pid and report, as in `Child`.
pub fn spawn_on(launch: &sys::Launch, fds: &sys::ChildFds<'_>) -> io::Result<(Pid, Receiver)> {
    let (report, report_end) = pipe_with(PipeFlags::CLOEXEC)?;
    let pid = sys::spawn(launch, fds, report_end.as_fd())?;
    Ok((pid, Receiver::from_owned_fd(report)?))
}

/// Why the program was not started; None once it runs.
pub async fn read_report(report: &mut Receiver) -> Option<sys::Failure> {
    let mut text = Vec::new();
    let _ = report.read_to_end(&mut text).await;
    sys::Failure::parse(&text)
}

fn check_cwd(cwd: Option<&str>) -> Result<String, Refusal> {
    let path = Path::new(WORKSPACE).join(cwd.unwrap_or(""));
    let text = path.display().to_string();
    let refuse = |code, message| Err(Refusal::new(StatusCode::BAD_REQUEST, code, message));
    match fs::metadata(&path) {
        Ok(meta) if meta.is_dir() => Ok(text),
        Ok(_) => refuse("cwd_not_a_directory", format!("cwd: {text} is not a directory")),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            refuse("cwd_not_a_directory", format!("cwd: {text}: {error}"))
        }
        Err(error) => refuse("cwd_not_found", format!("cwd: {text}: {error}")),
    }
}

/// The base variables and those of the session's authority, overridden by the operator's and the image's, and these by the
/// caller's.
pub fn environment(
    authority: Variables,
    spec: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, Refusal> {
    let image = parse_environment(&regular_file::text(ENVIRONMENT));
    compose(authority, image, spec)
}

fn compose(
    authority: Variables,
    image: Variables,
    spec: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, Refusal> {
    if let Some(key) = spec.keys().find(|key| key.is_empty() || key.contains('=')) {
        return Err(Refusal::invalid(format!("env: {key:?} is no variable name")));
    }
    let base = [("PATH", PATH), ("HOME", users::HOME), ("USER", users::NAME), ("LANG", "C.UTF-8")];
    let shell = users::shell().map(|shell| ("SHELL", shell));
    let base = base.into_iter().chain(shell).map(|(key, value)| (key.to_owned(), value.to_owned()));
    let spec = spec.iter().map(|(key, value)| (key.clone(), value.clone()));
    Ok(base.chain(authority).chain(image).chain(spec).collect())
}

/// Parses lines of KEY=VALUE, the value perhaps in quotes. Other lines are skipped, as login programs do.
fn parse_environment(text: &str) -> Variables {
    let assignment = |line: &str| {
        let line = line.trim();
        let (key, value) = line.strip_prefix("export ").unwrap_or(line).split_once('=')?;
        let key = key.trim();
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let fits = !key.is_empty() && key.chars().all(is_name);
        fits.then(|| (key.to_owned(), unquoted(value.trim()).to_owned()))
    };
    text.lines().filter_map(assignment).collect()
}

fn unquoted(value: &str) -> &str {
    let without = |quote| value.strip_prefix(quote)?.strip_suffix(quote);
    without('"').or_else(|| without('\'')).unwrap_or(value)
}

/// The files to try, in this order: a name with a slash is a path, any other name is searched for in PATH.
fn candidates(name: &str, path: &str) -> Vec<String> {
    if name.contains('/') {
        return vec![name.to_owned()];
    }
    let in_dir = |dir: &str| match dir {
        "" => format!("./{name}"),
        dir => format!("{dir}/{name}"),
    };
    path.split(':').map(in_dir).collect()
}

fn c_strings(field: &str, texts: Vec<String>) -> Result<Vec<CString>, Refusal> {
    texts.into_iter().map(|text| c_string(field, text)).collect()
}

fn c_string(field: &str, text: String) -> Result<CString, Refusal> {
    CString::new(text).map_err(|_| Refusal::invalid(format!("{field}: expected text without NUL characters")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_files_have_optional_quotes() {
        let text = "# comment\nA=1\n B = \"two words\" \nexport C='x=y'\nbroken\n=z\nD=\nE=\"\n";
        let expected = [("A", "1"), ("B", "two words"), ("C", "x=y"), ("D", ""), ("E", "\"")];
        let expected = expected.map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(parse_environment(text), expected);
    }

    #[test]
    fn the_callers_environment_wins() {
        let spec = BTreeMap::from([("HOME".to_owned(), "/tmp".to_owned())]);
        let environment = environment(vec![], &spec).unwrap();
        assert_eq!(environment["HOME"], "/tmp");
        assert_eq!(environment["USER"], "sandbox");
        let wrong = BTreeMap::from([("A=B".to_owned(), String::new())]);
        assert!(super::environment(vec![], &wrong).is_err());
    }

    #[test]
    fn the_authoritys_variables_are_overridden_by_the_images_and_these_by_the_callers() {
        let all = |value: &str, keys: &[&str]| -> Variables {
            keys.iter().map(|key| (key.to_string(), value.to_owned())).collect()
        };
        let spec = BTreeMap::from_iter(all("caller", &["A"]));
        let composed = compose(all("authority", &["A", "B", "C"]), all("image", &["A", "B", "PATH"]), &spec);
        let composed = composed.unwrap();
        let values = ["A", "B", "C", "PATH", "USER"].map(|key| composed[key].as_str());
        assert_eq!(values, ["caller", "image", "authority", "image", "sandbox"]);
    }

    #[test]
    fn names_are_looked_up_and_paths_are_not() {
        assert_eq!(candidates("ls", "/a:/b"), ["/a/ls", "/b/ls"]);
        assert_eq!(candidates("ls", "/a:"), ["/a/ls", "./ls"]);
        assert_eq!(candidates("./ls", "/a"), ["./ls"]);
    }

    #[test]
    fn a_directory_that_is_missing_or_none_is_refused() {
        assert_eq!(check_cwd(Some("/etc")).unwrap(), "/etc");
        let code = |cwd| format!("{:?}", check_cwd(Some(cwd)).unwrap_err());
        assert!(code("/nowhere").contains("cwd_not_found"));
        assert!(code("/etc/passwd").contains("cwd_not_a_directory"));
        assert!(code("/etc/passwd/x").contains("cwd_not_a_directory"));
    }

    #[test]
    fn commands_without_a_name_or_with_nul_are_refused() {
        let prepared = |argv: &[&str]| {
            let argv: Vec<String> = argv.iter().map(|arg| arg.to_string()).collect();
            prepare_here(&Program { argv: &argv, cwd: Some("/"), env: &BTreeMap::new() }, vec![])
        };
        assert!(prepared(&[]).is_err());
        assert!(prepared(&[""]).is_err());
        assert!(prepared(&["a\0b"]).is_err());
        assert!(prepared(&["true"]).is_ok());
    }
}
