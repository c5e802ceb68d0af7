//! The system calls that a container is made of, each behind a function that cannot be misused in
//! memory's terms. Most of it is for the shim, which has one thread: what those calls change
//! (namespaces, identity, root) they change for the whole process.
#![allow(unsafe_code, reason = "the only place for it")]
use std::ffi::{CStr, CString, c_char, c_int, c_long, c_uint, c_ulong, c_void};
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

fn check(result: c_long) -> io::Result<c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

pub fn c_path(path: impl AsRef<Path>) -> io::Result<CString> {
    CString::new(path.as_ref().as_os_str().as_bytes())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a path with a zero byte"))
}

pub fn c_text(text: &str) -> io::Result<CString> {
    CString::new(text)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a text with a zero byte"))
}

/// The kernel's `struct clone_args`, as far as it is used.
#[repr(C)]
#[derive(Default)]
struct CloneArguments {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// A new process in new namespaces, and in a v2 control group from its first moment on: `None` in
/// the child, its number in the parent.
pub fn clone(flags: c_int, group: Option<BorrowedFd<'_>>) -> io::Result<Option<i32>> {
    const INTO_CGROUP: u64 = 0x2_0000_0000;
    let mut arguments = CloneArguments {
        flags: flags as u64 | if group.is_some() { INTO_CGROUP } else { 0 },
        exit_signal: libc::SIGCHLD as u64,
        cgroup: group.map_or(0, |group| group.as_raw_fd() as u64),
        ..CloneArguments::default()
    };
    // SAFETY: without CLONE_VM the child is a copy with memory of its own, as after fork. The shim
    // has a single thread, so no lock is held by a thread that the child lacks.
    let result = check(unsafe {
        libc::syscall(libc::SYS_clone3, &raw mut arguments, size_of::<CloneArguments>())
    })?;
    Ok((result != 0).then_some(result as i32))
}

/// A brother in new namespaces: `None` in it, its number here. When it ends our parent is told.
pub fn clone_brother(flags: c_int) -> io::Result<Option<i32>> {
    let mut arguments =
        CloneArguments { flags: (flags | libc::CLONE_PARENT) as u64, ..CloneArguments::default() };
    // SAFETY: as for `clone`.
    let result = check(unsafe {
        libc::syscall(libc::SYS_clone3, &raw mut arguments, size_of::<CloneArguments>())
    })?;
    Ok((result != 0).then_some(result as i32))
}

pub fn setns(namespace: BorrowedFd<'_>, kind: c_int) -> io::Result<()> {
    // SAFETY: plain numbers; the descriptor is open.
    check(unsafe { libc::setns(namespace.as_raw_fd(), kind) }.into()).map(drop)
}

pub fn unshare(flags: c_int) -> io::Result<()> {
    // SAFETY: plain numbers.
    check(unsafe { libc::unshare(flags) }.into()).map(drop)
}

pub fn mount(
    source: &str,
    target: &CStr,
    kind: &str,
    flags: c_ulong,
    data: &str,
) -> io::Result<()> {
    let (source, kind, data) = (c_text(source)?, c_text(kind)?, c_text(data)?);
    // SAFETY: every pointer is to a string that outlives the call.
    let result = unsafe {
        libc::mount(
            source.as_ptr(),
            target.as_ptr(),
            kind.as_ptr(),
            flags,
            data.as_ptr().cast::<c_void>(),
        )
    };
    check(result.into()).map(drop)
}

pub fn unmount(target: &CStr) -> io::Result<()> {
    let flags = libc::MNT_DETACH | libc::UMOUNT_NOFOLLOW;
    // SAFETY: the string outlives the call.
    check(unsafe { libc::umount2(target.as_ptr(), flags) }.into()).map(drop)
}

pub const OPEN_TREE_CLONE: c_uint = 1;
const AT_RECURSIVE: c_uint = 0x8000;
const MOVE_MOUNT_F_EMPTY_PATH: c_uint = 0x4;
const MOVE_MOUNT_T_EMPTY_PATH: c_uint = 0x40;
pub const MOUNT_ATTR_RDONLY: u64 = 0x1;
pub const MOUNT_ATTR_NOSUID: u64 = 0x2;
pub const MOUNT_ATTR_NODEV: u64 = 0x4;
pub const MOUNT_ATTR_NOEXEC: u64 = 0x8;

/// A copy of the mount at `path`, attached nowhere yet.
pub fn open_tree(path: &CStr, recursive: bool) -> io::Result<OwnedFd> {
    let recursive = if recursive { AT_RECURSIVE } else { 0 };
    let flags = OPEN_TREE_CLONE | libc::O_CLOEXEC as c_uint | recursive;
    // SAFETY: the string outlives the call; a non-negative result is a new descriptor of ours.
    unsafe {
        let result =
            check(libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags))?;
        Ok(OwnedFd::from_raw_fd(result as c_int))
    }
}

