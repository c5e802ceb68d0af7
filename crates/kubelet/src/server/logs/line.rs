//! Lines of a container's log as CRI has them: `TIME STREAM F|P TEXT`. A `P` is part of a longer
//! line, which goes on in the next one of its stream.
use super::options::Options;
use jiff::Timestamp;

/// What the lines so far came to.
pub struct Writer {
    options: Options,
    remaining: u64,
    /// The last line was only part of one.
    within: bool,
}

impl Writer {
    pub fn new(options: Options) -> Writer {
        let remaining = options.limit.unwrap_or(u64::MAX);
        Writer { options, remaining, within: false }
    }

    /// Everything that may be sent has been.
    pub fn is_full(&self) -> bool {
        self.remaining == 0
    }

    /// Adds what is to be seen of a line, which is whole and has its end.
    pub fn write(&mut self, line: &[u8], out: &mut Vec<u8>) {
        let Some(read) = parse(line) else {
            // A machine that lost power may leave half a line.
            return tracing::debug!("a line of a log is no line of CRI's");
        };
        let begins = !std::mem::replace(&mut self.within, read.is_partial);
        let wanted = self.options.stream.is_none_or(|stream| stream.as_bytes() == read.stream);
        if !wanted || self.options.since.is_some_and(|since| read.time < since) {
            return;
        }
        let start = out.len();
        if self.options.timestamps && begins {
            out.extend(read.stamp);
            out.push(b' ');
        }
        out.extend(read.text);
        if !read.is_partial {
            out.push(b'\n');
        }
        let length = u64::try_from(out.len() - start).unwrap_or(u64::MAX);
        if length > self.remaining {
            out.truncate(start + usize::try_from(self.remaining).unwrap_or(0));
        }
        self.remaining = self.remaining.saturating_sub(length);
    }
}

struct Line<'a> {
    stamp: &'a [u8],
    time: Timestamp,
    stream: &'a [u8],
    is_partial: bool,
    text: &'a [u8],
}

fn parse(line: &[u8]) -> Option<Line<'_>> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let mut words = line.splitn(4, |byte| *byte == b' ');
    let stamp = words.next()?;
    let time = std::str::from_utf8(stamp).ok()?.parse().ok()?;
    let stream = words.next().filter(|stream| matches!(*stream, b"stdout" | b"stderr"))?;
    // There may be more tags one day: `P:other`.
    let tag = words.next()?.split(|byte| *byte == b':').next()?;
    Some(Line { stamp, time, stream, is_partial: tag == b"P", text: words.next()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &[&str] = &[
        "2026-01-01T00:00:01.5Z stdout F one",
        "2026-01-01T00:00:02Z stdout P two ",
        "2026-01-01T00:00:02Z stdout F halves",
        "nonsense",
        "2026-01-01T00:00:03Z stderr F ",
        "2026-01-01T00:00:04Z stderr F:x three  3",
    ];

    fn check(options: Options, expected: &str) {
        let mut writer = Writer::new(options);
        let mut out = Vec::new();
        for line in LOG {
            writer.write(format!("{line}\n").as_bytes(), &mut out);
        }
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn lines_are_joined_and_chosen() {
        let none = Options::default;
        check(none(), "one\ntwo halves\n\nthree  3\n");
        check(
            Options { timestamps: true, ..none() },
            "2026-01-01T00:00:01.5Z one\n2026-01-01T00:00:02Z two halves\n2026-01-01T00:00:03Z \n2026-01-01T00:00:04Z three  3\n",
        );
        check(Options { stream: Some("stdout"), ..none() }, "one\ntwo halves\n");
        check(Options { limit: Some(6), ..none() }, "one\ntw");
        let since = Some("2026-01-01T00:00:03Z".parse().unwrap());
        check(Options { since, ..none() }, "\nthree  3\n");
    }
}
