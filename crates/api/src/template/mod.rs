//! Go's `text/template`, as far as `-o go-template` lets people have it; kubectl and crictl each with a
//! [`Dialect`] of their own.
//!
//! ```text
//!  lex.rs       text → tokens, trim markers included
//!  parse.rs     tokens → nodes; what is wrong is said in Go's words
//!  node.rs      the nodes, and how Go writes them back in messages
//!  value.rs     what a pipeline yields: JSON by reference, and Go's own numbers and strings
//!  evaluate.rs  nodes + object → text
//!  functions.rs and, or, index, eq … and those that a dialect may add: one row each
//!  format.rs    Go's package fmt: how values print, printf's verbs
//! ```
//!
//! Nothing here does any IO. A template comes from a user of a command line, yet nesting, steps and
//! output are bounded all the same: a template that never ends is a mistake that should be told.

mod evaluate;
mod format;
mod functions;
mod lex;
mod node;
mod number;
mod parse;
#[cfg(test)]
mod tests;
mod value;

use std::collections::BTreeMap;

use serde_json::Value;

use node::List;

/// A template that has been read, ready to be applied to any number of objects.
#[derive(Debug)]
pub struct Template {
    text: String,
    dialect: &'static Dialect,
    /// The template itself, by the dialect's name, and what it defines.
    definitions: BTreeMap<String, List>,
    missing_keys: MissingKeys,
}

/// What a field that is not there does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingKeys {
    /// It prints as `<no value>`.
    Allowed,
    /// It ends the template, as with `--allow-missing-template-keys=false`.
    Faults,
}

/// Why a template cannot be read or applied, in Go's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

/// What a program has besides Go's own.
#[derive(Debug)]
pub struct Dialect {
    /// What the program calls every template; it shows in errors.
    pub name: &'static str,
    /// Names of functions from [`functions::EXTRA`].
    pub functions: &'static [&'static str],
}

impl Dialect {
    fn function(&self, name: &str) -> Option<&'static functions::Function> {
        functions::GO.iter().find(|function| function.name == name).or_else(|| {
            let mut extra = functions::EXTRA.iter();
            extra.find(|row| row.name == name && self.functions.contains(&name))
        })
    }
}

impl Template {
    pub fn parse(
        text: &str,
        dialect: &'static Dialect,
        missing_keys: MissingKeys,
    ) -> Result<Template, Error> {
        let definitions = parse::parse(text, dialect)?;
        Ok(Template { text: text.to_owned(), dialect, definitions, missing_keys })
    }

    /// What the template makes of an object. What was written before a fault is kept.
    pub fn execute(&self, object: &Value) -> (Vec<u8>, Result<(), Error>) {
        evaluate::execute(self, object)
    }

    /// What `kubectl -o go-template` prints for an object: on a fault also what helps to find it, as
    /// upstream's `cli-runtime/pkg/printers/template.go` does.
    pub fn print(&self, object: &Value) -> (Vec<u8>, Result<(), Error>) {
        let (mut out, result) = self.execute(object);
        let Err(error) = result else { return (out, Ok(())) };
        let raw = crate::quote::go_json(object).unwrap_or_default();
        out.extend_from_slice(
            format!(
                "Error executing template: {error}. Printing more information for debugging the template:\n\
                 \ttemplate was:\n\t\t{}\n\traw data was:\n\t\t{raw}\n\
                 \tobject given to template engine was:\n\t\t",
                self.text
            )
            .as_bytes(),
        );
        out.extend_from_slice(&format::print(&value::Val::of(object)));
        out.extend_from_slice(b"\n\n");
        let template = crate::quote::Quoted(&self.text);
        (out, Err(Error(format!("error executing template {template}: {error}"))))
    }
}

/// A JSON value as Go's `fmt` prints it with `%v`: what kubectl shows of fields it does not know.
pub fn go_print(value: &Value) -> String {
    String::from_utf8_lossy(&format::print(&value::Val::of(value))).into_owned()
}
