//! JSONPath templates in kubectl's dialect: read and evaluated as upstream's
//! `client-go/util/jsonpath` does it.
use crate::failure::{Failure, Outcome};
use api::quote::{Quoted, go_json};
use serde_json::Value;
use std::borrow::Cow;
use std::cmp::Ordering;

/// Text with paths in braces.
#[derive(Debug, Clone)]
pub struct Template {
    text: String,
    parts: Vec<Part>,
    /// A field that is not there is nothing, not an error.
    pub allow_missing: bool,
}

#[derive(Debug, Clone, PartialEq)]
enum Part {
    Text(String),
    Path(Vec<Step>),
    /// `{range …}…{end}`
    Range(Vec<Step>, Vec<Part>),
}

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Root,
    Field(String),
    Text(String),
    Number(f64),
    Bool(bool),
    Wildcard,
    Descend,
    Slice(Option<i64>, Option<i64>, Option<i64>),
    Index(i64),
    Union(Vec<Vec<Step>>),
    Filter(Vec<Step>, Option<(String, Vec<Step>)>),
}

type Values<'v> = Vec<Cow<'v, Value>>;

impl Template {
    pub fn parse(text: &str) -> Outcome<Template> {
        let wrong = |why: String| Failure::Plain(format!("error parsing jsonpath {text}, {why}"));
        api::jsonpath::check(text).map_err(wrong)?;
        let mut reader = Reader { rest: text };
        let parts = reader.parts(false).map_err(wrong)?;
        Ok(Template { text: text.to_owned(), parts, allow_missing: false })
    }

    /// A path with or without braces and the first dot: `metadata.name`, `.metadata.name`,
    /// `{.metadata.name}`.
    pub fn relaxed(text: &str) -> Outcome<Template> {
        let wrong = || {
            let text = "unexpected path string, expected a 'name1.name2' or '.name1.name2' or \
                 '{name1.name2}' or '{.name1.name2}'";
            Failure::Plain(text.to_owned())
        };
        if text.is_empty() {
            return Template::parse("");
        }
        let inside = match (text.strip_prefix('{'), text.ends_with('}')) {
            (Some(inside), true) => &inside[..inside.len() - 1],
            (None, false) => text,
            _ => return Err(wrong()),
        };
        let inside = inside.strip_prefix('.').unwrap_or(inside);
        if inside.starts_with('$') || inside.starts_with('[') {
            return Template::parse(&format!("{{{inside}}}"));
        }
        let mut template = Template::parse(&format!("{{.{inside}}}"))?;
        template.allow_missing = true;
        Ok(template)
    }

