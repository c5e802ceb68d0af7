//! The evaluator: a walk over the checked tree.
//!
//! Errors are values to the logical operators and to folds, which may absorb them. That the limit of
//! the cost is reached is not: it ends everything.
use crate::cost::{self, CallCost};
use crate::library::{Function, Outcome, shown};
use crate::node::{Access, FoldNode, Node};
use crate::types::Type;
use crate::value::{Entries, List, Map, Object, Value};
use crate::work::{Error, Work};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The values of an environment's variables.
pub trait Activation<'a> {
    /// The variable's value; none if there is none by that name.
    fn find(&self, name: &str) -> Option<Outcome<'a>>;
}

/// A compiled expression.
pub struct Program {
    root: Node,
    output: Type,
    variables: BTreeSet<Arc<str>>,
}

/// What an evaluation came to.
pub struct Evaluated<'a> {
    pub value: Outcome<'a>,
    pub cost: u64,
}

impl Program {
    pub(crate) fn new(root: Node, output: Type, variables: BTreeSet<Arc<str>>) -> Self {
        Program { root, output, variables }
    }

    /// Whether the expression names a variable, evaluated or not.
    pub fn names(&self, variable: &str) -> bool {
        self.variables.contains(variable)
    }

    /// Whether it reads this field of a variable, or asks whether it is there.
    pub fn selects(&self, variable: &str, field: &str) -> bool {
        self.root.any(&|node| match node {
            Node::Select { operand, field: read, .. } => {
                **read == *field
                    && matches!(&**operand, Node::Variable(name) if **name == *variable)
            }
            _ => false,
        })
    }

    pub fn output(&self) -> &Type {
        &self.output
    }

    /// Evaluates within the limit of one call.
    pub fn evaluate<'a>(&self, activation: &dyn Activation<'a>) -> Evaluated<'a> {
        self.evaluate_within(activation, cost::PER_CALL_LIMIT)
    }

    pub fn evaluate_within<'a>(
        &self,
        activation: &dyn Activation<'a>,
        limit: u64,
    ) -> Evaluated<'a> {
        let (locals, work) = (Vec::new(), Work::default());
        let mut machine = Machine { activation, locals, cost: 0, limit, work };
        let value = machine.node(&self.root);
        let value = if machine.is_over() { Err(Error::Cost) } else { value };
        Evaluated { value, cost: machine.cost }
    }
}

struct Machine<'p, 'a> {
    activation: &'p dyn Activation<'a>,
    locals: Vec<Outcome<'a>>,
    cost: u64,
    limit: u64,
    work: Work,
}

