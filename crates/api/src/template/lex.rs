//! Text → tokens, as `text/template/parse/lex.go` has them.

use crate::quote::Quoted;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Error,
    Bool,
    Char,
    CharConstant,
    Complex,
    Assign,
    Declare,
    Eof,
    Field,
    Identifier,
    LeftDelim,
    LeftParen,
    Number,
    Pipe,
    RawString,
    RightDelim,
    RightParen,
    Space,
    String,
    Text,
    Variable,
    // Keywords.
    Block,
    Break,
    Continue,
    Dot,
    Define,
    Else,
    End,
    If,
    Nil,
    Range,
    Template,
    With,
}

const KEYWORDS: &[(&str, Kind)] = &[
    (".", Kind::Dot),
    ("block", Kind::Block),
    ("break", Kind::Break),
    ("continue", Kind::Continue),
    ("define", Kind::Define),
    ("else", Kind::Else),
    ("end", Kind::End),
    ("if", Kind::If),
    ("nil", Kind::Nil),
    ("range", Kind::Range),
    ("template", Kind::Template),
    ("with", Kind::With),
];

impl Kind {
    fn is_keyword(self) -> bool {
        KEYWORDS.iter().any(|(_, kind)| *kind == self)
    }
}

/// A token, with where it begins.
#[derive(Clone, Debug)]
pub struct Token {
    pub kind: Kind,
    pub position: usize,
    pub line: usize,
    pub text: String,
}

/// As messages show it.
impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.kind {
            Kind::Eof => f.write_str("EOF"),
            Kind::Error => f.write_str(&self.text),
            kind if kind.is_keyword() => write!(f, "<{}>", self.text),
            _ if self.text.len() > 10 => {
                write!(f, "{}...", Quoted(&self.text.chars().take(10).collect::<String>()))
            }
            _ => write!(f, "{}", Quoted(&self.text)),
        }
    }
}

/// All tokens of a text. The last is the end, after an error if there is one.
pub fn tokens(text: &str) -> Vec<Token> {
    let mut lexer = Lexer { input: text, at: 0, parens: 0, tokens: Vec::new() };
    if let Err((position, fault)) = lexer.run() {
        lexer.push_at(Kind::Error, position, fault);
    }
    let end = lexer.at;
    lexer.push_at(Kind::Eof, end, "EOF".to_owned());
    lexer.tokens
}

struct Lexer<'t> {
    input: &'t str,
    at: usize,
    parens: usize,
    tokens: Vec<Token>,
}

/// Where a token begins that cannot be read, and why.
type Fault = (usize, String);

const LEFT: &str = "{{";
const RIGHT: &str = "}}";

impl<'t> Lexer<'t> {
    fn run(&mut self) -> Result<(), Fault> {
        loop {
            let Some(length) = self.rest().find(LEFT) else {
                let start = self.at;
                self.at = self.input.len();
                if self.at > start {
                    self.push(Kind::Text, start);
                }
                return Ok(());
            };
            self.text(length);
            self.action()?;
        }
    }

    fn rest(&self) -> &'t str {
        self.input.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn push(&mut self, kind: Kind, start: usize) {
        self.push_at(kind, start, self.input[start..self.at].to_owned());
    }

    fn push_at(&mut self, kind: Kind, position: usize, text: String) {
        let line = 1 + self.input[..position].matches('\n').count();
        self.tokens.push(Token { kind, position, line, text });
    }

    /// Plain text up to a left delimiter, whose marker may trim it.
    fn text(&mut self, length: usize) {
        let start = self.at;
        let text = &self.input[start..start + length];
        let after = &self.input[start + length + LEFT.len()..];
        let kept = if has_left_marker(after) { text.trim_end_matches(is_space) } else { text };
        self.at = start + kept.len();
        if !kept.is_empty() {
            self.push(Kind::Text, start);
        }
        self.at = start + length;
    }

