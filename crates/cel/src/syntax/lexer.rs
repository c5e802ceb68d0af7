//! From characters to tokens.
use crate::issue::Issue;

#[derive(Debug, Clone, PartialEq)]
pub struct Token {
    pub kind: TokenKind,
    /// In characters.
    pub offset: u32,
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// An operator or a bracket; its text says which. `in`, `true`, `false` and `null` too.
    Symbol,
    Ident,
    /// A name in backticks.
    EscapedIdent,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    End,
}

const SYMBOLS: &[&str] = &[
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "[", "]", "{", "}", "(", ")", ".", ",", "-", "!",
    "?", ":", "+", "*", "/", "%",
];

const WORDS: &[&str] = &["in", "true", "false", "null"];

pub fn tokens(text: &str) -> (Vec<Token>, Vec<Issue>) {
    let characters: Vec<char> = text.chars().collect();
    let mut lexer =
        Lexer { characters: &characters, at: 0, tokens: Vec::new(), issues: Vec::new() };
    while lexer.at < characters.len() {
        lexer.next();
    }
    lexer.push(TokenKind::End, lexer.at, lexer.at);
    (lexer.tokens, lexer.issues)
}

struct Lexer<'c> {
    characters: &'c [char],
    at: usize,
    tokens: Vec<Token>,
    issues: Vec<Issue>,
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> char {
        self.characters.get(self.at + ahead).copied().unwrap_or('\0')
    }

    fn push(&mut self, kind: TokenKind, start: usize, end: usize) {
        let text = match kind {
            TokenKind::End => "<EOF>".to_owned(),
            _ => self.characters[start..end].iter().collect(),
        };
        self.tokens.push(Token { kind, offset: start as u32, text });
        self.at = end;
    }

    fn next(&mut self) {
        let (start, first) = (self.at, self.peek(0));
        match first {
            '\t' | ' ' | '\r' | '\n' | '\x0c' => self.at += 1,
            '/' if self.peek(1) == '/' => {
                while self.at < self.characters.len() && self.peek(0) != '\n' {
                    self.at += 1;
                }
            }
            '0'..='9' => self.number(),
            '.' if self.peek(1).is_ascii_digit() => self.number(),
            '"' | '\'' => self.string(start, 0, false, TokenKind::String),
            'A'..='Z' | 'a'..='z' | '_' => {
                if let Some((prefix, raw, kind)) = self.prefix() {
                    return self.string(start, prefix, raw, kind);
                }
                let mut end = start;
                while end < self.characters.len()
                    && (self.characters[end].is_ascii_alphanumeric() || self.characters[end] == '_')
                {
                    end += 1;
                }
                let word: String = self.characters[start..end].iter().collect();
                let is_word = WORDS.contains(&word.as_str());
                self.push(if is_word { TokenKind::Symbol } else { TokenKind::Ident }, start, end);
            }
            '`' => self.backticks(),
            _ => {
                let matches =
                    |symbol: &&&str| symbol.chars().enumerate().all(|(i, c)| self.peek(i) == c);
                match SYMBOLS.iter().find(matches) {
                    Some(symbol) => {
                        self.push(TokenKind::Symbol, start, start + symbol.chars().count());
                    }
                    // The lexer had begun a longer symbol, and names what spoiled it too.
                    None if "|&=".contains(first) => self.unknown(start, start + 2),
                    None => self.unknown(start, start + 1),
                }
            }
        }
    }

    fn unknown(&mut self, start: usize, end: usize) {
        let end = end.min(self.characters.len());
        let text: String = self.characters[start..end].iter().collect();
        let shown = text.replace('\n', "\\n").replace('\t', "\\t").replace('\r', "\\r");
        let message = format!("Syntax error: token recognition error at: '{shown}'");
        self.issues.push(Issue { offset: Some(start as u32), message });
        self.at = end;
    }

    /// What stands before a string's quote: `r`, `b`, `rb` and the like.
    fn prefix(&self) -> Option<(usize, bool, TokenKind)> {
        let is = |ahead: usize, set: [char; 2]| set.contains(&self.peek(ahead));
        let quote = |ahead: usize| is(ahead, ['"', '\'']);
        if is(0, ['r', 'R']) && quote(1) {
            Some((1, true, TokenKind::String))
        } else if is(0, ['b', 'B']) && quote(1) {
            Some((1, false, TokenKind::Bytes))
        } else if is(0, ['b', 'B']) && is(1, ['r', 'R']) && quote(2) {
            Some((2, true, TokenKind::Bytes))
        } else {
            None
        }
    }

    fn string(&mut self, start: usize, prefix: usize, raw: bool, kind: TokenKind) {
        let quote = self.peek(prefix);
        let triple = self.peek(prefix + 1) == quote && self.peek(prefix + 2) == quote;
        let mut end = start + prefix + if triple { 3 } else { 1 };
        loop {
            let Some(&character) = self.characters.get(end) else {
                return self.unknown(start, end);
            };
            if character == '\\' && !raw {
                end += 2;
            } else if !triple && matches!(character, '\n' | '\r') {
                return self.unknown(start, end + 1);
            } else if character == quote && !triple {
                end += 1;
                break;
            } else if character == quote
                && self.characters.get(end + 1) == Some(&quote)
                && self.characters.get(end + 2) == Some(&quote)
            {
                end += 3;
                break;
            } else {
                end += 1;
            }
        }
        self.push(kind, start, end);
    }

    fn number(&mut self) {
        let start = self.at;
        let digit = |at: usize| self.characters.get(at).is_some_and(char::is_ascii_digit);
        let is =
            |at: usize, set: [char; 2]| self.characters.get(at).is_some_and(|c| set.contains(c));
        let mut end = start;
        if self.peek(0) == '0' && self.peek(1) == 'x' && self.peek(2).is_ascii_hexdigit() {
            end += 2;
            while self.characters.get(end).is_some_and(char::is_ascii_hexdigit) {
                end += 1;
            }
            let unsigned = is(end, ['u', 'U']);
            let kind = if unsigned { TokenKind::Uint } else { TokenKind::Int };
            return self.push(kind, start, end + usize::from(unsigned));
        }
        while digit(end) {
            end += 1;
        }
        let mut double = false;
        if self.characters.get(end) == Some(&'.') && digit(end + 1) {
            double = true;
            end += 1;
            while digit(end) {
                end += 1;
            }
        }
        if is(end, ['e', 'E']) {
            let sign = usize::from(is(end + 1, ['+', '-']));
            if digit(end + 1 + sign) {
                double = true;
                end += 1 + sign;
                while digit(end) {
                    end += 1;
                }
            }
        }
        if double {
            self.push(TokenKind::Double, start, end);
        } else if is(end, ['u', 'U']) {
            self.push(TokenKind::Uint, start, end + 1);
        } else {
            self.push(TokenKind::Int, start, end);
        }
    }

    fn backticks(&mut self) {
        let start = self.at;
        let mut end = start + 1;
        while let Some(&character) = self.characters.get(end) {
            if character == '`' && end > start + 1 {
                return self.push(TokenKind::EscapedIdent, start, end + 1);
            }
            if !character.is_ascii_alphanumeric() && !"_.-/ ".contains(character) {
                break;
            }
            end += 1;
        }
        self.unknown(start, end + 1);
    }
}
