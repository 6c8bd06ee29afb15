//! The only unsafe code of the crate: system calls that no library offers safely, the allocator's settings, and unsafe
//! functions of libraries.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::rc::Rc;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::process::Pid;
use tokio::io::ReadBuf;
use tokio::io::unix::AsyncFd;

const RNDADDENTROPY: libc::Ioctl = 0x4008_5203;
const RNDRESEEDCRNG: libc::Ioctl = 0x5207;
const EXT4_IOC_RESIZE_FS: libc::Ioctl = 0x4008_6610;
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// What a start needs, in the form that the system calls take. `files` are tried one after the other.
pub struct Launch {
    pub files: Vec<CString>,
    pub argv: Vec<CString>,
    pub env: Vec<CString>,
    pub cwd: CString,
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
}

pub struct ChildFds<'a> {
    pub cgroup: Option<BorrowedFd<'a>>,
    /// None for an empty input.
    pub stdin: Option<BorrowedFd<'a>>,
    /// Makes stdin, a terminal, the command's controlling terminal.
    pub owns_terminal: bool,
    pub stdout: BorrowedFd<'a>,
    pub stderr: BorrowedFd<'a>,
}

/// Why a child could not run the command, with the step that failed.
#[allow(clippy::large_enum_variant, reason = "made by a child that must not allocate")]
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Failure {
    Setup(Errno),
    Directory(Errno),
    Exec(Errno),
    /// The file is executable, but its interpreter is missing or not. Contains the beginning of the file.
    Interpreter(Errno, Head),
}

/// The first bytes of a file, as many as the kernel reads to find an interpreter.
pub type Head = [u8; 256];

const REPORT_BYTES: usize = 5 + size_of::<Head>();

impl Failure {
    fn to_bytes(self) -> [u8; REPORT_BYTES] {
        let (step, errno, head) = match self {
            Failure::Setup(errno) => (0, errno, None),
            Failure::Directory(errno) => (1, errno, None),
            Failure::Exec(errno) => (2, errno, None),
            Failure::Interpreter(errno, head) => (3, errno, Some(head)),
        };
        let mut report = [0; REPORT_BYTES];
        report[0] = step;
        report[1..5].copy_from_slice(&errno.raw_os_error().to_ne_bytes());
        report[5..].copy_from_slice(&head.unwrap_or([0; size_of::<Head>()]));
        report
    }

    /// None for an empty report: the pipe closed because the command runs.
    pub fn parse(report: &[u8]) -> Option<Failure> {
        let (step, rest) = report.split_first()?;
        let (errno, head) = rest.split_at_checked(4)?;
        let errno = Errno::from_raw_os_error(i32::from_ne_bytes(errno.try_into().ok()?));
        match step {
            0 => Some(Failure::Setup(errno)),
            1 => Some(Failure::Directory(errno)),
            2 => Some(Failure::Exec(errno)),
            _ => Some(Failure::Interpreter(errno, head.try_into().ok()?)),
        }
    }
}

/// Starts a child inside its cgroup. The standard library could only move it there later, which waits for every CPU.
pub fn spawn(launch: &Launch, fds: &ChildFds<'_>, report_end: BorrowedFd<'_>) -> io::Result<Pid> {
    let argv = pointers(&launch.argv);
    let env = pointers(&launch.env);
    // SAFETY: clone_args is plain data, zero is its default.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.exit_signal = libc::SIGCHLD as u64;
    if let Some(cgroup) = fds.cgroup {
        args.flags = CLONE_INTO_CGROUP;
        args.cgroup = cgroup.as_raw_fd() as u64;
    }
    // SAFETY: without CLONE_VM the child has a copy of this memory, like after fork.
    match unsafe { libc::syscall(libc::SYS_clone3, &args, size_of_val(&args)) } {
        // SAFETY: this is the child, which only makes system calls on memory prepared before.
        0 => unsafe {
            let failure = become_command(launch, &argv, &env, fds);
            let report = failure.to_bytes();
            libc::write(report_end.as_raw_fd(), report.as_ptr().cast(), report.len());
            libc::_exit(127)
        },
        pid => Pid::from_raw(pid as i32).filter(|_| pid > 0).ok_or_else(io::Error::last_os_error),
    }
}

fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    let texts = texts.iter().map(|text| text.as_ptr());
    texts.chain([ptr::null()]).collect()
}

