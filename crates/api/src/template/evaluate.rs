//! Nodes + object → text, as `text/template/exec.go` walks them.

use std::fmt::Display;

use crate::quote::Quoted;
use serde_json::Value;

use super::functions::{Function, Parameter};
use super::node::{Branch, Call, Command, Node, Operand, Pipe, Term};
use super::value::{Data, Val};
use super::{Error, MissingKeys, Template, format};

/// How deep templates may call one another and actions be nested while they run.
const MAX_DEPTH: usize = 100;
/// How many nodes may be evaluated.
const MAX_STEPS: usize = 20_000_000;
/// How much may be written.
const MAX_OUTPUT: usize = 256 << 20;

pub fn execute(template: &Template, object: &Value) -> (Vec<u8>, Result<(), Error>) {
    let dot = Val::of(object);
    let mut state = State {
        template,
        name: template.dialect.name,
        out: Vec::new(),
        at: None,
        variables: vec![("$", dot.clone())],
        depth: 0,
        steps: 0,
    };
    let result = match template.definitions.get(template.dialect.name) {
        Some(list) => state.walk(&dot, list),
        None => Ok(Flow::On),
    };
    (state.out, result.map(|_| ()))
}

struct State<'a> {
    template: &'a Template,
    /// The template that runs.
    name: &'a str,
    out: Vec<u8>,
    /// What is being evaluated: messages name it.
    at: Option<(usize, &'a dyn Display)>,
    variables: Vec<(&'a str, Val<'a>)>,
    depth: usize,
    steps: usize,
}

/// What happens after a node.
#[derive(PartialEq, Eq)]
enum Flow {
    On,
    Break,
    Continue,
}

impl<'a> State<'a> {
    fn fault(&self, message: impl Display) -> Error {
        let Some((position, node)) = self.at else {
            return Error(format!("template: {}: {message}", self.name));
        };
        let before = self.template.text.get(..position).unwrap_or_default();
        let line = 1 + before.matches('\n').count();
        let byte = before.rfind('\n').map_or(position, |newline| position - newline - 1);
        let (whole, name) = (self.template.dialect.name, Quoted(self.name));
        Error(format!("template: {whole}:{line}:{byte}: executing {name} at <{node}>: {message}"))
    }

    fn step(&mut self) -> Result<(), Error> {
        self.steps += 1;
        match self.steps > MAX_STEPS || self.out.len() > MAX_OUTPUT {
            true => Err(self.fault("the template writes too much or takes too long")),
            false => Ok(()),
        }
    }

    fn walk(&mut self, dot: &Val<'a>, list: &'a [Node]) -> Result<Flow, Error> {
        for node in list {
            self.step()?;
            let flow = match node {
                Node::Text(text) => {
                    self.out.extend_from_slice(text.as_bytes());
                    Flow::On
                }
                Node::Action(action) => {
                    self.at = Some((action.position, action));
                    let value = self.pipeline(dot, &action.pipe)?;
                    if action.pipe.variables.is_empty() {
                        self.at = Some((action.position, action));
                        self.out.extend_from_slice(&format::print_top(&value));
                    }
                    Flow::On
                }
                Node::If(branch) => self.scope(|state| {
                    let value = state.pipeline(dot, &branch.pipe)?;
                    state.either(value.is_true(), dot, dot, branch)
                })?,
                Node::With(branch) => self.scope(|state| {
                    let value = state.pipeline(dot, &branch.pipe)?;
                    state.either(value.is_true(), &value, dot, branch)
                })?,
                Node::Range(branch) => self.scope(|state| state.range(dot, branch))?,
                Node::Template(call) => self.call_template(dot, call)?,
                Node::Break => Flow::Break,
                Node::Continue => Flow::Continue,
            };
            if flow != Flow::On {
                return Ok(flow);
            }
        }
        Ok(Flow::On)
    }

    /// Runs with one level more; variables declared inside are gone afterwards.
    fn scope<T>(&mut self, run: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        if self.depth >= MAX_DEPTH {
            return Err(self.fault(format!("exceeded maximum template depth ({MAX_DEPTH})")));
        }
        let mark = self.variables.len();
        self.depth += 1;
        let result = run(self);
        self.depth -= 1;
        self.variables.truncate(mark);
        result
    }

