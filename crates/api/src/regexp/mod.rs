//! Regular expressions as Go has them, which is what patterns in Kubernetes mean.
//!
//! Rust's `regex` descends from the same RE2, and differs: it takes things that Go refuses (`[a&&b]`,
//! `(?x)`, `\<`) and the other way round (`\Q…\E`, `\pN` by other names, `{,5}` as text), its `\d`,
//! `\w` and `\b` are Unicode's, and its errors read otherwise. So a pattern is read here by Go's
//! grammar, with Go's errors, and only its meaning is handed on:
//!
//! ```text
//!  pattern ─► parse (+ escape, class) ─► Hir, regex's syntax-free form ─► matcher, when one is needed
//! ```
//!
//! Nothing of Rust's syntax is ever read. Groups are not captured: the question is whether there is a
//! match. Two things are not Go's: classes of Unicode are those of a later version (16 instead of 15),
//! and a matcher that would take more than [`MOST`] is refused.
mod class;
mod escape;
mod parse;
#[cfg(test)]
mod tests;

use regex_automata::meta;
use std::fmt;

/// So many bytes a matcher's automaton may take.
const MOST: usize = 64 << 20;
/// So many bytes it may use to remember what it saw, for each thread that matches with it.
const MOST_CACHED: usize = 256 << 10;

/// What is wrong with a pattern, and the part of it that is.
#[derive(Debug, Clone, PartialEq)]
pub struct Error {
    fault: Fault,
    part: String,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    CharRange,
    Escape,
    NamedCapture,
    PerlOp,
    RepeatOp,
    RepeatSize,
    MissingBracket,
    MissingParen,
    MissingRepeatArgument,
    TrailingBackslash,
    UnexpectedParen,
    NestingDepth,
    Large,
}

impl Fault {
    fn of(self, part: &str) -> Error {
        Error { fault: self, part: part.to_owned() }
    }
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fault = match self.fault {
            Fault::CharRange => "invalid character class range",
            Fault::Escape => "invalid escape sequence",
            Fault::NamedCapture => "invalid named capture",
            Fault::PerlOp => "invalid or unsupported Perl syntax",
            Fault::RepeatOp => "invalid nested repetition operator",
            Fault::RepeatSize => "invalid repeat count",
            Fault::MissingBracket => "missing closing ]",
            Fault::MissingParen => "missing closing )",
            Fault::MissingRepeatArgument => "missing argument to repetition operator",
            Fault::TrailingBackslash => "trailing backslash at end of expression",
            Fault::UnexpectedParen => "unexpected )",
            Fault::NestingDepth => "expression nests too deeply",
            Fault::Large => "expression too large",
        };
        write!(f, "error parsing regexp: {fault}: `{}`", self.part)
    }
}

/// Whether Go would compile the pattern.
pub fn check(pattern: &str) -> Result<(), Error> {
    parse::parse(pattern).map(drop)
}

/// A pattern to match texts with.
pub struct Regexp(meta::Regex);

impl Regexp {
    pub fn compile(pattern: &str) -> Result<Regexp, Error> {
        Regexp::compile_within(pattern, MOST)
    }

    /// The same for a matcher whose automaton may take so many bytes.
    pub fn compile_within(pattern: &str, bytes: usize) -> Result<Regexp, Error> {
        let hir = parse::parse(pattern)?;
        let config = meta::Config::new()
            .nfa_size_limit(Some(bytes))
            .hybrid_cache_capacity(MOST_CACHED)
            .onepass(false);
        let built = meta::Regex::builder().configure(config).build_from_hir(&hir);
        built.map(Regexp).map_err(|_| Fault::Large.of(pattern))
    }

    /// What the compiled form takes in memory, in bytes.
    pub fn size(&self) -> usize {
        self.0.memory_usage()
    }

    /// Whether the text has a match somewhere in it.
    pub fn is_match(&self, text: &str) -> bool {
        self.0.is_match(text)
    }

    /// The matches in a text, one after the other, as Go's `FindAllString` has them: an empty one
    /// next to the one before is none.
    pub fn find_all<'t>(&self, text: &'t str) -> impl Iterator<Item = &'t str> {
        self.0.find_iter(text).map(move |found| &text[found.range()])
    }
}
