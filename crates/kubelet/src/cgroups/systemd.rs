//! systemd, asked to make slices and to take them away. It listens on a socket of its own, for root alone and
//! without a bus, so it can be asked before anything else of the machine runs.
//!
//! Each question has its own connection: who stays on the line is sent whatever happens to any unit. Whoever asks
//! waits, as for a file: systemd answers within a millisecond or two.
use crate::dbus::{
    Argument, Call, ERROR, Message, Property, REPLY, Reader, SIGNAL, decode, encode,
};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

pub const SOCKET: &str = "/run/systemd/private";
/// A systemd that takes longer is not waited for: the pod is tried again.
const PATIENCE: Duration = Duration::from_secs(10);
const SERVICE: &str = "org.freedesktop.systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";

/// Makes a slice in another, or gives it other limits if it is there.
pub fn make(
    socket: &Path,
    unit: &str,
    parent: &str,
    limits: &[(&'static str, Property)],
) -> io::Result<()> {
    let mut properties = vec![
        ("Description", Property::Text(format!("Pods of Kubernetes: {unit}"))),
        ("Wants", Property::Texts(vec![parent.to_owned()])),
        ("DefaultDependencies", Property::Flag(false)),
    ];
    let counted = ["MemoryAccounting", "CPUAccounting", "IOAccounting", "TasksAccounting"];
    properties.extend(counted.map(|name| (name, Property::Flag(true))));
    properties.extend(limits.iter().cloned());
    let mut line = Line::open(socket)?;
    let mode = Argument::Text("replace");
    let arguments =
        [Argument::Text(unit), mode, Argument::Properties(&properties), Argument::NoUnits];
    match line.job("StartTransientUnit", &arguments) {
        Err(Fault::Refused { name, .. }) if name.ends_with(".UnitExists") => {}
        made => return Ok(made?),
    }
    if limits.is_empty() {
        return Ok(());
    }
    // Until the machine starts anew, as the unit itself.
    let arguments = [Argument::Text(unit), Argument::Flag(true), Argument::Properties(limits)];
    line.ask("SetUnitProperties", &arguments)?;
    Ok(())
}

/// Takes a slice away, if it is there.
pub fn stop(socket: &Path, unit: &str) -> io::Result<()> {
    let arguments = [Argument::Text(unit), Argument::Text("replace")];
    match Line::open(socket)?.job("StopUnit", &arguments) {
        Err(Fault::Refused { name, .. }) if name.ends_with(".NoSuchUnit") => Ok(()),
        stopped => Ok(stopped?),
    }
}

/// A number that systemd knows of a slice.
#[cfg(test)]
pub fn property(socket: &Path, unit: &str, name: &str) -> io::Result<Option<u64>> {
    let mut line = Line::open(socket)?;
    let path = line.ask("GetUnit", &[Argument::Text(unit)])?;
    let path = Reader::new(&path.body).text().unwrap_or_default();
    let arguments = [Argument::Text("org.freedesktop.systemd1.Slice"), Argument::Text(name)];
    let interface = "org.freedesktop.DBus.Properties";
    let call = Call { to: SERVICE, path: &path, interface, member: "Get", arguments: &arguments };
    let answer = line.call(&call)?;
    let mut body = Reader::new(&answer.body);
    Ok(body.signature().filter(|kind| kind == "t").and_then(|_| body.long()))
}

#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("systemd: {why}")]
    Refused { name: String, why: String },
    #[error("systemd: {0}")]
    Line(#[from] io::Error),
}

impl From<Fault> for io::Error {
    fn from(fault: Fault) -> io::Error {
        match fault {
            Fault::Line(error) => error,
            refused @ Fault::Refused { .. } => io::Error::other(refused),
        }
    }
}

struct Line {
    stream: UnixStream,
    serial: u32,
    bytes: Vec<u8>,
    /// Results of jobs that ended before their numbers were told.
    ended: Vec<(String, String)>,
}

impl Line {
    fn open(socket: &Path) -> Result<Line, Fault> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let user = rustix::process::geteuid().as_raw().to_string();
        let shown: String = user.bytes().map(|byte| format!("{byte:02x}")).collect();
        // At once: what came together with `BEGIN` it would not look at before more came.
        stream.write_all(format!("\0AUTH EXTERNAL {shown}\r\nBEGIN\r\n").as_bytes())?;
        let said = answer(&mut stream)?;
        if !said.starts_with("OK") {
            return Err(io::Error::other(format!("it does not know us: {said}")).into());
        }
        let mut line = Line { stream, serial: 0, bytes: Vec::new(), ended: Vec::new() };
        // Else it does not tell how jobs end.
        line.ask("Subscribe", &[])?;
        Ok(line)
    }

    /// Asks for something that takes its time, and waits until it is done.
    fn job(&mut self, member: &str, arguments: &[Argument<'_>]) -> Result<(), Fault> {
        let answer = self.ask(member, arguments)?;
        let job = Reader::new(&answer.body).text();
        let job = job.ok_or_else(|| io::Error::other("it names no job"))?;
        loop {
            if let Some((_, result)) = self.ended.iter().find(|(ended, _)| *ended == job) {
                return match result.as_str() {
                    "done" => Ok(()),
                    other => Err(io::Error::other(format!("{member}: {other}")).into()),
                };
            }
            let message = self.receive()?;
            self.hear(&message);
        }
    }

    fn ask(&mut self, member: &str, arguments: &[Argument<'_>]) -> Result<Message, Fault> {
        let path = "/org/freedesktop/systemd1";
        self.call(&Call { to: SERVICE, path, interface: MANAGER, member, arguments })
    }

    fn call(&mut self, call: &Call<'_>) -> Result<Message, Fault> {
        self.serial += 1;
        self.stream.write_all(&encode(self.serial, call))?;
        loop {
            let message = self.receive()?;
            match message.kind {
                REPLY if message.reply_to == self.serial => return Ok(message),
                ERROR if message.reply_to == self.serial => {
                    let why = Reader::new(&message.body).text().unwrap_or_default();
                    return Err(Fault::Refused { name: message.error, why });
                }
                _ => self.hear(&message),
            }
        }
    }

    /// `JobRemoved`: its number, its path, its unit, and what became of it.
    fn hear(&mut self, message: &Message) {
        if message.kind != SIGNAL || message.member != "JobRemoved" {
            return;
        }
        let mut body = Reader::new(&message.body);
        let (_, job, _, result) = (body.number(), body.text(), body.text(), body.text());
        self.ended.extend(job.zip(result));
    }

    fn receive(&mut self) -> io::Result<Message> {
        loop {
            if let Some((message, length)) = decode(&self.bytes)? {
                self.bytes.drain(..length);
                return Ok(message);
            }
            let mut chunk = [0; 4096];
            match self.stream.read(&mut chunk)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => self.bytes.extend_from_slice(&chunk[..count]),
            }
        }
    }
}

/// The line that it answers with: nothing else can come before we go on.
fn answer(stream: &mut UnixStream) -> io::Result<String> {
    let mut line = Vec::new();
    let mut byte = [0];
    while !line.ends_with(b"\r\n") && line.len() < 256 {
        stream.read_exact(&mut byte)?;
        line.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
}