/// Attaches what `open_tree` gave to the place that `target` is.
pub fn move_mount(tree: BorrowedFd<'_>, target: BorrowedFd<'_>) -> io::Result<()> {
    let flags = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH;
    // SAFETY: both descriptors are open, both paths empty strings.
    check(unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            tree.as_raw_fd(),
            c"".as_ptr(),
            target.as_raw_fd(),
            c"".as_ptr(),
            flags,
        )
    })
    .map(drop)
}

#[repr(C)]
#[derive(Default, Clone, Copy)]
pub struct MountAttributes {
    pub set: u64,
    pub clear: u64,
    pub propagation: u64,
    pub user_namespace: u64,
}

pub fn mount_setattr(
    mount: BorrowedFd<'_>,
    recursive: bool,
    mut attributes: MountAttributes,
) -> io::Result<()> {
    let flags = libc::AT_EMPTY_PATH as c_uint | if recursive { AT_RECURSIVE } else { 0 };
    // SAFETY: the structure has the kernel's layout and its size is passed along.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw mut attributes,
            size_of::<MountAttributes>(),
        )
    })
    .map(drop)
}

/// A new file system, attached nowhere yet. Options are as for `mount`, attributes the kernel's.
pub fn new_filesystem(kind: &str, options: &str, attributes: u64) -> io::Result<OwnedFd> {
    const CLOEXEC: c_uint = 1;
    const SET_FLAG: c_uint = 0;
    const SET_STRING: c_uint = 1;
    const CREATE: c_uint = 6;
    let null = std::ptr::null::<c_char>();
    let name = c_text(kind)?;
    // SAFETY: the string outlives the call; a non-negative result is a new descriptor of ours.
    let context = unsafe {
        let result = check(libc::syscall(libc::SYS_fsopen, name.as_ptr(), CLOEXEC))?;
        OwnedFd::from_raw_fd(result as c_int)
    };
    let configure = |command: c_uint, key: *const c_char, value: *const c_char| {
        // SAFETY: key and value are null or strings that outlive the call.
        check(unsafe {
            libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), command, key, value, 0)
        })
    };
    for option in options.split(',').filter(|option| !option.is_empty()) {
        match option.split_once('=') {
            Some((key, value)) => {
                let (key, value) = (c_text(key)?, c_text(value)?);
                configure(SET_STRING, key.as_ptr(), value.as_ptr())?;
            }
            None => {
                let flag = c_text(option)?;
                configure(SET_FLAG, flag.as_ptr(), null)?;
            }
        }
    }
    configure(CREATE, null, null)?;
    // SAFETY: the descriptor is open; a non-negative result is a new descriptor of ours.
    unsafe {
        let result =
            check(libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), CLOEXEC, attributes))?;
        Ok(OwnedFd::from_raw_fd(result as c_int))
    }
}

