//! What a template is made of, and how Go writes it back when it says where something went wrong.

use std::fmt::{self, Display};

use crate::quote::Quoted;

use super::number::Number;

pub type List = Vec<Node>;

/// What does something when its turn comes.
#[derive(Debug)]
pub enum Node {
    Text(String),
    Action(Action),
    If(Branch),
    With(Branch),
    Range(Branch),
    Template(Call),
    Break,
    Continue,
}

#[derive(Debug)]
pub struct Action {
    pub position: usize,
    pub pipe: Pipe,
}

/// `if`, `with` or `range`, by the node around it.
#[derive(Debug)]
pub struct Branch {
    pub pipe: Pipe,
    pub list: List,
    pub otherwise: Option<List>,
}

#[derive(Debug)]
pub struct Call {
    pub position: usize,
    pub name: String,
    pub pipe: Option<Pipe>,
}

/// `$x := a | b c`.
#[derive(Debug)]
pub struct Pipe {
    pub position: usize,
    pub assigns: bool,
    pub variables: Vec<String>,
    pub commands: Vec<Command>,
}

#[derive(Debug)]
pub struct Command {
    pub position: usize,
    /// Never empty.
    pub words: Vec<Operand>,
}

#[derive(Debug)]
pub struct Operand {
    pub position: usize,
    pub term: Term,
}

#[derive(Debug)]
pub enum Term {
    Bool(bool),
    Dot,
    Nil,
    /// `.a.b`
    Field(Vec<String>),
    /// `$x.a.b`: the variable and its fields.
    Variable(Vec<String>),
    /// `(pipe).a.b`
    Chain(Box<Operand>, Vec<String>),
    Identifier(String),
    Number(Number),
    /// What it says, and how it was written.
    String(String, String),
    Pipe(Box<Pipe>),
}

impl Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Node::Text(text) => f.write_str(text),
            Node::Action(action) => action.fmt(f),
            Node::If(branch) => branch.write(f, "if"),
            Node::With(branch) => branch.write(f, "with"),
            Node::Range(branch) => branch.write(f, "range"),
            Node::Template(call) => call.fmt(f),
            Node::Break => f.write_str("{{break}}"),
            Node::Continue => f.write_str("{{continue}}"),
        }
    }
}

impl Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{{{}}}}}", self.pipe)
    }
}

impl Branch {
    fn write(&self, f: &mut fmt::Formatter<'_>, keyword: &str) -> fmt::Result {
        write!(f, "{{{{{keyword} {}}}}}", self.pipe)?;
        self.list.iter().try_for_each(|node| node.fmt(f))?;
        if let Some(otherwise) = &self.otherwise {
            f.write_str("{{else}}")?;
            otherwise.iter().try_for_each(|node| node.fmt(f))?;
        }
        f.write_str("{{end}}")
    }
}

impl Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{{template {}", Quoted(&self.name))?;
        if let Some(pipe) = &self.pipe {
            write!(f, " {pipe}")?;
        }
        f.write_str("}}")
    }
}

impl Display for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.variables.is_empty() {
            let sign = if self.assigns { "=" } else { ":=" };
            write!(f, "{} {sign} ", self.variables.join(", "))?;
        }
        for (i, command) in self.commands.iter().enumerate() {
            let separator = if i > 0 { " | " } else { "" };
            write!(f, "{separator}{command}")?;
        }
        Ok(())
    }
}

impl Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, word) in self.words.iter().enumerate() {
            let separator = if i > 0 { " " } else { "" };
            match &word.term {
                Term::Pipe(pipe) => write!(f, "{separator}({pipe})")?,
                _ => write!(f, "{separator}{word}")?,
            }
        }
        Ok(())
    }
}

impl Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.term {
            Term::Bool(value) => value.fmt(f),
            Term::Dot => f.write_str("."),
            Term::Nil => f.write_str("nil"),
            Term::Field(names) => names.iter().try_for_each(|name| write!(f, ".{name}")),
            Term::Variable(names) => f.write_str(&names.join(".")),
            Term::Chain(base, names) => {
                match &base.term {
                    Term::Pipe(pipe) => write!(f, "({pipe})")?,
                    _ => base.fmt(f)?,
                }
                names.iter().try_for_each(|name| write!(f, ".{name}"))
            }
            Term::Identifier(name) => f.write_str(name),
            Term::Number(number) => f.write_str(&number.text),
            Term::String(_, written) => f.write_str(written),
            Term::Pipe(pipe) => pipe.fmt(f),
        }
    }
}