/// Turns the child into the command. Returns only after a failure.
///
/// SAFETY: for a child that shares nothing with its parent; must not allocate, a lock may be held forever.
unsafe fn become_command(
    launch: &Launch,
    argv: &[*const c_char],
    env: &[*const c_char],
    fds: &ChildFds<'_>,
) -> Failure {
    unsafe {
        if let Err(errno) = set_up_child(launch, fds) {
            return Failure::Setup(errno);
        }
        if libc::chdir(launch.cwd.as_ptr()) < 0 {
            return Failure::Directory(last_errno());
        }
        let mut worst = Failure::Exec(Errno::NOENT);
        for file in &launch.files {
            libc::execve(file.as_ptr(), argv.as_ptr(), env.as_ptr());
            let errno = last_errno();
            if !matches!(errno, Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) {
                return Failure::Exec(errno);
            }
            if let Some(head) = head_of_executable(file) {
                worst = Failure::Interpreter(errno, head);
            } else if errno == Errno::ACCESS {
                worst = Failure::Exec(errno);
            }
        }
        worst
    }
}

/// SAFETY: as for `become_command`. Reads as the user, and does not wait for the writer of a FIFO.
unsafe fn head_of_executable(file: &CStr) -> Option<Head> {
    unsafe {
        check(libc::access(file.as_ptr(), libc::X_OK)).ok()?;
        let flags = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_CLOEXEC;
        let fd = check(libc::open(file.as_ptr(), flags)).ok()?;
        let mut head = [0; size_of::<Head>()];
        let count = libc::read(fd, head.as_mut_ptr().cast(), head.len());
        libc::close(fd);
        (count > 0).then_some(head)
    }
}

/// SAFETY: as for `become_command`. The ids are set by bare system calls: the library's functions signal other threads.
unsafe fn set_up_child(launch: &Launch, fds: &ChildFds<'_>) -> Result<(), Errno> {
    unsafe {
        check(libc::setsid())?;
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        allow_oom_kill()?;
        let null = check(libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY))?;
        check(libc::dup2(fds.stdin.map_or(null, |fd| fd.as_raw_fd()), 0))?;
        check(libc::dup2(fds.stdout.as_raw_fd(), 1))?;
        check(libc::dup2(fds.stderr.as_raw_fd(), 2))?;
        check(libc::close(null))?;
        if fds.owns_terminal {
            check(libc::ioctl(0, libc::TIOCSCTTY, 0))?;
        }
        let (uid, gid, groups) = (launch.uid, launch.gid, &launch.groups);
        check(libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()))?;
        check(libc::syscall(libc::SYS_setresgid, gid, gid, gid))?;
        check(libc::syscall(libc::SYS_setresuid, uid, uid, uid)).map(drop)
    }
}

/// SAFETY: as for `become_command`. Called as root, so that the user cannot restore the agent's protection.
unsafe fn allow_oom_kill() -> Result<(), Errno> {
    unsafe {
        let path = c"/proc/self/oom_score_adj";
        let fd = check(libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC))?;
        check(libc::write(fd, c"0".as_ptr().cast(), 1) as i64)?;
        check(libc::close(fd)).map(drop)
    }
}

pub fn resize_ext4(file_system: &impl AsFd, blocks: u64) -> io::Result<()> {
    let fd = file_system.as_fd().as_raw_fd();
    // SAFETY: the kernel reads one u64.
    Ok(check(unsafe { libc::ioctl(fd, EXT4_IOC_RESIZE_FS, &blocks) }).map(drop)?)
}

/// The kernel's random generator. Opened before any other process runs: root in the guest may replace the path later.
pub struct RandomDevice(std::fs::File);

impl RandomDevice {
    pub fn open() -> io::Result<RandomDevice> {
        Ok(RandomDevice(std::fs::File::options().write(true).open("/dev/urandom")?))
    }

    /// Adds the bytes to the entropy pool with their full credit, and reseeds the generator from it at once.
    pub fn add_entropy(&self, bytes: &[u8; 64]) -> io::Result<()> {
        #[repr(C)]
        struct PoolInfo {
            entropy_bits: i32,
            buffer_bytes: i32,
            buffer: [u8; 64],
        }
        let bits = bytes.len() as i32 * 8;
        let info = PoolInfo { entropy_bits: bits, buffer_bytes: bytes.len() as i32, buffer: *bytes };
        let fd = self.0.as_raw_fd();
        // SAFETY: the kernel reads the structure its header describes.
        check(unsafe { libc::ioctl(fd, RNDADDENTROPY, &info) })?;
        // SAFETY: takes no argument.
        Ok(check(unsafe { libc::ioctl(fd, RNDRESEEDCRNG) }).map(drop)?)
    }
}

