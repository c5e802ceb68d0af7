//! Paths into objects as a definition names them: `.spec.replicas`, `.spec['a.b']`.
use serde_json::Value;

/// The steps of a path, and the schema of what it leads to. `quoted`: steps in brackets count too.
pub fn find<'s>(
    path: &str,
    schema: &'s Value,
    quoted: bool,
) -> Result<(Vec<String>, &'s Value), String> {
    let (mut steps, mut schema) = (Vec::new(), schema);
    let mut tokens = tokens(path).into_iter();
    let end = || "unexpected end of JSON path".to_owned();
    while let Some(token) = tokens.next() {
        let step = match token {
            "." => tokens.next().ok_or_else(end)?.to_owned(),
            "[" if !quoted => return Err("array notation is not allowed".to_owned()),
            "[" => {
                let token = tokens.next().ok_or_else(end)?;
                let inner = token.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
                let Some(inner) = inner else {
                    return Err(format!("expected single quoted string but got {token}"));
                };
                unescaped(inner).ok_or("invalid string literal")?
            }
            other => return Err(format!("expected [ or . but got: {other}")),
        };
        schema = child(schema, &step).ok_or("does not refer to a valid field")?;
        steps.push(step);
        if token == "[" {
            match tokens.next().ok_or_else(end)? {
                "]" => {}
                other => return Err(format!("expected ] but got {other}")),
            }
        }
    }
    Ok((steps, schema))
}

/// A path as errors spell it, seen from what it begins at; none if it leads nowhere.
pub fn field_path(path: &str, schema: &Value) -> Option<String> {
    let (steps, _) = find(path, schema, true).ok()?;
    let (mut text, mut schema) = (String::new(), schema);
    for step in &steps {
        let is_field = schema["properties"].as_object().is_some_and(|map| !map.is_empty());
        match (is_field, text.is_empty()) {
            (true, true) => text += step,
            (true, false) => text.extend([".", step]),
            (false, _) => text.extend(["[", step, "]"]),
        }
        schema = child(schema, step)?;
    }
    Some(text)
}

/// A quoted name without its backslashes; none if one hides what it cannot.
fn unescaped(text: &str) -> Option<String> {
    let (mut plain, mut chars) = (String::with_capacity(text.len()), text.chars());
    while let Some(c) = chars.next() {
        plain.push(match c {
            '\\' => match chars.next()? {
                'a' => '\x07',
                'b' => '\x08',
                'f' => '\x0c',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'v' => '\x0b',
                hidden @ ('\'' | '\\') => hidden,
                _ => return None,
            },
            c => c,
        });
    }
    Some(plain)
}

fn child<'s>(schema: &'s Value, step: &str) -> Option<&'s Value> {
    match schema.get("properties").and_then(Value::as_object).filter(|map| !map.is_empty()) {
        Some(properties) => properties.get(step),
        None => schema.get("additionalProperties"),
    }
}

/// Dots and brackets are tokens, and so is what is between them or in quotes.
fn tokens(path: &str) -> Vec<&str> {
    let (mut all, mut rest) = (Vec::new(), path);
    while let Some(first) = rest.chars().next() {
        let end = match first {
            '.' | '[' | ']' => 1,
            '\'' => {
                let mut escaped = false;
                let close = rest.char_indices().skip(1).find(|(_, c)| {
                    let closes = *c == '\'' && !escaped;
                    escaped = *c == '\\';
                    closes
                });
                close.map_or(rest.len(), |(i, _)| i + 1)
            }
            _ => rest.find(['.', '[', ']']).unwrap_or(rest.len()),
        };
        all.push(&rest[..end]);
        rest = &rest[end..];
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_path_leads_through_the_schema() {
        let schema =
            json!({ "properties": { "spec": { "additionalProperties": { "type": "string" } } } });
        let said = |path: &str, quoted| match find(path, &schema, quoted) {
            Ok((steps, schema)) => format!("{} {schema}", steps.join("/")),
            Err(fault) => fault,
        };
        assert_eq!(said(".spec['a.b']", true), r#"spec/a.b {"type":"string"}"#);
        assert_eq!(said(".spec['a.b']", false), "array notation is not allowed");
        assert_eq!(said(".status", true), "does not refer to a valid field");
        assert_eq!(said("spec", true), "expected [ or . but got: spec");
        assert_eq!(said(".spec.", true), "unexpected end of JSON path");
        assert_eq!(field_path(".spec['a.b']", &schema).as_deref(), Some("spec[a.b]"));
        assert_eq!(field_path(".spec['a\\'b']", &schema).as_deref(), Some("spec[a'b]"));
        assert_eq!(field_path(".spec['a\\xb']", &schema), None);
    }
}
