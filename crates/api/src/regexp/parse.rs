//! Go's grammar: what is around the classes and escapes.
//!
//! A pattern is read from left to right, and the first thing that is wrong is told. Groups that are
//! open are kept on a stack of ours, so that a pattern cannot exhaust the thread's.
use super::{Error, Fault, class, escape};
use regex_syntax::hir::{Class, Dot, Hir, Look, Repetition};

/// So deep may a pattern nest, so many instructions may it come to, and so often may it repeat.
const DEPTH: u32 = 1000;
const SIZE: u64 = (128 << 20) / 40;
const REPEATS: u32 = 1000;

#[derive(Clone, Copy)]
struct Flags {
    fold: bool,
    multi_line: bool,
    dot_matches_line: bool,
    lazy: bool,
}

/// A part of the pattern, and how Go counts it against its limits.
struct Part {
    hir: Hir,
    depth: u32,
    size: u64,
    /// The product of the repetitions on the way to its innermost part.
    repeats: u32,
}

/// What has been read of a group.
struct Group {
    captures: bool,
    /// What holds again after the group.
    flags: Flags,
    alternatives: Vec<Part>,
    parts: Vec<Part>,
}

struct Parser<'p> {
    pattern: &'p str,
    rest: &'p str,
    flags: Flags,
    /// The last is the one that is being read; the first is the whole pattern.
    groups: Vec<Group>,
}

pub fn parse(pattern: &str) -> Result<Hir, Error> {
    let flags = Flags { fold: false, multi_line: false, dot_matches_line: false, lazy: false };
    let whole = Group { captures: false, flags, alternatives: Vec::new(), parts: Vec::new() };
    let mut parser = Parser { pattern, rest: pattern, flags, groups: vec![whole] };
    // Where the operator began that came just before.
    let mut repeated = None;
    while let Some(first) = parser.rest.chars().next() {
        repeated = parser.step(first, repeated)?;
    }
    match parser.groups.pop() {
        Some(whole) if parser.groups.is_empty() => Ok(whole.close(pattern)?.hir),
        _ => Err(Fault::MissingParen.of(pattern)),
    }
}

