//! What evaluating an expression can cost at worst, known before there is any object
//! (cel-go's `checker/cost.go`, `apiserver/pkg/cel/library/cost.go`).
//!
//! Sizes of what an object has come from whoever knows its schema ([`Sizes`]); sizes of what the
//! expression makes follow from them. What nobody bounds is as large as a number can say.
mod calls;

use crate::check::Sound;
use crate::cost;
use crate::syntax::{Expr, Fold, Id, Kind, Literal};
use crate::types::Type;
use std::collections::HashMap;

/// Knows how large the parts of variables can be.
pub trait Sizes {
    /// The most elements of what a path leads to: a variable, then fields, `@items`, `@keys` and
    /// `@values`. None if it is not known.
    fn most(&self, path: &[String]) -> Option<u64>;
}

/// At least and at most; of a size or of a cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    pub min: u64,
    pub max: u64,
}

impl Range {
    pub const UNKNOWN: Range = Range { min: 0, max: u64::MAX };

    pub fn exactly(number: u64) -> Range {
        Range { min: number, max: number }
    }

    pub fn plus(self, other: Range) -> Range {
        Range { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    pub fn times(self, other: Range) -> Range {
        Range { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    /// Rounded up; too large a product is the largest number.
    pub fn scaled(self, factor: f64) -> Range {
        let scaled = |number: u64| (number as f64 * factor).ceil() as u64;
        Range { min: scaled(self.min), max: scaled(self.max) }
    }

    pub fn or(self, other: Range) -> Range {
        Range { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

/// The worst cost of an expression.
pub fn estimate(root: &Expr, sound: &Sound, sizes: &dyn Sizes) -> u64 {
    let mut estimator = Estimator {
        sound,
        known: sizes,
        paths: HashMap::new(),
        locals: HashMap::new(),
        sizes: HashMap::new(),
        entries: HashMap::new(),
    };
    estimator.cost(root).max
}

/// Of the elements of a list or a map.
#[derive(Debug, Clone, Copy)]
struct Elements {
    is_list: bool,
    key: Range,
    value: Range,
}

/// A fold's variable.
struct Local {
    path: Vec<String>,
    size: Option<Range>,
    elements: Option<Elements>,
}

struct Estimator<'e> {
    sound: &'e Sound,
    known: &'e dyn Sizes,
    paths: HashMap<Id, Vec<String>>,
    locals: HashMap<String, Vec<Local>>,
    sizes: HashMap<Id, Range>,
    entries: HashMap<Id, Elements>,
}

impl Estimator<'_> {
    fn cost(&mut self, expr: &Expr) -> Range {
        match &expr.kind {
            Kind::Literal(_) => Range::exactly(0),
            Kind::Ident(name) => {
                let path = match self.local(name) {
                    Some(local) => local.path.clone(),
                    None => vec![name.clone()],
                };
                self.paths.insert(expr.id, path);
                Range::exactly(1)
            }
            Kind::Select { operand, test: true, .. } => self.cost(operand),
            Kind::Select { operand, field, test: false } => {
                let mut cost = self.cost(operand);
                if matches!(self.ty(operand), Type::Map(..) | Type::Object(_) | Type::Parameter(_))
                {
                    cost = cost.plus(Range::exactly(1));
                }
                self.extend_path(expr.id, operand, field);
                cost
            }
            Kind::Call { function, target, args } => {
                self.call(expr, function, target.as_deref(), args)
            }
            Kind::List(items) => {
                let mut cost = Range::exactly(cost::LIST);
                let mut value = Range { min: u64::MAX, max: 0 };
                for item in items {
                    cost = cost.plus(self.cost(&item.value));
                    value = value.or(self.size(&item.value));
                }
                value.min = if items.is_empty() { 0 } else { value.min };
                let key = Range::exactly(1);
                self.entries.insert(expr.id, Elements { is_list: true, key, value });
                cost
            }
            Kind::Map(entries) => {
                let mut cost = Range::exactly(cost::MAP);
                let none = Range { min: if entries.is_empty() { 0 } else { u64::MAX }, max: 0 };
                let (mut key, mut value) = (none, none);
                for entry in entries {
                    cost = cost.plus(self.cost(&entry.key));
                    cost = cost.plus(self.cost(&entry.value));
                    key = key.or(self.size(&entry.key));
                    value = value.or(self.size(&entry.value));
                }
                self.entries.insert(expr.id, Elements { is_list: false, key, value });
                cost
            }
            Kind::Struct { fields, .. } => {
                let parts = fields.iter().map(|field| self.cost(&field.value));
                parts.fold(Range::exactly(cost::STRUCT), Range::plus)
            }
            Kind::Fold(fold) if is_binding(fold) => self.binding(expr, fold),
            Kind::Fold(fold) => self.fold(expr, fold),
        }
    }

    fn fold(&mut self, expr: &Expr, fold: &Fold) -> Range {
        let mut sum = self.cost(&fold.range).plus(self.cost(&fold.init));
        self.push_value(&fold.accumulator, &fold.init);
        match &fold.second {
            Some(second) => {
                self.push_element(&fold.variable, &fold.range, ["@indices", "@keys"]);
                self.push_element(second, &fold.range, ["@items", "@values"]);
            }
            None => self.push_element(&fold.variable, &fold.range, ["@items", "@keys"]),
        }
        let round = self.cost(&fold.condition).plus(self.cost(&fold.step));
        for name in [Some(&fold.variable), fold.second.as_ref()].into_iter().flatten() {
            self.pop(name);
        }
        sum = sum.plus(self.cost(&fold.result));
        self.pop(&fold.accumulator);
        let count = self.size(&fold.range);
        match fold.init.kind {
            Kind::Literal(_) => {
                if let Some(size) = self.size_of(&fold.init) {
                    self.sizes.insert(expr.id, size);
                }
            }
            Kind::List(_) | Kind::Map(_) => {
                self.sizes.insert(expr.id, count);
                if let Some(elements) = self.elements(&fold.step) {
                    self.entries.insert(expr.id, elements);
                }
            }
            _ => {}
        }
        sum.plus(count.times(round))
    }

    /// A fold over nothing, which gives something a name.
    fn binding(&mut self, expr: &Expr, fold: &Fold) -> Range {
        let sum = self.cost(&fold.range).plus(self.cost(&fold.init));
        self.push_value(&fold.accumulator, &fold.init);
        let sum = sum.plus(self.cost(&fold.result));
        self.pop(&fold.accumulator);
        self.copy_sizes(expr, &fold.result);
        sum
    }

    fn copy_sizes(&mut self, to: &Expr, from: &Expr) {
        if let Some(size) = self.size_of(from) {
            self.sizes.insert(to.id, size);
        }
        if let Some(elements) = self.elements(from) {
            self.entries.insert(to.id, elements);
        }
    }

    fn push_value(&mut self, name: &str, value: &Expr) {
        let local = Local {
            path: self.path(value),
            size: self.size_of(value),
            elements: self.elements(value),
        };
        self.locals.entry(name.to_owned()).or_default().push(local);
    }

    /// The variable for the elements of a range: how the path goes on in a list, and in a map.
    fn push_element(&mut self, name: &str, range: &Expr, [in_list, in_map]: [&str; 2]) {
        let elements = self.elements(range);
        let is_list = match elements {
            Some(elements) => elements.is_list,
            None => matches!(self.ty(range), Type::List(_)),
        };
        let step = if is_list { in_list } else { in_map };
        let size = elements.map(|elements| match step {
            "@items" | "@values" => elements.value,
            _ => elements.key,
        });
        let mut path = self.path(range);
        path.push(step.to_owned());
        let local = Local { path, size, elements: None };
        self.locals.entry(name.to_owned()).or_default().push(local);
    }

    fn pop(&mut self, name: &str) {
        if let Some(stack) = self.locals.get_mut(name) {
            stack.pop();
        }
    }

    fn local(&self, name: &str) -> Option<&Local> {
        self.locals.get(name)?.last()
    }

    fn ty(&self, expr: &Expr) -> Type {
        self.sound.types.get(&expr.id).cloned().unwrap_or(Type::Dyn)
    }

    fn path(&self, expr: &Expr) -> Vec<String> {
        if let Kind::Ident(name) = &expr.kind
            && let Some(local) = self.local(name)
        {
            return local.path.clone();
        }
        self.paths.get(&expr.id).cloned().unwrap_or_default()
    }

    fn extend_path(&mut self, id: Id, operand: &Expr, step: &str) {
        let mut path = self.path(operand);
        path.push(step.to_owned());
        self.paths.insert(id, path);
    }

    /// The size, or that nothing is known of it.
    fn size(&mut self, expr: &Expr) -> Range {
        self.size_of(expr).unwrap_or(Range::UNKNOWN)
    }

    fn size_of(&mut self, expr: &Expr) -> Option<Range> {
        if let Some(size) = self.sizes.get(&expr.id) {
            return Some(*size);
        }
        let plain = match &expr.kind {
            Kind::Literal(Literal::String(text)) => Some(text.chars().count()),
            Kind::Literal(Literal::Bytes(bytes)) => Some(bytes.len()),
            Kind::Literal(_) => Some(1),
            Kind::List(items) => Some(items.len()),
            Kind::Map(entries) => Some(entries.len()),
            _ => None,
        };
        if let Some(size) = plain {
            return Some(Range::exactly(size as u64));
        }
        if let Some(size) = self.at(&self.path(expr)) {
            self.sizes.insert(expr.id, size);
            return Some(size);
        }
        if is_scalar(&self.ty(expr)) {
            return Some(Range::exactly(1));
        }
        match &expr.kind {
            Kind::Ident(name) => self.local(name)?.size,
            _ => None,
        }
    }

    /// What a schema says of a path.
    fn at(&self, path: &[String]) -> Option<Range> {
        if path.is_empty() {
            return None;
        }
        self.known.most(path).map(|max| Range { min: 0, max })
    }

    fn elements(&self, expr: &Expr) -> Option<Elements> {
        let known = self.entries.get(&expr.id).copied();
        known.or_else(|| match &expr.kind {
            Kind::Ident(name) => self.local(name)?.elements,
            _ => None,
        })
    }
}

fn is_binding(fold: &Fold) -> bool {
    matches!(&fold.range.kind, Kind::List(items) if items.is_empty())
        && matches!(fold.condition.kind, Kind::Literal(Literal::Bool(false)))
}

/// Whether all values of the type are equally large.
fn is_scalar(ty: &Type) -> bool {
    match ty {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => {
            true
        }
        Type::Opaque("optional_type", inner) => is_scalar(&inner[0]),
        _ => false,
    }
}