/// Makes all threads use one heap: a thread's own heap is never returned to the kernel.
pub fn keep_one_heap() {
    // SAFETY: sets a number.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

/// Returns free pages of the heap to the kernel, also those between pages in use.
pub fn trim_heap() {
    // SAFETY: touches free memory alone.
    unsafe { libc::malloc_trim(0) };
}

/// Reads into the unfilled part of the buffer, without zeroing it first.
pub fn read_into(fd: impl AsFd, into: &mut ReadBuf<'_>) -> Result<usize, Errno> {
    // SAFETY: the slice is only written to.
    let space = unsafe { into.unfilled_mut() };
    let (filled, _) = rustix::io::read(fd, space)?;
    let count = filled.len();
    // SAFETY: the kernel has filled so many.
    unsafe { into.assume_init(count) };
    into.advance(count);
    Ok(count)
}

/// Registers a descriptor with the event loop.
pub fn watch(fd: Rc<OwnedFd>) -> io::Result<AsyncFd<Rc<OwnedFd>>> {
    // SAFETY: the shared owner keeps the descriptor open for as long as it is registered.
    Ok(unsafe { AsyncFd::register(fd) }?)
}

pub fn bring_up(interface: &str) -> io::Result<()> {
    let mut request = interface_request(interface);
    let up = (libc::IFF_UP | libc::IFF_RUNNING) as i16;
    request.ifr_ifru.ifru_flags = up;
    interface_ioctl(libc::SIOCSIFFLAGS, &request)
}

pub fn set_address(interface: &str, address: Ipv4Addr, netmask: Ipv4Addr) -> io::Result<()> {
    let mut request = interface_request(interface);
    request.ifr_ifru.ifru_addr = socket_address(address);
    interface_ioctl(libc::SIOCSIFADDR, &request)?;
    request.ifr_ifru.ifru_netmask = socket_address(netmask);
    interface_ioctl(libc::SIOCSIFNETMASK, &request)
}

pub fn add_default_route(gateway: Ipv4Addr) -> io::Result<()> {
    // SAFETY: rtentry is plain data, zero is "not given".
    let mut route: libc::rtentry = unsafe { std::mem::zeroed() };
    route.rt_dst = socket_address(Ipv4Addr::UNSPECIFIED);
    route.rt_genmask = socket_address(Ipv4Addr::UNSPECIFIED);
    route.rt_gateway = socket_address(gateway);
    route.rt_flags = libc::RTF_UP | libc::RTF_GATEWAY;
    let socket = control_socket()?;
    // SAFETY: the kernel reads one rtentry.
    Ok(check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCADDRT, &route) }).map(drop)?)
}

fn interface_request(interface: &str) -> libc::ifreq {
    // SAFETY: ifreq is plain data, zero is "not given".
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let name = interface.bytes().take(libc::IFNAMSIZ - 1);
    for (to, from) in request.ifr_name.iter_mut().zip(name) {
        *to = from as c_char;
    }
    request
}

fn interface_ioctl(number: libc::Ioctl, request: &libc::ifreq) -> io::Result<()> {
    let socket = control_socket()?;
    // SAFETY: the kernel reads one ifreq.
    Ok(check(unsafe { libc::ioctl(socket.as_raw_fd(), number, request) }).map(drop)?)
}

fn control_socket() -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
}

fn socket_address(address: Ipv4Addr) -> libc::sockaddr {
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: 0,
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.octets()) },
        sin_zero: [0; 8],
    };
    // SAFETY: both are 16 bytes of plain data with the same layout.
    unsafe { std::mem::transmute(address) }
}

fn check<T: Into<i64> + Copy>(result: T) -> Result<T, Errno> {
    if result.into() < 0 { Err(last_errno()) } else { Ok(result) }
}

fn last_errno() -> Errno {
    // SAFETY: the library's own thread-local.
    Errno::from_raw_os_error(unsafe { *libc::__errno_location() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_survives_the_pipe() {
        for failure in [
            Failure::Setup(Errno::PERM),
            Failure::Directory(Errno::ACCESS),
            Failure::Exec(Errno::NOENT),
            Failure::Interpreter(Errno::NOENT, [b'x'; size_of::<Head>()]),
        ] {
            assert_eq!(Failure::parse(&failure.to_bytes()), Some(failure));
        }
        assert_eq!(Failure::parse(b""), None);
    }
}
