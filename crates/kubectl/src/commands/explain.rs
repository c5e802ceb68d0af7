//! `kubectl explain`: what the server's OpenAPI v3 says of a kind and its fields.
use super::{Command, Group};
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, number, switch, text};
use crate::session::Session;
use serde_json::Value;
use std::fmt::Write as _;

static FLAGS: &[Flag] = &[
    text("api-version", "", "Group and version of the kind."),
    number("max-depth", "0", "How deep --recursive goes; 0: to the bottom."),
    text("output", "plaintext", "plaintext or plaintext-openapiv2.").short('o'),
    switch("recursive", "Show all fields below, without descriptions."),
];

pub static COMMAND: Command = Command {
    name: "explain",
    group: Group::Intermediate,
    about: "Get documentation for a resource",
    usage: "TYPE [--recursive=FALSE|TRUE] [--api-version=api-version-group] [-o|--output=plaintext]",
    flags: &[FLAGS],
    run: Some(|session, arguments| Box::pin(run(session, arguments))),
    ..Command::EMPTY
};

async fn run(session: &mut Session, arguments: Arguments) -> Outcome {
    let word = match &arguments.words[..] {
        [word] => word,
        [] => {
            return Err("You must specify the type of resource to explain. Use \"kubectl api-resources\" for a \
                        complete list of supported resources."
                .into());
        }
        _ => return Err("We accept only this format: explain RESOURCE".into()),
    };
    let cluster = session.cluster(&arguments)?;
    let mapper = cluster.mapper().await?;
    let (resource, path) = split(word, |name| mapper.find(name).is_ok());
    let unknown = |failure: Failure| Failure::Said { text: failure.short(), code: 1 };
    let mut resource = mapper.find(resource).map_err(unknown)?.clone();
    if let Some(version) = arguments.some("api-version") {
        let kind = resource.api.kind.to_string();
        let found = mapper.of_kind(version, &kind);
        resource = found.cloned().ok_or_else(|| {
            Failure::Plain(format!("couldn't find resource for \"{version}, Kind={kind}\""))
        })?;
    }
    let api = &resource.api;
    let document = match &*api.group {
        "" => format!("/openapi/v3/api/{}", api.version),
        group => format!("/openapi/v3/apis/{group}/{}", api.version),
    };
    let document = cluster.get_json(&document, "application/json").await?;
    let book = Book {
        document: &document,
        recursive: arguments.is("recursive"),
        depth: usize::try_from(arguments.number("max-depth")).unwrap_or_default(),
    };
    let schema = book.of_kind(&api.group, &api.version, &api.kind).ok_or_else(|| {
        Failure::Plain(format!(
            "GVR ({}/{}, Resource={}) not found in OpenAPI schema",
            api.group, api.version, api.plural
        ))
    })?;
    let mut out = String::new();
    if !api.group.is_empty() {
        let _ = writeln!(out, "GROUP:      {}", api.group);
    }
    let _ = writeln!(out, "KIND:       {}\nVERSION:    {}\n", api.kind, api.version);
    if !book.output(schema, &path, &mut Vec::new(), &mut out) {
        let last = path.last().copied().unwrap_or_default();
        session.out.write_all(out.as_bytes())?;
        return Err(format!("field \"{last}\" does not exist").into());
    }
    out.push('\n');
    Ok(session.out.write_all(out.as_bytes())?)
}

/// A resource's name may hold dots itself: the longest beginning that is one counts.
fn split(word: &str, is_resource: impl Fn(&str) -> bool) -> (&str, Vec<&str>) {
    let parts: Vec<&str> = word.split('.').collect();
    let first = parts[0];
    if parts.len() > 1 {
        // `deployments.v1.apps.spec`: a group has at least a name that is no field.
        for count in (2..=parts.len()).rev() {
            let name = parts[..count].join(".");
            if is_resource(&name) && !is_resource_field(first, &name, &is_resource) {
                return (&word[..name.len()], parts[count..].to_vec());
            }
        }
    }
    (first, parts[1..].to_vec())
}

/// Groups are found by their beginnings, which a field's name may be by chance.
fn is_resource_field(first: &str, name: &str, is_resource: &impl Fn(&str) -> bool) -> bool {
    let rest = &name[first.len() + 1..];
    is_resource(first) && matches!(rest, "spec" | "status" | "metadata" | "data")
}

struct Book<'d> {
    document: &'d Value,
    recursive: bool,
    depth: usize,
}

