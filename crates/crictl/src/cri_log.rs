//! Containers' logs as runtimes write them (`kubernetes/cri-client/pkg/logs`): a moment, a stream, `F` or
//! `P` for a line that goes on, and the line's bytes, which are anybody's and are handed on as they are.
use crate::failure::Outcome;
use std::io::{BufRead, Read, Seek, SeekFrom, Write};

/// A line longer than this is no line of a log: runtimes break lines long before.
const LONGEST: u64 = 16 << 20;

#[derive(Debug, PartialEq, Eq)]
pub struct Line<'l> {
    pub moment: &'l str,
    pub is_error: bool,
    /// With its newline, unless the line goes on.
    pub text: &'l [u8],
}

/// None for what no runtime writes.
pub fn parse(line: &[u8]) -> Option<Line<'_>> {
    let mut parts = line.splitn(4, |byte| *byte == b' ');
    let moment = std::str::from_utf8(parts.next()?).ok()?;
    moment.parse::<jiff::Timestamp>().ok()?;
    let is_error = match parts.next()? {
        b"stdout" => false,
        b"stderr" => true,
        _ => return None,
    };
    let tags = parts.next()?;
    let text = parts.next()?;
    let is_partial = tags.split(|byte| *byte == b':').next() == Some(b"P");
    let text = if is_partial { text.strip_suffix(b"\n").unwrap_or(text) } else { text };
    Some(Line { moment, is_error, text })
}

/// What of a log is wanted.
#[derive(Debug, Clone)]
pub struct Wanted {
    pub since: Option<jiff::Timestamp>,
    pub timestamps: bool,
    /// Only standard output, only standard error.
    pub stream: Option<bool>,
    /// So many bytes at most.
    pub limit: Option<u64>,
}

/// Hands lines on, one after the other.
#[derive(Debug)]
pub struct Printer {
    wanted: Wanted,
    /// A line that goes on has one moment.
    at_start: bool,
}

impl Printer {
    pub fn new(wanted: Wanted) -> Printer {
        Printer { wanted, at_start: true }
    }

    /// Whether there may be more.
    pub fn print<'w>(
        &mut self,
        line: &[u8],
        out: &'w mut (dyn Write + 'w),
        err: &'w mut (dyn Write + 'w),
    ) -> Outcome<bool> {
        let Some(line) = parse(line) else { return Ok(true) };
        let moment = line.moment.parse::<jiff::Timestamp>().ok();
        if self.wanted.since.is_some_and(|since| moment.is_some_and(|moment| moment < since)) {
            return Ok(true);
        }
        if self.wanted.stream.is_some_and(|stream| stream != line.is_error) {
            return Ok(true);
        }
        let mut bytes = Vec::new();
        if self.wanted.timestamps && self.at_start {
            bytes.extend_from_slice(line.moment.as_bytes());
            bytes.push(b' ');
        }
        bytes.extend_from_slice(line.text);
        self.at_start = bytes.ends_with(b"\n");
        if let Some(limit) = &mut self.wanted.limit {
            bytes.truncate(usize::try_from(*limit).unwrap_or(usize::MAX));
            *limit -= bytes.len() as u64;
        }
        let to: &mut dyn Write = if line.is_error { err } else { out };
        to.write_all(&bytes)?;
        to.flush()?;
        Ok(self.wanted.limit != Some(0))
    }
}

/// The next line, with its newline if it has one yet; what is too long is cut.
pub fn next(reader: &mut impl BufRead) -> std::io::Result<Vec<u8>> {
    let mut line = Vec::new();
    reader.by_ref().take(LONGEST).read_until(b'\n', &mut line)?;
    Ok(line)
}

/// Where the last so many lines begin. A line that is not yet at its end counts as none.
pub fn start_of_tail(file: &mut (impl Read + Seek), lines: u64) -> std::io::Result<u64> {
    const BLOCK: u64 = 64 << 10;
    let end = file.seek(SeekFrom::End(0))?;
    if lines == 0 {
        return Ok(end);
    }
    let (mut at, mut seen) = (end, 0);
    while at > 0 {
        let from = at.saturating_sub(BLOCK);
        file.seek(SeekFrom::Start(from))?;
        let mut block = vec![0; usize::try_from(at - from).unwrap_or_default()];
        file.read_exact(&mut block)?;
        for (index, byte) in block.iter().enumerate().rev() {
            if *byte == b'\n' {
                seen += 1;
                if seen > lines {
                    return Ok(from + index as u64 + 1);
                }
            }
        }
        at = from;
    }
    Ok(0)
}

