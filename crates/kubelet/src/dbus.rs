//! As much of D-Bus as is needed to speak with systemd and its logind: calls with texts, numbers and properties,
//! answers, signals, and files that come with them. Everything is little-endian, and nothing is sent but what we know.
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};
use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Interest};
use tokio::net::UnixStream;

/// Longest message that is believed.
const LONGEST: usize = 1 << 20;

/// What is said in a call.
#[derive(Debug, Clone, Copy)]
pub enum Argument<'a> {
    Text(&'a str),
    Number(i32),
    Flag(bool),
    /// What a unit of systemd is to be like.
    Properties(&'a [(&'static str, Property)]),
    /// None that are made together with one of systemd's.
    NoUnits,
}

/// What a unit of systemd is told of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Property {
    Flag(bool),
    Long(u64),
    Text(String),
    Texts(Vec<String>),
}

/// Who is asked for what.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    pub to: &'a str,
    pub path: &'a str,
    pub interface: &'a str,
    pub member: &'a str,
    pub arguments: &'a [Argument<'a>],
}

/// What came.
#[derive(Debug, Default)]
pub struct Message {
    pub kind: u8,
    #[cfg(test)]
    pub serial: u32,
    /// Of a call that this answers.
    pub reply_to: u32,
    pub interface: String,
    pub member: String,
    pub error: String,
    pub signature: String,
    pub body: Vec<u8>,
}

impl Message {
    /// The number that whoever sent it gave it: only a bus has to know.
    #[cfg(test)]
    fn note(&mut self, serial: u32) {
        self.serial = serial;
    }

    #[cfg(not(test))]
    fn note(&self, _: u32) {}
}

pub const CALL: u8 = 1;
pub const REPLY: u8 = 2;
pub const ERROR: u8 = 3;
pub const SIGNAL: u8 = 4;

pub struct Bus {
    stream: UnixStream,
    serial: u32,
    bytes: Vec<u8>,
    files: VecDeque<OwnedFd>,
    /// Signals that came while an answer was waited for.
    signals: VecDeque<Message>,
}

impl Bus {
    /// Says who we are: the one that this process belongs to.
    pub async fn connect(socket: &Path) -> io::Result<Bus> {
        let mut stream = UnixStream::connect(socket).await?;
        let user = rustix::process::geteuid().as_raw().to_string();
        let shown: String = user.bytes().map(|byte| format!("{byte:02x}")).collect();
        stream.write_all(format!("\0AUTH EXTERNAL {shown}\r\n").as_bytes()).await?;
        expect(&mut stream, "OK").await?;
        stream.write_all(b"NEGOTIATE_UNIX_FD\r\n").await?;
        expect(&mut stream, "AGREE_UNIX_FD").await?;
        stream.write_all(b"BEGIN\r\n").await?;
        let (bytes, files, signals) = Default::default();
        let mut bus = Bus { stream, serial: 0, bytes, files, signals };
        bus.call(Call {
            to: "org.freedesktop.DBus",
            path: "/org/freedesktop/DBus",
            interface: "org.freedesktop.DBus",
            member: "Hello",
            arguments: &[],
        })
        .await?;
        Ok(bus)
    }

    /// Asks, and waits for the answer.
    pub async fn call(&mut self, call: Call<'_>) -> io::Result<Message> {
        self.serial += 1;
        let serial = self.serial;
        self.stream.write_all(&encode(serial, &call)).await?;
        loop {
            let message = self.receive().await?;
            match message.kind {
                SIGNAL => self.signals.push_back(message),
                REPLY if message.reply_to == serial => return Ok(message),
                ERROR if message.reply_to == serial => {
                    let mut body = Reader::new(&message.body);
                    let why = body.text().unwrap_or_default();
                    return Err(io::Error::other(format!("{}: {why}", message.error)));
                }
                _ => {}
            }
        }
    }

    pub async fn signal(&mut self) -> io::Result<Message> {
        loop {
            if let Some(message) = self.signals.pop_front() {
                return Ok(message);
            }
            let message = self.receive().await?;
            if message.kind == SIGNAL {
                return Ok(message);
            }
        }
    }

    /// A file that came with the last answers.
    pub fn file(&mut self) -> Option<OwnedFd> {
        self.files.pop_front()
    }