/// Shows a detached mount's owners as those of a user namespace.
pub fn map_owners(mount: BorrowedFd<'_>, users: BorrowedFd<'_>) -> io::Result<()> {
    const IDMAP: u64 = 0x10_0000;
    let user_namespace = users.as_raw_fd() as u64;
    let attributes = MountAttributes { set: IDMAP, user_namespace, ..MountAttributes::default() };
    mount_setattr(mount, true, attributes)
}

/// Makes the current directory the root; the old root stays mounted on top of it.
pub fn pivot_here() -> io::Result<()> {
    // SAFETY: constant strings.
    check(unsafe { libc::syscall(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr()) }).map(drop)
}

pub fn mknod(path: &CStr, mode: u32, device: u64) -> io::Result<()> {
    // SAFETY: the string outlives the call.
    check(unsafe { libc::mknod(path.as_ptr(), mode, device) }.into()).map(drop)
}

pub fn sethostname(name: &str) -> io::Result<()> {
    // SAFETY: pointer and length are of one string.
    check(unsafe { libc::sethostname(name.as_ptr().cast::<c_char>(), name.len()) }.into()).map(drop)
}

pub fn setsid() -> io::Result<()> {
    // SAFETY: no arguments.
    check(unsafe { libc::setsid() }.into()).map(drop)
}

pub fn umask(mask: u32) {
    // SAFETY: plain number; it cannot fail.
    unsafe { libc::umask(mask) };
}

/// Becomes another user, and makes sure of it: to some numbers the kernel says yes and does nothing.
pub fn set_identity(uid: u32, gid: u32, groups: &[u32]) -> io::Result<()> {
    // Where nobody may change groups, whoever wants none has what they can have.
    let keeps = groups.iter().all(|group| *group == gid) && keeps_groups();
    // SAFETY: pointer and length are of one slice; the rest are plain numbers.
    unsafe {
        if !keeps {
            check(libc::setgroups(groups.len(), groups.as_ptr()).into())?;
        }
        check(libc::setresgid(gid, gid, gid).into())?;
        check(libc::setresuid(uid, uid, uid).into())?;
    }
    let (uids, gids, mut found) = identity_in_force()?;
    let mut wanted = groups.to_vec();
    found.sort_unstable();
    wanted.sort_unstable();
    if uids != [uid; 3] || gids != [gid; 3] || found != wanted && !keeps {
        let text = format!(
            "asked to be {uid}:{gid} {wanted:?}, the kernel made it {uids:?} {gids:?} {found:?}"
        );
        return Err(io::Error::other(text));
    }
    Ok(())
}

/// Whether this is a user namespace whose map its user has written.
fn keeps_groups() -> bool {
    std::fs::read_to_string("/proc/self/setgroups").is_ok_and(|text| text.trim() == "deny")
}

/// Becomes root of a user namespace that was entered; its other groups stay, for they may not be given up
/// where the map is one that a user could write.
pub fn become_root() -> io::Result<()> {
    // SAFETY: plain numbers.
    unsafe {
        check(libc::setresgid(0, 0, 0).into())?;
        check(libc::setresuid(0, 0, 0).into()).map(drop)
    }
}

/// Asks the kernel for a signal when our parent ends.
pub fn end_with_parent() -> io::Result<()> {
    prctl(libc::PR_SET_PDEATHSIG, [libc::SIGTERM as c_ulong, 0, 0, 0])
}

/// The real, effective and saved user and group of this process, and its other groups.
fn identity_in_force() -> io::Result<([u32; 3], [u32; 3], Vec<u32>)> {
    let (mut uids, mut gids) = ([0; 3], [0; 3]);
    let ([a, b, c], [d, e, f]) = (&mut uids, &mut gids);
    // SAFETY: every pointer is to a number that outlives the call; the list of groups has as much
    // room as the kernel said it needs.
    unsafe {
        check(libc::getresuid(a, b, c).into())?;
        check(libc::getresgid(d, e, f).into())?;
        let count = check(libc::getgroups(0, std::ptr::null_mut()).into())?;
        let mut groups = vec![0; count as usize];
        check(libc::getgroups(count as c_int, groups.as_mut_ptr()).into())?;
        Ok((uids, gids, groups))
    }
}