impl<'p> Parser<'p> {
    /// Reads one thing. The answer is where it begins if it is a repetition.
    fn step(&mut self, first: char, repeated: Option<&str>) -> Result<Option<&'p str>, Error> {
        let (before, after) = (self.rest, &self.rest[first.len_utf8()..]);
        self.rest = after;
        match first {
            '(' if after.starts_with('?') => self.perl_group(before)?,
            '(' => self.open(true),
            ')' => self.close_group()?,
            '|' => {
                let pattern = self.pattern;
                let group = self.group();
                let alternative = concat(std::mem::take(&mut group.parts), pattern)?;
                group.alternatives.push(alternative);
            }
            '^' if self.flags.multi_line => self.look(Look::StartLF)?,
            '^' => self.look(Look::Start)?,
            '$' if self.flags.multi_line => self.look(Look::EndLF)?,
            '$' => self.look(Look::End)?,
            '.' if self.flags.dot_matches_line => self.push(Hir::dot(Dot::AnyChar))?,
            '.' => self.push(Hir::dot(Dot::AnyCharExceptLF))?,
            '[' => {
                let (class, rest) = class::bracketed(before, self.flags.fold)?;
                self.rest = rest;
                self.push(Hir::class(Class::Unicode(class)))?;
            }
            '*' => return self.repeat(before, (0, None), repeated),
            '+' => return self.repeat(before, (1, None), repeated),
            '?' => return self.repeat(before, (0, Some(1)), repeated),
            '{' => match count(after) {
                Some((bounds, rest)) => {
                    self.rest = rest;
                    let Some(bounds) = bounds else {
                        return Err(Fault::RepeatSize.of(self.since(before)));
                    };
                    return self.repeat(before, bounds, repeated);
                }
                None => self.literal('{'.into())?,
            },
            '\\' => self.escape(before)?,
            other => self.literal(other.into())?,
        }
        Ok(None)
    }

    fn escape(&mut self, before: &'p str) -> Result<(), Error> {
        let mut rest = before[1..].chars();
        let letter = rest.next();
        let look = match letter {
            Some('A') => Some(Look::Start),
            Some('z') => Some(Look::End),
            Some('b') => Some(Look::WordAscii),
            Some('B') => Some(Look::WordAsciiNegate),
            _ => None,
        };
        if let Some(look) = look {
            self.rest = rest.as_str();
            return self.look(look);
        }
        if letter == Some('Q') {
            let (quoted, rest) = rest.as_str().split_once("\\E").unwrap_or((rest.as_str(), ""));
            self.rest = rest;
            return quoted.chars().try_for_each(|c| self.literal(c.into()));
        }
        if let Some((class, rest)) = class::escaped(before, self.flags.fold)? {
            self.rest = rest;
            return self.push(Hir::class(Class::Unicode(class)));
        }
        let (character, rest) = escape::character(before)?;
        self.rest = rest;
        self.literal(character)
    }

    /// `(?:`, `(?i)`, `(?P<name>` and the like.
    fn perl_group(&mut self, before: &'p str) -> Result<(), Error> {
        let inside = &before[2..];
        let name = inside.strip_prefix("P<").or_else(|| inside.strip_prefix('<'));
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            let (name, rest) =
                name.split_once('>').ok_or_else(|| Fault::NamedCapture.of(before))?;
            self.rest = rest;
            let known = |c: char| c == '_' || c.is_ascii_alphanumeric();
            if name.is_empty() || !name.chars().all(known) {
                return Err(Fault::NamedCapture.of(self.since(before)));
            }
            self.open(true);
            return Ok(());
        }
        let (mut flags, mut on, mut any) = (self.flags, true, true);
        let mut rest = inside.chars();
        while let Some(c) = rest.next() {
            self.rest = rest.as_str();
            match c {
                'i' => flags.fold = on,
                'm' => flags.multi_line = on,
                's' => flags.dot_matches_line = on,
                'U' => flags.lazy = on,
                '-' if on => {
                    (on, any) = (false, false);
                    continue;
                }
                ':' | ')' if any => {
                    if c == ':' {
                        self.open(false);
                    }
                    self.flags = flags;
                    return Ok(());
                }
                _ => return Err(Fault::PerlOp.of(self.since(before))),
            }
            any = true;
        }
        Err(Fault::PerlOp.of(before))
    }

    fn open(&mut self, captures: bool) {
        let flags = self.flags;
        self.groups.push(Group { captures, flags, alternatives: Vec::new(), parts: Vec::new() });
    }

    fn close_group(&mut self) -> Result<(), Error> {
        let group = self.groups.pop().filter(|_| !self.groups.is_empty());
        let group = group.ok_or_else(|| Fault::UnexpectedParen.of(self.pattern))?;
        self.flags = group.flags;
        let captures = group.captures;
        let mut part = group.close(self.pattern)?;
        if captures {
            (part.depth, part.size) = (part.depth + 1, part.size + 2);
        }
        self.add(part)
    }

    /// The last part, so often. Go's `before` and `after` are what the messages show.
    fn repeat(
        &mut self,
        before: &'p str,
        (min, max): (u32, Option<u32>),
        repeated: Option<&str>,
    ) -> Result<Option<&'p str>, Error> {
        let mut greedy = !self.flags.lazy;
        if let Some(rest) = self.rest.strip_prefix('?') {
            (self.rest, greedy) = (rest, !greedy);
        }
        if let Some(first) = repeated {
            return Err(Fault::RepeatOp.of(&first[..first.len() - self.rest.len()]));
        }
        let operator = self.since(before);
        let Some(part) = self.group().parts.pop() else {
            return Err(Fault::MissingRepeatArgument.of(operator));
        };
        let size = match (min, max) {
            (0, None) => 2 + part.size,
            (0, Some(1)) | (1, None) => 1 + part.size,
            (min, None) => 1 + u64::from(min) * part.size,
            (min, Some(max)) => u64::from(max) * part.size + u64::from(max - min),
        };
        let counted = operator.starts_with('{');
        let repeats = match max.unwrap_or(min).max(1) {
            _ if max == Some(0) => 1,
            times if counted => part.repeats.saturating_mul(times),
            _ => part.repeats,
        };
        let sub = Box::new(part.hir);
        let hir = Hir::repetition(Repetition { min, max, greedy, sub });
        self.add(Part { hir, depth: part.depth + 1, size: size.max(1), repeats })?;
        if repeats > REPEATS && (min >= 2 || max.is_some_and(|max| max >= 2)) {
            return Err(Fault::RepeatSize.of(operator));
        }
        Ok(Some(before))
    }

    fn literal(&mut self, character: u32) -> Result<(), Error> {
        let class = class::folded(class::range_of(character, character), self.flags.fold);
        self.push(Hir::class(Class::Unicode(class)))
    }

    fn look(&mut self, look: Look) -> Result<(), Error> {
        self.push(Hir::look(look))
    }

    fn push(&mut self, hir: Hir) -> Result<(), Error> {
        self.add(Part { hir, depth: 1, size: 1, repeats: 1 })
    }

    fn add(&mut self, part: Part) -> Result<(), Error> {
        part.within_limits(self.pattern)?;
        self.group().parts.push(part);
        Ok(())
    }

    fn group(&mut self) -> &mut Group {
        self.groups.last_mut().expect("the whole pattern is the first group until the end")
    }

    /// The text from there to where we are.
    fn since(&self, before: &'p str) -> &'p str {
        &before[..before.len() - self.rest.len()]
    }
}

