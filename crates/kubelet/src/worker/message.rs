//! What a container left to be said of its end: its termination message, or the end of its log.
use crate::found::{Found, MESSAGE_POLICY, State};
use rustix::fs::{Mode, OFlags, open};
use std::io::{Read, Seek, SeekFrom};

const LONGEST: u64 = 4096;
const LONGEST_LOG: u64 = 2048;
const LINES: usize = 80;

pub fn read(found: &mut Found) {
    for one in &mut found.containers {
        if one.state != State::Exited {
            continue;
        }
        let file = one.message_file.as_deref().and_then(|path| tail(path, LONGEST, false));
        let text = file.filter(|text| !text.is_empty()).or_else(|| {
            let policy = one.annotations.get(MESSAGE_POLICY).map(String::as_str);
            let wanted = policy == Some("FallbackToLogsOnError") && one.exit_code != 0;
            wanted
                .then(|| tail(&one.log_path, 16 * LONGEST_LOG, true).map(|log| last_lines(&log)))?
        });
        if let Some(text) = text {
            if !one.message.is_empty() && !text.is_empty() {
                one.message.push_str(": ");
            }
            one.message.push_str(&text);
        }
    }
}

/// A container may have brought its own file, as a part of a volume: nobody waits for the other end of a pipe,
/// and a device is nothing that it had to say.
fn tail(path: &str, bytes: u64, from_end: bool) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let mut file = std::fs::File::from(open(path, flags, Mode::empty()).ok()?);
    let found = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let length = found.len();
    if from_end && length > bytes {
        file.seek(SeekFrom::Start(length - bytes)).ok()?;
    }
    let mut read = Vec::new();
    file.take(bytes).read_to_end(&mut read).ok()?;
    Some(String::from_utf8_lossy(&read).into_owned())
}

/// The text of a log in CRI's format: `TIME STREAM TAG TEXT`. A line whose tag is `P` goes on in the
/// next, or was the container's last word.
fn last_lines(log: &str) -> String {
    let parts = log.lines().filter_map(|line| {
        let mut fields = line.splitn(4, ' ').skip(2);
        Some((fields.next()? == "F", fields.next()?))
    });
    let parts: Vec<(bool, &str)> = parts.collect();
    let mut text = String::new();
    for (whole, part) in &parts[parts.len().saturating_sub(LINES)..] {
        text.push_str(part);
        text.push_str(if *whole { "\n" } else { "" });
    }
    let from = text.len().saturating_sub(LONGEST_LOG as usize);
    let from = (from..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text[from..].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_log_is_its_text() {
        assert_eq!(last_lines("2026 stdout F one\n2026 stderr F two words\n"), "one\ntwo words\n");
    }

    /// Whoever opened one for reading would wait for ever.
    #[test]
    fn a_pipe_or_a_device_says_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, Mode::RWXU, 0).unwrap();
        let pipe = pipe.to_str().unwrap();
        for path in [pipe, "/dev/zero", "/dev/tty", folder.path().to_str().unwrap()] {
            assert_eq!(tail(path, 10, false), None, "{path}");
        }
        let file = folder.path().join("file");
        std::fs::write(&file, "0123456789").unwrap();
        assert_eq!(tail(file.to_str().unwrap(), 4, true).as_deref(), Some("6789"));
        assert_eq!(tail(file.to_str().unwrap(), 4, false).as_deref(), Some("0123"));
    }

    #[test]
    fn a_line_without_an_end_gets_none() {
        assert_eq!(last_lines("2026 stdout P DONE\n"), "DONE");
        assert_eq!(last_lines("2026 stdout P one \n2026 stdout F line\n"), "one line\n");
        assert_eq!(last_lines(""), "");
    }
}
