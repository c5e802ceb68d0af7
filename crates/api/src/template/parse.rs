//! Tokens → nodes, as `text/template/parse/parse.go` reads them.

use std::collections::BTreeMap;

use crate::quote::Quoted;

use super::lex::{self, Kind, Token};
use super::node::{Action, Branch, Call, Command, List, Node, Operand, Pipe, Term};
use super::number::{self, Number};
use super::{Dialect, Error};

/// How deep actions and parentheses may be nested; Go's own limit is its stack.
const MAX_DEPTH: usize = 100;

/// The template and what it defines, by name.
pub fn parse(text: &str, dialect: &'static Dialect) -> Result<BTreeMap<String, List>, Error> {
    let mut parser = Parser {
        dialect,
        tokens: lex::tokens(text),
        at: 0,
        read: 0,
        action_line: 0,
        depth: 0,
        range_depth: 0,
        variables: vec!["$".to_owned()],
        definitions: BTreeMap::new(),
    };
    let root = parser.top()?;
    parser.define(dialect.name.to_owned(), root)?;
    Ok(parser.definitions)
}

struct Parser {
    dialect: &'static Dialect,
    tokens: Vec<Token>,
    at: usize,
    /// How many tokens have been looked at: faults name the line of the last of them.
    read: usize,
    /// Where the action began that is being read; 0 outside.
    action_line: usize,
    depth: usize,
    range_depth: usize,
    variables: Vec<String>,
    definitions: BTreeMap<String, List>,
}

/// What ends a list.
enum Stop {
    End,
    Else,
}

enum Item {
    Node(Node),
    Stop(Stop),
}

impl Stop {
    fn text(&self) -> &'static str {
        match self {
            Stop::End => "{{end}}",
            Stop::Else => "{{else}}",
        }
    }
}

impl Parser {
    fn next(&mut self) -> Token {
        let last = self.tokens.len().saturating_sub(1);
        let token = self.tokens[self.at.min(last)].clone();
        self.at += 1;
        self.read = self.read.max(self.at);
        token
    }

    fn peek(&mut self) -> Token {
        let token = self.next();
        self.at -= 1;
        token
    }

    fn skip_space(&mut self) {
        while self.peek().kind == Kind::Space {
            self.next();
        }
    }

    fn next_word(&mut self) -> Token {
        self.skip_space();
        self.next()
    }

    fn peek_word(&mut self) -> Token {
        self.skip_space();
        self.peek()
    }

    fn fault(&self, message: impl std::fmt::Display) -> Error {
        let last = self.read.clamp(1, self.tokens.len());
        let (name, line) = (self.dialect.name, self.tokens[last - 1].line);
        Error(format!("template: {name}:{line}: {message}"))
    }

    fn unexpected(&self, token: &Token, context: &str) -> Error {
        if token.kind != Kind::Error {
            return self.fault(format!("unexpected {token} in {context}"));
        }
        let mut extra = String::new();
        if self.action_line != 0 && self.action_line != token.line {
            let what = if token.text.ends_with(" action") { "" } else { " in action" };
            extra = format!("{what} started at {}:{}", self.dialect.name, self.action_line);
        }
        self.fault(format!("{token}{extra}"))
    }