impl<'a> Machine<'_, 'a> {
    fn is_over(&self) -> bool {
        self.cost > self.limit || self.work.is_exhausted()
    }

    fn charge(&mut self, cost: u64) -> Result<(), Error> {
        self.cost = self.cost.saturating_add(cost);
        if self.is_over() { Err(Error::Cost) } else { Ok(()) }
    }

    fn node(&mut self, node: &Node) -> Outcome<'a> {
        match node {
            Node::Constant(value) => Ok(value.clone()),
            Node::Variable(name) => {
                self.charge(1)?;
                let found = self.activation.find(name);
                found.unwrap_or_else(|| Err(Error::Said(format!("no such attribute(s): {name}"))))
            }
            Node::Local(place) => {
                self.charge(1)?;
                self.locals[*place].clone()
            }
            Node::Select { operand, field, access } => self.select(operand, field, *access),
            Node::Index { operand, index, access } => self.index(operand, index, *access),
            Node::And(terms) => self.logic(terms, false),
            Node::Or(terms) => self.logic(terms, true),
            Node::Conditional(parts) => self.conditional(parts),
            Node::NotStrictlyFalse(inner) => self.not_strictly_false(inner),
            Node::OrElse { target, other, value } => self.or_else(target, other, *value),
            Node::Call { function, args, cost } => self.call(function, args, *cost),
            Node::List(items) => self.list(items),
            Node::Map(entries) => self.map(entries),
            Node::Struct { name, fields } => self.object(name, fields),
            Node::Fold(fold) => self.fold(fold),
            Node::Push { place, values } => self.push(*place, values),
            Node::Insert { place, entry } => self.insert(*place, entry),
        }
    }

    /// Gives back the cost of the name that an attribute begins with, where it is part of another.
    fn refund(&mut self, node: &Node) {
        if node.is_attribute() && !matches!(node, Node::Conditional(_)) {
            self.cost = self.cost.saturating_sub(1);
        }
    }

    /// What is selected of, with the cost of an attribute that begins with it.
    fn operand(&mut self, operand: &Node) -> Outcome<'a> {
        let value = self.node(operand)?;
        if !operand.is_attribute() {
            self.charge(1)?;
        }
        Ok(value)
    }

    fn select(&mut self, operand: &Node, field: &Arc<str>, access: Access) -> Outcome<'a> {
        let value = match self.operand(operand) {
            // A test is free: where it fails before, so is what it begins with.
            Err(error) if access == Access::Test && error != Error::Cost => {
                self.refund(operand);
                return Err(error);
            }
            outcome => outcome?,
        };
        let (value, optional) = match value {
            Value::Optional(None) if access == Access::Test => return Ok(Value::Bool(false)),
            Value::Optional(None) => return Ok(Value::none()),
            Value::Optional(Some(inner)) => ((*inner).clone(), true),
            value => (value, false),
        };
        let found = match &value {
            Value::Map(map) => map.field(field),
            _ => None,
        };
        // What an optional access does not find is not paid for.
        if found.is_some() || (access == Access::Get && !optional) {
            self.charge(u64::from(access != Access::Test))?;
        }
        match (access, found) {
            (Access::Test, found) => Ok(Value::Bool(found.is_some())),
            (Access::Get, Some(found)) if !optional => Ok(found),
            (_, Some(found)) => Ok(Value::some(found)),
            (Access::Get, None) if !optional => Err(Error::Said(format!("no such key: {field}"))),
            (_, None) => Ok(Value::none()),
        }
    }

    fn index(&mut self, operand: &Node, index: &Node, access: Access) -> Outcome<'a> {
        let value = self.operand(operand)?;
        let (value, optional) = match value {
            Value::Optional(None) => return Ok(Value::none()),
            Value::Optional(Some(inner)) => ((*inner).clone(), true),
            value => (value, access == Access::Optional),
        };
        let at = self.node(index)?;
        self.refund(index);
        let found = indexed(&value, &at);
        if !matches!(found, Ok(None)) || !optional {
            self.charge(1)?;
        }
        match found? {
            Some(found) if optional => Ok(Value::some(found)),
            Some(found) => Ok(found),
            None if optional => Ok(Value::none()),
            None => Err(missing(&value, &at)),
        }
    }

    /// The first term that decides; else the first error; else what all terms are.
    #[inline(never)]
    fn logic(&mut self, terms: &[Node], decides: bool) -> Outcome<'a> {
        let mut error = None;
        for term in terms {
            match self.node(term) {
                Ok(Value::Bool(value)) if value == decides => return Ok(Value::Bool(value)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => error = error.or(Some(Error::NoOverload)),
                Err(Error::Cost) => return Err(Error::Cost),
                Err(other) => error = error.or(Some(other)),
            }
        }
        error.map_or(Ok(Value::Bool(!decides)), Err)
    }

    fn conditional(&mut self, [condition, yes, no]: &[Node; 3]) -> Outcome<'a> {
        match self.node(condition)? {
            Value::Bool(true) => self.branch(yes),
            Value::Bool(false) => self.branch(no),
            _ => Err(Error::NoOverload),
        }
    }

    fn branch(&mut self, node: &Node) -> Outcome<'a> {
        let outcome = self.node(node);
        self.refund(node);
        outcome
    }

    fn not_strictly_false(&mut self, inner: &Node) -> Outcome<'a> {
        let value = self.node(inner);
        self.charge(1)?;
        match value {
            Ok(Value::Bool(value)) => Ok(Value::Bool(value)),
            Err(Error::Cost) => Err(Error::Cost),
            _ => Ok(Value::Bool(true)),
        }
    }

    fn or_else(&mut self, target: &Node, other: &Node, value: bool) -> Outcome<'a> {
        match self.node(target)? {
            Value::Optional(Some(inner)) if value => Ok((*inner).clone()),
            some @ Value::Optional(Some(_)) => Ok(some),
            Value::Optional(None) => self.node(other),
            _ => Err(Error::NoOverload),
        }
    }

    #[inline(never)]
    fn call(
        &mut self,
        function: &'static Function,
        args: &[Node],
        cost: Option<CallCost>,
    ) -> Outcome<'a> {
        let mut values = Vec::with_capacity(args.len());
        let mut fault = None;
        for arg in args {
            match self.node(arg) {
                Ok(value) => values.push(value),
                Err(error) if error == Error::Cost || args.len() > 2 => return Err(error),
                // Of one or two arguments both are evaluated, and the call is paid for.
                Err(error) => {
                    fault = fault.or(Some(error));
                    values.push(Value::Null);
                }
            }
        }
        if let Some(fault) = fault {
            let cost = cost.unwrap_or(function.rows[0].cost);
            self.charge(cost(&values, &Value::Null))?;
            return Err(fault);
        }
        let (outcome, row) = function.run(&mut self.work, &values);
        let result = outcome.as_ref().unwrap_or(&Value::Null);
        let cost = cost.unwrap_or(row.cost)(&values, result);
        self.work.take(1 + cost::weight(result));
        self.charge(cost)?;
        outcome
    }

    #[inline(never)]
    fn list(&mut self, items: &[(Node, bool)]) -> Outcome<'a> {
        let mut values = Vec::with_capacity(items.len());
        for (node, optional) in items {
            match (self.node(node)?, optional) {
                (value, false) => values.push(value),
                (Value::Optional(Some(value)), true) => values.push((*value).clone()),
                (Value::Optional(None), true) => {}
                (value, true) => {
                    return Err(Error::Said(format!(
                        "cannot initialize optional list element from non-optional value {}",
                        value.type_name()
                    )));
                }
            }
        }
        self.charge(cost::LIST)?;
        Ok(Value::list(values))
    }

    #[inline(never)]
    fn map(&mut self, nodes: &[(Node, Node, bool)]) -> Outcome<'a> {
        let mut entries = Entries::default();
        for (key, value, optional) in nodes {
            let key = self.node(key)?;
            let value = match (self.node(value)?, optional) {
                (value, false) => value,
                (Value::Optional(Some(value)), true) => (*value).clone(),
                (Value::Optional(None), true) => continue,
                (value, true) => return Err(not_optional(&key, &value)),
            };
            if !entries.set(key.clone(), value) {
                return Err(Error::Said(format!("unsupported key type: {}", key.type_name())));
            }
        }
        self.charge(cost::MAP)?;
        Ok(Value::map(entries))
    }

    #[inline(never)]
    fn object(&mut self, name: &Arc<str>, nodes: &[(Arc<str>, Node, bool)]) -> Outcome<'a> {
        let mut fields = Vec::with_capacity(nodes.len());
        for (field, node, optional) in nodes {
            let value = match (self.node(node)?, optional) {
                (value, false) => value,
                (Value::Optional(Some(value)), true) => (*value).clone(),
                (Value::Optional(None), true) => continue,
                (value, true) => return Err(not_optional(&Value::text(field.clone()), &value)),
            };
            fields.push((field.clone(), value));
        }
        self.charge(cost::STRUCT)?;
        Ok(Value::Map(Map::Object(Arc::new(Object { name: name.clone(), fields }))))
    }

    #[inline(never)]
    fn fold(&mut self, fold: &FoldNode) -> Outcome<'a> {
        let range = self.node(&fold.range)?;
        let init = self.node(&fold.init);
        let depth = self.locals.len();
        self.locals.push(init);
        let outcome = self.rounds(fold, &range);
        self.locals.truncate(depth + 1);
        let outcome = outcome.and_then(|()| self.node(&fold.result));
        self.locals.truncate(depth);
        outcome
    }

    fn rounds(&mut self, fold: &FoldNode, range: &Value<'a>) -> Result<(), Error> {
        match range {
            Value::List(list) => {
                for (at, item) in list.iter().enumerate() {
                    let (first, second) =
                        if fold.two { (Value::Int(at as i64), Some(item)) } else { (item, None) };
                    if !self.round(fold, first, second)? {
                        break;
                    }
                }
            }
            Value::Map(map) => {
                for (key, value) in map.iter() {
                    let second = fold.two.then_some(value);
                    if !self.round(fold, key, second)? {
                        break;
                    }
                }
            }
            _ => return Err(Error::NoOverload),
        }
        Ok(())
    }

    /// One element; false when the fold is at its end.
    fn round(
        &mut self,
        fold: &FoldNode,
        first: Value<'a>,
        second: Option<Value<'a>>,
    ) -> Result<bool, Error> {
        let place = self.locals.len() - 1;
        self.locals.push(Ok(first));
        self.locals.extend(second.map(Ok));
        if !self.work.take(1) {
            return Err(Error::Cost);
        }
        let more = match self.node(&fold.condition) {
            Ok(Value::Bool(more)) => more,
            Err(Error::Cost) => return Err(Error::Cost),
            _ => true,
        };
        if more {
            let step = self.node(&fold.step);
            if matches!(step, Err(Error::Cost)) {
                return Err(Error::Cost);
            }
            self.locals[place] = step;
        }
        self.locals.truncate(place + 1);
        Ok(more)
    }

    #[inline(never)]
    fn push(&mut self, place: usize, values: &[Node]) -> Outcome<'a> {
        let constant = values.iter().all(|node| node.constant().is_some());
        self.charge(1)?;
        let mut added = Vec::with_capacity(values.len());
        for node in values {
            added.push(self.node(node)?);
        }
        self.charge(1 + if constant { 0 } else { cost::LIST })?;
        self.work.take(added.len() as u64);
        // Taken out so that nobody else holds the list: it grows in place.
        match std::mem::replace(&mut self.locals[place], Ok(Value::Null))? {
            Value::List(List::Owned(mut list)) => {
                Arc::make_mut(&mut list).append(&mut added);
                Ok(Value::List(List::Owned(list)))
            }
            Value::List(list) => Ok(Value::list(list.iter().chain(added).collect())),
            _ => Err(Error::NoOverload),
        }
    }

    #[inline(never)]
    fn insert(&mut self, place: usize, entry: &[Node]) -> Outcome<'a> {
        self.charge(1)?;
        let mut values = Vec::with_capacity(entry.len());
        for node in entry {
            values.push(self.node(node)?);
        }
        self.charge(1)?;
        let taken = std::mem::replace(&mut self.locals[place], Ok(Value::Null))?;
        let Value::Map(Map::Owned(mut entries)) = taken else { return Err(Error::NoOverload) };
        let map = Arc::make_mut(&mut entries);
        let new = match &values[..] {
            [Value::Map(other)] => other.iter().collect(),
            [key, value] => vec![(key.clone(), value.clone())],
            _ => return Err(Error::NoOverload),
        };
        for (key, value) in new {
            if !map.insert(key.clone(), value) {
                return Err(Error::Said(format!(
                    "insert failed: key {} already exists",
                    shown(&key)
                )));
            }
        }
        Ok(Value::Map(Map::Owned(entries)))
    }
}