    fn either(
        &mut self,
        truth: bool,
        dot: &Val<'a>,
        outer: &Val<'a>,
        branch: &'a Branch,
    ) -> Result<Flow, Error> {
        match (truth, &branch.otherwise) {
            (true, _) => self.walk(dot, &branch.list),
            (false, Some(otherwise)) => self.walk(outer, otherwise),
            (false, None) => Ok(Flow::On),
        }
    }

    fn range(&mut self, dot: &Val<'a>, branch: &'a Branch) -> Result<Flow, Error> {
        let value = self.pipeline(dot, &branch.pipe)?;
        let mut elements: Box<dyn Iterator<Item = (Val<'a>, Val<'a>)>> = match &value.data {
            Data::Int(count) | Data::Int64(count) => {
                let made = value.data.clone();
                if branch.pipe.variables.len() > 1 {
                    let shown = String::from_utf8_lossy(&format::print(&value)).into_owned();
                    return Err(self.fault(format!(
                        "can't use {shown} to iterate over more than one variable"
                    )));
                }
                let element = move |i| match made {
                    Data::Int64(_) => (Val::MISSING, Val::new(Data::Int64(i))),
                    _ => (Val::MISSING, Val::new(Data::Int(i))),
                };
                Box::new((0..*count).map(element))
            }
            Data::List(items) => Box::new(
                (0i64..)
                    .zip(items.iter())
                    .map(|(i, item)| (Val::new(Data::Int(i)), Val::element(item))),
            ),
            Data::Map(fields) => {
                let fields: &'a serde_json::Map<String, Value> = fields;
                // The order of keys is that of Go's sorted maps.
                let mut keys: Vec<&'a String> = fields.keys().collect();
                keys.sort();
                Box::new(keys.into_iter().map(move |key| {
                    (Val::borrowed(key), fields.get(key).map_or(Val::MISSING, Val::element))
                }))
            }
            Data::Missing | Data::Nil => Box::new(std::iter::empty()),
            _ => {
                let shown = String::from_utf8_lossy(&format::print(&value)).into_owned();
                return Err(self.fault(format!("range can't iterate over {shown}")));
            }
        };
        let mark = self.variables.len();
        let mut ran = false;
        for (index, element) in &mut elements {
            ran = true;
            self.step()?;
            self.set_range_variables(&branch.pipe, index, &element)?;
            let flow = self.walk(&element, &branch.list)?;
            self.variables.truncate(mark);
            if flow == Flow::Break {
                break;
            }
        }
        match (&branch.otherwise, ran) {
            (Some(otherwise), false) => self.walk(dot, otherwise),
            _ => Ok(Flow::On),
        }
    }

    /// With one variable it is the element, with two the index comes first.
    fn set_range_variables(
        &mut self,
        pipe: &'a Pipe,
        index: Val<'a>,
        element: &Val<'a>,
    ) -> Result<(), Error> {
        let values = match pipe.variables.len() {
            0 => return Ok(()),
            1 => vec![element.clone()],
            _ => vec![index, element.clone()],
        };
        if pipe.assigns {
            for (name, value) in pipe.variables.iter().zip(values) {
                self.assign(name, value)?;
            }
            return Ok(());
        }
        let top = self.variables.len();
        for (slot, value) in self.variables[top - values.len()..].iter_mut().zip(values) {
            slot.1 = value;
        }
        Ok(())
    }

    fn call_template(&mut self, dot: &Val<'a>, call: &'a Call) -> Result<Flow, Error> {
        self.at = Some((call.position, call));
        let Some(list) = self.template.definitions.get(&call.name) else {
            return Err(self.fault(format!("template {} not defined", Quoted(&call.name))));
        };
        let dot = match &call.pipe {
            Some(pipe) => self.pipeline(dot, pipe)?,
            None => Val::MISSING,
        };
        // A template sees no variables of its caller.
        let variables = std::mem::replace(&mut self.variables, vec![("$", dot.clone())]);
        let name = std::mem::replace(&mut self.name, call.name.as_str());
        let flow = self.scope(|state| state.walk(&dot, list))?;
        self.variables = variables;
        self.name = name;
        Ok(flow)
    }

