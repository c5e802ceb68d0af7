//! Types of expressions, and how one fits another.
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// So many parts a type may have.
const MOST_PARTS: u32 = 512;

/// The type of a part of an expression.
#[derive(Debug, Clone, PartialEq)]
pub enum Type {
    /// Known when it is evaluated.
    Dyn,
    /// Of what is wrong already: fits anything, so that one fault is told once.
    Error,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    List(Arc<Type>),
    Map(Arc<Type>, Arc<Type>),
    /// A message; a provider knows its fields.
    Object(Arc<str>),
    /// A type of a library that can be named and passed around only: `optional_type(int)`, `net.IP`.
    Opaque(&'static str, Arc<[Type]>),
    /// The type of a type.
    Type(Arc<Type>),
    /// Something of a signature that may be any type, the same wherever it is named.
    Parameter(&'static str),
    /// Not known yet.
    Variable(u32),
}

impl Type {
    pub fn list(element: Type) -> Type {
        Type::List(Arc::new(element))
    }

    pub fn map(key: Type, value: Type) -> Type {
        Type::Map(Arc::new(key), Arc::new(value))
    }

    pub fn optional(inner: Type) -> Type {
        Type::Opaque("optional_type", [inner].into())
    }

    pub fn object(name: &str) -> Type {
        Type::Object(name.into())
    }

    /// As cel-go names it outside of its checker.
    pub fn runtime_name(&self) -> String {
        match self {
            Type::Null => "null_type".to_owned(),
            Type::Duration => "google.protobuf.Duration".to_owned(),
            Type::Timestamp => "google.protobuf.Timestamp".to_owned(),
            Type::List(element) => format!("list({})", element.runtime_name()),
            Type::Map(key, value) => {
                format!("map({}, {})", key.runtime_name(), value.runtime_name())
            }
            other => other.to_string(),
        }
    }

    pub fn is_dyn_or_error(&self) -> bool {
        matches!(self, Type::Dyn | Type::Error)
    }

    /// What an optional holds, and whether it was one.
    pub fn unwrapped(&self) -> (Type, bool) {
        match self {
            Type::Opaque("optional_type", inner) => (inner[0].clone(), true),
            other => (other.clone(), false),
        }
    }

    /// The type, or `dyn` if it has more parts than anybody wrote by hand: types are compared and
    /// copied part by part, and an expression can double one with every word.
    pub(crate) fn bounded(self) -> Type {
        let mut left = MOST_PARTS;
        if self.counts(&mut left) { self } else { Type::Dyn }
    }

    fn counts(&self, left: &mut u32) -> bool {
        *left = left.saturating_sub(1);
        *left > 0
            && match self {
                Type::List(inner) | Type::Type(inner) => inner.counts(left),
                Type::Map(key, value) => key.counts(left) && value.counts(left),
                Type::Opaque(_, inner) => inner.iter().all(|inner| inner.counts(left)),
                _ => true,
            }
    }

    /// Reads a type as signatures spell it: `map(string, list(A))`. Capitals are parameters.
    pub fn parse(text: &'static str) -> Option<Type> {
        let text = text.trim();
        if let Some((name, rest)) = text.split_once('(') {
            let inner = split(rest.strip_suffix(')')?);
            let mut inner = inner.into_iter().map(Type::parse).collect::<Option<Vec<Type>>>()?;
            return match (name, inner.len()) {
                ("list", 1) => Some(Type::list(inner.remove(0))),
                ("map", 2) => Some(Type::map(inner.remove(0), inner.remove(0))),
                ("optional", 1) => Some(Type::optional(inner.remove(0))),
                ("type", 1) => Some(Type::Type(Arc::new(inner.remove(0)))),
                _ => None,
            };
        }
        Some(match text {
            "dyn" => Type::Dyn,
            "null" => Type::Null,
            "bool" => Type::Bool,
            "int" => Type::Int,
            "uint" => Type::Uint,
            "double" => Type::Double,
            "string" => Type::String,
            "bytes" => Type::Bytes,
            "duration" => Type::Duration,
            "timestamp" => Type::Timestamp,
            "IP" => Type::Opaque("net.IP", [].into()),
            "CIDR" => Type::Opaque("net.CIDR", [].into()),
            "URL" => Type::object("kubernetes.URL"),
            "Quantity" => Type::object("kubernetes.Quantity"),
            "Semver" => Type::object("kubernetes.Semver"),
            "Format" => Type::object("kubernetes.NamedFormat"),
            "Authorizer" => Type::object("kubernetes.authorization.Authorizer"),
            "PathCheck" => Type::object("kubernetes.authorization.PathCheck"),
            "GroupCheck" => Type::object("kubernetes.authorization.GroupCheck"),
            "ResourceCheck" => Type::object("kubernetes.authorization.ResourceCheck"),
            "Decision" => Type::object("kubernetes.authorization.Decision"),
            parameter if parameter.len() == 1 => Type::Parameter(parameter),
            _ => return None,
        })
    }
}

/// At commas outside of parentheses.
pub(crate) fn split(text: &'static str) -> Vec<&'static str> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => depth -= 1,
            b',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if !text[start..].trim().is_empty() {
        parts.push(&text[start..]);
    }
    parts
}

/// As cel-go's errors name types.
impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Type::Dyn => "dyn",
            Type::Error => "!error!",
            Type::Null => "null",
            Type::Bool => "bool",
            Type::Int => "int",
            Type::Uint => "uint",
            Type::Double => "double",
            Type::String => "string",
            Type::Bytes => "bytes",
            Type::Duration => "duration",
            Type::Timestamp => "timestamp",
            Type::List(element) => return write!(f, "list({element})"),
            Type::Map(key, value) => return write!(f, "map({key}, {value})"),
            Type::Object(name) => name,
            Type::Opaque(name, inner) if inner.is_empty() => name,
            Type::Opaque(name, inner) => {
                let inner: Vec<String> = inner.iter().map(Type::to_string).collect();
                return write!(f, "{name}({})", inner.join(", "));
            }
            Type::Type(inner) => return write!(f, "type({inner})"),
            Type::Parameter(name) => name,
            Type::Variable(number) => return write!(f, "_var{number}"),
        };
        f.write_str(name)
    }
}