impl<'d> Book<'d> {
    fn of_kind(&self, group: &str, version: &str, kind: &str) -> Option<&'d Value> {
        let schemas = self.document["components"]["schemas"].as_object()?;
        schemas.values().find(|schema| {
            let kinds = schema["x-kubernetes-group-version-kind"].as_array().into_iter().flatten();
            kinds.into_iter().any(|one| {
                one["group"].as_str().unwrap_or_default() == group
                    && one["version"] == version
                    && one["kind"] == kind
            })
        })
    }

    fn resolved(&self, schema: &'d Value) -> &'d Value {
        let name = schema["$ref"].as_str().and_then(|link| link.rsplit('/').next());
        let found = name.map(|name| &self.document["components"]["schemas"][name]);
        found.filter(|found| found.is_object()).unwrap_or(schema)
    }

    /// Follows a path, and then tells what is there; false if nothing is.
    fn output(
        &self,
        schema: &'d Value,
        path: &[&str],
        seen: &mut Vec<&'d str>,
        out: &mut String,
    ) -> bool {
        let resolved = self.resolved(schema);
        let Some((first, rest)) = path.split_first() else {
            out.push_str("DESCRIPTION:\n");
            let mut description = String::new();
            self.description(schema, &mut description);
            match description.is_empty() {
                true => out.push_str("    <empty>\n"),
                // Its last line's end is indented as well.
                false => {
                    let text = indented(&wrapped(&description, 76), 4);
                    let _ = writeln!(out, "{text}\n    ");
                }
            }
            let mut fields = String::new();
            self.fields(resolved, 1, &mut Vec::new(), &mut fields);
            if !fields.is_empty() {
                out.push_str("FIELDS:\n");
                out.push_str(&fields);
            }
            return true;
        };
        if let Some(link) = schema["$ref"].as_str() {
            if seen.contains(&link) {
                return false;
            }
            seen.push(link);
        }
        let field = &resolved["properties"][*first];
        if field.is_object() {
            if rest.is_empty() {
                let _ = writeln!(out, "FIELD: {first} <{}>", self.type_of(field));
                out.push_str(&long_enum(field));
                out.push_str("\n\n");
            }
            return self.output(field, rest, &mut Vec::new(), out);
        }
        for inner in ["items", "additionalProperties"] {
            if resolved[inner].is_object() {
                return self.output(&resolved[inner], path, seen, out);
            }
        }
        let alternatives = resolved["allOf"].as_array().into_iter().flatten();
        alternatives.into_iter().any(|one| {
            let mut text = String::new();
            let found = self.output(one, path, seen, &mut text);
            out.push_str(&text);
            found
        })
    }

    fn description(&self, schema: &'d Value, out: &mut String) {
        let resolved = self.resolved(schema);
        if let Some(text) = resolved["description"].as_str().filter(|text| !text.is_empty()) {
            out.push_str(text);
            out.push('\n');
        }
        for one in resolved["allOf"].as_array().into_iter().flatten() {
            self.description(one, out);
        }
        for inner in ["items", "additionalProperties"] {
            if resolved[inner].is_object() {
                self.description(&resolved[inner], out);
            }
        }
    }

    fn fields(&self, schema: &'d Value, level: usize, seen: &mut Vec<&'d str>, out: &mut String) {
        let link = schema["$ref"].as_str();
        if let Some(link) = link {
            if seen.contains(&link) {
                return;
            }
            seen.push(link);
        }
        let resolved = self.resolved(schema);
        for (name, field) in resolved["properties"].as_object().into_iter().flatten() {
            let required = resolved["required"].as_array().into_iter().flatten();
            let required = required.into_iter().any(|one| one == name.as_str());
            self.field(name, field, required, level, out);
            if self.recursive && (self.depth == 0 || level < self.depth) {
                self.fields(field, level + 1, seen, out);
            }
        }
        for one in resolved["allOf"].as_array().into_iter().flatten() {
            self.fields(one, level, seen, out);
        }
        for inner in ["items", "additionalProperties"] {
            if resolved[inner].is_object() {
                self.fields(&resolved[inner], level, seen, out);
            }
        }
        // Only what is above is a circle.
        if link.is_some() {
            seen.pop();
        }
    }

    fn field(&self, name: &str, field: &'d Value, required: bool, level: usize, out: &mut String) {
        let indent = level * 2;
        let mark = if required { " -required-" } else { "" };
        let _ = write!(out, "{:indent$}{name}\t<{}>{mark}", "", self.type_of(field));
        out.push_str(&short_enum(field, indent));
        out.push('\n');
        if !self.recursive {
            let text = field["description"].as_str().unwrap_or("<no description>");
            let _ = writeln!(out, "{}\n", indented(&wrapped(text, 78 - indent), indent + 2));
        }
    }

    /// `string`, `[]Container`, `map[string]string`
    fn type_of(&self, schema: &'d Value) -> String {
        if schema["items"].is_object() {
            return format!("[]{}", self.type_of(&schema["items"]));
        }
        if schema["additionalProperties"].is_object() {
            return format!("map[string]{}", self.type_of(&schema["additionalProperties"]));
        }
        let all = schema["allOf"].as_array().map_or(&[][..], Vec::as_slice);
        if let [one] = all
            && schema.get("properties").is_none()
        {
            return self.type_of(one);
        }
        if let Some(link) = schema["$ref"].as_str() {
            let target = self.resolved(schema)["type"].as_str();
            return match target {
                None | Some("object") => {
                    link.rsplit(['/', '.']).next().unwrap_or("Object").to_owned()
                }
                Some(plain) => plain.to_owned(),
            };
        }
        match schema["type"].as_str() {
            None | Some("object" | "") => "Object".to_owned(),
            Some(plain) => plain.to_owned(),
        }
    }
}

