//! A container that runs: its process, its streams, whoever is attached.
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use rustix::pipe::{PipeFlags, pipe_with};

use super::child::Streams;
use super::logs::{Lines, Log, timestamp};
use super::protocol::chunk;
use super::spec::{ContainerSpec, Started};
use super::sys;

pub struct Running {
    pub started: Started,
    pub folder: PathBuf,
    pub cgroup: Vec<PathBuf>,
    pub stdin_once: bool,
    input: Option<File>,
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
}

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
            folder: spec.folder.clone(),
            cgroup: spec.cgroup.clone(),
            stdin_once: spec.stdin_once,
            input,
            outputs,
            terminal,
            log,
            attached: Vec::new(),
        })
    }

    /// What to wait for: outputs first, then attached streams, in order.
    pub fn sources(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let outputs = self.outputs.iter().filter_map(|output| output.file.as_ref());
        outputs.map(AsFd::as_fd).chain(self.attached.iter().map(|attached| attached.stream.as_fd()))
    }

    /// Reads whatever is there from everything. Cheap where there is nothing.
    pub fn pump(&mut self) {
        self.pump_outputs();
        self.pump_input();
        self.attached.retain(|attached| !attached.gone);
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
            // Chunks are written whole by the daemon, so one that has begun will come to its end.
            let mut header = [0; chunk::HEADER];
            match peek(&attached.stream) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(_) => {
                    attached.gone = true;
                    if attached.stdin && self.stdin_once {
                        self.input = None;
                    }
                    continue;
                }
            }
            let mut stream = &attached.stream;
            let read = stream.read_exact(&mut header).and_then(|()| {
                let (_, length) = chunk::parse(header);
                let mut bytes = vec![0; length.min(1 << 20)];
                stream.read_exact(&mut bytes).map(|()| bytes)
            });
            match read {
                Err(_) => attached.gone = true,
                // An empty piece is the end of the input.
                Ok(bytes) if bytes.is_empty() => {
                    if self.stdin_once {
                        self.input = None;
                    }
                }
                Ok(bytes) => {
                    if attached.stdin
                        && let Some(input) = &mut self.input
                        && write_patiently(input, &bytes).is_err()
                    {
                        self.input = None;
                    }
                }
            }
        }
    }

    pub fn attach(&mut self, stream: UnixStream, stdin: bool) {
        self.attached.push(Attached { stream, stdin, gone: false });
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
    }
}

impl Attached {
    /// Whoever does not read holds the container up, as with upstream's runtimes; whoever is gone
    /// does not.
    fn send(&mut self, stream: u8, bytes: &[u8]) {
        let mut socket = &self.stream;
        let sent = socket
            .write_all(&chunk::header(stream, bytes.len()))
            .and_then(|()| socket.write_all(bytes));
        if sent.is_err() {
            self.gone = true;
        }
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

/// Writes to a descriptor that may not block.
fn write_patiently(file: &mut File, mut bytes: &[u8]) -> io::Result<()> {
    use rustix::event::{PollFd, PollFlags, poll};
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let patience = rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 };
                let ready = poll(&mut [PollFd::new(file, PollFlags::OUT)], Some(&patience))?;
                if ready == 0 {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
