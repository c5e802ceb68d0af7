//! The shim's life: make the namespaces, then answer, pump and reap until told to end.
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::child::{self, Join, Streams};
use super::launch::{Launch, Launched};
use super::logs::Log;
use super::oci::{self, Foreign};
use super::protocol::{Answer, Inbox, Request, receive, send};
use super::running::{Pipes, Running, make_pipes};
use super::sandbox::Sandbox;
use super::spec::{
    ContainerSpec, Event, Exit, ForeignSpec, PidNamespace, ProcessSpec, SandboxSpec, Started,
};
use super::sys;
use crate::cgroup;
use crate::files::append;

/// After so long without work memory is given back, once.
const QUIET: Duration = Duration::from_secs(1);

/// Until a request that has begun must be whole.
const REQUEST_PATIENCE: Duration = Duration::from_secs(5);
/// Until a container's program must run: much may have to be mounted.
const START_PATIENCE: Duration = Duration::from_secs(30);
/// Until another process of a container must run.
const EXEC_PATIENCE: Duration = Duration::from_secs(10);
/// Until one that was killed must be gone.
const KILL_PATIENCE: Duration = Duration::from_secs(5);

/// Runs the shim whose sandbox is described in `spec`; its listening socket is its standard input.
pub fn main(spec: &Path) -> io::Result<()> {
    // What another thread holds locked would stay locked in every child.
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("the shim must have one thread"));
    }
    sys::set_name(c"skiff-shim");
    // Nor is any child, from its first instruction until it has become another program.
    sys::set_dumpable(false)?;
    let signals = sys::signal_descriptor()?;
    sys::setsid()?;
    sys::become_subreaper()?;
    std::env::set_current_dir("/")?;
    let spec: SandboxSpec = serde_json::from_slice(&std::fs::read(spec)?)?;
    let listener = UnixListener::from(rustix::stdio::stdin().try_clone_to_owned()?);
    // No child has it, not even by its other number.
    sys::duplicate_to(rustix::stdio::stdout(), 0)?;
    let sandbox = Sandbox::create(&spec);
    let foreign = spec.runtime.as_ref().map(Foreign::new).transpose()?;
    let shim = Shim {
        sandbox,
        foreign,
        running: BTreeMap::new(),
        launches: Vec::new(),
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
    running: BTreeMap<String, Running>,
    /// Processes that do not run yet, and what is to become of them.
    launches: Vec<(Launch, Goal)>,
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
            }
            // Who runs is known before who has ended is asked.
            let launched = self.advance();
            if wait_for.reap || launched {
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
        let channels = self.launches.iter().map(|(launch, _)| launch.channel());
        descriptors.extend(channels.map(|channel| PollFd::new(channel, PollFlags::IN)));
        let deadline = self.launches.iter().map(|(launch, _)| launch.deadline()).min();
        let patience = match deadline {
            Some(deadline) => Some(until(deadline)),
            None => (!self.idle).then_some(QUIET),
        };
        let patience = patience.map(timespec);
        let count = match poll(&mut descriptors, patience.as_ref()) {
            Err(rustix::io::Errno::INTR) => {
                return Ok(Ready { accept: false, reap: true, nothing: false });
            }
            result => result?,
        };
        let ready = |index: usize| !descriptors[index].revents().is_empty();
        let nothing = count == 0 && deadline.is_none();
        Ok(Ready { accept: ready(0), reap: ready(1), nothing })
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
            Request::Start { id, spec } => match &spec.foreign {
                Some(_) => self.start_foreign(id, &spec).map(Answer::Started),
                // Answered when it runs.
                None => match self.begin_start(&spec) {
                    Ok((launch, pipes, log)) => {
                        let goal = Goal::Start { id, spec, pipes, log, client: stream };
                        self.launches.push((launch, goal));
                        return Flow::Continue;
                    }
                    Err(error) => Err(error),
                },
            },
            Request::Exec { id, process, cgroup } => {
                let streams = Streams { descriptors };
                let begun = if self.foreign.is_some() {
                    self.exec_foreign(&id, &process, streams).map(|made| {
                        self.exec_runs(made, stream.try_clone());
                        None
                    })
                } else {
                    self.begin_exec(&id, &process, &cgroup, streams).map(Some)
                };
                match begun {
                    Ok(Some(launch)) => {
                        self.launches.push((launch, Goal::Exec { client: stream }));
                        return Flow::Continue;
                    }
                    Ok(None) => return Flow::Continue,
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
        self::answer(&stream, answer);
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

    /// Brings on whatever is on its way; whether one came to an end.
    fn advance(&mut self) -> bool {
        let now = Instant::now();
        let mut ended = Vec::new();
        let mut at = 0;
        while let Some((launch, _)) = self.launches.get_mut(at) {
            match launch.advance(now) {
                Some(outcome) => ended.push((outcome, self.launches.swap_remove(at).1)),
                None => at += 1,
            }
        }
        let any = !ended.is_empty();
        for (outcome, goal) in ended {
            match goal {
                Goal::Start { id, spec, pipes, log, client } => {
                    let started =
                        outcome.and_then(|launched| self.runs(id, &spec, launched, pipes, log));
                    answer(&client, started.map(Answer::Started));
                }
                Goal::Exec { client } => match outcome {
                    Ok(launched) => self.exec_runs(launched, Ok(client)),
                    Err(error) => answer(&client, Err(error)),
                },
            }
        }
        any
    }

    fn begin_start(&mut self, spec: &ContainerSpec) -> io::Result<(Launch, Pipes, Option<Log>)> {
        let log = spec.log.clone().map(Log::open).transpose()?;
        let (streams, pipes) = make_pipes(spec)?;
        Ok((self.create(spec, streams)?, pipes, log))
    }

    fn start_foreign(&mut self, id: String, spec: &ContainerSpec) -> io::Result<Started> {
        let log = spec.log.clone().map(Log::open).transpose()?;
        let (streams, pipes) = make_pipes(spec)?;
        let document =
            spec.foreign.as_ref().ok_or_else(|| io::Error::other("it is not another runtime's"))?;
        let launched = self.create_foreign(&id, spec, document, streams)?;
        self.runs(id, spec, launched, pipes, log)
    }

    /// A container's program runs: from now on it is looked after.
    fn runs(
        &mut self,
        id: String,
        spec: &ContainerSpec,
        launched: Launched,
        pipes: Pipes,
        log: Option<Log>,
    ) -> io::Result<Started> {
        let started = launched.started;
        let running = Running::new(spec, started.clone(), pipes, launched.terminal, log);
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

    /// Another process of a container runs: who asked for it hears of its end.
    fn exec_runs(&mut self, launched: Launched, client: io::Result<UnixStream>) {
        let pid = launched.started.pid;
        let handles: Vec<_> = launched.terminal.iter().map(AsFd::as_fd).collect();
        let told = client.and_then(|client| {
            send(&client, &Answer::Started(launched.started.clone()), &handles).map(|()| client)
        });
        match told {
            Ok(client) => self.execs.push((pid, client)),
            // Nobody waits for it any more.
            Err(_) => drop(sys::kill(pid, libc::SIGKILL)),
        }
    }

    fn create(&mut self, spec: &ContainerSpec, streams: Streams) -> io::Result<Launch> {
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
        let join = Join { users, namespaces, pids };
        let mut kept = join.descriptors();
        kept.extend(streams.descriptors());
        self.spawn(flags, &kept, START_PATIENCE, &spec.cgroup, |channel, rest| {
            child::run_container(spec, rest, join, streams, channel)
        })
    }

    fn create_foreign(
        &mut self,
        id: &str,
        spec: &ContainerSpec,
        document: &ForeignSpec,
        streams: Streams,
    ) -> io::Result<Launched> {
        let sandbox = self.sandbox.as_ref().map_err(|error| io::Error::other(error.to_string()))?;
        let target = |id: &str| match self.running.get(id) {
            Some(running) => Ok(running.started.pid),
            None => Err(io::Error::other("the target container is not running")),
        };
        let namespaces = oci::namespaces(sandbox, spec, target)?;
        let runtime = self.foreign()?.clone();
        let (kept, terminal) = (streams.descriptors(), spec.process.terminal);
        let made = self.run_foreign(libc::CLONE_NEWNS, &kept, terminal, |channel| {
            let outcome = runtime.become_create(id, spec, document, namespaces, streams, &channel);
            child::report(outcome, &channel)
        })?;
        match runtime.start(id) {
            Ok(()) => Ok(made),
            Err(error) => {
                runtime.delete(id);
                let _ = sys::wait_within(made.started.pid, KILL_PATIENCE);
                Err(error)
            }
        }
    }

    fn foreign(&self) -> io::Result<&Foreign> {
        self.foreign.as_ref().ok_or_else(|| io::Error::other("the sandbox has no such runtime"))
    }

    /// Another runtime's `create` or `exec`, to its end: what it leaves running is our child. The
    /// other containers' output is taken meanwhile; who waits longer than that has failed.
    fn run_foreign(
        &mut self,
        flags: i32,
        kept: &[i32],
        terminal: bool,
        child: impl FnOnce(UnixStream),
    ) -> io::Result<Launched> {
        let runtime = self.foreign()?.clone();
        let console = runtime.prepare(terminal)?;
        let patience = START_PATIENCE;
        let mut launch = self.spawn(flags, kept, patience, &[], |channel, _| child(channel))?;
        let deadline = launch.deadline();
        let spawned = loop {
            if let Some(outcome) = launch.advance(Instant::now()) {
                break outcome?;
            }
            self.pump_until(launch.channel(), deadline)?;
        };
        let pid = spawned.started.pid;
        use rustix::process::{Pid, PidfdFlags, pidfd_open};
        let number = Pid::from_raw(pid).ok_or_else(|| io::Error::other("no such process"))?;
        let handle = pidfd_open(number, PidfdFlags::empty())?;
        let code = loop {
            if let Some(ended) = sys::reap(Some(pid)) {
                break ended.code;
            }
            if Instant::now() >= deadline {
                let _ = sys::kill(pid, libc::SIGKILL);
                let _ = sys::wait_within(pid, KILL_PATIENCE);
                let text = format!("the runtime is not done after {patience:?}");
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            self.pump_until(&handle, deadline)?;
        };
        let made = runtime.finish(code, console)?;
        let started = Started { pid: made.pid, ..spawned.started };
        Ok(Launched { started, terminal: made.terminal })
    }

    /// Takes the containers' output until something else happens.
    fn pump_until(&mut self, other: &impl AsFd, deadline: Instant) -> io::Result<()> {
        let mut descriptors = vec![PollFd::new(other, PollFlags::IN)];
        descriptors.extend(self.running.values().flat_map(Running::sources));
        match poll(&mut descriptors, Some(&timespec(until(deadline)))) {
            Err(rustix::io::Errno::INTR) | Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        drop(descriptors);
        for running in self.running.values_mut() {
            running.pump();
        }
        Ok(())
    }

    fn update(&mut self, id: &str, resources: &serde_json::Value) -> io::Result<()> {
        self.container(id)?;
        self.foreign()?.update(id, resources)
    }

    fn exec_foreign(
        &mut self,
        id: &str,
        process: &ProcessSpec,
        streams: Streams,
    ) -> io::Result<Launched> {
        let identity = self.container(id)?.started.identity.clone();
        let runtime = self.foreign()?.clone();
        let kept = streams.descriptors();
        self.run_foreign(0, &kept, process.terminal, |channel| {
            let outcome = runtime.become_exec(id, process, &identity, streams, &channel);
            child::report(outcome, &channel)
        })
    }

    fn begin_exec(
        &mut self,
        id: &str,
        process: &ProcessSpec,
        cgroup: &[PathBuf],
        streams: Streams,
    ) -> io::Result<Launch> {
        let pid = self.container(id)?.started.pid;
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
        let pids = Some(namespace("pid")?);
        let own = self.sandbox.as_ref().is_ok_and(|sandbox| sandbox.users.is_some());
        let users = own.then(|| namespace("user")).transpose()?;
        let join = Join { users, namespaces, pids };
        let mut kept = join.descriptors();
        kept.extend(streams.descriptors());
        self.spawn(0, &kept, EXEC_PATIENCE, cgroup, |channel, rest| {
            child::run_exec(process, rest, join, streams, channel)
        })
    }

    /// Forks. If there is one control group the child is born in it: to move there takes the kernel
    /// ten times as long as everything else. The child is told what it still has to join, and has no
    /// descriptor but those that are `kept` and the channel.
    fn spawn(
        &self,
        flags: i32,
        kept: &[i32],
        patience: Duration,
        cgroup: &[PathBuf],
        child: impl FnOnce(UnixStream, &[PathBuf]),
    ) -> io::Result<Launch> {
        let (ours, theirs) = UnixStream::pair()?;
        // Before there is anybody to report: the kernel names the sender only to one who has asked.
        let inbox = Inbox::new(ours)?;
        let group = match cgroup {
            [only] if cgroup::is_unified() => Some(File::open(only)?),
            _ => None,
        };
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
        let Some(pid) = cloned? else {
            sys::close_all_but(&[kept, &[theirs.as_raw_fd()]].concat());
            child(theirs, rest);
            // A child that came back would be a second shim.
            sys::exit_now(126);
        };
        drop(theirs);
        Ok(Launch::new(inbox, pid, patience))
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
        let containers = self.running.values().map(|running| running.started.pid);
        let known: Vec<i32> = containers.chain(self.execs.iter().map(|(pid, _)| *pid)).collect();
        let mut all: Vec<sys::Ended> =
            known.into_iter().filter_map(|pid| sys::reap(Some(pid))).collect();
        // Orphans, and who had a successor. As long as one is on its way they wait: the successor's
        // number may not be known yet, and its end would be nobody's.
        if self.launches.is_empty() {
            all.extend(std::iter::from_fn(|| sys::reap(None)));
        }
        for ended in all {
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
        for (launch, _) in &self.launches {
            launch.kill();
        }
        let ids: Vec<String> = self.running.keys().cloned().collect();
        for id in &ids {
            let _ = self.kill(id, libc::SIGKILL, true);
        }
        for id in ids {
            let Some(pid) = self.running.get(&id).map(|running| running.started.pid) else {
                continue;
            };
            // One that does not go is left to whoever removes its control group.
            if let Ok(Some(code)) = sys::wait_within(pid, KILL_PATIENCE) {
                self.ended(&id, code);
            }
        }
        if let Ok(Sandbox { pids: Some((_, pid)), .. }) = &self.sandbox {
            let _ = sys::kill(*pid, libc::SIGKILL);
            let _ = sys::wait_within(*pid, KILL_PATIENCE);
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

/// What a process that is on its way is for, and who asked for it.
enum Goal {
    Start {
        id: String,
        spec: Box<ContainerSpec>,
        pipes: Pipes,
        log: Option<Log>,
        client: UnixStream,
    },
    Exec {
        client: UnixStream,
    },
}

fn answer(client: &UnixStream, answer: io::Result<Answer>) {
    let answer = answer.unwrap_or_else(|error| Answer::Failed(error.to_string()));
    // Who does not wait any more will ask again.
    let _ = send(client, &answer, &[]);
}

fn until(deadline: Instant) -> Duration {
    // A millisecond more, so that it has passed.
    deadline.saturating_duration_since(Instant::now()) + Duration::from_millis(1)
}

fn timespec(duration: Duration) -> Timespec {
    Timespec::try_from(duration).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 })
}

fn exit(code: i32, oom_killed: bool) -> Exit {
    let reason = match (oom_killed && code != 0, code) {
        (true, _) => "OOMKilled",
        (false, 0) => "Completed",
        (false, _) => "Error",
    };
    Exit {
        code,
        at: crate::service::now(),
        oom_killed,
        message: String::new(),
        reason: reason.to_owned(),
    }
}
