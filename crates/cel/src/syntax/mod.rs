//! From text to a tree: lexer, parser, macros.
//!
//! The grammar is cel-go's (`parser/gen/CEL.g4`). Macros are expanded while parsing, so that the
//! checker sees folds instead of `all` and `map`. Depth and length are bounded here; all later
//! recursion is bounded by the depth of the tree.
mod lexer;
mod literal;
mod macros;
mod parser;

pub use parser::parse;

/// Names a node of the tree; its place in the text is found by it.
pub type Id = u32;

/// A part of an expression.
#[derive(Debug, Clone)]
pub struct Expr {
    pub id: Id,
    pub kind: Kind,
    /// How many nodes are on the longest way down, this one included.
    pub height: u32,
}

#[derive(Debug, Clone)]
pub enum Kind {
    Literal(Literal),
    /// A name; a leading dot is kept.
    Ident(String),
    Select {
        operand: Box<Expr>,
        field: String,
        /// `has(operand.field)`.
        test: bool,
    },
    Call {
        /// Operators are called by their names in cel-go: `_+_`, `_[_]`, `_?._`.
        function: String,
        target: Option<Box<Expr>>,
        args: Vec<Expr>,
    },
    List(Vec<Item>),
    Map(Vec<Entry>),
    Struct {
        name: String,
        fields: Vec<Initializer>,
    },
    Fold(Box<Fold>),
}

#[derive(Debug, Clone, PartialEq)]
pub enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(String),
    Bytes(Vec<u8>),
}

/// An element of a list; an optional one (`[?x]`) is left out if it has no value.
#[derive(Debug, Clone)]
pub struct Item {
    pub value: Expr,
    pub optional: bool,
}

#[derive(Debug, Clone)]
pub struct Entry {
    pub key: Expr,
    pub value: Expr,
    pub optional: bool,
}

/// `field: value` of a message.
#[derive(Debug, Clone)]
pub struct Initializer {
    /// Of the colon.
    pub id: Id,
    pub field: String,
    pub value: Expr,
    pub optional: bool,
}

/// A comprehension: what every macro over a list or a map comes to.
#[derive(Debug, Clone)]
pub struct Fold {
    pub range: Expr,
    pub variable: String,
    /// With it, `variable` is the index or key, and this one the value.
    pub second: Option<String>,
    pub accumulator: String,
    pub init: Expr,
    /// Whether to go on.
    pub condition: Expr,
    pub step: Expr,
    pub result: Expr,
}

impl Expr {
    pub fn new(id: Id, kind: Kind) -> Expr {
        let tallest = match &kind {
            Kind::Literal(_) | Kind::Ident(_) => 0,
            Kind::Select { operand, .. } => operand.height,
            Kind::Call { target, args, .. } => {
                let args = args.iter().map(|arg| arg.height);
                args.chain(target.iter().map(|target| target.height)).max().unwrap_or(0)
            }
            Kind::List(items) => items.iter().map(|item| item.value.height).max().unwrap_or(0),
            Kind::Map(entries) => {
                let heights = entries.iter().map(|entry| entry.key.height.max(entry.value.height));
                heights.max().unwrap_or(0)
            }
            Kind::Struct { fields, .. } => {
                fields.iter().map(|field| field.value.height).max().unwrap_or(0)
            }
            Kind::Fold(fold) => {
                let parts = [&fold.range, &fold.init, &fold.condition, &fold.step, &fold.result];
                parts.iter().map(|part| part.height).max().unwrap_or(0)
            }
        };
        Expr { id, kind, height: tallest + 1 }
    }

    pub fn call(id: Id, function: &str, args: Vec<Expr>) -> Expr {
        Expr::new(id, Kind::Call { function: function.to_owned(), target: None, args })
    }
}

/// A tree, and where in the text its nodes are.
pub struct Parsed {
    pub root: Expr,
    /// By id, in characters.
    pub positions: Vec<u32>,
}