    fn expect(&mut self, kind: Kind, context: &str) -> Result<Token, Error> {
        let token = self.next_word();
        match token.kind == kind {
            true => Ok(token),
            false => Err(self.unexpected(&token, context)),
        }
    }

    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        if self.depth >= MAX_DEPTH {
            return Err(self.fault("max expression depth exceeded"));
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    fn define(&mut self, name: String, list: List) -> Result<(), Error> {
        let empty = |list: &List| {
            list.iter().all(|node| matches!(node, Node::Text(text) if text.trim().is_empty()))
        };
        match self.definitions.get(&name) {
            Some(known) if !empty(known) => {
                if !empty(&list) {
                    let name = Quoted(&name);
                    return Err(
                        self.fault(format!("template: multiple definition of template {name}"))
                    );
                }
            }
            _ => {
                self.definitions.insert(name, list);
            }
        }
        Ok(())
    }

    fn top(&mut self) -> Result<List, Error> {
        let mut list = List::new();
        while self.peek().kind != Kind::Eof {
            let start = self.at;
            if self.next().kind == Kind::LeftDelim && self.next_word().kind == Kind::Define {
                self.definition()?;
                continue;
            }
            self.at = start;
            match self.item()? {
                Item::Stop(stop) => return Err(self.fault(format!("unexpected {}", stop.text()))),
                Item::Node(node) => list.push(node),
            }
        }
        Ok(list)
    }

    fn definition(&mut self) -> Result<(), Error> {
        const CONTEXT: &str = "define clause";
        let token = self.next_word();
        let name = self.template_name(&token, CONTEXT)?;
        self.expect(Kind::RightDelim, CONTEXT)?;
        let list = self.own_list(CONTEXT)?;
        self.define(name, list)
    }

    /// The list of a definition: it sees no variables but the root, and is in no loop.
    fn own_list(&mut self, context: &str) -> Result<List, Error> {
        let variables = std::mem::replace(&mut self.variables, vec!["$".to_owned()]);
        let range_depth = std::mem::take(&mut self.range_depth);
        let (list, stop) = self.deeper(Self::list)?;
        self.variables = variables;
        self.range_depth = range_depth;
        match stop {
            Stop::End => Ok(list),
            Stop::Else => Err(self.fault(format!("unexpected {} in {context}", stop.text()))),
        }
    }

    fn list(&mut self) -> Result<(List, Stop), Error> {
        let mut list = List::new();
        while self.peek_word().kind != Kind::Eof {
            match self.item()? {
                Item::Stop(stop) => return Ok((list, stop)),
                Item::Node(node) => list.push(node),
            }
        }
        Err(self.fault("unexpected EOF"))
    }

    fn item(&mut self) -> Result<Item, Error> {
        let token = self.next_word();
        match token.kind {
            Kind::Text => Ok(Item::Node(Node::Text(token.text))),
            Kind::LeftDelim => {
                self.action_line = token.line;
                let item = self.action();
                self.action_line = 0;
                item
            }
            _ => Err(self.unexpected(&token, "input")),
        }
    }

    fn action(&mut self) -> Result<Item, Error> {
        let start = self.at;
        let token = self.next_word();
        let node = match token.kind {
            Kind::Block => Node::Template(self.block()?),
            Kind::Break => self.leave_loop("{{break}}", Node::Break)?,
            Kind::Continue => self.leave_loop("{{continue}}", Node::Continue)?,
            Kind::Else => {
                let next = self.peek_word().kind;
                if next != Kind::If && next != Kind::With {
                    self.expect(Kind::RightDelim, "else")?;
                }
                return Ok(Item::Stop(Stop::Else));
            }
            Kind::End => {
                self.expect(Kind::RightDelim, "end")?;
                return Ok(Item::Stop(Stop::End));
            }
            Kind::If => Node::If(self.branch("if")?),
            Kind::Range => Node::Range(self.branch("range")?),
            Kind::With => Node::With(self.branch("with")?),
            Kind::Template => Node::Template(self.template()?),
            _ => {
                self.at = start;
                let position = self.peek_word().position;
                let pipe = self.pipeline("command", Kind::RightDelim)?;
                Node::Action(Action { position, pipe })
            }
        };
        Ok(Item::Node(node))
    }

    fn leave_loop(&mut self, text: &str, node: Node) -> Result<Node, Error> {
        self.expect(Kind::RightDelim, text)?;
        match self.range_depth {
            0 => Err(self.fault(format!("{text} outside {{{{range}}}}"))),
            _ => Ok(node),
        }
    }

    fn branch(&mut self, context: &'static str) -> Result<Branch, Error> {
        self.deeper(|parser| {
            let variables = parser.variables.len();
            let branch = parser.branch_inside(context);
            parser.variables.truncate(variables);
            branch
        })
    }

    fn branch_inside(&mut self, context: &'static str) -> Result<Branch, Error> {
        let pipe = self.pipeline(context, Kind::RightDelim)?;
        let loops = usize::from(context == "range");
        self.range_depth += loops;
        let (list, stop) = self.list()?;
        self.range_depth -= loops;
        let otherwise = match stop {
            Stop::End => None,
            Stop::Else => Some(self.otherwise(context)?),
        };
        Ok(Branch { pipe, list, otherwise })
    }

    /// After `else`: a list, or one more `if` or `with` whose end is this one's end too.
    fn otherwise(&mut self, context: &'static str) -> Result<List, Error> {
        match (context, self.peek().kind) {
            ("if", Kind::If) => {
                self.next();
                Ok(vec![Node::If(self.branch("if")?)])
            }
            ("with", Kind::With) => {
                self.next();
                Ok(vec![Node::With(self.branch("with")?)])
            }
            _ => match self.list()? {
                (list, Stop::End) => Ok(list),
                (_, stop) => Err(self.fault(format!("expected end; found {}", stop.text()))),
            },
        }
    }

    fn block(&mut self) -> Result<Call, Error> {
        const CONTEXT: &str = "block clause";
        let token = self.next_word();
        let name = self.template_name(&token, CONTEXT)?;
        let pipe = self.pipeline(CONTEXT, Kind::RightDelim)?;
        let list = self.own_list(CONTEXT)?;
        self.define(name.clone(), list)?;
        Ok(Call { position: token.position, name, pipe: Some(pipe) })
    }

    fn template(&mut self) -> Result<Call, Error> {
        const CONTEXT: &str = "template clause";
        let token = self.next_word();
        let name = self.template_name(&token, CONTEXT)?;
        let start = self.at;
        let pipe = match self.next_word().kind {
            Kind::RightDelim => None,
            _ => {
                self.at = start;
                Some(self.pipeline(CONTEXT, Kind::RightDelim)?)
            }
        };
        Ok(Call { position: token.position, name, pipe })
    }

    fn template_name(&self, token: &Token, context: &str) -> Result<String, Error> {
        match token.kind {
            Kind::String | Kind::RawString => self.unquote(&token.text),
            _ => Err(self.unexpected(token, context)),
        }
    }

    fn unquote(&self, text: &str) -> Result<String, Error> {
        number::unquote(text).ok_or_else(|| self.fault("invalid syntax"))
    }

    fn pipeline(&mut self, context: &str, end: Kind) -> Result<Pipe, Error> {
        let position = self.peek_word().position;
        let mut pipe =
            Pipe { position, assigns: false, variables: Vec::new(), commands: Vec::new() };
        self.declarations(&mut pipe, context)?;
        loop {
            let start = self.at;
            let token = self.next_word();
            match token.kind {
                kind if kind == end => break,
                Kind::Bool
                | Kind::CharConstant
                | Kind::Complex
                | Kind::Dot
                | Kind::Field
                | Kind::Identifier
                | Kind::Number
                | Kind::Nil
                | Kind::RawString
                | Kind::String
                | Kind::Variable
                | Kind::LeftParen => {
                    self.at = start;
                    pipe.commands.push(self.command()?);
                }
                _ => return Err(self.unexpected(&token, context)),
            }
        }
        self.check(&pipe, context)?;
        Ok(pipe)
    }

    fn declarations(&mut self, pipe: &mut Pipe, context: &str) -> Result<(), Error> {
        loop {
            let start = self.at;
            let variable = self.next_word();
            if variable.kind != Kind::Variable {
                self.at = start;
                return Ok(());
            }
            let sign = self.peek_word();
            match (sign.kind, sign.text.as_str()) {
                (Kind::Assign | Kind::Declare, _) => {
                    pipe.assigns = sign.kind == Kind::Assign;
                    self.next();
                    self.declare(pipe, variable.text);
                    return Ok(());
                }
                (Kind::Char, ",") => {
                    self.next();
                    self.declare(pipe, variable.text);
                    if context != "range" || pipe.variables.len() >= 2 {
                        return Err(self.fault(format!("too many declarations in {context}")));
                    }
                    match self.peek_word().kind {
                        Kind::Variable | Kind::RightDelim | Kind::RightParen => {}
                        _ => return Err(self.fault("range can only initialize variables")),
                    }
                }
                _ => {
                    self.at = start;
                    return Ok(());
                }
            }
        }
    }

    fn declare(&mut self, pipe: &mut Pipe, name: String) {
        self.variables.push(name.clone());
        pipe.variables.push(name);
    }

    fn check(&self, pipe: &Pipe, context: &str) -> Result<(), Error> {
        if pipe.commands.is_empty() {
            return Err(self.fault(format!("missing value for {context}")));
        }
        for (i, command) in pipe.commands.iter().enumerate().skip(1) {
            let first = command.words.first().map(|word| &word.term);
            if let Some(
                Term::Bool(_) | Term::Dot | Term::Nil | Term::Number(_) | Term::String(..),
            ) = first
            {
                return Err(
                    self.fault(format!("non executable command in pipeline stage {}", i + 1))
                );
            }
        }
        Ok(())
    }

    fn command(&mut self) -> Result<Command, Error> {
        let position = self.peek_word().position;
        let mut words = Vec::new();
        loop {
            self.skip_space();
            words.extend(self.operand()?);
            let token = self.next();
            match token.kind {
                Kind::Space => continue,
                Kind::RightDelim | Kind::RightParen => self.at -= 1,
                Kind::Pipe => {}
                _ => return Err(self.unexpected(&token, "operand")),
            }
            break;
        }
        match words.is_empty() {
            true => Err(self.fault("empty command")),
            false => Ok(Command { position, words }),
        }
    }

    /// A term with the fields that follow it, if there is one.
    fn operand(&mut self) -> Result<Option<Operand>, Error> {
        let Some(Operand { position, term }) = self.term()? else { return Ok(None) };
        if self.peek().kind != Kind::Field {
            return Ok(Some(Operand { position, term }));
        }
        let after = self.peek().position;
        let mut names = Vec::new();
        while self.peek().kind == Kind::Field {
            names.push(self.next().text.trim_start_matches('.').to_owned());
        }
        let term = match term {
            Term::Field(mut fields) => {
                fields.extend(names);
                Term::Field(fields)
            }
            Term::Variable(mut fields) => {
                fields.extend(names);
                Term::Variable(fields)
            }
            Term::Bool(_) | Term::String(..) | Term::Number(_) | Term::Nil | Term::Dot => {
                let shown = Operand { position, term }.to_string();
                return Err(self.fault(format!("unexpected . after term {}", Quoted(&shown))));
            }
            term => Term::Chain(Box::new(Operand { position, term }), names),
        };
        Ok(Some(Operand { position: after, term }))
    }

    fn term(&mut self) -> Result<Option<Operand>, Error> {
        let start = self.at;
        let token = self.next_word();
        let term = match token.kind {
            Kind::Identifier => {
                if self.dialect.function(&token.text).is_none() {
                    return Err(self.fault(format!("function {} not defined", Quoted(&token.text))));
                }
                Term::Identifier(token.text)
            }
            Kind::Dot => Term::Dot,
            Kind::Nil => Term::Nil,
            Kind::Variable => {
                if !self.variables.contains(&token.text) {
                    return Err(self.fault(format!("undefined variable {}", Quoted(&token.text))));
                }
                Term::Variable(vec![token.text])
            }
            Kind::Field => Term::Field(vec![token.text.trim_start_matches('.').to_owned()]),
            Kind::Bool => Term::Bool(token.text == "true"),
            Kind::CharConstant | Kind::Complex | Kind::Number => {
                Term::Number(Number::parse(&token.text).map_err(|fault| self.fault(fault))?)
            }
            Kind::LeftParen => {
                Term::Pipe(Box::new(self.deeper(|parser| {
                    parser.pipeline("parenthesized pipeline", Kind::RightParen)
                })?))
            }
            Kind::String | Kind::RawString => Term::String(self.unquote(&token.text)?, token.text),
            _ => {
                self.at = start;
                return Ok(None);
            }
        };
        Ok(Some(Operand { position: token.position, term }))
    }
}