/// `--since`: a span before now, a moment, a date, or seconds since 1970.
pub fn since(text: &str, now: jiff::Timestamp) -> Outcome<Option<jiff::Timestamp>> {
    if text.is_empty() {
        return Ok(None);
    }
    let fault =
        || format!("failed to parse value as time or duration: {}", api::quote::Quoted(text));
    if let Some(span) = api::duration::Duration::parse(text).ok().filter(|_| text != "0") {
        let moment = now.checked_sub(jiff::SignedDuration::from_nanos(span.nanos));
        return Ok(Some(moment.map_err(|_| fault())?));
    }
    if let Ok(moment) = text.parse::<jiff::Timestamp>() {
        return Ok(Some(moment));
    }
    // Without a zone it is read as universal time; date, hours and minutes are enough.
    let filled = match (text.len(), text.contains('T')) {
        (10, false) => format!("{text}T00:00:00Z"),
        (13, true) => format!("{text}:00:00Z"),
        (16, true) => format!("{text}:00Z"),
        _ => format!("{text}Z"),
    };
    if let Ok(moment) = filled.parse::<jiff::Timestamp>() {
        return Ok(Some(moment));
    }
    let (seconds, nanos) = text.split_once('.').unwrap_or((text, "0"));
    let nanos = format!("{nanos:0<9}");
    let moment = match (seconds.parse(), nanos.get(..9).map(str::parse)) {
        (Ok(seconds), Some(Ok(nanos))) => jiff::Timestamp::new(seconds, nanos).ok(),
        _ => None,
    };
    Ok(Some(moment.ok_or_else(fault)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    const LOG: &[u8] = b"2026-01-01T00:00:01.5Z stdout F one\n\
        2026-01-01T00:00:02Z stderr P tw\n\
        2026-01-01T00:00:02Z stderr F o\x1b[2J\xff\n\
        broken\n\
        2026-01-01T00:00:03+01:00 stdout F:x  three \n";

    fn printed(log: &[u8], wanted: Wanted) -> (Vec<u8>, Vec<u8>) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut printer = Printer::new(wanted);
        let mut reader = Cursor::new(log);
        loop {
            let line = next(&mut reader).unwrap();
            if line.is_empty() || !printer.print(&line, &mut out, &mut err).unwrap() {
                return (out, err);
            }
        }
    }

    fn all() -> Wanted {
        Wanted { since: None, timestamps: false, stream: None, limit: None }
    }

    #[test]
    fn lines_go_to_their_stream_byte_by_byte() {
        let (out, err) = printed(LOG, all());
        assert_eq!((&*out, &*err), (&b"one\n three \n"[..], &b"two\x1b[2J\xff\n"[..]));
        let (out, err) = printed(LOG, Wanted { timestamps: true, stream: Some(true), ..all() });
        assert_eq!((&*out, &*err), (&b""[..], &b"2026-01-01T00:00:02Z two\x1b[2J\xff\n"[..]));
        let since = Some("2026-01-01T00:00:02Z".parse().unwrap());
        assert_eq!(printed(LOG, Wanted { since, ..all() }).0, b"");
        assert_eq!(printed(LOG, Wanted { limit: Some(2), ..all() }).0, b"on");
        assert_eq!(printed(LOG, Wanted { limit: Some(0), ..all() }).0, b"");
    }

    #[test]
    fn what_no_runtime_writes_is_passed_over() {
        for line in [
            &b""[..],
            b"\n",
            b"2026-01-01T00:00:01Z",
            b"2026-01-01T00:00:01Z stdout",
            b"2026-01-01T00:00:01Z stdin F x\n",
            b"2026-01-01T00:00:01Z stdout F",
            b"\xff stdout F x\n",
            b"yesterday stdout F x\n",
        ] {
            assert_eq!(parse(line), None, "{line:?}");
        }
        assert_eq!(printed(&vec![b'x'; 1 << 20], all()), (Vec::new(), Vec::new()));
    }

    #[test]
    fn a_tail_begins_where_its_lines_do() {
        let tail = |text: &[u8], lines| start_of_tail(&mut Cursor::new(text), lines).unwrap();
        assert_eq!(tail(b"a\nbb\nccc\n", 0), 9);
        assert_eq!(tail(b"a\nbb\nccc\n", 1), 5);
        assert_eq!(tail(b"a\nbb\nccc\n", 2), 2);
        assert_eq!(tail(b"a\nbb\nccc\n", 9), 0);
        assert_eq!(tail(b"", 3), 0);
        let long = [vec![b'x'; 200_000], b"\ny\n".to_vec()].concat();
        assert_eq!(tail(&long, 1), 200_001);
    }

    #[test]
    fn moments_are_told_in_many_ways() {
        let now: jiff::Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
        for (text, wanted) in [
            ("24h", "2026-01-01T00:00:00Z"),
            ("2026-01-01", "2026-01-01T00:00:00Z"),
            ("2026-01-01T05:06", "2026-01-01T05:06:00Z"),
            ("2026-01-01T05:06:07.25", "2026-01-01T05:06:07.25Z"),
            ("2026-01-01T05:06:07+01:00", "2026-01-01T04:06:07Z"),
            ("1700000000.5", "2023-11-14T22:13:20.5Z"),
        ] {
            assert_eq!(since(text, now).unwrap().unwrap().to_string(), wanted, "{text}");
        }
        assert!(since("", now).unwrap().is_none());
        for text in ["soon", "2026-99-01", "99999999999999999999", "1.x", "é.é"] {
            assert!(since(text, now).is_err(), "{text}");
        }
    }
}