    fn action(&mut self) -> Result<(), Fault> {
        let start = self.at;
        self.at += LEFT.len();
        let marker = if has_left_marker(self.rest()) { 2 } else { 0 };
        if self.rest()[marker..].starts_with("/*") {
            self.at += marker;
            return self.comment();
        }
        self.push(Kind::LeftDelim, start);
        self.at += marker;
        self.parens = 0;
        while !self.inside()? {}
        Ok(())
    }

    fn comment(&mut self) -> Result<(), Fault> {
        let start = self.at;
        let Some(length) = self.rest()[2..].find("*/") else {
            return Err((start, "unclosed comment".to_owned()));
        };
        self.at += 2 + length + 2;
        if self.right().is_none() {
            return Err((start, "comment ends before closing delimiter".to_owned()));
        }
        self.close();
        Ok(())
    }

    /// Whether a right delimiter is next, and how long it is with its marker.
    fn right(&self) -> Option<usize> {
        let rest = self.rest();
        let mut chars = rest.chars();
        if chars.next().is_some_and(is_space) && rest[1..].starts_with("-}}") {
            return Some(2);
        }
        rest.starts_with(RIGHT).then_some(0)
    }

    /// Steps over the right delimiter, and over what its marker trims. Where the delimiter began.
    fn close(&mut self) -> usize {
        let marker = self.right().unwrap_or_default();
        self.at += marker;
        let start = self.at;
        self.at += RIGHT.len();
        if marker > 0 {
            let rest = self.rest();
            self.at += rest.len() - rest.trim_start_matches(is_space).len();
        }
        start
    }

    /// One token inside an action; true when the action has ended.
    fn inside(&mut self) -> Result<bool, Fault> {
        let start = self.at;
        if self.right().is_some() {
            if self.parens > 0 {
                return Err((start, "unclosed left paren".to_owned()));
            }
            let delimiter = self.close();
            self.push_at(Kind::RightDelim, delimiter, RIGHT.to_owned());
            return Ok(true);
        }
        let Some(c) = self.next() else {
            return Err((start, "unclosed action".to_owned()));
        };
        match c {
            c if is_space(c) => self.space(start),
            '=' => self.push(Kind::Assign, start),
            ':' => {
                if self.next() != Some('=') {
                    return Err((start, "expected :=".to_owned()));
                }
                self.push(Kind::Declare, start);
            }
            '|' => self.push(Kind::Pipe, start),
            '"' => self.quote(start, '"', Kind::String, "unterminated quoted string")?,
            '\'' => {
                self.quote(start, '\'', Kind::CharConstant, "unterminated character constant")?;
            }
            '`' => {
                let Some(length) = self.rest().find('`') else {
                    return Err((start, "unterminated raw quoted string".to_owned()));
                };
                self.at += length + 1;
                self.push(Kind::RawString, start);
            }
            '$' => self.word(start, Kind::Variable)?,
            '.' if !self.peek().is_some_and(|c| c.is_ascii_digit()) => match self.peek() {
                None => return Err((start, "unclosed action".to_owned())),
                Some(_) => self.word(start, Kind::Field)?,
            },
            '.' | '+' | '-' | '0'..='9' => {
                self.at = start;
                self.number()?;
            }
            c if is_alphanumeric(c) => self.identifier(start)?,
            '(' => {
                self.parens += 1;
                self.push(Kind::LeftParen, start);
            }
            ')' => {
                let Some(parens) = self.parens.checked_sub(1) else {
                    return Err((start, "unexpected right paren".to_owned()));
                };
                self.parens = parens;
                self.push(Kind::RightParen, start);
            }
            ' '..='~' => self.push(Kind::Char, start),
            c => return Err((start, format!("unrecognized character in action: {}", shown(c)))),
        }
        Ok(false)
    }

    fn space(&mut self, start: usize) {
        while self.peek().is_some_and(is_space) {
            self.next();
        }
        // The last space may belong to a delimiter that trims.
        if self.rest().starts_with("-}}") {
            self.at -= 1;
        }
        if self.at > start {
            self.push(Kind::Space, start);
        }
    }

