//! From a forked shim to a container's first process. Runs in the child, step by step, in the order
//! in which each step still may; the first that fails is reported and ends it.
//!
//! The sources of mounts are opened before the root changes, everything is attached after: paths
//! inside the container are then resolved by the kernel against the container's own root, and no
//! link in an image or a volume can lead a mount anywhere else. Control groups, namespaces, mounts,
//! root, identity, capabilities, filter, program.
//!
//! **What others can do to it meanwhile.** It has no descriptor but its streams, the channel and what
//! it was given to join, from its first steps on; nobody without the host's `CAP_SYS_PTRACE` can look
//! into it, for like the shim it is not dumpable; and a process namespace in which others run already
//! it enters last, by a successor, when there is nothing of the host left to be seen.
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use super::identity;
use super::inside;
use super::mounts;
use super::protocol::{Report, send};
use super::spec::{Capabilities, ContainerSpec, Identity, PidNamespace, ProcessSpec};
use super::sys;

/// What failed: the step and why.
#[derive(Debug, thiserror::Error)]
#[error("{step}: {cause}")]
pub struct Failure {
    step: String,
    cause: io::Error,
}

pub trait Step<T> {
    fn step(self, step: impl FnOnce() -> String) -> Result<T, Failure>;
}

impl<T> Step<T> for io::Result<T> {
    fn step(self, step: impl FnOnce() -> String) -> Result<T, Failure> {
        self.map_err(|cause| Failure { step: step(), cause })
    }
}

/// Namespaces to join, with the kernel's kind of each.
#[derive(Default)]
pub struct Join {
    /// First of all: what follows happens with its powers only.
    pub users: Option<OwnedFd>,
    pub namespaces: Vec<(OwnedFd, i32)>,
    /// A process namespace where others run already: only a successor is in it.
    pub pids: Option<OwnedFd>,
}

impl Join {
    pub fn descriptors(&self) -> Vec<i32> {
        let namespaces = self.namespaces.iter().map(|(namespace, _)| namespace);
        let all = namespaces.chain(&self.users).chain(&self.pids);
        all.map(AsRawFd::as_raw_fd).collect()
    }
}

/// The process's standard streams, unless it gets a terminal.
pub struct Streams {
    pub descriptors: Vec<OwnedFd>,
}

impl Streams {
    pub fn descriptors(&self) -> Vec<i32> {
        self.descriptors.iter().map(AsRawFd::as_raw_fd).collect()
    }
}

/// Becomes the container.
pub fn run_container(
    spec: &ContainerSpec,
    cgroup: &[PathBuf],
    join: Join,
    streams: Streams,
    channel: UnixStream,
) -> ! {
    let outcome = enter(spec, cgroup, join, &channel)
        .and_then(|()| become_process(&spec.process, streams, &channel));
    report(outcome, &channel)
}

/// Becomes another process of a container whose namespaces `join` has.
pub fn run_exec(
    process: &ProcessSpec,
    cgroup: &[PathBuf],
    join: Join,
    streams: Streams,
    channel: UnixStream,
) -> ! {
    let outcome = join_cgroup(cgroup)
        .and_then(|()| set_oom_score(process))
        .and_then(|()| join_namespaces(&join))
        .and_then(|()| {
            drop(join);
            keep_only(&streams, &channel);
            succeed(0, &channel)
        })
        .and_then(|()| become_process(process, streams, &channel));
    report(outcome, &channel)
}

/// Nothing that was opened on the way is of use to the container.
fn keep_only(streams: &Streams, channel: &UnixStream) {
    let mut kept = streams.descriptors();
    kept.push(channel.as_raw_fd());
    sys::close_all_but(&kept);
}

/// Says why it did not come to its program.
pub fn report(outcome: Result<std::convert::Infallible, Failure>, channel: &UnixStream) -> ! {
    let Err(failure) = outcome;
    let _ = send(channel, &Report::Failed(failure.to_string()), &[]);
    sys::exit_now(127)
}