/// What is known of the variables.
#[derive(Debug, Clone, Default)]
pub(crate) struct Mapping {
    known: HashMap<u32, Type>,
    /// What was known before each change, to go back if an overload does not fit after all.
    trail: Vec<(u32, Option<Type>)>,
    next: u32,
}

impl Mapping {
    pub fn fresh(&mut self) -> Type {
        self.next += 1;
        Type::Variable(self.next - 1)
    }

    fn find(&self, ty: &Type) -> Option<&Type> {
        match ty {
            Type::Variable(number) => self.known.get(number),
            _ => None,
        }
    }

    fn learn(&mut self, number: u32, ty: Type) {
        let before = self.known.insert(number, ty);
        self.trail.push((number, before));
    }

    /// Whether each of `given` may stand where the same of `wanted` is asked for. What is learnt on
    /// the way is kept only if all may.
    pub fn assignable(&mut self, given: &[Type], wanted: &[Type]) -> bool {
        self.trail.clear();
        let fits = self.all(given, wanted);
        if !fits {
            while let Some((number, before)) = self.trail.pop() {
                match before {
                    Some(ty) => self.known.insert(number, ty),
                    None => self.known.remove(&number),
                };
            }
        }
        fits
    }

    fn all(&mut self, given: &[Type], wanted: &[Type]) -> bool {
        given.len() == wanted.len() && given.iter().zip(wanted).all(|(a, b)| self.fits(a, b))
    }

    fn fits(&mut self, given: &Type, wanted: &Type) -> bool {
        if let Type::Variable(number) = wanted {
            match self.substitution(given, *number) {
                Some(true) => return true,
                Some(false) if self.known.contains_key(number) => return false,
                _ => {}
            }
        }
        if let Type::Variable(number) = given {
            return self.substitution(wanted, *number) == Some(true);
        }
        if given.is_dyn_or_error() || wanted.is_dyn_or_error() {
            return true;
        }
        match (given, wanted) {
            (Type::Null, other) | (other, Type::Null) => matches!(
                other,
                Type::Null | Type::Object(_) | Type::Opaque(..) | Type::Duration | Type::Timestamp
            ),
            (Type::List(a), Type::List(b)) => self.fits(a, b),
            (Type::Map(a, c), Type::Map(b, d)) => self.fits(a, b) && self.fits(c, d),
            (Type::Opaque(a, inner), Type::Opaque(b, other)) => a == b && self.all(inner, other),
            (Type::Type(_), Type::Type(_)) => true,
            (a, b) => a == b,
        }
    }

