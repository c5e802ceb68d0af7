//! The namespaces that a sandbox's containers share, made once and kept open.
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::protocol::{Answer, Report, receive, send};
use super::spec::{IdMap, SandboxSpec};
use super::sys;

pub struct Sandbox {
    pub network: Option<OwnedFd>,
    pub ipc: Option<OwnedFd>,
    pub uts: Option<OwnedFd>,
    pub users: Option<OwnedFd>,
    /// The shared process namespace and the process that holds it.
    pub pids: Option<(OwnedFd, i32)>,
}

impl Sandbox {
    /// Makes the namespaces in a child, which sets them up from inside. It goes away again, unless
    /// it has to be the first process of a shared process namespace.
    pub fn create(spec: &SandboxSpec) -> io::Result<Self> {
        let mut flags = 0;
        for (wanted, flag) in [
            (spec.network.is_some(), libc::CLONE_NEWNET),
            (spec.ipc, libc::CLONE_NEWIPC),
            // The host's name belongs to those who have the host's network.
            (spec.network.is_some(), libc::CLONE_NEWUTS),
            (spec.shared_pids, libc::CLONE_NEWPID),
            (spec.users.is_some(), libc::CLONE_NEWUSER),
        ] {
            if wanted {
                flags |= flag;
            }
        }
        let (ours, theirs) = UnixStream::pair()?;
        let Some(pid) = sys::clone(flags, None)? else {
            drop(ours);
            hold(spec, theirs)
        };
        drop(theirs);
        let mapped = map_users(spec, pid).and_then(|()| send(&ours, &Answer::Done, &[]));
        let reported = mapped.and_then(|()| receive::<Report>(&ours));
        let opened = match reported {
            Ok(Some((Report::Failed(reason), _))) => Err(io::Error::other(reason)),
            Ok(Some(_)) => open(spec, pid),
            Ok(None) => Err(io::Error::other("the process that sets up the namespaces died")),
            Err(error) => Err(error),
        };
        if opened.is_err() || !spec.shared_pids {
            let _ = sys::kill(pid, libc::SIGKILL);
            sys::wait_for(pid)?;
        }
        opened
    }
}

fn open(spec: &SandboxSpec, pid: i32) -> io::Result<Sandbox> {
    let namespace = |wanted: bool, name: &str| -> io::Result<Option<OwnedFd>> {
        let path = format!("/proc/{pid}/ns/{name}");
        wanted.then(|| File::open(path).map(OwnedFd::from)).transpose()
    };
    let network = namespace(spec.network.is_some(), "net")?;
    if let Some(path) = &spec.network {
        pin(Path::new(&format!("/proc/{pid}/ns/net")), path)?;
    }
    Ok(Sandbox {
        uts: namespace(network.is_some(), "uts")?,
        network,
        ipc: namespace(spec.ipc, "ipc")?,
        users: namespace(spec.users.is_some(), "user")?,
        pids: namespace(spec.shared_pids, "pid")?.map(|namespace| (namespace, pid)),
    })
}

/// Says which of the host's users and groups those of the new namespace are.
fn map_users(spec: &SandboxSpec, pid: i32) -> io::Result<()> {
    let Some(map) = &spec.users else { return Ok(()) };
    let line = |map: &IdMap| format!("{} {} {}\n", map.inside, map.host, map.length);
    fs::write(format!("/proc/{pid}/uid_map"), line(&map.users))?;
    fs::write(format!("/proc/{pid}/gid_map"), line(&map.groups))
}

/// Gives a namespace a path, for those who set up networks.
fn pin(namespace: &Path, path: &Path) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    File::create(path)?;
    let source = namespace.to_str().ok_or_else(|| io::Error::other("not a path"))?;
    sys::mount(source, &sys::c_path(path)?, "", libc::MS_BIND, "")
}

/// In the child: everything that is set from inside, then silence.
fn hold(spec: &SandboxSpec, channel: UnixStream) -> ! {
    let ready = receive::<Answer>(&channel).map(drop);
    let report = match ready.and_then(|()| set_up(spec)) {
        Ok(()) => Report::Identity(super::spec::Identity {
            uid: 0,
            gid: 0,
            groups: Vec::new(),
            home: String::new(),
        }),
        Err(error) => Report::Failed(error.to_string()),
    };
    let sent = send(&channel, &report, &[]);
    if sent.is_err() || matches!(report, Report::Failed(_)) {
        sys::exit_now(1);
    }
    sys::close_from(0);
    let _ = std::env::set_current_dir("/");
    sys::pause_forever()
}

fn set_up(spec: &SandboxSpec) -> io::Result<()> {
    sys::setsid()?;
    for folder in &spec.cgroup {
        fs::write(folder.join("cgroup.procs"), "0")?;
    }
    if spec.users.is_some() {
        sys::set_identity(0, 0, &[])?;
    }
    if spec.network.is_some() {
        sys::loopback_up()?;
        if !spec.hostname.is_empty() {
            sys::sethostname(&spec.hostname)?;
        }
    }
    for (name, value) in &spec.sysctls {
        let path = Path::new("/proc/sys").join(name.replace('.', "/"));
        fs::write(&path, value)
            .map_err(|error| io::Error::other(format!("set sysctl {name}: {error}")))?;
    }
    Ok(())
}