fn enter(
    spec: &ContainerSpec,
    cgroup: &[PathBuf],
    join: Join,
    channel: &UnixStream,
) -> Result<(), Failure> {
    join_cgroup(cgroup)?;
    set_oom_score(&spec.process)?;
    let users = join.users.as_ref().map(AsFd::as_fd);
    let mut sources = mounts::open_sources(spec, users)?;
    mounts::mount_root(&spec.root, users)?;
    join_namespaces(&join)?;
    if users.is_some() {
        enter_users(&spec.pids, channel)?;
    }
    sys::unshare(libc::CLONE_NEWCGROUP).step(|| "make a cgroup namespace".to_owned())?;
    let crowded = join.pids.is_some() && users.is_none();
    if crowded {
        // The host is out of sight before anybody can see us. A user namespace's own power does not
        // reach us, so there it may be later.
        mounts::enter_root(&spec.root, false)?;
        drop(join);
        succeed(0, channel)?;
        mounts::open_filesystems(&spec.mounts, &mut sources)?;
    } else {
        mounts::open_filesystems(&spec.mounts, &mut sources)?;
        mounts::enter_root(&spec.root, users.is_some())?;
    }
    mounts::attach(spec, sources)?;
    if spec.root.readonly {
        mounts::make_root_readonly()?;
    }
    Ok(())
}

/// In a user namespace: goes on with mounts, and if need be processes, that belong to it. Both are
/// its own only if they are made by one who is in it already.
fn enter_users(pids: &PidNamespace, channel: &UnixStream) -> Result<(), Failure> {
    match pids {
        PidNamespace::Own => succeed(libc::CLONE_NEWPID | libc::CLONE_NEWNS, channel),
        PidNamespace::Sandbox | PidNamespace::Of(_) => succeed(libc::CLONE_NEWNS, channel),
        PidNamespace::Host => {
            sys::unshare(libc::CLONE_NEWNS).step(|| "make a mount namespace".to_owned())
        }
    }
}

/// Goes on in another process, in the namespaces that were joined for children, and in new ones.
fn succeed(flags: i32, channel: &UnixStream) -> Result<(), Failure> {
    match sys::clone_brother(flags).step(|| "make a process".to_owned())? {
        None => send(channel, &Report::Successor, &[]).step(|| "report".to_owned()),
        Some(_) => sys::exit_now(0),
    }
}

/// While /proc is the host's and we may. A lower one than the daemon's own needs a capability that it
/// may lack; the daemon has said so, and asks for what is allowed, as far as it knows.
fn set_oom_score(process: &ProcessSpec) -> Result<(), Failure> {
    let Some(score) = process.oom_score else { return Ok(()) };
    match fs::write("/proc/self/oom_score_adj", score.to_string()) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        result => result.step(|| "set the OOM score".to_owned()),
    }
}

fn join_cgroup(folders: &[PathBuf]) -> Result<(), Failure> {
    for folder in folders {
        let path = folder.join("cgroup.procs");
        fs::write(&path, "0").step(|| format!("join {}", folder.display()))?;
    }
    Ok(())
}

fn join_namespaces(join: &Join) -> Result<(), Failure> {
    if let Some(pids) = &join.pids {
        // Moves our children, not ourselves.
        sys::setns(pids.as_fd(), libc::CLONE_NEWPID)
            .step(|| "join the process namespace".to_owned())?;
    }
    if let Some(users) = &join.users {
        sys::setns(users.as_fd(), libc::CLONE_NEWUSER)
            .and_then(|()| sys::set_identity(0, 0, &[]))
            .step(|| "join the user namespace".to_owned())?;
    }
    for (namespace, kind) in &join.namespaces {
        sys::setns(namespace.as_fd(), *kind).step(|| format!("join namespace {kind:#x}"))?;
    }
    Ok(())
}