    /// What each piece of the template comes to.
    pub fn find<'v>(&self, root: &'v Value) -> Result<Vec<Values<'v>>, String> {
        let mut found = Vec::new();
        self.evaluate(&self.parts, root, root, &mut found)?;
        Ok(found)
    }

    /// All values of a path, one after the other.
    pub fn values<'v>(&self, root: &'v Value) -> Result<Values<'v>, String> {
        Ok(self.find(root)?.into_iter().flatten().collect())
    }

    fn evaluate<'v>(
        &self,
        parts: &[Part],
        root: &'v Value,
        current: &'v Value,
        found: &mut Vec<Values<'v>>,
    ) -> Result<(), String> {
        for part in parts {
            match part {
                Part::Text(text) => found.push(vec![Cow::Owned(text.clone().into())]),
                Part::Path(steps) => found.push(self.walk(steps, root, Cow::Borrowed(current))?),
                Part::Range(steps, body) => {
                    for value in self.walk(steps, root, Cow::Borrowed(current))? {
                        if let Cow::Borrowed(value) = value {
                            self.evaluate(body, root, value, found)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn walk<'v>(
        &self,
        steps: &[Step],
        root: &'v Value,
        from: Cow<'v, Value>,
    ) -> Result<Values<'v>, String> {
        let mut values: Values<'v> = vec![from];
        // Behind `..` what is not there is no fault.
        let mut lenient = self.allow_missing;
        for step in steps {
            let mut next: Values<'v> = Vec::new();
            match step {
                Step::Root => next.push(Cow::Borrowed(root)),
                Step::Text(text) => next.push(Cow::Owned(text.clone().into())),
                Step::Number(number) => next.push(Cow::Owned(literal(*number))),
                Step::Bool(value) => next.push(Cow::Owned((*value).into())),
                step => {
                    for value in values {
                        self.step(step, root, value, lenient, &mut next)?;
                    }
                }
            }
            lenient = self.allow_missing || *step == Step::Descend;
            values = next;
        }
        Ok(values)
    }

    fn step<'v>(
        &self,
        step: &Step,
        root: &'v Value,
        value: Cow<'v, Value>,
        lenient: bool,
        next: &mut Values<'v>,
    ) -> Result<(), String> {
        match step {
            Step::Field(name) => {
                let found = match &value {
                    Cow::Borrowed(Value::Object(fields)) => fields.get(name).map(Cow::Borrowed),
                    Cow::Owned(Value::Object(fields)) => fields.get(name).cloned().map(Cow::Owned),
                    _ => None,
                };
                match found {
                    Some(found) => next.push(found),
                    None if lenient || value.is_null() => {}
                    None => return Err(format!("{name} is not found")),
                }
            }
            Step::Wildcard => next.extend(children(value)),
            Step::Descend => {
                let mut open = vec![value];
                while let Some(value) = open.pop() {
                    let mut inner = children(value.clone());
                    next.push(value);
                    inner.reverse();
                    open.extend(inner);
                }
            }
            Step::Index(at) => {
                let length = value.as_array().map(Vec::len);
                let Some(length) = length else {
                    return not_a_list(&value);
                };
                let place = if *at < 0 { *at + length as i64 } else { *at };
                match usize::try_from(place).ok().and_then(|place| item(&value, place)) {
                    Some(found) => next.push(found),
                    None => {
                        return Err(format!(
                            "array index out of bounds: index {at}, length {length}"
                        ));
                    }
                }
            }
            Step::Slice(from, to, by) => {
                let Some(length) = value.as_array().map(|all| all.len() as i64) else {
                    return not_a_list(&value);
                };
                let place = |at: i64| (if at < 0 { at + length } else { at }).clamp(0, length);
                let (from, to) = (place(from.unwrap_or(0)), place(to.unwrap_or(length)));
                let by = by.unwrap_or(1).max(1);
                let mut at = from;
                while at < to {
                    next.extend(usize::try_from(at).ok().and_then(|place| item(&value, place)));
                    at += by;
                }
            }
            Step::Union(paths) => {
                for path in paths {
                    next.extend(self.walk(path, root, value.clone())?);
                }
            }
            Step::Filter(left, compared) => {
                for candidate in children(value) {
                    if self.fits(left, compared.as_ref(), root, &candidate)? {
                        next.push(candidate);
                    }
                }
            }
            Step::Root | Step::Text(_) | Step::Number(_) | Step::Bool(_) => {}
        }
        Ok(())
    }

    fn fits(
        &self,
        left: &[Step],
        compared: Option<&(String, Vec<Step>)>,
        root: &Value,
        candidate: &Value,
    ) -> Result<bool, String> {
        let lenient = Template { allow_missing: true, text: String::new(), parts: Vec::new() };
        let left = lenient.walk(left, root, Cow::Borrowed(candidate))?;
        let Some((operator, right)) = compared else { return Ok(!left.is_empty()) };
        let right = lenient.walk(right, root, Cow::Borrowed(candidate))?;
        let (Some(left), Some(right)) = (left.first(), right.first()) else { return Ok(false) };
        if left.is_object() || right.is_object() {
            return Err("can only compare scalars".to_owned());
        }
        let order = compare(left, right);
        Ok(match &**operator {
            "==" | "=" => order == Some(Ordering::Equal),
            "!=" => order != Some(Ordering::Equal),
            "<" => order == Some(Ordering::Less),
            ">" => order == Some(Ordering::Greater),
            "<=" => matches!(order, Some(Ordering::Less | Ordering::Equal)),
            ">=" => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
            other => return Err(format!("unrecognized filter operator {other}")),
        })
    }

    /// What the template makes of an object.
    pub fn render(&self, object: &Value, as_json: bool) -> Outcome<String> {
        let results = self.find(object).map_err(|why| self.failed(&why, object))?;
        if as_json {
            let all: Vec<&Value> = results.iter().flatten().map(|value| value.as_ref()).collect();
            return Ok(format!("{}\n", super::pretty(&all)));
        }
        let mut out = String::new();
        for values in results {
            let texts: Vec<String> = values.iter().map(|value| shown(value)).collect();
            out.push_str(&texts.join(" "));
        }
        Ok(out)
    }

    fn failed(&self, why: &str, object: &Value) -> Failure {
        Failure::Plain(format!(
            "error executing jsonpath {}: Error executing template: {why}. Printing more information for \
             debugging the template:\n\ttemplate was:\n\t\t{}\n\tobject given to jsonpath engine was:\n\t\t{}\n\n\n",
            Quoted(&self.text),
            self.text,
            go_syntax(object)
        ))
    }
}

fn not_a_list(value: &Value) -> Result<(), String> {
    match value {
        Value::Null => Ok(()),
        value => Err(format!("{} is not array or slice", go_value(value))),
    }
}

fn item<'v>(value: &Cow<'v, Value>, at: usize) -> Option<Cow<'v, Value>> {
    match value {
        Cow::Borrowed(value) => value.as_array()?.get(at).map(Cow::Borrowed),
        Cow::Owned(value) => value.as_array()?.get(at).cloned().map(Cow::Owned),
    }
}

