//! A container that runs: its process, its streams, whoever is attached.
//!
//! Nothing here waits. Output that somebody attached does not take is held back up to a limit, then
//! the container's output is not read any more, so that it waits; input that the container does not
//! take keeps further input from being read. The other containers, and a request to kill this one,
//! are served meanwhile.
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use rustix::event::{PollFd, PollFlags};
use rustix::pipe::{PipeFlags, pipe_with};

use super::child::Streams;
use super::logs::{Lines, Log, timestamp};
use super::protocol::chunk;
use super::spec::{ContainerSpec, RECORD, Started};
use super::sys;

pub struct Running {
    pub started: Started,
    pub record: PathBuf,
    pub cgroup: Vec<PathBuf>,
    pub stdin_once: bool,
    input: Option<File>,
    /// Input on its way, and whether it is the last.
    unwritten: Vec<u8>,
    input_ends: bool,
    outputs: Vec<Output>,
    /// The terminal's controlling end, for its size.
    terminal: Option<OwnedFd>,
    log: Option<Log>,
    pub attached: Vec<Attached>,
}

struct Output {
    file: Option<File>,
    stream: u8,
    lines: Lines,
}

/// Somebody who sees the output, and may write the input.
pub struct Attached {
    stream: UnixStream,
    stdin: bool,
    gone: bool,
    /// Output on its way.
    unsent: Vec<u8>,
}

/// Output held back for one who is attached before the container has to wait.
const UNSENT_LIMIT: usize = 1 << 20;

/// What the shim keeps of the pipes made for a container.
pub struct Pipes {
    input: Option<OwnedFd>,
    outputs: Vec<(OwnedFd, u8)>,
}

/// The pipes of a container without a terminal: the child's ends and ours.
pub fn make_pipes(spec: &ContainerSpec) -> io::Result<(Streams, Pipes)> {
    if spec.process.terminal {
        let pipes = Pipes { input: None, outputs: Vec::new() };
        return Ok((Streams { descriptors: Vec::new() }, pipes));
    }
    let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from);
    let (stdin, input) = if spec.stdin {
        let (read, write) = pipe()?;
        (read, Some(write))
    } else {
        (File::open("/dev/null")?.into(), None)
    };
    let (stdout_read, stdout) = pipe()?;
    let (stderr_read, stderr) = pipe()?;
    let outputs = vec![(stdout_read, chunk::STDOUT), (stderr_read, chunk::STDERR)];
    Ok((Streams { descriptors: vec![stdin, stdout, stderr] }, Pipes { input, outputs }))
}

impl Running {
    pub fn new(
        spec: &ContainerSpec,
        started: Started,
        pipes: Pipes,
        terminal: Option<OwnedFd>,
        log: Option<Log>,
    ) -> io::Result<Self> {
        let mut outputs: Vec<Output> = Vec::new();
        let mut input = pipes.input.map(File::from);
        if let Some(input) = &input {
            rustix::io::ioctl_fionbio(input, true)?;
        }
        for (descriptor, stream) in pipes.outputs {
            let name = if stream == chunk::STDERR { "stderr" } else { "stdout" };
            rustix::io::ioctl_fionbio(&descriptor, true)?;
            let lines = Lines::new(name);
            outputs.push(Output { file: Some(descriptor.into()), stream, lines });
        }
        if let Some(terminal) = &terminal {
            rustix::io::ioctl_fionbio(terminal, true)?;
            let file = File::from(terminal.try_clone()?);
            let lines = Lines::new("stdout");
            outputs.push(Output { file: Some(file), stream: chunk::STDOUT, lines });
            if spec.stdin {
                input = Some(File::from(terminal.try_clone()?));
            }
        }
        Ok(Running {
            started,
            record: spec.folder.join(RECORD),
            cgroup: spec.cgroup.clone(),
            stdin_once: spec.stdin_once,
            input,
            unwritten: Vec::new(),
            input_ends: false,
            outputs,
            terminal,
            log,
            attached: Vec::new(),
        })
    }