/// Everything about the process itself, ending in its program.
fn become_process(
    process: &ProcessSpec,
    streams: Streams,
    channel: &UnixStream,
) -> Result<std::convert::Infallible, Failure> {
    keep_only(&streams, channel);
    sys::setsid().step(|| "make a session".to_owned())?;
    sys::umask(0o022);
    let identity = identity::resolve(&process.user, Path::new("/"))
        .step(|| format!("find user {:?}", process.user.user))?;
    streams_or_terminal(process, streams, &identity, channel)?;
    for limit in &process.limits {
        sys::set_limit(limit.resource, limit.soft, limit.hard)
            .step(|| format!("set limit {}", limit.resource))?;
    }
    label(process)?;
    // One that the image lacks is made, as upstream's runtimes do. On a read-only root it cannot be,
    // and the change into it tells what is wrong.
    let _ = inside::make_folders(Path::new(&process.directory));
    send(channel, &Report::Identity(identity.clone()), &[]).step(|| "report".to_owned())?;

    let filter = process.seccomp.as_deref().map(decode_filter).transpose()?;
    let install = |filter: &Option<Vec<u8>>| match filter {
        Some(filter) => {
            sys::install_seccomp(filter).step(|| "install the system call filter".to_owned())
        }
        None => Ok(()),
    };
    drop_to(process, &identity, || {
        // Without no_new_privs a filter needs CAP_SYS_ADMIN, which is about to go.
        if process.no_new_privileges { Ok(()) } else { install(&filter) }
    })?;
    // After the identity: it is the user who must be able to enter it.
    inside::enter(Path::new(&process.directory))
        .step(|| format!("change to directory {:?}", process.directory))?;
    let (path, arguments, environment) = program(process, &identity)?;
    sys::close_on_exec_from(3).step(|| "close descriptors".to_owned())?;
    sys::reset_signals();
    if process.no_new_privileges {
        sys::set_no_new_privileges().step(|| "set no_new_privs".to_owned())?;
        install(&filter)?;
    }
    let error = sys::execve(&path, &arguments, &environment);
    Err(error).step(|| format!("exec {:?}", process.arguments[0]))
}

fn streams_or_terminal(
    process: &ProcessSpec,
    streams: Streams,
    identity: &Identity,
    channel: &UnixStream,
) -> Result<(), Failure> {
    if process.terminal {
        return open_terminal(identity.uid, channel).step(|| "open a terminal".to_owned());
    }
    for (number, descriptor) in streams.descriptors.iter().enumerate() {
        // So that /dev/stdout can be opened again by whom it belongs to.
        let _ = rustix::fs::fchown(
            descriptor,
            Some(rustix::fs::Uid::from_raw(identity.uid)),
            Some(rustix::fs::Gid::from_raw(identity.gid)),
        );
        sys::duplicate_to(descriptor.as_fd(), number as i32)
            .step(|| "set up standard streams".to_owned())?;
    }
    Ok(())
}

/// Opens a terminal of the container's own, makes it the process's streams and hands its other end
/// to the shim.
fn open_terminal(uid: u32, channel: &UnixStream) -> io::Result<()> {
    use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
    const DEVPTS: i64 = 0x1cd1;
    use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, unlockpt};
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_MAGICLINKS;
    let controller = openat2(CWD, "/dev/pts/ptmx", flags, Mode::empty(), resolve)?;
    // What a container put there instead is not trusted.
    if rustix::fs::fstatfs(&controller)?.f_type as i64 != DEVPTS {
        return Err(io::Error::other("/dev/pts is not a terminal file system"));
    }
    unlockpt(&controller)?;
    let peer = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let terminal = ioctl_tiocgptpeer(&controller, peer)?;
    rustix::fs::fchown(&terminal, Some(rustix::fs::Uid::from_raw(uid)), None)?;
    for standard in 0..3 {
        sys::duplicate_to(terminal.as_fd(), standard)?;
    }
    sys::set_controlling_terminal(terminal.as_fd())?;
    send(channel, &Report::Terminal, &[controller.as_fd()])
}