fn children<'v>(value: Cow<'v, Value>) -> Values<'v> {
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

fn literal(number: f64) -> Value {
    match number.fract() == 0.0 && number.abs() < 9e15 {
        true => (number as i64).into(),
        false => number.into(),
    }
}

fn compare(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        (Value::Number(left), Value::Number(right)) => left.as_f64()?.partial_cmp(&right.as_f64()?),
        (Value::Bool(left), Value::Bool(right)) => Some(left.cmp(right)),
        _ => None,
    }
}

/// One value as the printed template has it.
pub fn shown(value: &Value) -> String {
    match value {
        Value::Array(_) | Value::Object(_) => go_json(value).unwrap_or_default(),
        value => go_value(value),
    }
}

/// Go's `%#v`.
fn go_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::String(text) => Quoted(text).to_string(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_syntax).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(key, value)| format!("{}:{}", Quoted(key), go_syntax(value)))
                .collect();
            format!("map[string]interface {{}}{{{}}}", fields.join(", "))
        }
        value => value.to_string(),
    }
}

/// Go's `%v`.
pub fn go_value(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_value).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(key, value)| format!("{key}:{}", go_value(value))).collect();
            format!("map[{}]", fields.join(" "))
        }
        value => value.to_string(),
    }
}

struct Reader<'t> {
    rest: &'t str,
}

impl<'t> Reader<'t> {
    fn parts(&mut self, in_range: bool) -> Result<Vec<Part>, String> {
        let mut parts = Vec::new();
        while !self.rest.is_empty() {
            let Some(open) = self.rest.find('{') else {
                parts.push(Part::Text(std::mem::take(&mut self.rest).to_owned()));
                break;
            };
            if open > 0 {
                parts.push(Part::Text(self.rest[..open].to_owned()));
            }
            self.rest = &self.rest[open + 1..];
            match self.word() {
                "end" if in_range => {
                    let close = self.rest.find('}').ok_or("unclosed action")?;
                    self.rest = &self.rest[close + 1..];
                    return Ok(parts);
                }
                "end" => return Err("not in range, nothing to end".to_owned()),
                "range" => {
                    self.rest = &self.rest.trim_start()["range".len()..];
                    let steps = self.steps('}')?;
                    parts.push(Part::Range(steps, self.parts(true)?));
                }
                _ => parts.push(Part::Path(self.steps('}')?)),
            }
        }
        match in_range {
            true => Err("unterminated range".to_owned()),
            false => Ok(parts),
        }
    }