    /// Whether the variable may be `ty`; none if it may not and nothing was known of it.
    fn substitution(&mut self, ty: &Type, number: u32) -> Option<bool> {
        let variable = Type::Variable(number);
        if *ty == variable {
            return Some(true);
        }
        if let Some(known) = self.known.get(&number).cloned() {
            if *ty == known {
                return Some(true);
            }
            if self.fits(ty, &known) {
                let general = most_general(ty.clone(), known);
                if self.absent(&variable, &general) {
                    self.learn(number, general);
                }
                return Some(true);
            }
            return Some(false);
        }
        if self.absent(&variable, ty) {
            self.learn(number, ty.clone());
            return Some(true);
        }
        None
    }

    /// Whether the variable is no part of the type.
    fn absent(&self, variable: &Type, within: &Type) -> bool {
        if variable == within {
            return false;
        }
        match within {
            Type::Variable(_) => self.find(within).is_none_or(|known| self.absent(variable, known)),
            Type::List(inner) | Type::Type(inner) => self.absent(variable, inner),
            Type::Map(key, value) => self.absent(variable, key) && self.absent(variable, value),
            Type::Opaque(_, inner) => inner.iter().all(|inner| self.absent(variable, inner)),
            _ => true,
        }
    }

    /// The type with all that is known put in; what is not becomes `dyn` if asked for.
    pub fn substitute(&self, ty: &Type, unknown_is_dyn: bool) -> Type {
        let again = |ty: &Type| self.substitute(ty, unknown_is_dyn);
        match ty {
            Type::Variable(_) => match self.find(ty) {
                Some(known) => again(known),
                None if unknown_is_dyn => Type::Dyn,
                None => ty.clone(),
            },
            Type::List(inner) => Type::list(again(inner)).bounded(),
            Type::Map(key, value) => Type::map(again(key), again(value)).bounded(),
            Type::Opaque(name, inner) => {
                Type::Opaque(name, inner.iter().map(again).collect()).bounded()
            }
            Type::Type(inner) => Type::Type(Arc::new(again(inner))).bounded(),
            other => other.clone(),
        }
    }

    /// A signature's types with fresh variables for its parameters.
    pub fn instantiate(&mut self, types: &[Type]) -> Vec<Type> {
        let mut fresh: Vec<(&'static str, Type)> = Vec::new();
        types.iter().map(|ty| self.instance(ty, &mut fresh)).collect()
    }

    fn instance(&mut self, ty: &Type, fresh: &mut Vec<(&'static str, Type)>) -> Type {
        match ty {
            Type::Parameter(name) => {
                if let Some((_, known)) = fresh.iter().find(|(known, _)| known == name) {
                    return known.clone();
                }
                let variable = self.fresh();
                fresh.push((name, variable.clone()));
                variable
            }
            Type::List(inner) => Type::list(self.instance(inner, fresh)),
            Type::Map(key, value) => {
                Type::map(self.instance(key, fresh), self.instance(value, fresh))
            }
            Type::Opaque(name, inner) => {
                Type::Opaque(name, inner.iter().map(|inner| self.instance(inner, fresh)).collect())
            }
            Type::Type(inner) => Type::Type(Arc::new(self.instance(inner, fresh))),
            other => other.clone(),
        }
    }
}

/// Of two types that fit each other the one that says less.
pub(crate) fn most_general(a: Type, b: Type) -> Type {
    if says_no_more(&a, &b) { a } else { b }
}

fn says_no_more(a: &Type, b: &Type) -> bool {
    match (a, b) {
        (Type::Dyn | Type::Variable(_) | Type::Parameter(_), _) => true,
        (_, Type::Dyn | Type::Variable(_) | Type::Parameter(_)) => false,
        (Type::List(a), Type::List(b)) => says_no_more(a, b),
        (Type::Map(a, c), Type::Map(b, d)) => says_no_more(a, b) && says_no_more(c, d),
        (Type::Opaque(a, inner), Type::Opaque(b, other)) => {
            a == b
                && inner.len() == other.len()
                && inner.iter().zip(other.iter()).all(|(a, b)| says_no_more(a, b))
        }
        (Type::Type(_), Type::Type(_)) => true,
        (a, b) => a == b,
    }
}