fn label(process: &ProcessSpec) -> Result<(), Failure> {
    if let Some(profile) = &process.apparmor {
        fs::write("/proc/self/attr/apparmor/exec", format!("exec {profile}"))
            .or_else(|_| fs::write("/proc/self/attr/exec", format!("exec {profile}")))
            .step(|| format!("apply AppArmor profile {profile:?}"))?;
    }
    if let Some(label) = &process.selinux {
        fs::write("/proc/self/attr/exec", label).step(|| format!("apply label {label:?}"))?;
    }
    Ok(())
}

fn drop_to(
    process: &ProcessSpec,
    identity: &Identity,
    before_capabilities: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    // What the host's root lacks nobody gets.
    let permitted = sys::permitted().step(|| "read capabilities".to_owned())?;
    let Capabilities { bounding, ambient } = process.capabilities;
    let (bounding, ambient) = (bounding & permitted, ambient & permitted);
    for capability in (0..64).filter(|number| bounding & 1 << number == 0) {
        match sys::drop_bounding(capability) {
            // The kernel knows no such capability.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => break,
            result => result.step(|| format!("drop capability {capability}"))?,
        }
    }
    sys::keep_capabilities(true).step(|| "keep capabilities".to_owned())?;
    sys::set_identity(identity.uid, identity.gid, &identity.groups)
        .step(|| format!("become user {}", identity.uid))?;
    if identity.uid != 0 {
        // Kept, but not in force: the filter needs them to be.
        sys::capset(permitted, permitted, ambient).step(|| "raise capabilities".to_owned())?;
    }
    before_capabilities()?;
    sys::capset(bounding, bounding, ambient).step(|| "set capabilities".to_owned())?;
    for capability in (0..64).filter(|number| ambient & 1 << number != 0) {
        sys::raise_ambient(capability).step(|| format!("raise capability {capability}"))?;
    }
    sys::keep_capabilities(false).step(|| "keep capabilities".to_owned())
}

fn decode_filter(text: &str) -> Result<Vec<u8>, Failure> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD
        .decode(text)
        .map_err(io::Error::other)
        .step(|| "read the system call filter".to_owned())
}

type Program = (std::ffi::CString, Vec<std::ffi::CString>, Vec<std::ffi::CString>);

/// Finds the program on the container's own `PATH`.
fn program(process: &ProcessSpec, identity: &Identity) -> Result<Program, Failure> {
    let first = process.arguments.first().cloned().unwrap_or_default();
    let mut environment = process.environment.clone();
    if !environment.iter().any(|line| line.starts_with("HOME=")) {
        environment.push(format!("HOME={}", identity.home));
    }
    let strings = |texts: &[String]| {
        texts.iter().map(|text| sys::c_text(text)).collect::<io::Result<Vec<_>>>()
    };
    let found = find_program(&first, &environment).step(|| format!("exec: {first:?}"))?;
    let path = sys::c_path(&found).step(|| format!("exec: {first:?}"))?;
    let arguments = strings(&process.arguments).step(|| "read the arguments".to_owned())?;
    let environment = strings(&environment).step(|| "read the environment".to_owned())?;
    Ok((path, arguments, environment))
}

fn find_program(name: &str, environment: &[String]) -> io::Result<PathBuf> {
    use rustix::fs::{Access, AtFlags, CWD, accessat};
    let missing = || io::Error::new(io::ErrorKind::NotFound, "executable file not found in $PATH");
    let runs = |path: &Path| {
        fs::metadata(path).is_ok_and(|found| found.is_file())
            && accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS).is_ok()
    };
    if name.is_empty() {
        return Err(missing());
    }
    if name.contains('/') {
        // Whatever is wrong with it the kernel says best.
        return Ok(PathBuf::from(name));
    }
    let search = environment.iter().rev().find_map(|line| line.strip_prefix("PATH="));
    search
        .unwrap_or("")
        .split(':')
        .map(|folder| Path::new(if folder.is_empty() { "." } else { folder }).join(name))
        .find(|path| runs(path))
        .ok_or_else(missing)
}
