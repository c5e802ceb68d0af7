//! JSON's own syntax, read byte by byte as Go's scanner reads it, with its words for what is wrong.
//!
//! It is a serde deserializer of our own for the sake of what `serde_json` does not do: numbers
//! keep their spelling, broken UTF-8 and lone surrogates are repaired instead of refused, and a
//! syntax error reads as upstream's users know it.
use crate::quote::Quoted;
use serde::Deserializer;
use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;

pub(in crate::codec) struct Reader<'de> {
    bytes: &'de [u8],
    at: usize,
}

/// What is wrong with the bytes, in Go's words.
#[derive(Debug)]
pub(in crate::codec) struct SyntaxError(pub String);

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SyntaxError {}

impl serde::de::Error for SyntaxError {
    fn custom<T: fmt::Display>(text: T) -> Self {
        SyntaxError(text.to_string())
    }
}

type Result<T> = std::result::Result<T, SyntaxError>;

const VALUE: &str = "looking for beginning of value";

impl<'de> Reader<'de> {
    pub fn new(bytes: &'de [u8]) -> Self {
        Reader { bytes, at: 0 }
    }

    /// Checks the syntax of all that is left.
    pub fn check(bytes: &'de [u8]) -> Result<()> {
        let mut reader = Reader::new(bytes);
        reader.skip()?;
        reader.end()
    }