    async fn receive(&mut self) -> io::Result<Message> {
        loop {
            if let Some((message, length)) = decode(&self.bytes)? {
                self.bytes.drain(..length);
                return Ok(message);
            }
            self.stream.readable().await?;
            let mut chunk = [0; 4096];
            let taken = self.stream.try_io(Interest::READABLE, || {
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
                let mut extra = RecvAncillaryBuffer::new(&mut space);
                let mut parts = [IoSliceMut::new(&mut chunk)];
                let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
                let got = recvmsg(&self.stream, &mut parts, &mut extra, flags)?;
                if got.flags.contains(ReturnFlags::CTRUNC) {
                    return Err(io::Error::other("more files came than were asked for"));
                }
                let files = extra.drain().filter_map(|message| match message {
                    RecvAncillaryMessage::ScmRights(files) => Some(files),
                    _ => None,
                });
                Ok((got.bytes, files.flatten().collect::<Vec<OwnedFd>>()))
            });
            match taken {
                Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok((count, files)) => {
                    self.bytes.extend_from_slice(&chunk[..count]);
                    self.files.extend(files);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}

async fn expect(stream: &mut UnixStream, word: &str) -> io::Result<()> {
    // Nothing but this line can come before we go on, so nothing is lost with the reader.
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).await?;
    match line.starts_with(word) {
        true => Ok(()),
        false => Err(io::Error::other(format!("the bus says {:?}", line.trim_end()))),
    }
}

#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn align(&mut self, to: usize) {
        while !self.0.len().is_multiple_of(to) {
            self.0.push(0);
        }
    }

    fn number(&mut self, number: u32) {
        self.align(4);
        self.0.extend(number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u32);
        self.0.extend(text.as_bytes());
        self.0.push(0);
    }

    fn long(&mut self, number: u64) {
        self.align(8);
        self.0.extend(number.to_le_bytes());
    }

    /// A list, whose elements begin at multiples of a number. Its length counts from the first one.
    fn list(&mut self, aligned: usize, write: impl FnOnce(&mut Writer)) {
        self.number(0);
        let length = self.0.len() - 4;
        self.align(aligned);
        let begins = self.0.len();
        write(self);
        let size = (self.0.len() - begins) as u32;
        self.0[length..length + 4].copy_from_slice(&size.to_le_bytes());
    }

    fn properties(&mut self, all: &[(&'static str, Property)]) {
        self.list(8, |list| {
            for (name, property) in all {
                list.align(8);
                list.text(name);
                list.property(property);
            }
        });
    }

    /// A value that says of which type it is.
    fn property(&mut self, property: &Property) {
        match property {
            Property::Flag(is) => {
                self.signature("b");
                self.number((*is).into());
            }
            Property::Long(number) => {
                self.signature("t");
                self.long(*number);
            }
            Property::Text(text) => {
                self.signature("s");
                self.text(text);
            }
            Property::Texts(texts) => {
                self.signature("as");
                self.list(4, |list| texts.iter().for_each(|text| list.text(text)));
            }
        }
    }

    fn signature(&mut self, text: &str) {
        self.0.push(text.len() as u8);
        self.0.extend(text.as_bytes());
        self.0.push(0);
    }

    /// A field of a header: a byte and a text of some type.
    fn field(&mut self, code: u8, kind: &str, value: &str) {
        self.align(8);
        self.0.push(code);
        self.signature(kind);
        match kind {
            "g" => self.signature(value),
            _ => self.text(value),
        }
    }
}

pub fn encode(serial: u32, call: &Call<'_>) -> Vec<u8> {
    let (mut body, mut signature) = (Writer::default(), String::new());
    for argument in call.arguments {
        match argument {
            Argument::Text(text) => {
                signature.push('s');
                body.text(text);
            }
            Argument::Number(number) => {
                signature.push('i');
                body.number(number.cast_unsigned());
            }
            Argument::Flag(is) => {
                signature.push('b');
                body.number((*is).into());
            }
            Argument::Properties(all) => {
                signature.push_str("a(sv)");
                body.properties(all);
            }
            Argument::NoUnits => {
                signature.push_str("a(sa(sv))");
                body.list(8, |_| {});
            }
        }
    }
    // Fields are aligned as in the whole message, where they begin at a multiple of eight.
    let mut fields = Writer::default();
    fields.field(1, "o", call.path);
    fields.field(2, "s", call.interface);
    fields.field(3, "s", call.member);
    fields.field(6, "s", call.to);
    if !signature.is_empty() {
        fields.field(8, "g", &signature);
    }
    let mut message = Writer(vec![b'l', CALL, 0, 1]);
    message.number(body.0.len() as u32);
    message.number(serial);
    message.number(fields.0.len() as u32);
    message.0.extend(fields.0);
    message.align(8);
    message.0.extend(body.0);
    message.0
}

pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0 }
    }

