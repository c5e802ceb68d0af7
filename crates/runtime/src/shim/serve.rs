//! The shim's life: make the namespaces, then answer, pump and reap until told to end.
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, poll};

use super::child::{self, Join, Streams};
use super::logs::Log;
use super::oci::{self, Foreign};
use super::protocol::{Answer, Report, Request, receive, send};
use super::running::{Running, make_pipes};
use super::sandbox::Sandbox;
use super::spec::{
    ContainerSpec, Event, Exit, ForeignSpec, PidNamespace, ProcessSpec, SandboxSpec, Started,
};
use super::sys;
use crate::cgroup;
use crate::files::append;

/// After so long without work memory is given back, once.
const QUIET: rustix::event::Timespec = rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 };

/// Until a request that has begun must be whole.
const REQUEST_PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

/// Runs the shim whose sandbox is described in `spec`; its listening socket is its standard input.
pub fn main(spec: &Path) -> io::Result<()> {
    // What another thread holds locked would stay locked in every child.
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("the shim must have one thread"));
    }
    sys::set_name(c"skiff-shim");
    let signals = sys::signal_descriptor()?;
    sys::setsid()?;
    sys::become_subreaper()?;
    std::env::set_current_dir("/")?;
    let spec: SandboxSpec = serde_json::from_slice(&std::fs::read(spec)?)?;
    let listener = UnixListener::from(rustix::stdio::stdin().try_clone_to_owned()?);
    let sandbox = Sandbox::create(&spec);
    let foreign = spec.runtime.as_ref().map(Foreign::new).transpose()?;
    let own_pids = File::open("/proc/self/ns/pid")?.into();
    let shim = Shim {
        sandbox,
        foreign,
        own_pids,
        running: BTreeMap::new(),
        execs: Vec::new(),
        watchers: Vec::new(),
        idle: false,
    };
    shim.run(&listener, &signals)
}

struct Shim {
    /// Or why there is none: the first who asks is told, then we end.
    sandbox: io::Result<Sandbox>,
    /// Who makes the containers, if it is not us.
    foreign: Option<Foreign>,
    own_pids: OwnedFd,
    running: BTreeMap<String, Running>,
    /// Other processes of containers: who waits for them.
    execs: Vec<(i32, UnixStream)>,
    watchers: Vec<UnixStream>,
    /// Whether nothing has happened since memory was last given back.
    idle: bool,
}

impl Shim {
    fn run(mut self, listener: &UnixListener, signals: &OwnedFd) -> io::Result<()> {
        loop {
            let wait_for = self.wait(listener, signals)?;
            self.idle = wait_for.nothing;
            if wait_for.nothing {
                // There is one of us per sandbox, and mostly nothing to do.
                let _ = sys::drop_clean_pages();
                continue;
            }
            if wait_for.reap {
                let mut drained = [0; 128];
                let _ = rustix::io::read(signals, &mut drained);
                self.reap();
            }
            for running in self.running.values_mut() {
                running.pump();
            }
            if wait_for.accept {
                let (stream, _) = listener.accept()?;
                if self.serve(stream) == Flow::End {
                    return Ok(());
                }
            }
        }
    }

