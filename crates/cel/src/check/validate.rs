//! What is wrong in itself though its types fit: cel-go's validators of literals.
use super::Checker;
use crate::library::formatting::{self, Clause};
use crate::library::time;
use crate::syntax::{Expr, Id, Kind, Literal};
use crate::types::Type;

/// A question that needs the types of all parts.
pub enum Later {
    /// Elements of one list, or the keys or values of one map. Of a list one fault is told.
    Alike { elements: Vec<(Id, Type)>, once: bool },
    /// A literal format and its literal arguments.
    Format { id: Id, pattern: String, args: Vec<(Id, Type)> },
}

/// A call with constants that it can never take.
pub fn call(checker: &mut Checker<'_>, name: &str, target: Option<&Expr>, args: &[Expr]) {
    let text = |expr: Option<&Expr>| match expr.map(|expr| &expr.kind) {
        Some(Kind::Literal(Literal::String(text))) => Some(text.clone()),
        _ => None,
    };
    let (arg, valid): (Option<&Expr>, fn(&str) -> bool) = match (name, target.is_some(), args.len())
    {
        ("duration", false, 1) => (args.first(), |text| time::parse_duration(text).is_some()),
        ("timestamp", false, 1) => (args.first(), |text| time::parse_timestamp(text).is_some()),
        ("matches", true, 1) => (args.first(), |text| api::regexp::check(text).is_ok()),
        ("matches", false, 2) => (args.get(1), |text| api::regexp::check(text).is_ok()),
        _ => return,
    };
    if let (Some(arg), Some(text)) = (arg, text(arg))
        && !valid(&text)
    {
        checker.issue(arg.id, format!("invalid {name} argument"));
    }
}

pub fn later(checker: &mut Checker<'_>) {
    for question in std::mem::take(&mut checker.later) {
        match question {
            Later::Alike { elements, once } => alike(checker, &elements, once),
            Later::Format { id, pattern, args } => format(checker, id, &pattern, &args),
        }
    }
}

fn alike(checker: &mut Checker<'_>, elements: &[(Id, Type)], once: bool) {
    let Some((_, first)) = elements.first() else { return };
    let first = checker.mapping.substitute(first, true);
    for (id, ty) in &elements[1..] {
        let ty = checker.mapping.substitute(ty, true);
        if ty != first {
            checker.mismatch(*id, &first, &ty);
            if once {
                return;
            }
        }
    }
}

fn format(checker: &mut Checker<'_>, id: Id, pattern: &str, args: &[(Id, Type)]) {
    let mut used = 0;
    let mut characters = pattern.chars().peekable();
    while let Some(clause) = formatting::next_clause(&mut characters) {
        let clause = match clause {
            Clause::Text(_) => continue,
            Clause::Verb { .. } | Clause::Wrong(_) if used >= args.len() => {
                return checker.issue(id, format!("index {used} out of range"));
            }
            Clause::Wrong(fault) => {
                return checker.issue(id, format!("could not parse formatting clause: {fault}"));
            }
            Clause::Verb { verb, .. } => verb,
        };
        let (arg, ty) = &args[used];
        used += 1;
        let ty = checker.mapping.substitute(ty, true);
        if let Some(fault) = refused(clause, &ty) {
            return checker.issue(*arg, format!("error during formatting: {fault}"));
        }
    }
    if args.len() > used {
        let (expected, got) = (used, args.len());
        let message = format!(
            "too many arguments supplied to string.format (expected {expected}, got {got})"
        );
        checker.issue(id, message);
    }
}

/// Why a clause takes no value of a type.
fn refused(verb: char, ty: &Type) -> Option<String> {
    let takes = match (verb, ty) {
        (_, Type::Dyn) => true,
        ('d' | 'o', ty) => matches!(ty, Type::Int | Type::Uint),
        ('f' | 'e', ty) => matches!(ty, Type::Double | Type::String),
        ('b', ty) => matches!(ty, Type::Int | Type::Uint | Type::Bool),
        ('x' | 'X', ty) => matches!(ty, Type::Int | Type::Uint | Type::String | Type::Bytes),
        (_, ty) => !matches!(ty, Type::Object(_) | Type::Opaque(..)),
    };
    let name = match ty {
        Type::List(_) => "list".to_owned(),
        Type::Map(..) => "map".to_owned(),
        Type::Duration => "google.protobuf.Duration".to_owned(),
        Type::Timestamp => "google.protobuf.Timestamp".to_owned(),
        ty => ty.to_string(),
    };
    (!takes).then(|| formatting::refusal(verb, &name))
}
