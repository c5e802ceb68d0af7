//! Calls: what one costs by the sizes of its arguments, and how large its result is.
use super::{Elements, Estimator, Range};
use crate::cost;
use crate::library::Overload;
use crate::syntax::{Expr, Kind, Literal};
use crate::types::Type;

const TEXT: f64 = 0.1;
const PATTERN: f64 = 0.25;

/// So long the pattern of a named format is taken to be.
const FORMAT_PATTERN: f64 = 128.0;
/// So long the name of a format is at most.
const FORMAT_NAME: u64 = 64;

/// Of a call without its arguments; of its result, if that is known.
type Estimate = (Range, Option<Range>);

fn fixed(cost: u64) -> Estimate {
    (Range::exactly(cost), None)
}

impl Estimator<'_> {
    pub(super) fn call(
        &mut self,
        expr: &Expr,
        function: &str,
        target: Option<&Expr>,
        args: &[Expr],
    ) -> Range {
        let name = function.strip_prefix('.').unwrap_or(function);
        if let ("dyn", [arg]) = (name, args) {
            let cost = self.cost(arg);
            self.copy_sizes(expr, arg);
            return cost.plus(Range::exactly(1));
        }
        let costs: Vec<Range> = args.iter().map(|arg| self.cost(arg)).collect();
        let all = costs.iter().fold(Range::exactly(0), |sum, cost| sum.plus(*cost));
        match (name, &costs[..]) {
            // The first of them may decide.
            ("_&&_" | "_||_", [first, ..]) => return Range { min: first.min, max: all.max },
            ("_?_:_", [condition, yes, no]) => {
                let size = self.size(&args[1]).or(self.size(&args[2]));
                self.sizes.insert(expr.id, size);
                self.join_elements(expr, &args[1], &args[2]);
                return condition.plus(yes.or(*no));
            }
            ("_?._", _) => return all.plus(Range::exactly(1)),
            _ => {}
        }
        let overloads = self.sound.overloads.get(&expr.id).cloned().unwrap_or_default();
        // The target of a function with dots in its name is part of the name.
        let is_method = overloads.iter().any(|overload| overload.method);
        let target = target.filter(|_| is_method);
        let name = match target.is_none().then(|| namespaced(expr)).flatten() {
            Some(full) => full,
            None => name.to_owned(),
        };
        let of_target = target.map_or(Range::exactly(0), |target| self.cost(target));
        let mut cost = Range { min: u64::MAX, max: 0 };
        let mut result: Option<Range> = None;
        for overload in &overloads {
            let (own, size) = self.overload(expr, &name, overload, target, args);
            cost = cost.or(own.plus(all));
            result = match (result, size) {
                (Some(before), Some(size)) => Some(before.or(size)),
                (before, size) => before.or(size),
            };
            let step = match overload.arguments.first() {
                Some(Type::List(_)) if name == "_[_]" => Some("@items"),
                Some(Type::Map(..)) if name == "_[_]" => Some("@values"),
                _ => None,
            };
            if let (Some(step), Some(container)) = (step, args.first()) {
                result = self.elements(container).map(|elements| elements.value);
                self.extend_path(expr.id, container, step);
            }
            result = result.or_else(|| self.size_of(expr));
        }
        if overloads.is_empty() {
            return Range::exactly(0);
        }
        if let Some(size) = result {
            self.sizes.insert(expr.id, size);
        }
        of_target.plus(cost)
    }

    fn join_elements(&mut self, expr: &Expr, a: &Expr, b: &Expr) {
        if let (Some(a), Some(b)) = (self.elements(a), self.elements(b)) {
            let (key, value) = (a.key.or(b.key), a.value.or(b.value));
            self.entries.insert(expr.id, Elements { is_list: a.is_list, key, value });
        }
    }

    fn overload(
        &mut self,
        expr: &Expr,
        name: &str,
        overload: &Overload,
        target: Option<&Expr>,
        args: &[Expr],
    ) -> Estimate {
        if let Some(estimate) = self.of_list(name, target, args) {
            return estimate;
        }
        if let Some(estimate) = self.of_kubernetes(name, overload, target, args) {
            return estimate;
        }
        let first = overload.arguments.first();
        match (name, target, args) {
            ("format", Some(target), _) => (self.size(target).scaled(TEXT), None),
            ("bytes", None, [arg]) if first == Some(&Type::String) => {
                let size = self.size(arg);
                let result = Range { min: size.min, max: size.max.wrapping_mul(4) };
                (size.scaled(TEXT), Some(result))
            }
            ("string", None, [arg]) if first == Some(&Type::Bytes) => {
                let size = self.size(arg);
                (size.scaled(TEXT), Some(Range { min: size.min / 4, max: size.max }))
            }
            ("strings.quote", None, [arg]) => {
                let size = self.size(arg);
                let max = size.max.wrapping_mul(2).wrapping_add(2);
                (size.scaled(TEXT), Some(Range { min: size.min.wrapping_add(2), max }))
            }
            ("startsWith" | "endsWith", _, [arg]) => (self.size(arg).scaled(TEXT), None),
            ("@in", None, [_, list]) if matches!(overload.arguments[1], Type::List(_)) => {
                (self.size(list).scaled(1.0), None)
            }
            ("matches", Some(text), [pattern]) | ("matches", None, [text, pattern]) => {
                (self.pattern(text, pattern), None)
            }
            ("contains", Some(text), [part]) => {
                (self.size(text).scaled(TEXT).times(self.size(part).scaled(TEXT)), None)
            }
            ("_+_", None, [a, b]) if matches!(first, Some(Type::List(_))) => {
                let size = self.size(a).plus(self.size(b));
                self.join_elements(expr, a, b);
                (Range::exactly(1), Some(size))
            }
            ("_+_", None, [a, b]) if matches!(first, Some(Type::String | Type::Bytes)) => {
                let size = self.size(a).plus(self.size(b));
                self.join_elements(expr, a, b);
                (size.scaled(TEXT), Some(size))
            }
            ("_<_" | "_<=_" | "_>_" | "_>=_", None, [a, b])
                if matches!(first, Some(Type::String | Type::Bytes)) =>
            {
                (self.comparison(a, b), None)
            }
            ("_==_" | "_!=_", None, [a, b]) => (self.comparison(a, b), None),
            _ => fixed(1),
        }
    }

    /// The shorter is read.
    fn comparison(&mut self, a: &Expr, b: &Expr) -> Range {
        let max = self.size(a).max.min(self.size(b).max);
        Range { min: u64::from(max > 0), max }.scaled(TEXT)
    }

    /// A pattern over a text; even an empty text costs something.
    fn pattern(&mut self, text: &Expr, pattern: &Expr) -> Range {
        let text = self.size(text).plus(Range::exactly(1)).scaled(TEXT);
        text.times(self.size(pattern).scaled(PATTERN))
    }

    /// The libraries of lists and sets estimate themselves.
    fn of_list(&mut self, name: &str, target: Option<&Expr>, args: &[Expr]) -> Option<Estimate> {
        let allocating = |factor: f64, size: Range| {
            (size.scaled(factor).plus(Range::exactly(1 + cost::LIST)), Some(size))
        };
        Some(match (name, target, args) {
            ("slice", Some(list), [start, end]) => {
                let most = self.size(list).max;
                let (start, end) = (number(start).unwrap_or(0), number(end).unwrap_or(most));
                allocating(1.0, Range::exactly(end.wrapping_sub(start)))
            }
            ("lists.range", None, [count]) => {
                allocating(1.0, Range::exactly(number(count).unwrap_or(u64::MAX)))
            }
            ("reverse", Some(list), []) => allocating(1.0, self.size(list)),
            ("flatten", Some(list), []) => allocating(1.0, self.size(list)),
            ("flatten", Some(list), [depth]) => {
                allocating(number(depth).unwrap_or(u64::MAX) as f64, self.size(list))
            }
            ("distinct", Some(list), []) => {
                let size = self.size(list);
                allocating(2.0, size.times(size))
            }
            ("sort", Some(list), []) | ("@sortByAssociatedKeys", Some(_), [list]) => {
                let size = self.size(list);
                let is_text = matches!(self.ty(list), Type::List(element) if is_text(&element));
                allocating(if is_text { 2.0 + TEXT } else { 2.0 }, size.times(size))
            }
            ("sets.contains" | "sets.intersects", None, [a, b]) => {
                let both = self.size(a).times(self.size(b));
                (both.plus(Range::exactly(1)), None)
            }
            ("sets.equivalent", None, [a, b]) => {
                let both = self.size(a).times(self.size(b)).scaled(2.0);
                (both.plus(Range::exactly(1)), None)
            }
            _ => return None,
        })
    }

    /// What Kubernetes says of its own functions, and of some of CEL's.
    fn of_kubernetes(
        &mut self,
        name: &str,
        overload: &Overload,
        target: Option<&Expr>,
        args: &[Expr],
    ) -> Option<Estimate> {
        let second_is_text = overload.arguments.get(1) == Some(&Type::String);
        Some(match (name, target, args) {
            ("check", ..) => fixed(350_000),
            ("fieldSelector" | "labelSelector", _, [selector]) => {
                let length = self.size(selector);
                let each = length.scaled(0.5).scaled((cost::LIST + cost::STRUCT) as f64);
                (Range::exactly(cost::LIST).plus(length.scaled(TEXT)).plus(each), None)
            }
            (
                "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" | "includes",
                Some(list),
                _,
            ) => {
                let size = self.size(list);
                match self.element(list) {
                    Some((ty, inner)) if is_text(&ty) => {
                        let each = Range::exactly(1).plus(inner.scaled(TEXT));
                        (size.times(each), None)
                    }
                    Some(_) => (size, None),
                    None if name == "includes" => (size, None),
                    None => (size.scaled(TEXT), None),
                }
            }
            ("url" | "jsonpatch.escapeKey", _, [text])
            | ("lowerAscii" | "upperAscii" | "substring" | "trim", Some(text), _) => {
                let size = self.size(text);
                (size.scaled(TEXT), Some(size))
            }
            ("replace", Some(text), [from, to, ..]) => {
                let (size, from, to) = (self.size(text), self.size(from), self.size(to));
                (size.scaled(2.0 * TEXT), Some(replaced(size, from, to)))
            }
            ("split", Some(text), _) => {
                let size = self.size(text);
                let limit = args.get(1).and_then(|limit| match limit.kind {
                    Kind::Literal(Literal::Int(limit)) => Some(limit as u64),
                    _ => None,
                });
                let result = Range { min: 0, max: limit.unwrap_or(size.max) };
                (size.scaled(2.0 * TEXT), Some(result))
            }
            ("join", Some(list), _) => {
                let count = self.size(list);
                let inner = self.element(list).map_or(Range::exactly(0), |(_, inner)| inner);
                let mut size = count.times(inner);
                if let Some(separator) = args.first() {
                    let (min, max) = (count.min.saturating_sub(1), count.max.saturating_sub(1));
                    size = size.plus(self.size(separator).times(Range { min, max }));
                }
                (size.scaled(TEXT), Some(size))
            }
            ("find" | "findAll", Some(text), [pattern, ..]) => {
                let result = Range { min: 0, max: self.size(text).max };
                (self.pattern(text, pattern), Some(result))
            }
            ("ip", Some(_), _) => fixed(1),
            (
                "ip" | "cidr" | "isIP" | "isCIDR" | "quantity" | "isQuantity" | "semver"
                | "isSemver",
                None,
                [text, ..],
            ) => (self.size(text).scaled(TEXT), None),
            ("ip.isCanonical", None, [text]) => (self.size(text).scaled(2.0 * TEXT), None),
            ("containsIP" | "containsCIDR", Some(_), [other]) => {
                let address = Range { min: 4, max: 16 };
                let mut cost = address.plus(address).scaled(TEXT);
                if name == "containsCIDR" {
                    cost = cost.plus(address.scaled(TEXT)).plus(Range::exactly(1));
                }
                if second_is_text {
                    cost = cost.plus(self.size(other).scaled(TEXT));
                }
                (cost, None)
            }
            ("validate", _, [text, ..]) => {
                (self.size(text).scaled(TEXT).scaled(FORMAT_PATTERN * PATTERN), None)
            }
            ("_==_", None, [a, b]) => return self.kubernetes_equality(a, b),
            _ => return None,
        })
    }

    /// Of two values of one of Kubernetes' types.
    fn kubernetes_equality(&mut self, a: &Expr, b: &Expr) -> Option<Estimate> {
        let ty = self.ty(a);
        if ty != self.ty(b) {
            return None;
        }
        match &ty {
            Type::Opaque("net.IP" | "net.CIDR", _) => Some(fixed(1)),
            Type::Object(name) => match &**name {
                "kubernetes.NamedFormat" => {
                    Some((Range { min: 1, max: FORMAT_NAME }.scaled(TEXT), None))
                }
                "kubernetes.URL" => {
                    let max = self.size_of(b).map_or(1, |size| size.max);
                    Some((Range { min: 1, max }.scaled(TEXT), None))
                }
                "kubernetes.Quantity" | "kubernetes.Semver" => Some(fixed(1)),
                name if name.starts_with("kubernetes.authorization.") => Some(fixed(1)),
                _ => None,
            },
            _ => None,
        }
    }

    /// The type of a list's elements, and how large they are.
    fn element(&mut self, list: &Expr) -> Option<(Type, Range)> {
        let ty = match self.ty(list) {
            Type::List(element) => (*element).clone(),
            Type::Map(key, _) => (*key).clone(),
            _ => return None,
        };
        let mut path = self.path(list);
        let size = match path.is_empty() {
            true => None,
            false => {
                path.push("@items".to_owned());
                self.at(&path)
            }
        };
        Some((ty, size.unwrap_or(Range::UNKNOWN)))
    }
}