    fn assign(&mut self, name: &str, value: Val<'a>) -> Result<(), Error> {
        match self.variables.iter_mut().rev().find(|(known, _)| *known == name) {
            Some(slot) => slot.1 = value,
            None => return Err(self.fault(format!("undefined variable: {name}"))),
        }
        Ok(())
    }

    fn pipeline(&mut self, dot: &Val<'a>, pipe: &'a Pipe) -> Result<Val<'a>, Error> {
        self.at = Some((pipe.position, pipe));
        let mut value = None;
        for command in &pipe.commands {
            value = Some(self.command(dot, command, value)?.unwrapped());
        }
        let value = value.unwrap_or(Val::MISSING);
        for variable in &pipe.variables {
            match pipe.assigns {
                true => self.assign(variable, value.clone())?,
                false => self.variables.push((variable, value.clone())),
            }
        }
        Ok(value)
    }

    /// `before` is what the command before it in the pipeline yielded.
    fn command(
        &mut self,
        dot: &Val<'a>,
        command: &'a Command,
        before: Option<Val<'a>>,
    ) -> Result<Val<'a>, Error> {
        self.step()?;
        let Some((first, arguments)) = command.words.split_first() else { return Ok(Val::MISSING) };
        let has_arguments = !arguments.is_empty() || before.is_some();
        match &first.term {
            Term::Identifier(name) => {
                self.at = Some((first.position, first));
                return self.call(dot, name, (command.position, command), arguments, before);
            }
            Term::Field(_) | Term::Chain(..) => {
                return self.operand_with(dot, first, has_arguments);
            }
            Term::Variable(names) if names.len() > 1 => {
                return self.operand_with(dot, first, has_arguments);
            }
            Term::Pipe(_) => {}
            _ => self.at = Some((first.position, first)),
        }
        if has_arguments {
            return Err(self.fault(format!("can't give argument to non-function {first}")));
        }
        match &first.term {
            Term::Nil => Err(self.fault("nil is not a command")),
            _ => self.operand_with(dot, first, false),
        }
    }

    fn operand_with(
        &mut self,
        dot: &Val<'a>,
        operand: &'a Operand,
        has_arguments: bool,
    ) -> Result<Val<'a>, Error> {
        match &operand.term {
            Term::Pipe(pipe) => self.scope_of_pipe(dot, pipe),
            Term::Bool(value) => Ok(Val::new(Data::Bool(*value))),
            Term::Dot => Ok(dot.clone()),
            Term::Nil => Ok(Val::MISSING),
            Term::String(text, _) => Ok(Val::borrowed(text)),
            Term::Number(number) => {
                self.at = Some((operand.position, operand));
                match (number.int, number.float) {
                    (_, Some(float)) if number.looks_like_float() => {
                        Ok(Val::new(Data::Float(float)))
                    }
                    (Some(int), _) => Ok(Val::new(Data::Int(int))),
                    _ => Err(self.fault(format!("{} overflows int", number.text))),
                }
            }
            Term::Identifier(name) => {
                self.at = Some((operand.position, operand));
                self.call(dot, name, (operand.position, operand), &[], None)
            }
            Term::Field(names) => {
                self.at = Some((operand.position, operand));
                self.fields(dot.clone(), names, has_arguments)
            }
            Term::Variable(names) => {
                self.at = Some((operand.position, operand));
                let Some((name, fields)) = names.split_first() else { return Ok(Val::MISSING) };
                let known = self.variables.iter().rev().find(|(known, _)| known == name);
                let Some((_, value)) = known else {
                    return Err(self.fault(format!("undefined variable: {name}")));
                };
                let value = value.clone();
                self.fields(value, fields, has_arguments)
            }
            Term::Chain(base, names) => {
                self.at = Some((operand.position, operand));
                if matches!(base.term, Term::Nil) {
                    return Err(
                        self.fault(format!("indirection through explicit nil in {operand}"))
                    );
                }
                let value = self.operand_with(dot, base, false)?;
                self.fields(value, names, has_arguments)
            }
        }
    }

    fn scope_of_pipe(&mut self, dot: &Val<'a>, pipe: &'a Pipe) -> Result<Val<'a>, Error> {
        if self.depth >= MAX_DEPTH * 2 {
            return Err(self.fault(format!("exceeded maximum template depth ({MAX_DEPTH})")));
        }
        self.depth += 1;
        let value = self.pipeline(dot, pipe);
        self.depth -= 1;
        value
    }

    fn fields(
        &mut self,
        mut value: Val<'a>,
        names: &'a [String],
        has_arguments: bool,
    ) -> Result<Val<'a>, Error> {
        for (i, name) in names.iter().enumerate() {
            let strict = self.template.missing_keys == MissingKeys::Faults;
            let called = has_arguments && i + 1 == names.len();
            value = match &value.data {
                Data::Missing if strict => {
                    return Err(self.fault(format!("nil data; no entry for key {}", Quoted(name))));
                }
                Data::Missing => Val::MISSING,
                Data::Nil => {
                    return Err(self.fault(format!("nil pointer evaluating interface {{}}.{name}")));
                }
                Data::Map(_) if called => {
                    return Err(self.fault(format!("{name} is not a method but has arguments")));
                }
                Data::Map(fields) => match fields.get(name) {
                    Some(field) => Val::element(field),
                    None if strict => {
                        return Err(
                            self.fault(format!("map has no entry for key {}", Quoted(name)))
                        );
                    }
                    None => Val::MISSING,
                },
                _ => {
                    let kind = value.seen_type();
                    return Err(self.fault(format!("can't evaluate field {name} in type {kind}")));
                }
            };
        }
        Ok(value)
    }

    fn call(
        &mut self,
        dot: &Val<'a>,
        name: &'a str,
        node: (usize, &'a dyn Display),
        arguments: &'a [Operand],
        before: Option<Val<'a>>,
    ) -> Result<Val<'a>, Error> {
        let Some(function) = self.template.dialect.function(name) else {
            return Err(self.fault(format!("{} is not a defined function", Quoted(name))));
        };
        let given = arguments.len() + usize::from(before.is_some());
        let fixed = function.fixed.len();
        if function.rest.is_some() && given < fixed {
            let count = arguments.len();
            return Err(self.fault(format!(
                "wrong number of args for {name}: want at least {fixed} got {count}"
            )));
        }
        if function.rest.is_none() && given != fixed {
            return Err(
                self.fault(format!("wrong number of args for {name}: want {fixed} got {given}"))
            );
        }
        let mut values = Vec::with_capacity(given);
        for (i, argument) in arguments.iter().enumerate() {
            let value = self.argument(dot, function.parameter(i), argument)?;
            // `and` and `or` evaluate no more than they need.
            if function.stops_at.is_some_and(|truth| value.is_true() == truth) {
                return Ok(value);
            }
            values.push(value);
        }
        if let Some(before) = before {
            values.push(self.fit(function.parameter(arguments.len()), before)?);
        }
        self.run(function, node, name, values)
    }

    fn run(
        &mut self,
        function: &Function,
        node: (usize, &'a dyn Display),
        name: &str,
        values: Vec<Val<'a>>,
    ) -> Result<Val<'a>, Error> {
        (function.run)(values).map_err(|fault| {
            self.at = Some(node);
            self.fault(format!("error calling {name}: {fault}"))
        })
    }

    fn argument(
        &mut self,
        dot: &Val<'a>,
        parameter: Parameter,
        operand: &'a Operand,
    ) -> Result<Val<'a>, Error> {
        self.at = Some((operand.position, operand));
        match (&operand.term, parameter) {
            (Term::Nil, Parameter::String) => Err(self.fault("cannot assign nil to string")),
            (Term::Bool(_) | Term::Number(_), Parameter::String) => {
                Err(self.fault(format!("expected string; found {operand}")))
            }
            _ => {
                let value = self.operand_with(dot, operand, false)?;
                self.fit(parameter, value)
            }
        }
    }

    /// Whether a value may be given for a parameter.
    fn fit(&self, parameter: Parameter, value: Val<'a>) -> Result<Val<'a>, Error> {
        match (parameter, &value.data) {
            (Parameter::Any, _) | (Parameter::String, Data::Str(_)) => Ok(value),
            (Parameter::String, Data::Missing) => Err(self.fault("invalid value; expected string")),
            (Parameter::String, _) => {
                let kind = value.type_name();
                Err(self.fault(format!("wrong type for value; expected string; got {kind}")))
            }
        }
    }
}