    fn wait(&self, listener: &UnixListener, signals: &OwnedFd) -> io::Result<Ready> {
        let mut descriptors =
            vec![PollFd::new(listener, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
        descriptors.extend(self.running.values().flat_map(Running::sources));
        let patience = (!self.idle).then_some(&QUIET);
        let count = match poll(&mut descriptors, patience) {
            Err(rustix::io::Errno::INTR) => {
                return Ok(Ready { accept: false, reap: true, nothing: false });
            }
            result => result?,
        };
        let ready = |index: usize| !descriptors[index].revents().is_empty();
        Ok(Ready { accept: ready(0), reap: ready(1), nothing: count == 0 })
    }

    fn serve(&mut self, stream: UnixStream) -> Flow {
        // A daemon that dies in the middle of a message must not hold us.
        let _ = stream.set_read_timeout(Some(REQUEST_PATIENCE));
        let Ok(Some((request, descriptors))) = receive::<Request>(&stream) else {
            return Flow::Continue;
        };
        let answer = match request {
            Request::Hello => match &self.sandbox {
                Ok(_) => Ok(Answer::Done),
                Err(error) => {
                    let _ = send(&stream, &Answer::Failed(error.to_string()), &[]);
                    return Flow::End;
                }
            },
            Request::Start { id, spec } => self.start(id, &spec).map(Answer::Started),
            Request::Exec { id, process, cgroup } => {
                match self.exec(&id, &process, &cgroup, descriptors) {
                    Ok((started, terminal)) => {
                        let pid = started.pid;
                        let handles: Vec<_> = terminal.iter().map(AsFd::as_fd).collect();
                        if send(&stream, &Answer::Started(started), &handles).is_ok() {
                            self.execs.push((pid, stream));
                        } else {
                            let _ = sys::kill(pid, libc::SIGKILL);
                        }
                        return Flow::Continue;
                    }
                    Err(error) => Err(error),
                }
            }
            Request::Kill { id, signal, all } => self.kill(&id, signal, all).map(|()| Answer::Done),
            Request::ReopenLog { id } => {
                self.container(&id).and_then(Running::reopen_log).map(|()| Answer::Done)
            }
            Request::Resize { id, width, height } => {
                self.container(&id).and_then(|c| c.resize(width, height)).map(|()| Answer::Done)
            }
            Request::Update { id, resources } => {
                self.update(&id, &resources).map(|()| Answer::Done)
            }
            Request::Attach { id, stdin } => match self.container(&id) {
                Ok(running) => {
                    if send(&stream, &Answer::Done, &[]).is_ok() {
                        running.attach(stream, stdin);
                    }
                    return Flow::Continue;
                }
                Err(error) => Err(error),
            },
            Request::Watch => {
                if send(&stream, &self.list(), &[]).is_ok() {
                    self.watchers.push(stream);
                }
                return Flow::Continue;
            }
            Request::List => Ok(self.list()),
            Request::Shutdown => {
                self.shut_down();
                let _ = send(&stream, &Answer::Done, &[]);
                return Flow::End;
            }
        };
        let answer = answer.unwrap_or_else(|error| Answer::Failed(error.to_string()));
        let _ = send(&stream, &answer, &[]);
        Flow::Continue
    }

    fn list(&self) -> Answer {
        let running = self.running.iter().map(|(id, r)| (id.clone(), r.started.clone()));
        Answer::Running(running.collect())
    }

    fn container(&mut self, id: &str) -> io::Result<&mut Running> {
        self.running
            .get_mut(id)
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the container is not running"))
    }

    fn start(&mut self, id: String, spec: &ContainerSpec) -> io::Result<Started> {
        let log = spec.log.clone().map(Log::open).transpose()?;
        let (streams, pipes) = make_pipes(spec)?;
        let spawned = match &spec.foreign {
            None => self.create(spec, streams)?,
            Some(foreign) => self.create_foreign(&id, spec, foreign, streams)?,
        };
        let started = spawned.started;
        let running = Running::new(spec, started.clone(), pipes, spawned.terminal, log);
        let running = running.and_then(|running| {
            append(&running.record, &Event::Started(started.clone()))?;
            Ok(running)
        });
        match running {
            Ok(running) => {
                self.running.insert(id, running);
                Ok(started)
            }
            Err(error) => {
                let _ = sys::kill(started.pid, libc::SIGKILL);
                Err(error)
            }
        }
    }

    fn create(&mut self, spec: &ContainerSpec, streams: Streams) -> io::Result<Spawned> {
        let sandbox = self.sandbox.as_ref().map_err(|error| io::Error::other(error.to_string()))?;
        let mut namespaces = Vec::new();
        let shared = [
            (&sandbox.network, libc::CLONE_NEWNET, spec.host_network),
            (&sandbox.ipc, libc::CLONE_NEWIPC, spec.host_ipc),
            (&sandbox.uts, libc::CLONE_NEWUTS, spec.host_network),
        ];
        for (namespace, kind, hosts) in shared {
            if let (Some(namespace), false) = (namespace, hosts) {
                namespaces.push((namespace.try_clone()?, kind));
            }
        }
        let mut flags = libc::CLONE_NEWNS;
        let pids = match &spec.pids {
            PidNamespace::Own => {
                flags |= libc::CLONE_NEWPID;
                None
            }
            PidNamespace::Host => None,
            PidNamespace::Sandbox => match &sandbox.pids {
                Some((namespace, _)) => Some(namespace.try_clone()?),
                None => return Err(io::Error::other("the sandbox shares no process namespace")),
            },
            PidNamespace::Of(id) => {
                let target = self.running.get(id);
                let target = target
                    .ok_or_else(|| io::Error::other("the target container is not running"))?;
                Some(File::open(format!("/proc/{}/ns/pid", target.started.pid))?.into())
            }
        };
        let users = match (&sandbox.users, spec.own_users) {
            (Some(users), true) => Some(users.try_clone()?),
            _ => None,
        };
        if users.is_some() {
            // Made later, by one who is in the user namespace.
            flags &= !libc::CLONE_NEWPID;
        }
        let join = Join { users, namespaces };
        self.spawn(flags, pids, &spec.cgroup, |channel, rest| {
            child::run_container(spec, rest, join, streams, channel)
        })
    }

    fn create_foreign(
        &self,
        id: &str,
        spec: &ContainerSpec,
        document: &ForeignSpec,
        streams: Streams,
    ) -> io::Result<Spawned> {
        let sandbox = self.sandbox.as_ref().map_err(|error| io::Error::other(error.to_string()))?;
        let target = |id: &str| match self.running.get(id) {
            Some(running) => Ok(running.started.pid),
            None => Err(io::Error::other("the target container is not running")),
        };
        let namespaces = oci::namespaces(sandbox, spec, target)?;
        let runtime = self.foreign()?;
        let made = self.run_foreign(libc::CLONE_NEWNS, spec.process.terminal, |channel| {
            let outcome = runtime.become_create(id, spec, document, namespaces, streams, &channel);
            child::report(outcome, &channel)
        })?;
        match runtime.start(id) {
            Ok(()) => Ok(made),
            Err(error) => {
                runtime.delete(id);
                let _ = sys::wait_for(made.started.pid);
                Err(error)
            }
        }
    }

    fn foreign(&self) -> io::Result<&Foreign> {
        self.foreign.as_ref().ok_or_else(|| io::Error::other("the sandbox has no such runtime"))
    }

    /// Another runtime's `create` or `exec`, to its end: what it leaves running is our child.
    fn run_foreign(
        &self,
        flags: i32,
        terminal: bool,
        child: impl FnOnce(UnixStream),
    ) -> io::Result<Spawned> {
        let runtime = self.foreign()?;
        let console = runtime.prepare(terminal)?;
        let spawned = self.spawn(flags, None, &[], |channel, _| child(channel))?;
        let made = runtime.finish(sys::wait_for(spawned.started.pid)?, console)?;
        let started = Started { pid: made.pid, ..spawned.started };
        Ok(Spawned { started, terminal: made.terminal })
    }

    fn update(&mut self, id: &str, resources: &serde_json::Value) -> io::Result<()> {
        self.container(id)?;
        self.foreign()?.update(id, resources)
    }

    fn exec(
        &mut self,
        id: &str,
        process: &ProcessSpec,
        cgroup: &[PathBuf],
        descriptors: Vec<OwnedFd>,
    ) -> io::Result<(Started, Option<OwnedFd>)> {
        let started = self.container(id)?.started.clone();
        let streams = Streams { descriptors };
        if let Some(runtime) = &self.foreign {
            let made = self.run_foreign(0, process.terminal, |channel| {
                let identity = &started.identity;
                let outcome = runtime.become_exec(id, process, identity, streams, &channel);
                child::report(outcome, &channel)
            })?;
            return Ok((made.started, made.terminal));
        }
        let pid = started.pid;
        let namespace = |name: &str| -> io::Result<OwnedFd> {
            Ok(File::open(format!("/proc/{pid}/ns/{name}"))?.into())
        };
        let mut namespaces = Vec::new();
        // The mount namespace last: with it /proc is the container's.
        for (name, kind) in [
            ("ipc", libc::CLONE_NEWIPC),
            ("uts", libc::CLONE_NEWUTS),
            ("net", libc::CLONE_NEWNET),
            ("cgroup", libc::CLONE_NEWCGROUP),
            ("mnt", libc::CLONE_NEWNS),
        ] {
            namespaces.push((namespace(name)?, kind));
        }
        let pids = namespace("pid")?;
        let own = self.sandbox.as_ref().is_ok_and(|sandbox| sandbox.users.is_some());
        let users = own.then(|| namespace("user")).transpose()?;
        let join = Join { users, namespaces };
        let spawned = self.spawn(0, Some(pids), cgroup, |channel, rest| {
            child::run_exec(process, rest, join, streams, channel)
        })?;
        Ok((spawned.started, spawned.terminal))
    }

    /// Forks into the given process namespace and waits until the child's program runs. If there
    /// is one control group it is born in it: to move there takes the kernel ten times as long as
    /// everything else. The child is told what it still has to join.
    fn spawn(
        &self,
        flags: i32,
        pids: Option<OwnedFd>,
        cgroup: &[PathBuf],
        child: impl FnOnce(UnixStream, &[PathBuf]),
    ) -> io::Result<Spawned> {
        let (ours, theirs) = UnixStream::pair()?;
        let group = match cgroup {
            [only] if cgroup::is_unified() => Some(File::open(only)?),
            _ => None,
        };
        if let Some(pids) = &pids {
            // Moves our children, not ourselves.
            sys::setns(pids.as_fd(), libc::CLONE_NEWPID)?;
        }
        let mut rest = cgroup;
        let mut cloned = Err(io::ErrorKind::Unsupported.into());
        if let Some(group) = &group {
            rest = &[];
            cloned = sys::clone(flags, Some(group.as_fd()));
        }
        if cloned.is_err() {
            // Without the one group, or where the kernel or the group does not let it.
            rest = cgroup;
            cloned = sys::clone(flags, None);
        }
        if cloned.as_ref().is_ok_and(Option::is_none) {
            drop(ours);
            child(theirs, rest);
            // A child that came back would be a second shim.
            sys::exit_now(126);
        }
        if pids.is_some() {
            sys::setns(self.own_pids.as_fd(), libc::CLONE_NEWPID)?;
        }
        let Some(mut pid) = cloned? else { unreachable!("the child does not come back") };
        drop(theirs);
        let mut terminal = None;
        let mut identity = None;
        let failure = loop {
            match receive::<Report>(&ours) {
                Ok(Some((Report::Terminal, mut handles))) => terminal = handles.pop(),
                Ok(Some((Report::Identity(found), _))) => identity = Some(found),
                Ok(Some((Report::Successor(other), _))) => {
                    sys::wait_for(pid)?;
                    pid = other;
                }
                Ok(Some((Report::Failed(reason), _))) => break Some(reason),
                Ok(None) => break None,
                Err(error) => break Some(error.to_string()),
            }
        };
        match (failure, identity) {
            (None, Some(identity)) => {
                let started = Started { pid, at: now(), identity };
                Ok(Spawned { started, terminal })
            }
            (failure, _) => {
                let _ = sys::kill(pid, libc::SIGKILL);
                let _ = sys::wait_for(pid);
                let reason =
                    failure.unwrap_or_else(|| "the process died while it was set up".into());
                Err(io::Error::other(reason))
            }
        }
    }

    fn kill(&mut self, id: &str, signal: i32, all: bool) -> io::Result<()> {
        let running = self.container(id)?;
        if all {
            cgroup::kill_all(&running.cgroup);
        }
        let pid = running.started.pid;
        let killed = match &self.foreign {
            // The process that we know may stand for a whole machine: the runtime knows better.
            Some(runtime) => runtime.kill(id, signal).or_else(|_| sys::kill(pid, signal)),
            None => sys::kill(pid, signal),
        };
        match killed {
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            result => result,
        }
    }

    fn reap(&mut self) {
        while let Some(ended) = sys::reap() {
            if let Some(at) = self.execs.iter().position(|(pid, _)| *pid == ended.pid) {
                let (_, waiter) = self.execs.swap_remove(at);
                let exit = exit(ended.code, false);
                let _ = send(&waiter, &Answer::Exited { id: String::new(), exit }, &[]);
            }
            let found = self.running.iter().find(|(_, r)| r.started.pid == ended.pid);
            if let Some(id) = found.map(|(id, _)| id.clone()) {
                self.ended(&id, ended.code);
            }
        }
    }

    /// The container's first process is gone: the rest of it goes too, and how it ended is kept.
    fn ended(&mut self, id: &str, code: i32) {
        let Some(mut running) = self.running.remove(id) else { return };
        cgroup::kill_all(&running.cgroup);
        running.drain();
        let exit = exit(code, cgroup::was_oom_killed(&running.cgroup));
        if let Some(runtime) = &self.foreign {
            runtime.delete(id);
        }
        // If the disk is full the daemon still hears of it; a later one sees an unknown end.
        let _ = append(&running.record, &Event::Exited(exit.clone()));
        let event = Answer::Exited { id: id.to_owned(), exit };
        self.watchers.retain(|watcher| send(watcher, &event, &[]).is_ok());
    }

    fn shut_down(&mut self) {
        let ids: Vec<String> = self.running.keys().cloned().collect();
        for id in &ids {
            let _ = self.kill(id, libc::SIGKILL, true);
        }
        for id in ids {
            let Some(pid) = self.running.get(&id).map(|running| running.started.pid) else {
                continue;
            };
            if let Ok(code) = sys::wait_for(pid) {
                self.ended(&id, code);
            }
        }
        if let Ok(Sandbox { pids: Some((_, pid)), .. }) = &self.sandbox {
            let _ = sys::kill(*pid, libc::SIGKILL);
            let _ = sys::wait_for(*pid);
        }
    }
}

struct Ready {
    accept: bool,
    reap: bool,
    nothing: bool,
}

#[derive(PartialEq, Eq)]
enum Flow {
    Continue,
    End,
}

struct Spawned {
    started: Started,
    terminal: Option<OwnedFd>,
}

fn exit(code: i32, oom_killed: bool) -> Exit {
    let reason = match (oom_killed && code != 0, code) {
        (true, _) => "OOMKilled",
        (false, 0) => "Completed",
        (false, _) => "Error",
    };
    Exit { code, at: now(), oom_killed, message: String::new(), reason: reason.to_owned() }
}

fn now() -> i64 {
    i64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX)
}
