//! A container's output in CRI's log format: a line is its time, its stream, `F` or `P` (more of the
//! same line follows), and the text.
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

/// A longer line is written in pieces; upstream's runtimes cut at the same length.
const LINE_LIMIT: usize = 16 << 10;

pub struct Log {
    path: PathBuf,
    file: File,
}

impl Log {
    pub fn open(path: PathBuf) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let file = append(&path)?;
        Ok(Log { path, file })
    }

    /// Goes on in a new file: whoever rotates has moved the old one away.
    pub fn reopen(&mut self) -> io::Result<()> {
        self.file = append(&self.path)?;
        Ok(())
    }

    /// A full disk must not stop the container: what cannot be written is lost.
    fn write(&mut self, bytes: &[u8]) {
        let _ = self.file.write_all(bytes);
    }
}

/// A plain file, in a real folder. Where logs are, a container may have a volume: behind a link there
/// would be a file of the host's that is written to, behind a pipe one who lets us wait for ever.
fn append(path: &std::path::Path) -> io::Result<File> {
    use rustix::fs::{CWD, Mode, OFlags, openat};
    let refused = |what: &str| io::Error::other(format!("the log {} is {what}", path.display()));
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(refused("not a file's name"));
    };
    let folder_flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = openat(CWD, folder, folder_flags, Mode::empty()).map_err(|error| match error {
        rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP => refused("behind a link"),
        error => error.into(),
    })?;
    let flags = OFlags::WRONLY
        | OFlags::CREATE
        | OFlags::APPEND
        | OFlags::NOFOLLOW
        | OFlags::NONBLOCK
        | OFlags::NOCTTY
        | OFlags::CLOEXEC;
    let file =
        openat(&folder, name, flags, Mode::from_raw_mode(0o640)).map_err(|error| match error {
            rustix::io::Errno::LOOP => refused("a link"),
            // A pipe that nobody reads.
            rustix::io::Errno::NXIO => refused("not a plain file"),
            error => error.into(),
        })?;
    let file = File::from(file);
    if !file.metadata()?.is_file() {
        return Err(refused("not a plain file"));
    }
    Ok(file)
}

/// One output stream on its way into the log.
pub struct Lines {
    name: &'static str,
    partial: Vec<u8>,
}

impl Lines {
    pub fn new(name: &'static str) -> Self {
        Lines { name, partial: Vec::new() }
    }

    /// Takes what was read at `time`, writes the lines that are whole.
    pub fn push(&mut self, log: &mut Log, time: &str, bytes: &[u8]) {
        let mut output = Vec::with_capacity(bytes.len() + 64);
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.partial.extend_from_slice(&rest[..end]);
            rest = &rest[end + 1..];
            self.cut(&mut output, time);
            line(&mut output, time, self.name, 'F', &self.partial);
            self.partial.clear();
        }
        self.partial.extend_from_slice(rest);
        self.cut(&mut output, time);
        log.write(&output);
    }

    /// Writes what has no end, when nothing more will come.
    pub fn finish(&mut self, log: &mut Log, time: &str) {
        if !self.partial.is_empty() {
            let mut output = Vec::new();
            // The last piece of a stream is as complete as it gets.
            line(&mut output, time, self.name, 'P', &self.partial);
            log.write(&output);
            self.partial.clear();
        }
    }

    fn cut(&mut self, output: &mut Vec<u8>, time: &str) {
        while self.partial.len() > LINE_LIMIT {
            line(output, time, self.name, 'P', &self.partial[..LINE_LIMIT]);
            self.partial.drain(..LINE_LIMIT);
        }
    }
}

fn line(output: &mut Vec<u8>, time: &str, stream: &str, tag: char, text: &[u8]) {
    output.extend_from_slice(format!("{time} {stream} {tag} ").as_bytes());
    output.extend_from_slice(text);
    output.push(b'\n');
}

/// Now, as it is written into a log.
pub fn timestamp() -> String {
    format!("{:.9}", jiff::Timestamp::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pieces: &[&[u8]], expected: &str) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/log");
        let mut log = Log::open(path.clone()).unwrap();
        let mut lines = Lines::new("stdout");
        for piece in pieces {
            lines.push(&mut log, "T", piece);
        }
        lines.finish(&mut log, "T");
        assert_eq!(std::fs::read_to_string(path).unwrap(), expected);
    }

    #[test]
    fn lines_are_joined_and_split() {
        check(&[b"a\nb", b"c\n", b"\n"], "T stdout F a\nT stdout F bc\nT stdout F \n");
        check(&[b"no end"], "T stdout P no end\n");
        let long = "x".repeat(LINE_LIMIT);
        let twice = format!("{long}{long}!\n");
        check(
            &[twice.as_bytes()],
            &format!("T stdout P {long}\nT stdout P {long}\nT stdout F !\n"),
        );
    }

    #[test]
    fn only_a_plain_file_is_a_log() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("other"), "kept").unwrap();
        std::fs::create_dir(path("real")).unwrap();
        symlink(path("other"), path("link")).unwrap();
        symlink(path("nowhere"), path("dangling")).unwrap();
        symlink(path("real"), path("linked")).unwrap();
        let fifo = rustix::fs::FileType::Fifo;
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, path("pipe"), fifo, mode, 0).unwrap();
        for name in ["link", "dangling", "linked/log", "pipe", "real"] {
            assert!(Log::open(path(name)).is_err(), "{name}");
        }
        assert_eq!(std::fs::read_to_string(path("other")).unwrap(), "kept");
        assert!(!path("nowhere").exists());
        Log::open(path("real/log")).unwrap();
    }

    #[test]
    fn times_have_nine_digits() {
        let time = timestamp();
        assert_eq!(time.len(), "2016-10-06T00:17:09.669794202Z".len(), "{time}");
    }
}
