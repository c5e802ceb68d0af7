//! The JSONPaths of printer columns and selectable fields, followed in an object as upstream follows them
//! (`client-go/util/jsonpath`, where what is missing is no fault).
//!
//! `.spec.a`, `.items[-1:].b`, `.a['b']`, `..name`, `.conditions[?(@.type=="Ready")].status`: whatever
//! [`crate::jsonpath`] lets through. What cannot be followed, such as an index beyond the end or a comparison of a
//! text with a number, leads nowhere, however much of it could be. What the tests expect is what upstream's says.
use crate::jsonpath;
use serde_json::Value;
use std::borrow::Cow;
use std::cmp::Ordering;

/// A path that was understood; one that was not leads nowhere.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonPath(Option<Vec<Step>>);

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    Slice(Slice),
    Union(Vec<Vec<Step>>),
    Every,
    /// All that has something inside, the outer before the inner.
    Descend,
    Where(Vec<Step>, Option<(Operator, Vec<Step>)>),
    /// A value of its own, on the right of a comparison.
    Value(Value),
}

/// From, to and step; without an end it is one item.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Slice {
    from: i64,
    to: Option<i64>,
    is_one: bool,
    by: i64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// It cannot be followed.
#[derive(Debug)]
struct Astray;

type Values<'v> = Vec<Cow<'v, Value>>;

impl JsonPath {
    pub fn parse(text: &str) -> JsonPath {
        let known = jsonpath::check(&format!("{{{text}}}")).is_ok();
        JsonPath(known.then(|| steps(text)).flatten())
    }

    /// The first value that the path leads to.
    pub fn first<'v>(&self, object: &'v Value) -> Option<Cow<'v, Value>> {
        let found = walk(self.0.as_ref()?, Cow::Borrowed(object)).ok()?;
        found.into_iter().next()
    }
}

fn walk<'v>(steps: &[Step], from: Cow<'v, Value>) -> Result<Values<'v>, Astray> {
    let mut values = vec![from];
    for step in steps {
        let mut next = Vec::new();
        for value in values {
            step.take(value, &mut next)?;
        }
        values = next;
    }
    Ok(values)
}

impl Step {
    fn take<'v>(&self, value: Cow<'v, Value>, next: &mut Values<'v>) -> Result<(), Astray> {
        match self {
            Step::Value(literal) => next.push(Cow::Owned(literal.clone())),
            Step::Union(paths) => {
                for path in paths {
                    next.extend(walk(path, value.clone())?);
                }
            }
            Step::Field(name) => next.extend(field(value, name)),
            // What is null has nothing inside.
            _ if value.is_null() && !matches!(self, Step::Where(..)) => {}
            Step::Every => next.extend(children(value)),
            Step::Descend => descend(value, next),
            Step::Slice(slice) => next.extend(slice.of(items(value)?)?),
            Step::Where(left, compared) => {
                for item in items(value)? {
                    if holds(&item, left, compared.as_ref())? {
                        next.push(item);
                    }
                }
            }
        }
        Ok(())
    }
}

fn field<'v>(value: Cow<'v, Value>, name: &str) -> Option<Cow<'v, Value>> {
    match value {
        Cow::Borrowed(value) => value.as_object()?.get(name).map(Cow::Borrowed),
        Cow::Owned(mut value) => value.as_object_mut()?.remove(name).map(Cow::Owned),
    }
}

fn items<'v>(value: Cow<'v, Value>) -> Result<Values<'v>, Astray> {
    match &*value {
        Value::Array(_) => Ok(children(value)),
        _ => Err(Astray),
    }
}

fn children(value: Cow<'_, Value>) -> Values<'_> {
    match value {
        Cow::Borrowed(Value::Array(items)) => items.iter().map(Cow::Borrowed).collect(),
        Cow::Borrowed(Value::Object(fields)) => fields.values().map(Cow::Borrowed).collect(),
        Cow::Owned(Value::Array(items)) => items.into_iter().map(Cow::Owned).collect(),
        Cow::Owned(Value::Object(fields)) => {
            fields.into_iter().map(|(_, value)| Cow::Owned(value)).collect()
        }
        _ => Vec::new(),
    }
}

fn descend<'v>(value: Cow<'v, Value>, next: &mut Values<'v>) {
    let inner = children(value.clone());
    if inner.is_empty() {
        return;
    }
    next.push(value);
    for value in inner {
        descend(value, next);
    }
}

