//! The functions that an expression may call: one table, a module per library.
//!
//! A row gives a function's name, its signatures for the checker, what it does, and what a call
//! costs. Signatures read `(string, int) -> string`, for methods `string.(int) -> string`; capitals
//! are type parameters. At run time a row looks at the values it gets; one that cannot take them says
//! so, and the next row of that name is tried.
pub mod authz;
pub mod format;
pub(crate) mod formatting;
mod lists;
pub mod net;
mod operators;
mod optional;
mod patch;
mod quantity;
mod regex;
pub mod semver;
mod sets;
mod standard;
mod strings;
pub mod time;
pub mod urls;

use crate::cost::CallCost;
use crate::types::{Type, split};
use crate::value::Value;
use crate::work::{Error, Work};
use std::collections::HashMap;
use std::sync::LazyLock;

pub type Outcome<'a> = Result<Value<'a>, Error>;

pub type Run = for<'a> fn(&mut Work, &[Value<'a>]) -> Outcome<'a>;

pub struct Row {
    pub name: &'static str,
    pub signatures: &'static [&'static str],
    pub run: Run,
    pub cost: CallCost,
}

const fn row(
    name: &'static str,
    signatures: &'static [&'static str],
    run: Run,
    cost: CallCost,
) -> Row {
    Row { name, signatures, run, cost }
}

/// The libraries of Kubernetes 1.37 (`apiserver/pkg/cel/environment/base.go`).
static LIBRARIES: &[&[Row]] = &[
    operators::ROWS,
    standard::ROWS,
    time::ROWS,
    optional::ROWS,
    strings::ROWS,
    regex::ROWS,
    lists::ROWS,
    sets::ROWS,
    urls::ROWS,
    net::ROWS,
    quantity::ROWS,
    semver::ROWS,
    format::ROWS,
    authz::ROWS,
    patch::ROWS,
];

/// All rows of one name, and their signatures together.
pub struct Function {
    pub name: &'static str,
    pub rows: Vec<&'static Row>,
    pub overloads: Vec<Overload>,
}

pub struct Overload {
    pub method: bool,
    /// Of the arguments; a method's target is the first.
    pub arguments: Vec<Type>,
    pub result: Type,
}

static FUNCTIONS: LazyLock<HashMap<&'static str, Function>> = LazyLock::new(|| {
    let mut functions: HashMap<&'static str, Function> = HashMap::new();
    for row in LIBRARIES.iter().flat_map(|rows| rows.iter()) {
        let empty = || Function { name: row.name, rows: Vec::new(), overloads: Vec::new() };
        let function = functions.entry(row.name).or_insert_with(empty);
        function.rows.push(row);
        for signature in row.signatures {
            let overload = overload(signature);
            function.overloads.push(overload.expect("the table's signatures are well-formed"));
        }
    }
    functions
});

pub fn find(name: &str) -> Option<&'static Function> {
    FUNCTIONS.get(name)
}

fn overload(signature: &'static str) -> Option<Overload> {
    let (left, result) = signature.split_once("->")?;
    let left = left.trim().strip_suffix(')')?;
    let (target, arguments) = match left.split_once(".(") {
        Some((target, arguments)) => (Some(target), arguments),
        None => (None, left.strip_prefix('(')?),
    };
    let mut types = Vec::new();
    if let Some(target) = target {
        types.push(Type::parse(target)?);
    }
    for argument in split(arguments) {
        types.push(Type::parse(argument)?);
    }
    Some(Overload { method: target.is_some(), arguments: types, result: Type::parse(result)? })
}

/// A value in an error's text.
pub fn shown(value: &Value<'_>) -> String {
    formatting::plain(value)
}

impl Function {
    pub fn run<'a>(&self, work: &mut Work, args: &[Value<'a>]) -> (Outcome<'a>, &'static Row) {
        let mut last = (Err(Error::NoOverload), self.rows[0]);
        for &row in &self.rows {
            let outcome = (row.run)(work, args);
            if !matches!(outcome, Err(Error::NoOverload)) {
                return (outcome, row);
            }
            last = (outcome, row);
        }
        last
    }
}
