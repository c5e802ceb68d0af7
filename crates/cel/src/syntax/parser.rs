//! From tokens to a tree, by recursive descent.
use super::lexer::{Token, TokenKind, tokens};
use super::literal::unescape;
use super::macros::expand;
use super::{Entry, Expr, Id, Initializer, Item, Kind, Literal, Parsed};
use crate::issue::{Issue, Issues};

/// So many characters an expression may have (cel-go's `expressionSizeCodePointLimit`).
const MOST_CHARACTERS: usize = 100_000;

/// So deep expressions may nest (cel-go's `maxRecursionDepth`). The tree may be a little higher, for
/// macros put nodes in between.
const MOST_DEPTH: u32 = 250;
const MOST_HEIGHT: u32 = 300;

/// Names that are kept for later and for other languages.
const RESERVED: &[&str] = &[
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "package",
    "namespace",
    "null",
    "return",
    "true",
    "var",
    "void",
    "while",
];

const PRIMARY: &str = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, \
                       NUM_UINT, STRING, BYTES, IDENTIFIER}";

pub fn parse(text: &str) -> Result<Parsed, Issues> {
    let length = text.chars().count();
    if length > MOST_CHARACTERS {
        let message = format!(
            "expression code point size exceeds limit: size: {length}, limit {MOST_CHARACTERS}"
        );
        return Err(Issues::new("", vec![Issue { offset: None, message }]));
    }
    let (tokens, issues) = tokens(text);
    let mut parser = Parser { tokens, at: 0, positions: vec![0], issues, depth: 0 };
    let root = parser.whole();
    match root {
        Ok(root) if parser.issues.is_empty() => Ok(Parsed { root, positions: parser.positions }),
        _ => Err(Issues::new(text, parser.issues)),
    }
}

/// The fault is noted already: there is nothing more to read.
pub(super) struct Broken;

pub(super) struct Parser {
    tokens: Vec<Token>,
    at: usize,
    pub(super) positions: Vec<u32>,
    pub(super) issues: Vec<Issue>,
    depth: u32,
}

/// Left-associative operators by their tokens: how tight, and what they are called.
const OPERATORS: &[(&str, u8, &str)] = &[
    ("<", 1, "_<_"),
    ("<=", 1, "_<=_"),
    (">=", 1, "_>=_"),
    (">", 1, "_>_"),
    ("==", 1, "_==_"),
    ("!=", 1, "_!=_"),
    ("in", 1, "@in"),
    ("+", 2, "_+_"),
    ("-", 2, "_-_"),
    ("*", 3, "_*_"),
    ("/", 3, "_/_"),
    ("%", 3, "_%_"),
];