impl Slice {
    fn of(self, items: Values<'_>) -> Result<Values<'_>, Astray> {
        let length = i64::try_from(items.len()).map_err(|_| Astray)?;
        let from = if self.from < 0 { self.from + length } else { self.from };
        let to = match self.to {
            _ if self.is_one => from + 1,
            None => length,
            Some(to) if to < 0 => to + length,
            Some(to) => to,
        };
        if from == to {
            return Ok(Vec::new());
        }
        let is_within = (0..length).contains(&from) && (0..=length).contains(&to) && from < to;
        if !is_within || self.by <= 0 {
            return Err(Astray);
        }
        let place = |number: i64| usize::try_from(number).map_err(|_| Astray);
        let (from, to, by) = (place(from)?, place(to)?, place(self.by)?);
        Ok(items.into_iter().take(to).skip(from).step_by(by).collect())
    }
}

/// Whether there is such a value in an item, or it compares so.
fn holds(
    item: &Value,
    left: &[Step],
    compared: Option<&(Operator, Vec<Step>)>,
) -> Result<bool, Astray> {
    let found = walk(left, Cow::Borrowed(item));
    let Some((operator, right)) = compared else {
        return Ok(found.is_ok_and(|found| !found.is_empty()));
    };
    let wanted = walk(right, Cow::Borrowed(item));
    match &found?[..] {
        [] => Ok(false),
        [found] => match &wanted?[..] {
            [] => Ok(false),
            [wanted] => operator.holds(found, wanted),
            _ => Err(Astray),
        },
        _ => Err(Astray),
    }
}

impl Operator {
    fn holds(self, left: &Value, right: &Value) -> Result<bool, Astray> {
        let order = match (left, right) {
            (Value::String(left), Value::String(right)) => left.cmp(right),
            (Value::Number(left), Value::Number(right)) => match (left.as_i64(), right.as_i64()) {
                (Some(left), Some(right)) => left.cmp(&right),
                // A number with a fraction is of another type.
                (None, None) => {
                    let (left, right) = (left.as_f64(), right.as_f64());
                    left.partial_cmp(&right).ok_or(Astray)?
                }
                _ => return Err(Astray),
            },
            (Value::Bool(left), Value::Bool(right)) => match self {
                Operator::Equal | Operator::NotEqual => left.cmp(right),
                _ => return Err(Astray),
            },
            _ => return Err(Astray),
        };
        Ok(match self {
            Operator::Equal => order == Ordering::Equal,
            Operator::NotEqual => order != Ordering::Equal,
            Operator::Less => order == Ordering::Less,
            Operator::LessOrEqual => order != Ordering::Greater,
            Operator::Greater => order == Ordering::Greater,
            Operator::GreaterOrEqual => order != Ordering::Less,
        })
    }

    fn of(text: &str) -> Option<Operator> {
        Some(match text {
            "==" => Operator::Equal,
            "!=" => Operator::NotEqual,
            "<" => Operator::Less,
            "<=" => Operator::LessOrEqual,
            ">" => Operator::Greater,
            ">=" => Operator::GreaterOrEqual,
            _ => return None,
        })
    }
}

/// The steps of a path whose grammar was checked.
fn steps(text: &str) -> Option<Vec<Step>> {
    let (mut steps, mut rest) = (Vec::new(), text);
    while let Some(first) = rest.chars().next() {
        let after = &rest[first.len_utf8()..];
        rest = if let Some(inside) = rest.strip_prefix("[?(") {
            let end = jsonpath::filter_end(inside)?;
            steps.push(condition(&inside[..end])?);
            inside[end..].strip_prefix(")]")?
        } else if let Some(after) = rest.strip_prefix("..") {
            steps.push(Step::Descend);
            match after.starts_with(jsonpath::is_word) {
                true => named(after, &mut steps),
                false => after,
            }
        } else {
            match first {
                // The object itself, and blanks, change nothing.
                ' ' | '@' | '$' => after,
                '.' => named(after, &mut steps),
                '[' => {
                    let (inside, after) = after.split_once(']')?;
                    array(inside, &mut steps)?;
                    after
                }
                _ => {
                    let (value, after) = literal(rest)?;
                    steps.push(Step::Value(value));
                    after
                }
            }
        };
    }
    Some(steps)
}

/// Takes a field's name, in which a backslash hides one character; what follows it.
fn named<'t>(text: &'t str, steps: &mut Vec<Step>) -> &'t str {
    let (mut name, mut chars, mut rest) = (String::new(), text.char_indices(), "");
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => name.extend(chars.next().map(|(_, hidden)| hidden)),
            c if jsonpath::ends_name(c) => {
                rest = &text[at..];
                break;
            }
            c => name.push(c),
        }
    }
    steps.push(if name == "*" { Step::Every } else { Step::Field(name) });
    rest
}

/// `0`, `1:2`, `*`, `'a'`, `0,1`.
fn array(inside: &str, steps: &mut Vec<Step>) -> Option<()> {
    if inside.contains(',') {
        let one = |part: &str| {
            let mut steps = Vec::new();
            array(part.trim_matches(' '), &mut steps).map(|()| steps)
        };
        steps.push(Step::Union(inside.split(',').map(one).collect::<Option<_>>()?));
        return Some(());
    }
    if let Some(key) = inside.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')) {
        // Upstream reads it as if it followed a dot.
        steps.extend(self::steps(&format!(".{key}"))?);
        return Some(());
    }
    let inside = if inside == "*" { ":" } else { inside };
    let parts: Vec<Option<i64>> = inside.split(':').map(|part| part.parse().ok()).collect();
    let part = |index: usize| parts.get(index).copied().flatten();
    steps.push(Step::Slice(Slice {
        from: part(0).unwrap_or(0),
        to: part(1),
        is_one: parts.len() == 1,
        by: part(2).unwrap_or(1),
    }));
    Some(())
}