    fn quote(&mut self, start: usize, end: char, kind: Kind, fault: &str) -> Result<(), Fault> {
        loop {
            match self.next() {
                Some('\\') if self.peek().is_some_and(|c| c != '\n') => {
                    self.next();
                }
                None | Some('\n' | '\\') => return Err((start, fault.to_owned())),
                Some(c) if c == end => break,
                Some(_) => {}
            }
        }
        self.push(kind, start);
        Ok(())
    }

    /// The rest of `.field` or `$variable`; alone they are the dot and the root.
    fn word(&mut self, start: usize, kind: Kind) -> Result<(), Fault> {
        if self.at_end_of_word() {
            self.push(if kind == Kind::Field { Kind::Dot } else { kind }, start);
            return Ok(());
        }
        self.letters(start)?;
        self.push(kind, start);
        Ok(())
    }

    fn letters(&mut self, start: usize) -> Result<(), Fault> {
        while self.peek().is_some_and(is_alphanumeric) {
            self.next();
        }
        match self.at_end_of_word() {
            true => Ok(()),
            false => Err((start, format!("bad character {}", shown(self.peek().unwrap_or('\0'))))),
        }
    }

    fn identifier(&mut self, start: usize) -> Result<(), Fault> {
        self.letters(start)?;
        let word = &self.input[start..self.at];
        let keyword = KEYWORDS.iter().find(|(name, _)| *name == word).map(|(_, kind)| *kind);
        let kind = match word {
            "true" | "false" => Kind::Bool,
            _ => keyword.unwrap_or(Kind::Identifier),
        };
        self.push(kind, start);
        Ok(())
    }

    fn at_end_of_word(&self) -> bool {
        match self.peek() {
            None | Some('.' | ',' | '|' | ':' | ')' | '(') => true,
            Some(c) if is_space(c) => true,
            Some(_) => self.rest().starts_with(RIGHT),
        }
    }

    fn number(&mut self) -> Result<(), Fault> {
        let start = self.at;
        let bad = |lexer: &Lexer<'_>| {
            let text = Quoted(&lexer.input[start..lexer.at]);
            (start, format!("bad number syntax: {text}"))
        };
        if !self.scan_number() {
            return Err(bad(self));
        }
        if matches!(self.peek(), Some('+' | '-')) {
            // An imaginary part follows without a space.
            if !self.scan_number() || !self.input[..self.at].ends_with('i') {
                return Err(bad(self));
            }
            self.push(Kind::Complex, start);
            return Ok(());
        }
        self.push(Kind::Number, start);
        Ok(())
    }

    fn scan_number(&mut self) -> bool {
        const DECIMAL: &str = "0123456789_";
        const HEX: &str = "0123456789abcdefABCDEF_";
        self.accept("+-");
        let mut digits = DECIMAL;
        if self.accept("0") {
            if self.accept("xX") {
                digits = HEX;
            } else if self.accept("oO") {
                digits = "01234567_";
            } else if self.accept("bB") {
                digits = "01_";
            }
        }
        self.accept_run(digits);
        if self.accept(".") {
            self.accept_run(digits);
        }
        let exponent = match digits {
            DECIMAL => "eE",
            HEX => "pP",
            _ => "",
        };
        if self.accept(exponent) {
            self.accept("+-");
            self.accept_run(DECIMAL);
        }
        self.accept("i");
        if self.peek().is_some_and(is_alphanumeric) {
            self.next();
            return false;
        }
        true
    }

    fn accept(&mut self, allowed: &str) -> bool {
        let accepted = self.peek().is_some_and(|c| allowed.contains(c));
        if accepted {
            self.next();
        }
        accepted
    }

    fn accept_run(&mut self, allowed: &str) {
        while self.accept(allowed) {}
    }
}

fn has_left_marker(after: &str) -> bool {
    let mut chars = after.chars();
    chars.next() == Some('-') && chars.next().is_some_and(is_space)
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

fn is_alphanumeric(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// A character as Go's `%#U` shows it.
fn shown(c: char) -> String {
    match c {
        '\0'..=' ' | '\x7f' => format!("U+{:04X}", c as u32),
        _ => format!("U+{:04X} '{c}'", c as u32),
    }
}