    /// What to wait for.
    pub fn sources(&self) -> Vec<PollFd<'_>> {
        let mut sources = Vec::new();
        if !self.held_up() {
            let open = self.outputs.iter().filter_map(|output| output.file.as_ref());
            sources.extend(open.map(|file| PollFd::new(file, PollFlags::IN)));
        }
        for attached in &self.attached {
            // Until the input is written nobody's is read; that they are gone is always told.
            let mut wanted =
                if self.unwritten.is_empty() { PollFlags::IN } else { PollFlags::empty() };
            if !attached.unsent.is_empty() {
                wanted |= PollFlags::OUT;
            }
            sources.push(PollFd::new(&attached.stream, wanted));
        }
        if let (Some(input), false) = (&self.input, self.unwritten.is_empty()) {
            sources.push(PollFd::new(input, PollFlags::OUT));
        }
        sources
    }

    /// Whether somebody attached is too far behind.
    fn held_up(&self) -> bool {
        self.attached.iter().any(|attached| attached.unsent.len() > UNSENT_LIMIT)
    }

    /// Moves whatever can be moved. Cheap where there is nothing.
    pub fn pump(&mut self) {
        for attached in &mut self.attached {
            attached.flush();
        }
        if !self.held_up() {
            self.pump_outputs();
        }
        self.write_input();
        self.pump_input();
        self.attached.retain(|attached| !attached.gone);
    }

    /// Writes what the container takes of its input.
    fn write_input(&mut self) {
        let Some(input) = &mut self.input else {
            self.unwritten.clear();
            return;
        };
        while !self.unwritten.is_empty() {
            match input.write(&self.unwritten) {
                Ok(written) => drop(self.unwritten.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.input = None;
                    self.unwritten.clear();
                    return;
                }
            }
        }
        if self.input_ends {
            self.input = None;
        }
    }

    fn pump_outputs(&mut self) {
        let mut buffer = vec![0; 32 << 10];
        for output in &mut self.outputs {
            // A few rounds, so that one loud container does not hold up the others.
            for _ in 0..8 {
                let Some(file) = &mut output.file else { break };
                let read = match file.read(&mut buffer) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    // A terminal whose last user is gone reports an error, not an end.
                    Ok(0) | Err(_) => 0,
                    Ok(read) => read,
                };
                let time = timestamp();
                if read == 0 {
                    output.file = None;
                    if let Some(log) = &mut self.log {
                        output.lines.finish(log, &time);
                    }
                    break;
                }
                let bytes = &buffer[..read];
                if let Some(log) = &mut self.log {
                    output.lines.push(log, &time, bytes);
                }
                for attached in &mut self.attached {
                    attached.send(output.stream, bytes);
                }
            }
        }
    }

    fn pump_input(&mut self) {
        for attached in &mut self.attached {
            match peek(&attached.stream) {
                Ok(true) if self.unwritten.is_empty() => {}
                Ok(_) => continue,
                Err(_) => {
                    attached.gone = true;
                    self.input_ends |= attached.stdin && self.stdin_once;
                    continue;
                }
            }
            let Ok(bytes) = attached.receive() else {
                attached.gone = true;
                continue;
            };
            if !attached.stdin {
                continue;
            }
            // An empty piece is the end of the input.
            self.input_ends |= bytes.is_empty() && self.stdin_once;
            self.unwritten = bytes;
        }
        if self.input_ends || !self.unwritten.is_empty() {
            self.write_input();
        }
    }

    pub fn attach(&mut self, stream: UnixStream, stdin: bool) {
        self.attached.push(Attached { stream, stdin, gone: false, unsent: Vec::new() });
    }

    pub fn resize(&self, width: u16, height: u16) -> io::Result<()> {
        match &self.terminal {
            Some(terminal) => sys::set_window(terminal.as_fd(), width, height),
            None => Ok(()),
        }
    }

    pub fn reopen_log(&mut self) -> io::Result<()> {
        self.log.as_mut().map_or(Ok(()), Log::reopen)
    }

    /// Reads what is left after the process has ended.
    pub fn drain(&mut self) {
        loop {
            let before = self.outputs.iter().filter(|output| output.file.is_some()).count();
            self.pump_outputs();
            let after = self.outputs.iter().filter(|output| output.file.is_some()).count();
            // Nothing ended in this round: what is open is empty, or held by somebody who left the
            // container's groups, and nobody waits for those.
            if after == 0 || after == before {
                break;
            }
        }
        let time = timestamp();
        if let Some(log) = &mut self.log {
            for output in &mut self.outputs {
                output.lines.finish(log, &time);
            }
        }
        for attached in &mut self.attached {
            attached.finish();
        }
    }
}

impl Attached {
    fn send(&mut self, stream: u8, bytes: &[u8]) {
        self.unsent.extend_from_slice(&chunk::header(stream, bytes.len()));
        self.unsent.extend_from_slice(bytes);
        self.flush();
    }

    /// Sends what is taken at once.
    fn flush(&mut self) {
        use rustix::net::{SendFlags, send};
        while !self.unsent.is_empty() {
            match send(&self.stream, &self.unsent, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(sent) => drop(self.unsent.drain(..sent)),
                Err(rustix::io::Errno::AGAIN) => return,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => {
                    self.gone = true;
                    return self.unsent.clear();
                }
            }
        }
    }

    /// The container has ended: a moment for the rest.
    fn finish(&mut self) {
        let _ = self.stream.set_write_timeout(Some(std::time::Duration::from_millis(500)));
        let _ = (&self.stream).write_all(&self.unsent);
    }

    /// The next piece of input. The daemon writes them whole, so one that has begun comes to its
    /// end; the stream's timeout is for a daemon that dies in between.
    fn receive(&self) -> io::Result<Vec<u8>> {
        let mut stream = &self.stream;
        let mut header = [0; chunk::HEADER];
        stream.read_exact(&mut header)?;
        let (_, length) = chunk::parse(header);
        let mut bytes = vec![0; length.min(1 << 20)];
        stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

/// Whether there is something to read; an error if the other side is gone.
fn peek(stream: &UnixStream) -> io::Result<bool> {
    use rustix::net::{RecvFlags, recv};
    let mut byte = [0; 1];
    match recv(stream, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((_, 0)) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(_) => Ok(true),
        Err(rustix::io::Errno::AGAIN) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