    /// There must be nothing after the value.
    pub fn end(&mut self) -> Result<()> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.unexpected("after top-level value")),
        }
    }

    /// The next byte that is not white space.
    pub fn peek(&mut self) -> Option<u8> {
        while let Some(&byte) = self.bytes.get(self.at) {
            if !matches!(byte, b' ' | b'\t' | b'\r' | b'\n') {
                return Some(byte);
            }
            self.at += 1;
        }
        None
    }

    fn byte(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// The byte here is not what the syntax allows between values.
    fn unexpected(&self, context: &str) -> SyntaxError {
        match self.byte() {
            Some(byte) => invalid(byte, context),
            None => SyntaxError("unexpected end of JSON input".to_owned()),
        }
    }

    /// The byte here is not what the syntax allows inside a value. Go ends its input with a space.
    fn broken(&self, context: &str) -> SyntaxError {
        invalid(self.byte().unwrap_or(b' '), context)
    }

    fn literal(&mut self, word: &'static str) -> Result<()> {
        for expected in word.bytes() {
            if self.byte() != Some(expected) {
                let context = format!("in literal {word} (expecting '{}')", expected as char);
                return Err(self.broken(&context));
            }
            self.at += 1;
        }
        Ok(())
    }

    fn digits(&mut self, context: &str) -> Result<()> {
        if !self.byte().is_some_and(|b| b.is_ascii_digit()) {
            return Err(self.broken(context));
        }
        while self.byte().is_some_and(|b| b.is_ascii_digit()) {
            self.at += 1;
        }
        Ok(())
    }

    /// A number's spelling, and whether it has neither fraction nor exponent.
    fn number(&mut self) -> Result<(&'de [u8], bool)> {
        let start = self.at;
        if self.byte() == Some(b'-') {
            self.at += 1;
        }
        match self.byte() {
            Some(b'0') => self.at += 1,
            _ => self.digits("in numeric literal")?,
        }
        let mut whole = true;
        if self.byte() == Some(b'.') {
            self.at += 1;
            whole = false;
            self.digits("after decimal point in numeric literal")?;
        }
        if let Some(b'e' | b'E') = self.byte() {
            self.at += 1;
            whole = false;
            if let Some(b'+' | b'-') = self.byte() {
                self.at += 1;
            }
            self.digits("in exponent of numeric literal")?;
        }
        Ok((&self.bytes[start..self.at], whole))
    }

    /// The bytes between the quotes, and whether there is an escape among them.
    fn quoted(&mut self) -> Result<(&'de [u8], bool)> {
        self.at += 1;
        let start = self.at;
        let mut escaped = false;
        loop {
            self.at += plain(&self.bytes[self.at..]);
            match self.byte() {
                Some(b'"') => break,
                Some(b'\\') => {
                    escaped = true;
                    self.at += 1;
                    self.escape()?;
                }
                Some(_) => return Err(self.broken("in string literal")),
                None => return Err(self.unexpected("")),
            }
        }
        self.at += 1;
        Ok((&self.bytes[start..self.at - 1], escaped))
    }

    fn escape(&mut self) -> Result<()> {
        match self.byte() {
            Some(b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"') => self.at += 1,
            Some(b'u') => {
                self.at += 1;
                for _ in 0..4 {
                    if !self.byte().is_some_and(|b| b.is_ascii_hexdigit()) {
                        return Err(self.broken("in \\u hexadecimal character escape"));
                    }
                    self.at += 1;
                }
            }
            _ => return Err(self.broken("in string escape code")),
        }
        Ok(())
    }

    pub fn string(&mut self) -> Result<Cow<'de, str>> {
        let (bytes, escaped) = self.quoted()?;
        if escaped {
            return Ok(Cow::Owned(repair(&unescape(bytes))));
        }
        Ok(std::str::from_utf8(bytes).map_or_else(|_| Cow::Owned(repair(bytes)), Cow::Borrowed))
    }

    fn key(&mut self) -> Result<Cow<'de, str>> {
        match self.peek() {
            Some(b'"') => self.string(),
            _ => Err(self.unexpected("looking for beginning of object key string")),
        }
    }

    fn colon(&mut self) -> Result<()> {
        match self.peek() {
            Some(b':') => self.at += 1,
            _ => return Err(self.unexpected("after object key")),
        }
        Ok(())
    }

    /// Steps into, along or out of a list or object; `false` at its end.
    fn more(&mut self, first: &mut bool, close: u8, context: &str) -> Result<bool> {
        let next = self.peek();
        if next == Some(close) {
            self.at += 1;
            return Ok(false);
        }
        if !std::mem::take(first) {
            if next != Some(b',') {
                return Err(self.unexpected(context));
            }
            self.at += 1;
            // No value may follow the last comma: the caller finds the closing bracket wanting.
            self.peek();
        }
        Ok(true)
    }

    /// Steps to the next key of an object, and behind its colon.
    pub fn next_key(&mut self, mut first: bool) -> Result<Option<Cow<'de, str>>> {
        if first && self.peek() == Some(b'{') {
            self.at += 1;
        }
        if !self.more(&mut first, b'}', context(b'}'))? {
            return Ok(None);
        }
        let key = self.key()?;
        self.colon()?;
        Ok(Some(key))
    }

    /// Steps to the next element of a list.
    pub fn next_element(&mut self, mut first: bool) -> Result<bool> {
        if first && self.peek() == Some(b'[') {
            self.at += 1;
        }
        self.more(&mut first, b']', context(b']'))
    }

    /// The bytes of the next value.
    pub fn raw(&mut self) -> Result<&'de [u8]> {
        self.peek();
        let start = self.at;
        self.skip()?;
        Ok(&self.bytes[start..self.at])
    }

    /// Passes over a value of any depth, without recursion.
    pub fn skip(&mut self) -> Result<()> {
        let mut open: Vec<u8> = Vec::new();
        let mut first = true;
        loop {
            match self.peek() {
                Some(b'{') => {
                    self.at += 1;
                    open.push(b'}');
                    first = true;
                }
                Some(b'[') => {
                    self.at += 1;
                    open.push(b']');
                    first = true;
                }
                Some(b'"') => drop(self.quoted()?),
                Some(b't') => self.literal("true")?,
                Some(b'f') => self.literal("false")?,
                Some(b'n') => self.literal("null")?,
                Some(b'-' | b'0'..=b'9') => drop(self.number()?),
                _ => return Err(self.unexpected(VALUE)),
            }
            // On to the next value, out of every list and object that ends here.
            loop {
                let Some(&close) = open.last() else { return Ok(()) };
                if self.more(&mut first, close, context(close))? {
                    if close == b'}' {
                        self.key()?;
                        self.colon()?;
                    }
                    break;
                }
                open.pop();
                first = false;
            }
        }
    }
}

/// How many bytes of a string mean just themselves: no quote, no backslash, no control character.
/// Long strings are looked at in blocks that the compiler turns into vectors, their rest eight
/// bytes at a time.
fn plain(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGH: u64 = ONES << 7;
    // The high bit of every byte that is less than `n`, which is at most 0x80; a borrow can only
    // reach the bytes above one that is found already.
    let below = |word: u64, n: u8| word.wrapping_sub(ONES * u64::from(n)) & !word & HIGH;
    let special = |byte: &u8| (*byte == b'"') | (*byte == b'\\') | (*byte < 0x20);
    let mut at = 0;
    while let Some(block) = bytes[at..].first_chunk::<32>() {
        // Every byte is looked at, so that there is no branch among them.
        if block.iter().fold(false, |found, byte| found | special(byte)) {
            break;
        }
        at += 32;
    }
    while let Some(chunk) = bytes[at..].first_chunk::<8>() {
        let word = u64::from_le_bytes(*chunk);
        let quote = below(word ^ (ONES * u64::from(b'"')), 1);
        let backslash = below(word ^ (ONES * u64::from(b'\\')), 1);
        let found = quote | backslash | below(word, 0x20);
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    bytes[at..].iter().position(special).map_or(bytes.len(), |found| at + found)
}

fn context(close: u8) -> &'static str {
    if close == b'}' { "after object key:value pair" } else { "after array element" }
}