    fn word(&self) -> &'t str {
        let text = self.rest.trim_start();
        let end = text.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(text.len());
        &text[..end]
    }

    /// Steps up to what closes them.
    fn steps(&mut self, close: char) -> Result<Vec<Step>, String> {
        let mut steps = Vec::new();
        loop {
            let mut chars = self.rest.chars();
            let Some(first) = chars.next() else {
                return if close == '\0' { Ok(steps) } else { Err("unclosed action".to_owned()) };
            };
            let after = chars.as_str();
            if first == close {
                self.rest = after;
                return Ok(steps);
            }
            match first {
                ' ' | '@' => self.rest = after,
                '$' => {
                    self.rest = after;
                    steps.push(Step::Root);
                }
                '.' => {
                    self.rest = after;
                    if let Some(after) = after.strip_prefix('.') {
                        self.rest = after;
                        steps.push(Step::Descend);
                    }
                    let name = self.name();
                    match &*name {
                        "" => {}
                        "*" => steps.push(Step::Wildcard),
                        _ => steps.push(Step::Field(name)),
                    }
                }
                '[' => {
                    self.rest = after;
                    steps.push(self.bracket()?);
                }
                '"' | '\'' => {
                    let text = self.quoted(first)?;
                    steps.push(Step::Text(text));
                }
                c if c.is_ascii_digit() || matches!(c, '-' | '+') => {
                    let end = self.rest[1..]
                        .find(|c: char| !c.is_ascii_digit() && c != '.')
                        .map_or(self.rest.len(), |end| end + 1);
                    let number = self.rest[..end].parse();
                    steps.push(Step::Number(number.map_err(|_| "cannot parse number".to_owned())?));
                    self.rest = &self.rest[end..];
                }
                _ => match &*self.name() {
                    "true" => steps.push(Step::Bool(true)),
                    "false" => steps.push(Step::Bool(false)),
                    "" => self.rest = after,
                    other => return Err(format!("unrecognized identifier {other}")),
                },
            }
        }
    }

    /// A field's name; a backslash takes the meaning from the next character.
    fn name(&mut self) -> String {
        let mut name = String::new();
        let mut chars = self.rest.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => name.extend(chars.next().map(|(_, c)| c)),
                ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}' => {
                    self.rest = &self.rest[at..];
                    return name;
                }
                c => name.push(c),
            }
        }
        self.rest = "";
        name
    }

    fn quoted(&mut self, quote: char) -> Result<String, String> {
        let mut text = String::new();
        let mut chars = self.rest.char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => match chars.next().map(|(_, c)| c) {
                    Some('n') => text.push('\n'),
                    Some('t') => text.push('\t'),
                    Some('r') => text.push('\r'),
                    Some(c) => text.push(c),
                    None => break,
                },
                c if c == quote => {
                    self.rest = &self.rest[at + 1..];
                    return Ok(text);
                }
                c => text.push(c),
            }
        }
        Err("unterminated quoted string".to_owned())
    }

    /// From after `[`.
    fn bracket(&mut self) -> Result<Step, String> {
        if let Some(after) = self.rest.strip_prefix("?(") {
            return self.filter(after);
        }
        let end = closing(self.rest).ok_or("unterminated array")?;
        let (inside, rest) = (&self.rest[..end], &self.rest[end + 1..]);
        self.rest = rest;
        let parts: Vec<&str> = inside.split(',').map(str::trim).collect();
        if parts.len() > 1 {
            let paths: Result<Vec<_>, String> = parts
                .into_iter()
                .map(|part| {
                    let mut reader = Reader { rest: &format!("{part}]") };
                    Ok(vec![reader.bracket()?])
                })
                .collect();
            return Ok(Step::Union(paths?));
        }
        if inside == "*" {
            return Ok(Step::Wildcard);
        }
        for quote in ['\'', '"'] {
            if let Some(key) =
                inside.strip_prefix(quote).and_then(|inside| inside.strip_suffix(quote))
            {
                return Ok(Step::Field(key.replace('\\', "")));
            }
        }
        let number = |text: &str| match text {
            "" => Ok(None),
            text => {
                text.parse().map(Some).map_err(|_| format!("array index {text} is not a number"))
            }
        };
        let parts: Vec<&str> = inside.split(':').collect();
        match &parts[..] {
            [at] => Ok(match number(at)? {
                Some(at) => Step::Index(at),
                None => Step::Wildcard,
            }),
            [from, to] => Ok(Step::Slice(number(from)?, number(to)?, None)),
            [from, to, by] => Ok(Step::Slice(number(from)?, number(to)?, number(by)?)),
            _ => Err(format!("invalid array index {inside}")),
        }
    }

    /// From after `[?(`.
    fn filter(&mut self, text: &'t str) -> Result<Step, String> {
        let (mut quote, mut end, mut escaped) = (None, None, false);
        for (at, c) in text.char_indices() {
            match (quote, c) {
                (Some(open), c) if c == open && !escaped => quote = None,
                (None, '"' | '\'') => quote = Some(c),
                (None, ')') => {
                    end = Some(at);
                    break;
                }
                _ => {}
            }
            escaped = c == '\\' && !escaped;
        }
        let end = end.ok_or("unterminated filter")?;
        let inside = &text[..end];
        self.rest = text[end + 1..].strip_prefix(']').ok_or("unclosed array expect ]")?;
        let is_operator = |c: char| matches!(c, '!' | '<' | '>' | '=');
        let whole = |text: &str| Reader { rest: text.trim() }.steps('\0');
        match inside.find(is_operator) {
            Some(at) if at > 0 => {
                let right = inside[at..].trim_start_matches(is_operator);
                let operator = &inside[at..inside.len() - right.len()];
                Ok(Step::Filter(whole(&inside[..at])?, Some((operator.to_owned(), whole(right)?))))
            }
            _ => Ok(Step::Filter(whole(inside)?, None)),
        }
    }
}