fn is_text(ty: &Type) -> bool {
    matches!(ty, Type::String | Type::Bytes)
}

/// A literal number; a negative one is none.
fn number(expr: &Expr) -> Option<u64> {
    match expr.kind {
        Kind::Literal(Literal::Int(number)) => Some(u64::try_from(number).unwrap_or(0)),
        _ => None,
    }
}

/// `a.b.c(…)`, as one name.
fn namespaced(expr: &Expr) -> Option<String> {
    fn dotted(expr: &Expr) -> Option<String> {
        match &expr.kind {
            Kind::Ident(name) => Some(name.strip_prefix('.').unwrap_or(name).to_owned()),
            Kind::Select { operand, field, test: false } => {
                Some(format!("{}.{field}", dotted(operand)?))
            }
            _ => None,
        }
    }
    match &expr.kind {
        Kind::Call { function, target: Some(target), .. } => {
            Some(format!("{}.{function}", dotted(target)?))
        }
        _ => None,
    }
}

/// How long a text is in which some parts were replaced: as many as there can be.
fn replaced(size: Range, from: Range, to: Range) -> Range {
    let (mut count, mut kept) = (Range::exactly(0), Range::exactly(0));
    let parts = |size: u64, part: u64| (size as f64 / part as f64).ceil() as u64;
    if from.min == 0 {
        // Nothing is between all characters, and around them.
        (count.max, kept.max) = (size.max.saturating_add(1), size.max);
    } else if to.max <= from.min {
        kept.max = size.max;
    } else {
        count.max = parts(size.max, from.min);
    }
    if from.max == 0 {
        (count.min, kept.min) = (size.min.saturating_add(1), size.min);
    } else if from.max <= to.min {
        kept.min = size.min;
    } else {
        count.min = parts(size.min, from.max);
    }
    count.times(to).plus(kept)
}