fn prctl(option: c_int, arguments: [c_ulong; 4]) -> io::Result<()> {
    let [a, b, c, d] = arguments;
    // SAFETY: only options whose arguments are plain numbers come here.
    check(unsafe { libc::prctl(option, a, b, c, d) }.into()).map(drop)
}

pub fn keep_capabilities(keep: bool) -> io::Result<()> {
    prctl(libc::PR_SET_KEEPCAPS, [keep.into(), 0, 0, 0])
}

pub fn set_no_new_privileges() -> io::Result<()> {
    prctl(libc::PR_SET_NO_NEW_PRIVS, [1, 0, 0, 0])
}

pub fn drop_bounding(capability: u32) -> io::Result<()> {
    prctl(libc::PR_CAPBSET_DROP, [capability.into(), 0, 0, 0])
}

pub fn raise_ambient(capability: u32) -> io::Result<()> {
    let raise = libc::PR_CAP_AMBIENT_RAISE as c_ulong;
    prctl(libc::PR_CAP_AMBIENT, [raise, capability.into(), 0, 0])
}

pub fn become_subreaper() -> io::Result<()> {
    prctl(libc::PR_SET_CHILD_SUBREAPER, [1, 0, 0, 0])
}

pub fn set_dumpable(dumpable: bool) -> io::Result<()> {
    prctl(libc::PR_SET_DUMPABLE, [dumpable.into(), 0, 0, 0])
}

/// The process's name in `ps`, at most fifteen bytes.
pub fn set_name(name: &CStr) {
    // SAFETY: the string outlives the call; the kernel copies at most sixteen bytes of it.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr(), 0, 0, 0) };
}

const CAPABILITY_VERSION: u32 = 0x2008_0522;

#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct CapabilityData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

pub fn capset(effective: u64, permitted: u64, inheritable: u64) -> io::Result<()> {
    let header = CapabilityHeader { version: CAPABILITY_VERSION, pid: 0 };
    let half = |shift: u32| CapabilityData {
        effective: (effective >> shift) as u32,
        permitted: (permitted >> shift) as u32,
        inheritable: (inheritable >> shift) as u32,
    };
    let data = [half(0), half(32)];
    // SAFETY: this version reads one header and two data structures; both outlive the call.
    check(unsafe { libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()) }).map(drop)
}

/// The capabilities this process may have in force.
pub fn permitted() -> io::Result<u64> {
    let header = CapabilityHeader { version: CAPABILITY_VERSION, pid: 0 };
    let empty = CapabilityData { effective: 0, permitted: 0, inheritable: 0 };
    let mut data = [empty; 2];
    // SAFETY: this version writes two data structures; both outlive the call.
    check(unsafe { libc::syscall(libc::SYS_capget, &raw const header, data.as_mut_ptr()) })?;
    Ok(u64::from(data[0].permitted) | u64::from(data[1].permitted) << 32)
}

/// Installs a filter program: eight bytes an instruction, as the kernel lays them out.
pub fn install_seccomp(program: &[u8]) -> io::Result<()> {
    const MODE_FILTER: c_ulong = 1;
    let mut instructions: Vec<libc::sock_filter> = program
        .chunks_exact(8)
        .map(|i| libc::sock_filter {
            code: u16::from_ne_bytes([i[0], i[1]]),
            jt: i[2],
            jf: i[3],
            k: u32::from_ne_bytes([i[4], i[5], i[6], i[7]]),
        })
        .collect();
    let filter =
        libc::sock_fprog { len: instructions.len() as u16, filter: instructions.as_mut_ptr() };
    // SAFETY: the program outlives the call; the kernel checks and copies it.
    check(unsafe { libc::syscall(libc::SYS_seccomp, MODE_FILTER, 0, &raw const filter) }).map(drop)
}