/// Where a bracket ends that was opened before.
fn closing(text: &str) -> Option<usize> {
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, ']') => return Some(at),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(template: &str, expected: &str) {
        let object = json!({ "kind": "List", "items": [
            { "kind": "None", "metadata": { "name": "127.0.0.1", "labels": { "a.b/c": "x" } },
              "status": { "capacity": { "cpu": "4" }, "n": 1,
                "addresses": [{ "type": "LegacyHostIP", "address": "127.0.0.1" }] } },
            { "kind": "None", "metadata": { "name": "127.0.0.2" },
              "status": { "capacity": { "cpu": "8" }, "n": 12,
                "addresses": [{ "type": "A", "address": "10.0.0.1" }, { "type": "B", "address": "z" }] } } ],
            "users": [{ "name": "myself", "user": {} }, { "name": "e2e", "user": { "username": "admin" } }] });
        let mut template = Template::parse(template).expect("it is well formed");
        template.allow_missing = true;
        assert_eq!(template.render(&object, false).expect("it can be evaluated"), expected);
    }

    #[test]
    fn upstream_s_examples() {
        check("kind is {.kind}", "kind is List");
        check("{.items[*].metadata.name}", "127.0.0.1 127.0.0.2");
        check("{range .items[*]}{.metadata.name}, {end}", "127.0.0.1, 127.0.0.2, ");
        check("{.items[*].status.capacity}", "{\"cpu\":\"4\"} {\"cpu\":\"8\"}");
        check("{..name}", "127.0.0.1 127.0.0.2 myself e2e");
        check("{.users[?(@.name==\"e2e\")].user.username}", "admin");
        check("{.items[?(@.status.n>1)].metadata.name}", "127.0.0.2");
        check("{.items[0]['metadata.name','status.n']}", "");
        check("{.items[0].metadata.labels.a\\.b/c}", "x");
        check("{.items[-1].metadata['name']}", "127.0.0.2");
        check("{.items[0:1].metadata.name}", "127.0.0.1");
        check(
            "{range .items[*]}{.metadata.name}{\"\\t\"}{.status.n}{\"\\n\"}{end}",
            "127.0.0.1\t1\n127.0.0.2\t12\n",
        );
        check(
            "{range .items[*]}{range .status.addresses[*]}{.type} {end}{end}",
            "LegacyHostIP A B ",
        );
        check("{.items[*].status.addresses[?(@.type=='A')].address}", "10.0.0.1");
        check("{.missing}", "");
        check("{.items[0].status.n}", "1");
    }

    #[test]
    fn what_is_missing_is_told_if_asked() {
        let template = Template::parse("{.a}").unwrap();
        let told = template.render(&json!({}), false).unwrap_err().message();
        assert!(told.contains("Error executing template: a is not found."), "{told}");
        let template = Template::parse("{.a[3]}").unwrap();
        let told = template.render(&json!({ "a": [1] }), false).unwrap_err().message();
        assert!(told.contains("array index out of bounds: index 3, length 1"), "{told}");
        let wrong = Template::parse("{.a").unwrap_err().message();
        assert_eq!(wrong, "error: error parsing jsonpath {.a, unclosed action");
    }
}
