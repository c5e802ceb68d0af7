//! The type checker: from a tree to what is evaluated.
//!
//! Follows cel-go's `checker` in its order, so that the same faults are found in the same places.
//! Constant lists, maps and conversions are evaluated here, as cel-go's optimizer does: that is part
//! of what an expression costs.
mod calls;
mod validate;

use crate::environment::{CompileError, Environment};
use crate::issue::{Issue, Issues};
use crate::library::Overload;
use crate::node::{Access, FoldNode, Node};
use crate::syntax::{Entry, Expr, Fold, Id, Initializer, Item, Kind, Literal, Parsed};
use crate::types::{Mapping, Type, most_general};
use crate::value::{Entries, Value};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// An expression that was found sound.
pub struct Sound {
    pub root: Node,
    pub output: Type,
    /// The environment's variables that it names.
    pub variables: BTreeSet<Arc<str>>,
    /// Of each part, by its id.
    pub types: HashMap<Id, Type>,
    /// Which overloads each call may mean.
    pub overloads: HashMap<Id, Vec<&'static Overload>>,
}

/// `records`: the types and overloads are wanted.
pub fn check(
    environment: &Environment,
    text: &str,
    parsed: &Parsed,
    records: bool,
) -> Result<Sound, CompileError> {
    let mut checker = Checker {
        environment,
        positions: &parsed.positions,
        issues: Vec::new(),
        mapping: Mapping::default(),
        scope: Vec::new(),
        constant_fault: None,
        later: Vec::new(),
        in_format: 0,
        last_list: Vec::new(),
        variables: BTreeSet::new(),
        records,
        types: HashMap::new(),
        overloads: HashMap::new(),
    };
    let (node, ty) = checker.expr(&parsed.root);
    if checker.issues.is_empty() {
        validate::later(&mut checker);
    }
    if !checker.issues.is_empty() {
        return Err(CompileError::Issues(Issues::new(text, checker.issues)));
    }
    if let Some(fault) = checker.constant_fault {
        return Err(CompileError::Constant(fault));
    }
    let output = checker.mapping.substitute(&ty, true);
    let mapping = &checker.mapping;
    let settled = checker.types.iter().map(|(id, ty)| (*id, mapping.substitute(ty, true)));
    let (types, overloads) = (settled.collect(), checker.overloads);
    Ok(Sound { root: node, output, variables: checker.variables, types, overloads })
}

struct Checker<'e> {
    environment: &'e Environment,
    positions: &'e [u32],
    issues: Vec<Issue>,
    mapping: Mapping,
    /// The variables of the folds around, the innermost last; a place here is one when evaluating.
    scope: Vec<(String, Type)>,
    constant_fault: Option<String>,
    /// What is looked at when all types are known.
    later: Vec<validate::Later>,
    /// How many calls of `format` are around: their lists may be mixed.
    in_format: u32,
    /// The types in the list that was checked last.
    last_list: Vec<(Id, Type)>,
    variables: BTreeSet<Arc<str>>,
    records: bool,
    types: HashMap<Id, Type>,
    overloads: HashMap<Id, Vec<&'static Overload>>,
}

/// Types that can be named.
const TYPE_NAMES: &[(&str, Type)] = &[
    ("bool", Type::Bool),
    ("int", Type::Int),
    ("uint", Type::Uint),
    ("double", Type::Double),
    ("string", Type::String),
    ("bytes", Type::Bytes),
    ("null_type", Type::Null),
    ("google.protobuf.Duration", Type::Duration),
    ("google.protobuf.Timestamp", Type::Timestamp),
    ("list", Type::Dyn),
    ("map", Type::Dyn),
    ("type", Type::Dyn),
    ("optional_type", Type::Dyn),
    ("net.IP", Type::Dyn),
    ("net.CIDR", Type::Dyn),
    ("kubernetes.URL", Type::Dyn),
    ("kubernetes.Quantity", Type::Dyn),
    ("kubernetes.Semver", Type::Dyn),
    ("kubernetes.NamedFormat", Type::Dyn),
];

type Checked = (Node, Type);

/// What takes the place of a part that is wrong.
fn broken() -> Checked {
    (Node::Constant(Value::Null), Type::Error)
}