/// Replaces the process; comes back only with an error.
pub fn execve(path: &CStr, arguments: &[CString], environment: &[CString]) -> io::Error {
    let list = |texts: &[CString]| -> Vec<*const c_char> {
        texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (arguments, environment) = (list(arguments), list(environment));
    // SAFETY: both lists end with a null and point to strings that outlive the call.
    unsafe { libc::execve(path.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    io::Error::last_os_error()
}

/// Every descriptor from `first` on closes when the program is replaced.
pub fn close_on_exec_from(first: u32) -> io::Result<()> {
    const CLOSE_RANGE_CLOEXEC: c_uint = 4;
    // SAFETY: plain numbers; nothing is closed now.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, CLOSE_RANGE_CLOEXEC) })
        .map(drop)
}

/// Closes every descriptor from `first` on, now.
pub fn close_from(first: u32) {
    close_between(first, u32::MAX);
}

/// Closes every descriptor but the standard three and those that are `kept`, now: what only closes
/// when the program is replaced can be reached until then, by name through `/proc/self/fd`.
pub fn close_all_but(kept: &[i32]) {
    let mut kept: Vec<u32> = kept.iter().filter_map(|number| u32::try_from(*number).ok()).collect();
    kept.sort_unstable();
    let mut from = 3;
    for number in kept.into_iter().filter(|number| *number >= 3) {
        if number > from {
            close_between(from, number - 1);
        }
        from = from.max(number + 1);
    }
    close_between(from, u32::MAX);
}

fn close_between(first: u32, last: u32) {
    // SAFETY: called in a child that goes on without these descriptors, and never returns to code
    // that owns one.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
}

/// Makes `from` also descriptor `to`, which stays open in the program to come.
pub fn duplicate_to(from: BorrowedFd<'_>, to: i32) -> io::Result<()> {
    // SAFETY: `to` is one of the standard descriptors, which this process owns.
    check(unsafe { libc::dup2(from.as_raw_fd(), to) }.into()).map(drop)
}

/// Makes the terminal the session's own.
pub fn set_controlling_terminal(terminal: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the request takes a plain number.
    check(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSCTTY, 0) }.into()).map(drop)
}

pub fn set_window(terminal: BorrowedFd<'_>, width: u16, height: u16) -> io::Result<()> {
    let size = libc::winsize { ws_row: height, ws_col: width, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the request reads one such structure, which outlives the call.
    check(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) }.into())
        .map(drop)
}

/// Brings the loopback device of the current network namespace up.
pub fn loopback_up() -> io::Result<()> {
    let socket = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        None,
    )?;
    // SAFETY: a structure of plain numbers; all zeroes is a value of it.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l' as c_char;
    request.ifr_name[1] = b'o' as c_char;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as i16;
    // SAFETY: the request reads one such structure, which outlives the call.
    let result =
        unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request) };
    check(result.into()).map(drop)
}

/// Blocks the signals the shim is told of by descriptor, ignores those that must not end it, and
/// returns the descriptor.
pub fn signal_descriptor() -> io::Result<OwnedFd> {
    // SAFETY: the set is initialised before it is used; a non-negative result is a descriptor of
    // ours.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        check(libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()).into())?;
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        libc::signal(libc::SIGHUP, libc::SIG_IGN);
        libc::signal(libc::SIGINT, libc::SIG_IGN);
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        let result = check(libc::signalfd(-1, &raw const set, flags).into())?;
        Ok(OwnedFd::from_raw_fd(result as c_int))
    }
}

