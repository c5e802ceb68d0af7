//! PEM as Go's `encoding/pem` reads it: lenient about what is around blocks, strict inside.
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"-----END ";
const DASHES: &[u8] = b"-----";

#[derive(Debug, PartialEq)]
pub struct Block {
    /// `CERTIFICATE` and the like.
    pub kind: String,
    pub has_headers: bool,
    pub bytes: Vec<u8>,
}

/// The blocks of a text, one after the other. What is none is passed over.
pub fn blocks(text: &[u8]) -> Blocks<'_> {
    Blocks { rest: text }
}

pub struct Blocks<'t> {
    /// What follows the last one that was given out.
    pub rest: &'t [u8],
}

impl Iterator for Blocks<'_> {
    type Item = Block;

    fn next(&mut self) -> Option<Block> {
        let (block, rest) = next(self.rest)?;
        self.rest = rest;
        Some(block)
    }
}

/// A block as text, in lines of 64 letters.
pub fn encode(kind: &str, bytes: &[u8]) -> String {
    let letters = STANDARD.encode(bytes);
    let mut text = format!("-----BEGIN {kind}-----\n");
    for start in (0..letters.len()).step_by(64) {
        text.push_str(&letters[start..letters.len().min(start + 64)]);
        text.push('\n');
    }
    text.push_str(&format!("-----END {kind}-----\n"));
    text
}

/// The first sound block, and what follows its last line.
fn next(text: &[u8]) -> Option<(Block, &[u8])> {
    let mut rest = text;
    loop {
        let end = find(rest, END)?;
        let after = &rest[end + END.len()..];
        // Of several beginnings before an end the last counts.
        let begin = find_last(&rest[..end], BEGIN);
        let begin = begin.filter(|begin| *begin == 0 || rest[begin - 1] == b'\n');
        let block = begin.and_then(|begin| read(&rest[begin + BEGIN.len()..end], after));
        if let Some(block) = block {
            return Some((block, line(after).1));
        }
        rest = after;
    }
}

/// A block from what is between the words of its beginning and its end, and what follows those.
fn read(inside: &[u8], after: &[u8]) -> Option<Block> {
    let (kind, mut body) = line(inside);
    let kind = kind.strip_suffix(DASHES)?;
    let mut has_headers = false;
    loop {
        let (first, next) = line(body);
        if !first.contains(&b':') {
            break;
        }
        (has_headers, body) = (true, next);
    }
    let (last, _) = line(after.strip_prefix(kind)?.strip_prefix(DASHES)?);
    // An end begins a line, unless the block is empty.
    let at_line = inside.ends_with(b"\n");
    if !last.is_empty() || !at_line {
        return None;
    }
    let kept: Vec<u8> =
        body.iter().copied().filter(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).collect();
    let bytes = STANDARD.decode(kept).ok()?;
    Some(Block { kind: String::from_utf8_lossy(kind).into_owned(), has_headers, bytes })
}

/// A line without the blanks at its end, and what follows it.
fn line(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|byte| *byte == b'\n');
    let (line, rest) = end.map_or((text, &text[text.len()..]), |i| (&text[..i], &text[i + 1..]));
    let kept = line.iter().rposition(|byte| !matches!(byte, b' ' | b'\t' | b'\r'));
    (&line[..kept.map_or(0, |i| i + 1)], rest)
}

fn find(text: &[u8], word: &[u8]) -> Option<usize> {
    text.windows(word.len()).position(|window| window == word)
}

fn find_last(text: &[u8], word: &[u8]) -> Option<usize> {
    text.windows(word.len()).rposition(|window| window == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for size in [0, 1, 47, 48, 49, 200] {
            let bytes = vec![7; size];
            let text = encode("A", &bytes);
            assert!(text.lines().all(|line| line.len() <= 64), "{text}");
            let read: Vec<Block> = blocks(text.as_bytes()).collect();
            assert_eq!(read, [Block { kind: "A".to_owned(), has_headers: false, bytes }]);
        }
    }

    #[test]
    fn blocks_are_what_is_sound() {
        let said = |text: &str| {
            let show = |block: Block| {
                let headers = if block.has_headers { " with headers" } else { "" };
                format!("{}{headers} {}", block.kind, block.bytes.len())
            };
            blocks(text.as_bytes()).map(show).collect::<Vec<_>>().join(", ")
        };
        for (text, want) in [
            ("", ""),
            ("-----BEGIN A-----\nYQ==\n-----END A-----", "A 1"),
            ("before\n-----BEGIN A-----\r\nYQ==\r\n-----END A-----\nafter", "A 1"),
            ("x-----BEGIN A-----\nYQ==\n-----END A-----\n", ""),
            ("-----BEGIN A-----\n-----END A-----\n", "A 0"),
            ("-----BEGIN A-----\nk: v\n\nYQ==\n-----END A-----\n", "A with headers 1"),
            ("-----BEGIN A-----\nYQ==\n-----END B-----\n", ""),
            ("-----BEGIN A-----\nno base64!\n-----END A-----\n", ""),
            ("-----BEGIN A-----\n-----BEGIN B-----\nYQ==\n-----END B-----\n", "B 1"),
            (
                "-----BEGIN A-----\nYQ==\n-----END A-----\n-----BEGIN B-----\nYWI=\n-----END B-----\n",
                "A 1, B 2",
            ),
            ("-----BEGIN A-----\nYQ==\n-----END A----- x\n", ""),
        ] {
            assert_eq!(said(text), want, "{text}");
        }
    }
}