fn invalid(byte: u8, context: &str) -> SyntaxError {
    let character = match byte {
        b'\'' => "\\'".to_owned(),
        b'"' => "\"".to_owned(),
        // A byte is taken for a character of the same number.
        _ => {
            let text = Quoted(&char::from(byte).to_string()).to_string();
            text[1..text.len() - 1].to_owned()
        }
    };
    SyntaxError(format!("invalid character '{character}' {context}"))
}

/// Go puts U+FFFD for every byte that is not part of a character.
pub(in crate::codec) fn repair(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        out.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    out
}

/// Resolves escapes that are known to be well formed.
fn unescape(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|b| *b == b'\\') {
        out.extend_from_slice(&rest[..at]);
        let byte = rest[at + 1];
        let mut length = 2;
        match byte {
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'u' => {
                let (character, taken) = unicode(&rest[at..]);
                length = taken;
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            }
            other => out.push(other),
        }
        rest = &rest[at + length..];
    }
    out.extend_from_slice(rest);
    out
}

/// The character that `\u` escapes spell, and their length: two make up a surrogate pair.
fn unicode(bytes: &[u8]) -> (char, usize) {
    let unit = |at: usize| {
        let hex = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
        u16::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()
    };
    let units = [unit(0), unit(6)].into_iter().map_while(|unit| unit);
    match char::decode_utf16(units).next() {
        Some(Ok(character)) => (character, 6 * character.len_utf16()),
        _ => (char::REPLACEMENT_CHARACTER, 6),
    }
}

impl<'de> Deserializer<'de> for &mut Reader<'de> {
    type Error = SyntaxError;

    /// A number that is no `i64` is visited as bytes, which JSON has no other use for.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.peek() {
            Some(b'{') => {
                self.at += 1;
                visitor.visit_map(Items { reader: self, first: true })
            }
            Some(b'[') => {
                self.at += 1;
                visitor.visit_seq(Items { reader: self, first: true })
            }
            Some(b'"') => match self.string()? {
                Cow::Borrowed(text) => visitor.visit_borrowed_str(text),
                Cow::Owned(text) => visitor.visit_string(text),
            },
            Some(b't') => self.literal("true").and_then(|()| visitor.visit_bool(true)),
            Some(b'f') => self.literal("false").and_then(|()| visitor.visit_bool(false)),
            Some(b'n') => self.literal("null").and_then(|()| visitor.visit_unit()),
            Some(b'-' | b'0'..=b'9') => {
                let (text, whole) = self.number()?;
                match integer(text).filter(|_| whole) {
                    Some(value) => visitor.visit_i64(value),
                    None => visitor.visit_borrowed_bytes(text),
                }
            }
            _ => Err(self.unexpected(VALUE)),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.skip()?;
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier
    }
}

pub(in crate::codec) fn integer(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// What is left of a list or an object.
struct Items<'r, 'de> {
    reader: &'r mut Reader<'de>,
    first: bool,
}

impl<'de> SeqAccess<'de> for Items<'_, 'de> {
    type Error = SyntaxError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>> {
        if !self.reader.more(&mut self.first, b']', context(b']'))? {
            return Ok(None);
        }
        seed.deserialize(&mut *self.reader).map(Some)
    }
}

impl<'de> MapAccess<'de> for Items<'_, 'de> {
    type Error = SyntaxError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>> {
        if !self.reader.more(&mut self.first, b'}', context(b'}'))? {
            return Ok(None);
        }
        let key = match self.reader.key()? {
            Cow::Borrowed(key) => {
                seed.deserialize(serde::de::value::BorrowedStrDeserializer::new(key))
            }
            Cow::Owned(key) => seed.deserialize(serde::de::value::StringDeserializer::new(key)),
        };
        key.map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value> {
        self.reader.colon()?;
        seed.deserialize(&mut *self.reader)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_first_byte_that_means_more_is_found_wherever_it_stands() {
        for length in (0..20).chain(60..70) {
            for around in [b'a', 0x20, b'!', b'#', b'[', b']', 0x7f, 0x80, 0xa2, 0xdc, 0xff] {
                let mut bytes = vec![around; length];
                assert_eq!(super::plain(&bytes), length, "{around:#x}");
                for at in 0..length {
                    for special in [b'"', b'\\', 0, 0x1f] {
                        bytes[at] = special;
                        assert_eq!(super::plain(&bytes), at, "{special:#x} among {around:#x}");
                    }
                    bytes[at] = around;
                }
            }
        }
    }
}