fn shown(value: &Value) -> String {
    match value.as_str() {
        Some("") => "\"\"".to_owned(),
        Some(text) => text.to_owned(),
        None => value.to_string(),
    }
}

fn long_enum(schema: &Value) -> String {
    let Some(all) = schema["enum"].as_array() else { return String::new() };
    let lines: Vec<String> = all.iter().map(|one| format!("\n    {}", shown(one))).collect();
    format!("ENUM:{}", lines.concat())
}

fn short_enum(schema: &Value, indent: usize) -> String {
    let Some(all) = schema["enum"].as_array() else { return String::new() };
    let first: Vec<String> = all.iter().take(4).map(shown).collect();
    let more = if all.len() > 4 { ", ...." } else { "" };
    format!("\n{:indent$}enum: {}{more}", "", first.join(", "))
}

/// Lines of at most so many characters; line ends and blanks of the text's own stay.
fn wrapped(text: &str, width: usize) -> String {
    let (mut out, mut current) = (String::new(), 0);
    let (mut space, mut word) = (String::new(), String::new());
    let count = |text: &str| text.chars().count();
    for c in text.trim_end_matches('\n').chars() {
        if c == '\n' {
            if !word.is_empty() || current + count(&space) <= width {
                out.push_str(&space);
                out.push_str(&word);
            }
            out.push('\n');
            current = 0;
            space.clear();
            word.clear();
        } else if c.is_whitespace() {
            if space.is_empty() || !word.is_empty() {
                current += count(&space) + count(&word);
                out.push_str(&space);
                out.push_str(&word);
                space.clear();
                word.clear();
            }
            space.push(c);
        } else {
            word.push(c);
            if current + count(&space) + count(&word) > width && count(&word) < width {
                out.push('\n');
                current = 0;
                space.clear();
            }
        }
    }
    if !word.is_empty() || current + count(&space) <= width {
        out.push_str(&space);
        out.push_str(&word);
    }
    out
}

fn indented(text: &str, by: usize) -> String {
    let lines: Vec<String> = text.split('\n').map(|line| format!("{:by$}{line}", "")).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use crate::session::tests::{told, world};
    use serde_json::json;

    #[tokio::test]
    async fn kinds_and_fields_are_explained() {
        let world = world();
        let reference =
            |name: &str| json!({ "allOf": [{ "$ref": format!("#/components/schemas/{name}") }] });
        let mut spec = reference("io.k8s.PodSpec");
        spec["description"] = "The spec.".into();
        world.page("/openapi/v3/api/v1", json!({ "components": { "schemas": {
            "io.k8s.Pod": { "description": "A pod.", "type": "object",
                "x-kubernetes-group-version-kind": [{ "group": "", "version": "v1", "kind": "Pod" }],
                "required": ["spec"],
                "properties": { "kind": { "type": "string", "description": "Its kind." }, "spec": spec } },
            "io.k8s.PodSpec": { "type": "object", "description": "What runs.", "properties": {
                "names": { "type": "array", "items": { "type": "string" } },
                "policy": { "type": "string", "enum": ["Always", "Never"] } } } } } }));
        assert_eq!(
            told(&world, "explain po").await,
            "KIND:       Pod\nVERSION:    v1\n\nDESCRIPTION:\n    A pod.\n    \nFIELDS:\n  kind\t<string>\n    Its \
             kind.\n\n  spec\t<PodSpec> -required-\n    The spec.\n\n\n"
        );
        assert_eq!(
            told(&world, "explain pod.spec.policy").await,
            "KIND:       Pod\nVERSION:    v1\n\nFIELD: policy <string>\nENUM:\n    Always\n    Never\n\nDESCRIPTION:\n    \
             <empty>\n\n"
        );
        assert_eq!(
            told(&world, "explain pods --recursive").await,
            "KIND:       Pod\nVERSION:    v1\n\nDESCRIPTION:\n    A pod.\n    \nFIELDS:\n  kind\t<string>\n  spec\t<PodSpec> \
             -required-\n    names\t<[]string>\n    policy\t<string>\n    enum: Always, Never\n\n"
        );
        assert_eq!(
            told(&world, "explain pods.nothing").await,
            "KIND:       Pod\nVERSION:    v1\n\nerror: field \"nothing\" does not exist\n"
        );
    }
}