impl Group {
    fn close(mut self, pattern: &str) -> Result<Part, Error> {
        let last = concat(self.parts, pattern)?;
        if self.alternatives.is_empty() {
            return Ok(last);
        }
        self.alternatives.push(last);
        let between = self.alternatives.len() as u64 - 1;
        joined(self.alternatives, between, Hir::alternation, pattern)
    }
}

fn concat(mut parts: Vec<Part>, pattern: &str) -> Result<Part, Error> {
    match parts.len() {
        0 => Ok(Part { hir: Hir::empty(), depth: 1, size: 1, repeats: 1 }),
        1 => Ok(parts.remove(0)),
        _ => joined(parts, 0, Hir::concat, pattern),
    }
}

fn joined(
    parts: Vec<Part>,
    more: u64,
    join: fn(Vec<Hir>) -> Hir,
    pattern: &str,
) -> Result<Part, Error> {
    let depth = 1 + parts.iter().map(|part| part.depth).max().unwrap_or(0);
    let size = more + parts.iter().map(|part| part.size).sum::<u64>();
    let repeats = parts.iter().map(|part| part.repeats).max().unwrap_or(1);
    let hir = join(parts.into_iter().map(|part| part.hir).collect());
    let part = Part { hir, depth, size, repeats };
    part.within_limits(pattern)?;
    Ok(part)
}

impl Part {
    fn within_limits(&self, pattern: &str) -> Result<(), Error> {
        match () {
            () if self.size > SIZE => Err(Fault::Large.of(pattern)),
            () if self.depth > DEPTH => Err(Fault::NestingDepth.of(pattern)),
            () => Ok(()),
        }
    }
}

/// The bounds of a repetition in braces and what follows them; without bounds if they are too big or
/// the wrong way round. What has another form is text.
#[allow(clippy::type_complexity)]
fn count(text: &str) -> Option<(Option<(u32, Option<u32>)>, &str)> {
    let (min, rest) = number(text)?;
    let (max, rest) = match rest.strip_prefix(',') {
        None => (Some(min), rest),
        Some(rest) if rest.starts_with('}') => (None, rest),
        Some(rest) => {
            let (max, rest) = number(rest)?;
            (Some(max), rest)
        }
    };
    let rest = rest.strip_prefix('}')?;
    let sound = min <= REPEATS && max.is_none_or(|max| min <= max && max <= REPEATS);
    Some((sound.then_some((min, max)), rest))
}

/// Digits without a zero in front.
fn number(text: &str) -> Option<(u32, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let digits = &text[..end];
    let zero = digits.len() > 1 && digits.starts_with('0');
    let sound = !digits.is_empty() && !zero;
    sound.then(|| (digits.parse().unwrap_or(u32::MAX), &text[end..]))
}