/// Undoes what the shim did to signals, for a program that expects to be told of all of them.
pub fn reset_signals() {
    // SAFETY: the set is initialised before it is used; the default action needs no handler.
    unsafe {
        for signal in 1..=64 {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
    }
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    pub pid: i32,
    /// As a shell reports it: 128 and the signal's number for one that was killed.
    pub code: i32,
}

/// A child that has ended and was not asked for yet: this one, or any.
pub fn reap(pid: Option<i32>) -> Option<Ended> {
    let mut status = 0;
    // SAFETY: the pointer is to an int that outlives the call.
    let pid = unsafe { libc::waitpid(pid.unwrap_or(-1), &raw mut status, libc::WNOHANG) };
    (pid > 0).then(|| Ended { pid, code: exit_code(status) })
}

/// Whether a process is our child, running or not yet asked for.
pub fn is_child(pid: i32) -> bool {
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: a structure of plain numbers, for which all zeroes is a value; it outlives the call.
    unsafe {
        let mut information: libc::siginfo_t = std::mem::zeroed();
        let Ok(id) = libc::id_t::try_from(pid) else { return false };
        libc::waitid(libc::P_PID, id, &raw mut information, flags) == 0
    }
}

/// Waits for one child, but not for ever: none if it has not ended by then. One that was killed may
/// still be held up, by a frozen control group or by a file system that does not answer.
pub fn wait_within(pid: i32, patience: std::time::Duration) -> io::Result<Option<i32>> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::process::{Pid, PidfdFlags, pidfd_open};
    let number = Pid::from_raw(pid).ok_or_else(|| io::Error::other("no such process"))?;
    let handle = pidfd_open(number, PidfdFlags::empty())?;
    let deadline = std::time::Instant::now() + patience;
    loop {
        if let Some(ended) = reap(Some(pid)) {
            return Ok(Some(ended.code));
        }
        let left = deadline.saturating_duration_since(std::time::Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        let left = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        match poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&left)) {
            Err(rustix::io::Errno::INTR) | Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn exit_code(status: c_int) -> i32 {
    if libc::WIFSIGNALED(status) { 128 + libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) }
}

pub fn kill(pid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: plain numbers.
    check(unsafe { libc::kill(pid, signal) }.into()).map(drop)
}

/// Ends the process at once: no destructor, no handler, as befits a child that must not come back.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: it does not return.
    unsafe { libc::_exit(code) }
}

/// The life of the process that holds a shared process namespace: it collects orphans, and ends
/// only when it is killed.
pub fn pause_forever() -> ! {
    set_name(c"pause");
    // SAFETY: ignoring SIGCHLD makes the kernel collect children by itself; pause has no arguments.
    unsafe {
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        loop {
            libc::pause();
        }
    }
}

/// A container that does nothing: collects orphans, and ends when it is asked to.
pub fn pause() -> ! {
    extern "C" fn end(_: c_int) {
        exit_now(0)
    }
    // SAFETY: the handler does nothing but end the process, which is allowed in a handler.
    unsafe {
        for signal in [libc::SIGINT, libc::SIGTERM] {
            libc::signal(signal, end as extern "C" fn(c_int) as libc::sighandler_t);
        }
    }
    let _ = drop_clean_pages();
    pause_forever()
}

/// The shared objects that the loader gave this process, by the paths it knows them by.
pub fn loaded_objects() -> Vec<std::path::PathBuf> {
    unsafe extern "C" fn note(
        object: *mut libc::dl_phdr_info,
        _: libc::size_t,
        found: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader hands in a valid object, whose name is null or a string; `found` is
        // the vector below, which nobody else uses meanwhile.
        unsafe {
            let (name, found) =
                ((*object).dlpi_name, &mut *found.cast::<Vec<std::path::PathBuf>>());
            if !name.is_null() {
                let name = CStr::from_ptr(name).to_bytes();
                found.push(std::ffi::OsStr::from_bytes(name).into());
            }
        }
        0
    }
    let mut found: Vec<std::path::PathBuf> = Vec::new();
    // SAFETY: the callback has the signature that is asked for; the vector outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut found).cast::<c_void>()) };
    found.retain(|path| path.is_absolute());
    found
}