fn not_optional(key: &Value<'_>, value: &Value<'_>) -> Error {
    Error::Said(format!(
        "cannot initialize optional entry '{}' from non-optional value {}",
        shown(key),
        shown(value)
    ))
}

fn indexed<'a>(value: &Value<'a>, index: &Value<'a>) -> Looked<'a> {
    match (value, index) {
        (Value::List(list), Value::Int(at)) => {
            Ok(usize::try_from(*at).ok().and_then(|at| list.get(at)))
        }
        (Value::List(list), Value::Uint(at)) => {
            Ok(usize::try_from(*at).ok().and_then(|at| list.get(at)))
        }
        (Value::List(list), Value::Double(at)) if at.fract() == 0.0 && *at >= 0.0 => {
            Ok(list.get(*at as usize))
        }
        (Value::List(_), Value::Double(at)) => {
            Err(Error::Said(format!("unsupported index value {at} in list")))
        }
        (Value::List(_), index) => {
            Err(Error::Said(format!("unsupported index type '{}' in list", index.type_name())))
        }
        (Value::Map(map), key) => Ok(map.get(key)),
        _ => Ok(None),
    }
}

type Looked<'a> = Result<Option<Value<'a>>, Error>;

fn missing(value: &Value<'_>, index: &Value<'_>) -> Error {
    let at = shown(index);
    match value {
        Value::List(_) => Error::Said(format!("index out of bounds: {at}")),
        _ => Error::Said(format!("no such key: {at}")),
    }
}
