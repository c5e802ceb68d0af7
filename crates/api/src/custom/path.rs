//! The simple JSONPaths of printer columns and selectable fields, followed in an object.
//!
//! `.spec.a`, `.items[0]`, `.a['b.c']`, `.conditions[?(@.type=="Ready")].status`: what validation lets
//! through ([`crate::jsonpath`]) and more is read as no path at all, which leads nowhere.
use serde_json::Value;

/// A path that was understood; one that was not leads nowhere.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonPath(Option<Vec<Step>>);

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    Every,
    /// Those of which a field has this value.
    Where(Vec<String>, bool, Value),
}

impl JsonPath {
    pub fn parse(text: &str) -> JsonPath {
        JsonPath(steps(text))
    }

    /// The first value that the path leads to.
    pub fn first<'v>(&self, object: &'v Value) -> Option<&'v Value> {
        let mut found = vec![object];
        for step in self.0.as_ref()? {
            found = found.into_iter().flat_map(|value| step.take(value)).collect();
        }
        found.into_iter().next()
    }
}

impl Step {
    fn take<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        match (self, value) {
            (Step::Field(name), Value::Object(fields)) => fields.get(name).into_iter().collect(),
            (Step::Index(index), Value::Array(items)) => {
                let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
                let index = if *index < 0 { length + index } else { *index };
                usize::try_from(index).ok().and_then(|index| items.get(index)).into_iter().collect()
            }
            (Step::Every, Value::Array(items)) => items.iter().collect(),
            (Step::Every, Value::Object(fields)) => fields.values().collect(),
            (Step::Where(path, equal, wanted), Value::Array(items)) => {
                let holds = |item: &&Value| {
                    let found = path.iter().try_fold(*item, |value, name| value.get(name));
                    found.is_some_and(|found| (found == wanted) == *equal)
                };
                items.iter().filter(holds).collect()
            }
            _ => Vec::new(),
        }
    }
}

fn steps(text: &str) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    let mut rest = text.strip_prefix('$').unwrap_or(text);
    while !rest.is_empty() {
        if let Some(inside) = rest.strip_prefix("[?(") {
            let (condition, after) = inside.split_once(")]")?;
            steps.push(condition_of(condition)?);
            rest = after;
        } else if let Some(inside) = rest.strip_prefix('[') {
            let quote = inside.chars().next().filter(|c| matches!(c, '\'' | '"'));
            let (step, after) = match quote {
                Some(quote) => {
                    let (name, after) = inside[1..].split_once(quote)?;
                    (Step::Field(name.to_owned()), after.strip_prefix(']')?)
                }
                None => {
                    let (index, after) = inside.split_once(']')?;
                    let step = match index {
                        "*" => Step::Every,
                        index => Step::Index(index.parse().ok()?),
                    };
                    (step, after)
                }
            };
            steps.push(step);
            rest = after;
        } else {
            let inside = rest.strip_prefix('.').unwrap_or(rest);
            let (name, after) = field(inside);
            if name.is_empty() {
                // A lone dot is the object itself; two in a row are a search that nobody needs here.
                return (after.is_empty() && steps.is_empty()).then_some(steps);
            }
            steps.push(if name == "*" { Step::Every } else { Step::Field(name) });
            rest = after;
        }
    }
    Some(steps)
}

/// A name up to the next dot or bracket; a backslash hides one character.
fn field(text: &str) -> (String, &str) {
    let (mut name, mut chars) = (String::new(), text.char_indices());
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => name.extend(chars.next().map(|(_, hidden)| hidden)),
            '.' | '[' => return (name, &text[at..]),
            c => name.push(c),
        }
    }
    (name, "")
}

/// `@.type=="Ready"`.
fn condition_of(text: &str) -> Option<Step> {
    let (equal, (left, right)) = match text.split_once("==") {
        Some(sides) => (true, sides),
        None => (false, text.split_once("!=")?),
    };
    let path = left.trim().strip_prefix("@.")?.split('.').map(str::to_owned).collect();
    let right = right.trim();
    let quoted = |quote: char| right.strip_prefix(quote)?.strip_suffix(quote);
    let wanted = match quoted('"').or_else(|| quoted('\'')) {
        Some(text) => Value::from(text),
        None => serde_json::from_str(right).ok()?,
    };
    Some(Step::Where(path, equal, wanted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_are_followed() {
        let object = json!({
            "spec": { "a": 1, "b.c": 2, "list": [{ "n": "x" }, { "n": "y" }] },
            "status": { "conditions": [
                { "type": "Done", "status": "False" }, { "type": "Ready", "status": "True" },
            ] },
        });
        for (path, expected) in [
            (".spec.a", json!(1)),
            ("spec.a", json!(1)),
            (".spec['b.c']", json!(2)),
            (r".spec.b\.c", json!(2)),
            (".spec.list[1].n", json!("y")),
            (".spec.list[-1].n", json!("y")),
            (".spec.list[*].n", json!("x")),
            (r#".status.conditions[?(@.type=="Ready")].status"#, json!("True")),
            (r#".status.conditions[?(@.type != 'Ready')].status"#, json!("False")),
            (".spec.none", json!(null)),
            ("..a", json!(null)),
        ] {
            let found = JsonPath::parse(path).first(&object).cloned().unwrap_or_default();
            assert_eq!(found, expected, "{path}");
        }
    }
}