impl Parser {
    fn peek(&self) -> &Token {
        &self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    fn is(&self, symbol: &str) -> bool {
        let token = self.peek();
        token.kind == TokenKind::Symbol && token.text == symbol
    }

    fn take(&mut self) -> Token {
        let token = self.peek().clone();
        self.at += 1;
        token
    }

    fn accept(&mut self, symbol: &str) -> Option<Token> {
        self.is(symbol).then(|| self.take())
    }

    fn expect(&mut self, symbol: &str) -> Result<Token, Broken> {
        match self.accept(symbol) {
            Some(token) => Ok(token),
            None => {
                let token = self.peek().clone();
                let fault = match token.kind {
                    TokenKind::End if symbol != ":" => format!("missing '{symbol}' at '<EOF>'"),
                    _ => format!("mismatched input '{}' expecting '{symbol}'", token.text),
                };
                Err(self.syntax(token.offset, fault))
            }
        }
    }

    /// The end of a list or a map, where a comma could be too.
    fn close(&mut self, symbol: &str) -> Result<(), Broken> {
        if self.accept(symbol).is_some() {
            return Ok(());
        }
        let token = self.peek().clone();
        let fault = format!("mismatched input '{}' expecting {{'{symbol}', ','}}", token.text);
        Err(self.syntax(token.offset, fault))
    }

    fn syntax(&mut self, offset: u32, fault: String) -> Broken {
        self.report(offset, format!("Syntax error: {fault}"))
    }

    fn report(&mut self, offset: u32, message: String) -> Broken {
        self.issues.push(Issue { offset: Some(offset), message });
        Broken
    }

    /// A new name for a node at a place.
    pub(super) fn id(&mut self, offset: u32) -> Id {
        self.positions.push(offset);
        self.positions.len() as Id - 1
    }

    pub(super) fn fault_at(&mut self, id: Id, message: String) -> Broken {
        self.report(self.positions[id as usize], message)
    }

    fn bounded(&mut self, expr: Expr) -> Result<Expr, Broken> {
        if expr.height > MOST_HEIGHT {
            return Err(self.too_deep());
        }
        Ok(expr)
    }

    fn too_deep(&mut self) -> Broken {
        let message = format!("expression recursion limit exceeded: {MOST_DEPTH}");
        self.issues.push(Issue { offset: None, message });
        Broken
    }

    fn whole(&mut self) -> Result<Expr, Broken> {
        let root = self.expr()?;
        let token = self.peek().clone();
        if token.kind == TokenKind::End {
            return Ok(root);
        }
        let last = self.tokens.get(self.at + 1).is_some_and(|next| next.kind == TokenKind::End);
        let fault = if last { "extraneous" } else { "mismatched" };
        Err(self.syntax(token.offset, format!("{fault} input '{}' expecting <EOF>", token.text)))
    }

    fn expr(&mut self) -> Result<Expr, Broken> {
        self.depth += 1;
        if self.depth > MOST_DEPTH {
            return Err(self.too_deep());
        }
        let condition =
            self.logic("||", "_||_", |parser| parser.logic("&&", "_&&_", Parser::binary))?;
        let expr = match self.accept("?") {
            None => condition,
            Some(token) => {
                let id = self.id(token.offset);
                let yes =
                    self.logic("||", "_||_", |parser| parser.logic("&&", "_&&_", Parser::binary))?;
                self.expect(":")?;
                let no = self.expr()?;
                Expr::call(id, "_?_:_", vec![condition, yes, no])
            }
        };
        self.depth -= 1;
        self.bounded(expr)
    }

    /// Terms joined by one logical operator: all of them are arguments of one call.
    fn logic(
        &mut self,
        symbol: &str,
        function: &str,
        term: fn(&mut Parser) -> Result<Expr, Broken>,
    ) -> Result<Expr, Broken> {
        let first = term(self)?;
        let Some(token) = self.accept(symbol) else { return Ok(first) };
        let id = self.id(token.offset);
        let mut terms = vec![first, term(self)?];
        while self.accept(symbol).is_some() {
            terms.push(term(self)?);
        }
        Ok(Expr::call(id, function, terms))
    }

    fn binary(&mut self) -> Result<Expr, Broken> {
        self.tighter(1)
    }

    fn tighter(&mut self, least: u8) -> Result<Expr, Broken> {
        let mut left = self.unary()?;
        loop {
            let token = self.peek();
            let found = OPERATORS
                .iter()
                .find(|(symbol, ..)| token.kind == TokenKind::Symbol && token.text == *symbol);
            let Some(&(_, binds, function)) = found.filter(|(_, binds, _)| *binds >= least) else {
                return Ok(left);
            };
            let offset = self.take().offset;
            let id = self.id(offset);
            let right = self.tighter(binds + 1)?;
            left = self.bounded(Expr::call(id, function, vec![left, right]))?;
        }
    }

    fn unary(&mut self) -> Result<Expr, Broken> {
        for (symbol, function) in [("!", "!_"), ("-", "-_")] {
            if !self.is(symbol) {
                continue;
            }
            // A sign before a number is part of it.
            let next = self.tokens.get(self.at + 1).map(|token| token.kind);
            if symbol == "-" && matches!(next, Some(TokenKind::Int | TokenKind::Double)) {
                break;
            }
            let offset = self.peek().offset;
            let mut odd = false;
            while self.accept(symbol).is_some() {
                odd = !odd;
            }
            if !odd {
                return self.member();
            }
            let id = self.id(offset);
            let operand = self.member()?;
            return Ok(Expr::call(id, function, vec![operand]));
        }
        self.member()
    }

    fn member(&mut self) -> Result<Expr, Broken> {
        let mut operand = self.primary()?;
        loop {
            operand = if let Some(dot) = self.accept(".") {
                self.select(operand, dot.offset)?
            } else if let Some(bracket) = self.accept("[") {
                let id = self.id(bracket.offset);
                let optional = self.accept("?").is_some();
                let index = self.expr()?;
                self.expect("]")?;
                let function = if optional { "_[?_]" } else { "_[_]" };
                Expr::call(id, function, vec![operand, index])
            } else {
                return Ok(operand);
            };
            operand = self.bounded(operand)?;
        }
    }

    fn select(&mut self, operand: Expr, dot: u32) -> Result<Expr, Broken> {
        let optional = self.accept("?").is_some();
        let name = self.peek().clone();
        if !matches!(name.kind, TokenKind::Ident | TokenKind::EscapedIdent) {
            let fault = match name.kind {
                TokenKind::Symbol if matches!(name.text.as_str(), "true" | "false" | "null") => {
                    format!("mismatched input '{}' expecting IDENTIFIER", name.text)
                }
                TokenKind::End if !optional => "no viable alternative at input '.'".to_owned(),
                _ => format!("no viable alternative at input '.{}'", name.text),
            };
            return Err(self.syntax(name.offset, fault));
        }
        self.at += 1;
        let field = name.text.trim_matches('`').to_owned();
        if optional {
            let id = self.id(dot);
            let literal = Expr::new(self.id(name.offset), Kind::Literal(Literal::String(field)));
            return Ok(Expr::call(id, "_?._", vec![operand, literal]));
        }
        if name.kind == TokenKind::Ident && self.is("(") {
            let open = self.take().offset;
            let id = self.id(open);
            let args = self.arguments()?;
            return expand(self, id, &field, Some(operand), args);
        }
        let id = self.id(dot);
        Ok(Expr::new(id, Kind::Select { operand: Box::new(operand), field, test: false }))
    }

    /// What is between the parentheses of a call, and the closing one.
    fn arguments(&mut self) -> Result<Vec<Expr>, Broken> {
        let mut args = Vec::new();
        if self.accept(")").is_some() {
            return Ok(args);
        }
        loop {
            args.push(self.expr()?);
            if self.accept(",").is_none() {
                self.expect(")")?;
                return Ok(args);
            }
        }
    }

    fn primary(&mut self) -> Result<Expr, Broken> {
        let token = self.peek().clone();
        match (token.kind, token.text.as_str()) {
            (TokenKind::Symbol, "(") => {
                self.at += 1;
                let inner = self.expr()?;
                self.expect(")")?;
                Ok(inner)
            }
            (TokenKind::Symbol, "[") => self.list(),
            (TokenKind::Symbol, "{") => self.map(),
            (TokenKind::Symbol, ".") | (TokenKind::Ident, _) => self.named(),
            _ => self.literal(),
        }
    }

    /// A name, a call of a function, or a message.
    fn named(&mut self) -> Result<Expr, Broken> {
        let dot = self.accept(".").is_some();
        let token = self.peek().clone();
        if token.kind != TokenKind::Ident {
            let fault = format!("mismatched input '{}' expecting IDENTIFIER", token.text);
            return Err(self.syntax(token.offset, fault));
        }
        if let Some(name) = self.message_name() {
            let open = self.take().offset;
            let name = if dot { format!(".{name}") } else { name };
            return self.message(name, open);
        }
        self.at += 1;
        if RESERVED.contains(&token.text.as_str()) {
            return Err(self.report(token.offset, format!("reserved identifier: {}", token.text)));
        }
        let name = if dot { format!(".{}", token.text) } else { token.text };
        if self.is("(") {
            let open = self.take().offset;
            let id = self.id(open);
            let args = self.arguments()?;
            return expand(self, id, &name, None, args);
        }
        let id = self.id(token.offset);
        Ok(Expr::new(id, Kind::Ident(name)))
    }

    /// If names and dots come before a brace, they are its message's name; then the brace is next.
    fn message_name(&mut self) -> Option<String> {
        let (mut at, mut name) = (self.at, String::new());
        loop {
            let token = self.tokens.get(at).filter(|token| token.kind == TokenKind::Ident)?;
            name.push_str(&token.text);
            let next = self.tokens.get(at + 1).filter(|next| next.kind == TokenKind::Symbol)?;
            match next.text.as_str() {
                "{" => {
                    self.at = at + 1;
                    return Some(name);
                }
                "." => name.push('.'),
                _ => return None,
            }
            at += 2;
        }
    }

    fn message(&mut self, name: String, open: u32) -> Result<Expr, Broken> {
        let id = self.id(open);
        let mut fields = Vec::new();
        while !self.is("}") {
            let optional = self.accept("?").is_some();
            let field = self.take();
            if !matches!(field.kind, TokenKind::Ident | TokenKind::EscapedIdent) {
                let fault = format!(
                    "mismatched input '{}' expecting {{'}}', ',', '?', IDENTIFIER}}",
                    field.text
                );
                return Err(self.syntax(field.offset, fault));
            }
            let colon = self.expect(":")?.offset;
            let id = self.id(colon);
            let value = self.expr()?;
            let field = field.text.trim_matches('`').to_owned();
            fields.push(Initializer { id, field, value, optional });
            if self.accept(",").is_none() {
                break;
            }
        }
        self.close("}")?;
        Ok(Expr::new(id, Kind::Struct { name, fields }))
    }

    fn list(&mut self) -> Result<Expr, Broken> {
        let open = self.take().offset;
        let id = self.id(open);
        let mut items = Vec::new();
        while !self.is("]") {
            let optional = self.accept("?").is_some();
            items.push(Item { value: self.expr()?, optional });
            if self.accept(",").is_none() {
                break;
            }
        }
        self.close("]")?;
        Ok(Expr::new(id, Kind::List(items)))
    }

    fn map(&mut self) -> Result<Expr, Broken> {
        let open = self.take().offset;
        let id = self.id(open);
        let mut entries = Vec::new();
        while !self.is("}") {
            let optional = self.accept("?").is_some();
            let key = self.expr()?;
            self.expect(":")?;
            entries.push(Entry { key, value: self.expr()?, optional });
            if self.accept(",").is_none() {
                break;
            }
        }
        self.close("}")?;
        Ok(Expr::new(id, Kind::Map(entries)))
    }

    fn literal(&mut self) -> Result<Expr, Broken> {
        let offset = self.peek().offset;
        let sign = if self.accept("-").is_some() { "-" } else { "" };
        let token = self.take();
        let text = token.text.as_str();
        let invalid = |kind: &str| Err(format!("invalid {kind} literal"));
        let literal = match token.kind {
            TokenKind::Int => {
                integer(sign, text).map_or_else(|| invalid("int"), |i| Ok(Literal::Int(i)))
            }
            TokenKind::Uint if sign.is_empty() => {
                let digits = &text[..text.len() - 1];
                let value = match digits.strip_prefix("0x") {
                    Some(hex) => u64::from_str_radix(hex, 16),
                    None => digits.parse(),
                };
                value.map_or_else(|_| invalid("uint"), |value| Ok(Literal::Uint(value)))
            }
            TokenKind::Double => match format!("{sign}{text}").parse::<f64>() {
                Ok(value) if value.is_finite() => Ok(Literal::Double(value)),
                _ => invalid("double"),
            },
            TokenKind::String => match unescape(text, false).map(String::from_utf8) {
                Ok(Ok(string)) => Ok(Literal::String(string)),
                Ok(Err(_)) => Err("unable to unescape string".to_owned()),
                Err(fault) => Err(fault.to_owned()),
            },
            TokenKind::Bytes => unescape(text, true).map(Literal::Bytes).map_err(str::to_owned),
            TokenKind::Symbol if text == "true" => Ok(Literal::Bool(true)),
            TokenKind::Symbol if text == "false" => Ok(Literal::Bool(false)),
            TokenKind::Symbol if text == "null" => Ok(Literal::Null),
            _ => {
                let fault = format!("mismatched input '{text}' expecting {PRIMARY}");
                return Err(self.syntax(token.offset, fault));
            }
        };
        match literal {
            Ok(literal) => Ok(Expr::new(self.id(offset), Kind::Literal(literal))),
            Err(message) => Err(self.report(offset, message)),
        }
    }
}

fn integer(sign: &str, text: &str) -> Option<i64> {
    match text.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(&format!("{sign}{hex}"), 16).ok(),
        None => format!("{sign}{text}").parse().ok(),
    }
}