impl Checker<'_> {
    fn issue(&mut self, id: Id, message: String) {
        self.issues.push(Issue { offset: Some(self.positions[id as usize]), message });
    }

    fn undeclared(&mut self, id: Id, name: &str) -> Checked {
        self.issue(id, format!("undeclared reference to '{name}' (in container '')"));
        broken()
    }

    fn mismatch(&mut self, id: Id, expected: &Type, found: &Type) {
        self.issue(id, format!("expected type '{expected}' but found '{found}'"));
    }

    /// Whether a value of `given` can be where `wanted` is.
    fn fits(&mut self, given: &Type, wanted: &Type) -> bool {
        self.mapping.assignable(std::slice::from_ref(given), std::slice::from_ref(wanted))
    }

    fn expr(&mut self, expr: &Expr) -> Checked {
        let checked = self.part(expr);
        if self.records {
            self.types.insert(expr.id, checked.1.clone());
        }
        checked
    }

    fn part(&mut self, expr: &Expr) -> Checked {
        match &expr.kind {
            Kind::Literal(literal) => literal_node(literal),
            Kind::Ident(name) => self.ident(expr.id, name),
            Kind::Select { operand, field, test } => self.select(expr, operand, field, *test),
            Kind::Call { function, target, args } => {
                self.call(expr.id, function, target.as_deref(), args)
            }
            Kind::List(items) => self.list(items),
            Kind::Map(entries) => self.map(entries),
            Kind::Struct { name, fields } => self.object(expr.id, name, fields),
            Kind::Fold(fold) => self.fold(fold),
        }
    }

    fn ident(&mut self, id: Id, name: &str) -> Checked {
        match self.resolve(name) {
            Some(found) => found,
            None => self.undeclared(id, name),
        }
    }

    /// A name: of a fold's variable, of one of the environment, of a type.
    fn resolve(&mut self, name: &str) -> Option<Checked> {
        let local = self.scope.iter().rposition(|(local, _)| local == name);
        if let Some(place) = local {
            return Some((Node::Local(place), self.scope[place].1.clone()));
        }
        self.global(name.strip_prefix('.').unwrap_or(name))
    }

    fn global(&mut self, name: &str) -> Option<Checked> {
        if let Some((name, ty)) = self.environment.find(name) {
            self.variables.insert(name.clone());
            return Some((Node::Variable(name), ty));
        }
        let value = |name: &str| Node::Constant(Value::Type(name.into()));
        if let Some((name, ty)) = TYPE_NAMES.iter().find(|(known, _)| *known == name) {
            let ty = match *name {
                "list" => Type::list(Type::Dyn),
                "map" => Type::map(Type::Dyn, Type::Dyn),
                _ => ty.clone(),
            };
            return Some((value(name), Type::Type(Arc::new(ty))));
        }
        let known = self.environment.knows(name);
        known.then(|| (value(name), Type::Type(Arc::new(Type::object(name)))))
    }

    fn select(&mut self, expr: &Expr, operand: &Expr, field: &str, test: bool) -> Checked {
        if !test
            && let Some(name) = self.qualified(expr)
            && let Some(found) = self.global(&name)
        {
            return found;
        }
        // Whether a declared name with dots is there is known now.
        if test && let Some(name) = self.qualified(operand) {
            let full = format!("{name}.{field}");
            if self.environment.find(&full).is_some() {
                return (Node::Constant(Value::Bool(true)), Type::Bool);
            }
        }
        let access = if test { Access::Test } else { Access::Get };
        let (node, ty) = self.field(expr.id, operand, field, access);
        (node, if test { Type::Bool } else { self.mapping.substitute(&ty, false) })
    }

    /// `a.b.c` as one name, unless `a` is a fold's variable.
    fn qualified(&self, expr: &Expr) -> Option<String> {
        let mut parts = Vec::new();
        let mut at = expr;
        loop {
            match &at.kind {
                Kind::Select { operand, field, test: false } => {
                    parts.push(field.as_str());
                    at = operand;
                }
                Kind::Ident(name) => {
                    if self.scope.iter().any(|(local, _)| local == name) {
                        return None;
                    }
                    parts.push(name.strip_prefix('.').unwrap_or(name));
                    parts.reverse();
                    return Some(parts.join("."));
                }
                _ => return None,
            }
        }
    }

    fn field(&mut self, id: Id, operand: &Expr, field: &str, access: Access) -> Checked {
        let (node, ty) = self.expr(operand);
        let ty = self.mapping.substitute(&ty, false);
        let (target, was_optional) = ty.unwrapped();
        let result = match &target {
            Type::Map(_, value) => (**value).clone(),
            Type::Object(name) => match self.environment.field(name, field) {
                Some(ty) => ty,
                None if self.environment.knows(name) => {
                    self.issue(id, format!("undefined field '{field}'"));
                    Type::Error
                }
                None => {
                    self.issue(id, format!("type '{target}' does not support field selection"));
                    Type::Error
                }
            },
            Type::Variable(_) => {
                self.fits(&Type::Dyn, &target);
                Type::Dyn
            }
            other => {
                if !other.is_dyn_or_error() {
                    self.issue(id, format!("type '{other}' does not support field selection"));
                }
                Type::Dyn
            }
        };
        let optional = was_optional || access == Access::Optional;
        let result = if optional { Type::optional(result).bounded() } else { result };
        (Node::Select { operand: Box::new(node), field: field.into(), access }, result)
    }

    /// The type of an element that may be left out.
    fn optional_element(&mut self, id: Id, ty: Type, optional: bool) -> Type {
        if !optional {
            return ty;
        }
        let (inner, was) = ty.unwrapped();
        if !was && inner != Type::Dyn {
            self.mismatch(id, &Type::optional(inner.clone()), &inner);
        }
        inner
    }

    /// The type of elements of both types; that they differ is told later.
    fn join(&mut self, previous: Option<Type>, current: Type) -> Type {
        let Some(previous) = previous else { return current };
        if self.fits(&previous, &current) { most_general(previous, current) } else { Type::Dyn }
    }

    /// Elements of a literal, which must be of one type.
    fn alike(&mut self, elements: &[(Id, Type)], once: bool) {
        if self.in_format == 0 && elements.len() > 1 {
            self.later.push(validate::Later::Alike { elements: elements.to_vec(), once });
        }
    }

    fn list(&mut self, items: &[Item]) -> Checked {
        let mut element = None;
        let mut nodes = Vec::with_capacity(items.len());
        let mut types = Vec::with_capacity(items.len());
        for item in items {
            let (node, ty) = self.expr(&item.value);
            let ty = self.optional_element(item.value.id, ty, item.optional);
            types.push((item.value.id, ty.clone()));
            element = Some(self.join(element, ty));
            nodes.push((node, item.optional));
        }
        self.alike(&types, true);
        self.last_list = types;
        let element = element.unwrap_or_else(|| self.mapping.fresh());
        let ty = Type::list(element).bounded();
        let constant = nodes.iter().all(|(node, optional)| node.constant().is_some() && !optional);
        if !constant {
            return (Node::List(nodes), ty);
        }
        let values = nodes.iter().filter_map(|(node, _)| node.constant().cloned()).collect();
        (Node::Constant(Value::list(values)), ty)
    }

    fn map(&mut self, entries: &[Entry]) -> Checked {
        let (mut key_type, mut value_type) = (None, None);
        let mut nodes = Vec::with_capacity(entries.len());
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        for entry in entries {
            let (key, ty) = self.expr(&entry.key);
            keys.push((entry.key.id, ty.clone()));
            key_type = Some(self.join(key_type, ty));
            let (value, ty) = self.expr(&entry.value);
            let ty = self.optional_element(entry.value.id, ty, entry.optional);
            values.push((entry.value.id, ty.clone()));
            value_type = Some(self.join(value_type, ty));
            nodes.push((key, value, entry.optional));
        }
        self.alike(&keys, false);
        self.alike(&values, false);
        let key_type = key_type.unwrap_or_else(|| self.mapping.fresh());
        let value_type = value_type.unwrap_or_else(|| self.mapping.fresh());
        let ty = Type::map(key_type, value_type).bounded();
        match constant_map(&nodes) {
            Some(entries) => (Node::Constant(Value::map(entries)), ty),
            None => (Node::Map(nodes), ty),
        }
    }

    fn object(&mut self, id: Id, name: &str, initializers: &[Initializer]) -> Checked {
        let plain = name.strip_prefix('.').unwrap_or(name);
        if !self.environment.knows(plain) {
            if TYPE_NAMES.iter().any(|(known, _)| *known == plain) {
                self.issue(id, format!("'{plain}' is not a message type"));
                return broken();
            }
            return self.undeclared(id, name);
        }
        let mut fields = Vec::with_capacity(initializers.len());
        for initializer in initializers {
            let (node, ty) = self.expr(&initializer.value);
            let declared = self.environment.field(plain, &initializer.field);
            let declared = declared.unwrap_or_else(|| {
                self.issue(initializer.id, format!("undefined field '{}'", initializer.field));
                Type::Error
            });
            let ty = self.optional_element(initializer.value.id, ty, initializer.optional);
            if !self.fits(&declared, &ty) {
                let field = &initializer.field;
                let message = format!(
                    "expected type of field '{field}' is '{declared}' but provided type is '{ty}'"
                );
                self.issue(initializer.id, message);
            }
            fields.push((initializer.field.as_str().into(), node, initializer.optional));
        }
        (Node::Struct { name: plain.into(), fields }, Type::object(plain))
    }

    fn fold(&mut self, fold: &Fold) -> Checked {
        let (range, range_type) = self.expr(&fold.range);
        let (init, accumulated) = self.expr(&fold.init);
        let range_type = self.mapping.substitute(&range_type, false);
        let two = fold.second.is_some();
        let (first, second) = match &range_type {
            Type::List(element) if two => (Type::Int, (**element).clone()),
            Type::List(element) => ((**element).clone(), Type::Dyn),
            Type::Map(key, value) => ((**key).clone(), (**value).clone()),
            Type::Dyn | Type::Error | Type::Variable(_) => {
                self.fits(&Type::Dyn, &range_type);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be \
                     list, map, or dynamic)"
                );
                self.issue(fold.range.id, message);
                (Type::Error, Type::Error)
            }
        };
        self.scope.push((fold.accumulator.clone(), accumulated.clone()));
        self.scope.push((fold.variable.clone(), first));
        if let Some(name) = &fold.second {
            self.scope.push((name.clone(), second));
        }
        let (condition, ty) = self.expr(&fold.condition);
        self.expect(fold.condition.id, &Type::Bool, &ty);
        let (step, ty) = self.expr(&fold.step);
        self.expect(fold.step.id, &accumulated, &ty);
        self.scope.truncate(self.scope.len() - if two { 2 } else { 1 });
        let (result, ty) = self.expr(&fold.result);
        self.scope.pop();
        let ty = self.mapping.substitute(&ty, false);
        (Node::Fold(Box::new(FoldNode { range, two, init, condition, step, result })), ty)
    }

    fn expect(&mut self, id: Id, wanted: &Type, found: &Type) {
        if !self.fits(wanted, found) {
            let (wanted, found) = (wanted.clone(), self.mapping.substitute(found, false));
            self.mismatch(id, &wanted, &found);
        }
    }
}

fn literal_node(literal: &Literal) -> Checked {
    let (value, ty) = match literal {
        Literal::Null => (Value::Null, Type::Null),
        Literal::Bool(value) => (Value::Bool(*value), Type::Bool),
        Literal::Int(value) => (Value::Int(*value), Type::Int),
        Literal::Uint(value) => (Value::Uint(*value), Type::Uint),
        Literal::Double(value) => (Value::Double(*value), Type::Double),
        Literal::String(value) => (Value::text(value.as_str()), Type::String),
        Literal::Bytes(value) => (Value::Bytes(value.as_slice().into()), Type::Bytes),
    };
    (Node::Constant(value), ty)
}

fn constant_map(nodes: &[(Node, Node, bool)]) -> Option<Entries<'static>> {
    let mut entries = Entries::default();
    for (key, value, optional) in nodes {
        if *optional || !entries.set(key.constant()?.clone(), value.constant()?.clone()) {
            return None;
        }
    }
    Some(entries)
}