/// `@.type=="Ready"`, or `@.type` alone: that there is one.
fn condition(text: &str) -> Option<Step> {
    let is_operator = |c: char| matches!(c, '!' | '<' | '>' | '=');
    let Some(at) = text.find(is_operator).filter(|at| *at > 0) else {
        return Some(Step::Where(steps(text)?, None));
    };
    let right = text[at..].trim_start_matches(is_operator);
    let operator = Operator::of(&text[at..text.len() - right.len()])?;
    Some(Step::Where(steps(&text[..at])?, Some((operator, steps(right)?))))
}

/// A text in quotes, a number, or whether something is so; and what follows it.
fn literal(text: &str) -> Option<(Value, &str)> {
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''));
    if let Some(quote) = quote {
        let (mut value, mut chars) = (String::new(), text.char_indices().skip(1));
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => value.push(match chars.next()?.1 {
                    'n' => '\n',
                    't' => '\t',
                    'r' => '\r',
                    c => c,
                }),
                c if c == quote => return Some((value.into(), &text[at + 1..])),
                c => value.push(c),
            }
        }
        return None;
    }
    let (word, rest) = text.split_at(text.find([' ', ')']).unwrap_or(text.len()));
    let value = match word {
        "true" => true.into(),
        "false" => false.into(),
        word => match word.parse::<i64>() {
            Ok(number) => number.into(),
            Err(_) => word.parse::<f64>().ok()?.into(),
        },
    };
    Some((value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_are_followed() {
        let object = json!({
            "spec": { "a": 1, "b.c": 2, "b": { "c": 3 }, "n": null,
                "list": [{ "n": "x", "i": 1 }, { "n": "y", "i": 2, "f": 1.5, "on": true }] },
            "status": { "conditions": [
                { "type": "Done", "status": "False" }, { "type": "Ready", "status": "True" },
            ] },
        });
        for (path, expected) in [
            (".spec.a", json!(1)),
            ("$.spec.a", json!(1)),
            (".spec['b.c']", json!(3)),
            (r".spec['b\.c']", json!(2)),
            (r".spec.b\.c", json!(2)),
            (".spec.n", json!(null)),
            (".spec.list[1].n", json!("y")),
            (".spec.list[-1].n", json!("y")),
            (".spec.list[-1:].n", json!("y")),
            (".spec.list[0:2:2].n", json!("x")),
            (".spec.list[1:].n", json!("y")),
            (".spec.list[*].n", json!("x")),
            (".spec.list[1,0].n", json!("y")),
            (".spec.list[7].n", json!(null)),
            (".spec.list[0:7].n", json!(null)),
            (".spec.b[*]", json!(null)),
            (".spec.b.*", json!(3)),
            (r#".status.conditions[?(@.type=="Ready")].status"#, json!("True")),
            (".status.conditions[?(@.type != 'Ready')].status", json!("False")),
            (".spec.list[?(@.f)].n", json!("y")),
            (".spec.list[?(@.i>1)].n", json!("y")),
            (".spec.list[?(@.i<=1)].n", json!("x")),
            (".spec.list[?(@.f>=1.5)].n", json!("y")),
            (".spec.list[?(@.on==true)].n", json!("y")),
            // A number is never compared with a text, nor with one that has a fraction.
            (".spec.list[?(@.i=='1')].n", json!(null)),
            (".spec.list[?(@.i<1.5)].n", json!(null)),
            (".spec.b[?(@.c)]", json!(null)),
            (".spec.none", json!(null)),
            (".spec.none[0]", json!(null)),
            ("..status", json!(object["status"])),
            ("..c", json!(3)),
            (".", json!(null)),
            (".a[", json!(null)),
            (".spec.list[-2:-1].n", json!("x")),
            (".spec.list[:1].n", json!("x")),
            (".spec.list[1:0].n", json!(null)),
            (".spec.list[-5:].n", json!(null)),
            (".spec.list[::0].n", json!(null)),
            (".spec.n[0]", json!(null)),
            (".spec.n[?(@.a)]", json!(null)),
            (".spec.list[?(@.n==@.n)].i", json!(1)),
            (".spec.list[?(@.on!=false)].n", json!("y")),
            (".spec.list[?( @.n == \"y\" )].i", json!(2)),
            (".spec.list[?(@['n']=='y')].i", json!(2)),
            ("..list[0].n", json!("x")),
            ("..[0].n", json!(null)),
        ] {
            let found = JsonPath::parse(path).first(&object).map(Cow::into_owned);
            assert_eq!(found.unwrap_or_default(), expected, "{path}");
        }
    }
}