    fn align(&mut self, to: usize) {
        self.at = self.at.next_multiple_of(to);
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    pub fn number(&mut self) -> Option<u32> {
        self.align(4);
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    pub fn long(&mut self) -> Option<u64> {
        self.align(8);
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    pub fn text(&mut self) -> Option<String> {
        let length = self.number()? as usize;
        let text = self.take(length)?;
        self.byte()?;
        String::from_utf8(text.to_vec()).ok()
    }

    pub fn signature(&mut self) -> Option<String> {
        let length = self.byte()?.into();
        let text = self.take(length)?;
        self.byte()?;
        String::from_utf8(text.to_vec()).ok()
    }
}

/// The first message of these bytes and its length, if it is there as a whole.
pub fn decode(bytes: &[u8]) -> io::Result<Option<(Message, usize)>> {
    let wrong = || io::Error::other("the bus speaks in riddles");
    if bytes.len() < 16 {
        return Ok(None);
    }
    if bytes[0] != b'l' {
        return Err(wrong());
    }
    let mut reader = Reader::new(bytes);
    reader.at = 4;
    let numbers = (reader.number(), reader.number(), reader.number());
    let (Some(body), Some(own_serial), Some(fields)) = numbers else { return Err(wrong()) };
    let (body, fields) = (body as usize, fields as usize);
    if body > LONGEST || fields > LONGEST {
        return Err(wrong());
    }
    let begins = (16 + fields).next_multiple_of(8);
    if bytes.len() < begins + body {
        return Ok(None);
    }
    let mut message = Message { kind: bytes[1], ..Message::default() };
    message.note(own_serial);
    while reader.at < 16 + fields {
        reader.align(8);
        field(&mut reader, &mut message).ok_or_else(wrong)?;
    }
    message.body = bytes[begins..begins + body].to_vec();
    Ok(Some((message, begins + body)))
}

fn field(reader: &mut Reader<'_>, message: &mut Message) -> Option<()> {
    let code = reader.byte()?;
    match reader.signature()?.as_str() {
        "u" => {
            let number = reader.number()?;
            if code == 5 {
                message.reply_to = number;
            }
        }
        "g" => message.signature = reader.signature()?,
        "s" | "o" => {
            let text = reader.text()?;
            match code {
                2 => message.interface = text,
                3 => message.member = text,
                4 => message.error = text,
                _ => {}
            }
        }
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn decoded(bytes: &[u8]) -> Option<(Message, usize)> {
        decode(bytes).unwrap()
    }

    /// What a bus would send: an answer to a call, or logind's signal.
    pub fn message(
        kind: u8,
        reply_to: u32,
        member: &str,
        signature: &str,
        body: &[u8],
        with_file: bool,
    ) -> Vec<u8> {
        let mut fields = Writer::default();
        let number = |fields: &mut Writer, code: u8, number: u32| {
            fields.align(8);
            fields.0.push(code);
            fields.signature("u");
            fields.number(number);
        };
        if kind == SIGNAL {
            fields.field(1, "o", "/org/freedesktop/login1");
            fields.field(2, "s", "org.freedesktop.login1.Manager");
            fields.field(3, "s", member);
        } else {
            number(&mut fields, 5, reply_to);
        }
        if with_file {
            number(&mut fields, 9, 1);
        }
        if !signature.is_empty() {
            fields.field(8, "g", signature);
        }
        let mut message = Writer(vec![b'l', kind, 0, 1]);
        message.number(body.len() as u32);
        message.number(1);
        message.number(fields.0.len() as u32);
        message.0.extend(fields.0);
        message.align(8);
        message.0.extend(body);
        message.0
    }

    #[test]
    fn a_call_is_read_as_it_was_written() {
        let call = Call {
            to: "org.freedesktop.login1",
            path: "/org/freedesktop/login1",
            interface: "org.freedesktop.login1.Manager",
            member: "Inhibit",
            arguments: &[Argument::Text("shutdown"), Argument::Number(-1)],
        };
        let bytes = encode(7, &call);
        for length in 0..bytes.len() {
            assert!(decode(&bytes[..length]).unwrap().is_none(), "{length}");
        }
        let (message, length) = decode(&bytes).unwrap().unwrap();
        assert_eq!((length, message.serial, message.kind), (bytes.len(), 7, CALL));
        assert_eq!((message.member.as_str(), message.signature.as_str()), ("Inhibit", "si"));
        let mut body = Reader::new(&message.body);
        assert_eq!(body.text().unwrap(), "shutdown");
        assert_eq!(body.number(), Some(u32::MAX));
        assert_eq!(body.number(), None);
    }

    #[test]
    fn nonsense_is_no_message() {
        assert!(decode(&[b'B'; 32]).is_err());
        let mut long = vec![b'l', 1, 0, 1];
        long.extend([0xff; 28]);
        assert!(decode(&long).is_err());
        let mut odd =
            encode(1, &Call { to: "a", path: "/", interface: "b", member: "c", arguments: &[] });
        odd[17] = 200;
        assert!(decode(&odd).is_err());
    }
}