/// Gives back the pages of files (this program, its libraries) that are mapped but not changed: they
/// are in the page cache, and come back when they are touched.
pub fn drop_clean_pages() -> io::Result<()> {
    let maps = std::fs::read_to_string("/proc/self/smaps")?;
    let mut candidate: Option<(usize, usize)> = None;
    for line in maps.lines() {
        if let Some(range) = unchanging_mapping(line) {
            candidate = range;
        } else if line.starts_with("Anonymous:")
            && line.split_whitespace().nth(1) == Some("0")
            && let Some((start, end)) = candidate.take()
        {
            // SAFETY: the mapping is private, of a file, not writable, and has no page that differs
            // from the file: what is dropped is read again, byte for byte.
            unsafe { libc::madvise(start as *mut c_void, end - start, libc::MADV_DONTNEED) };
        }
    }
    Ok(())
}

/// A mapping's first line: its range, if it is of a file and nobody writes to it. `None` for lines
/// that are about something else.
fn unchanging_mapping(line: &str) -> Option<Option<(usize, usize)>> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let range = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
    let (access, _, _, inode) = (words.next()?, words.next()?, words.next()?, words.next()?);
    Some((matches!(access, "r--p" | "r-xp") && inode != "0").then_some(range))
}

/// Limits of one resource, by the kernel's number.
pub fn set_limit(resource: u32, soft: u64, hard: u64) -> io::Result<()> {
    let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
    // SAFETY: the structure outlives the call.
    check(unsafe { libc::setrlimit(resource as _, &raw const limit) }.into()).map(drop)
}

/// A file handle that cannot be used to write the program behind it.
///
/// A container can reach the program of the process that became it, through `/proc/self/exe`. What
/// is executed from here lies on a read-only mount that is attached nowhere: opening it for writing
/// fails, and as soon as this handle is closed nobody can change the mount any more.
pub fn protected(executable: &Path) -> io::Result<OwnedFd> {
    let tree = open_tree(&c_path(executable)?, false)?;
    let attributes = MountAttributes { set: MOUNT_ATTR_RDONLY, ..MountAttributes::default() };
    mount_setattr(tree.as_fd(), false, attributes)?;
    Ok(tree)
}

/// The kernel's `union bpf_attr` for loading a program, as far as it is used.
#[repr(C)]
#[derive(Default)]
struct LoadProgram {
    kind: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    expected_attach: u32,
}

#[repr(C)]
struct AttachProgram {
    target: u32,
    program: u32,
    kind: u32,
    flags: u32,
}

/// Loads a program that decides about devices, and attaches it to a v2 control group for good.
pub fn attach_device_program(group: BorrowedFd<'_>, instructions: &[u64]) -> io::Result<()> {
    const LOAD: c_int = 5;
    const ATTACH: c_int = 8;
    const KIND_CGROUP_DEVICE: u32 = 15;
    const ATTACH_DEVICE: u32 = 6;
    const ALLOW_MULTIPLE: u32 = 2;
    let load = LoadProgram {
        kind: KIND_CGROUP_DEVICE,
        instruction_count: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        license: c"Apache-2.0".as_ptr() as u64,
        expected_attach: ATTACH_DEVICE,
        ..LoadProgram::default()
    };
    // SAFETY: the structure and what it points to outlive the call, which copies them; a
    // non-negative result is a new descriptor of ours.
    let program = unsafe {
        let size = size_of::<LoadProgram>();
        let result = check(libc::syscall(libc::SYS_bpf, LOAD, &raw const load, size))?;
        OwnedFd::from_raw_fd(result as c_int)
    };
    let attach = AttachProgram {
        target: group.as_raw_fd() as u32,
        program: program.as_raw_fd() as u32,
        kind: ATTACH_DEVICE,
        flags: ALLOW_MULTIPLE,
    };
    // SAFETY: the structure outlives the call; both descriptors are open.
    check(unsafe {
        libc::syscall(libc::SYS_bpf, ATTACH, &raw const attach, size_of::<AttachProgram>())
    })
    .map(drop)
}
