//! `-o`: how objects leave.
//!
//! [`Printer`] writes objects one by one in the form that was asked for; tables are made of what the
//! server sends for them (`table`), which only `get` asks for.
pub mod columns;
pub mod jsonpath;
pub mod kyaml;
pub mod sort;
pub mod table;
pub mod tabs;

use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, Offer, switch, switch_on, text};
use api::codec::yaml;
use api::template::{self, Dialect, MissingKeys};
use columns::Columns;
use jsonpath::Template;
use serde::Serialize;
use serde_json::Value;
use std::io::Write;

/// What commands take that print objects.
pub static FLAGS: &[Flag] = &[MISSING_KEYS, OUTPUT, MANAGED_FIELDS, TEMPLATE];

/// What the one takes whose shells know the forms.
pub static FLAGS_OF_GET: &[Flag] = &[
    MISSING_KEYS,
    OUTPUT.offers(Offer::Words(&[
        "json",
        "yaml",
        "kyaml",
        "name",
        "go-template",
        "go-template-file",
        "template",
        "templatefile",
        "jsonpath",
        "jsonpath-as-json",
        "jsonpath-file",
        "custom-columns",
        "custom-columns-file",
        "wide",
    ])),
    MANAGED_FIELDS,
    TEMPLATE,
];

const MISSING_KEYS: Flag =
    switch_on("allow-missing-template-keys", "What a template names and is not there is no error.");
const OUTPUT: Flag = text(
    "output",
    "",
    "How to print: json, yaml, kyaml, name, go-template, go-template-file, template, \
     templatefile, jsonpath, jsonpath-as-json, jsonpath-file.",
)
.short('o');
const MANAGED_FIELDS: Flag = switch("show-managed-fields", "Show managedFields in JSON and YAML.");
const TEMPLATE: Flag =
    text("template", "", "Template, or its file, for -o go-template and -o go-template-file.");

/// What messages list.
const FORMATS: &str = "go-template,go-template-file,json,jsonpath,jsonpath-as-json,jsonpath-file,kyaml,name,\
     template,templatefile,yaml";
const FORMATS_OF_GET: &str = "custom-columns,custom-columns-file,go-template,go-template-file,json,jsonpath,\
     jsonpath-as-json,jsonpath-file,kyaml,name,template,templatefile,wide,yaml";

pub enum Form {
    Json,
    Yaml,
    Kyaml,
    Name,
    JsonPath(Template, bool),
    GoTemplate(template::Template),
    Columns(Columns),
}

pub struct Printer {
    form: Form,
    show_managed_fields: bool,
    printed: usize,
}

/// The form that the flags name; none for the one that people read.
pub fn form(arguments: &Arguments) -> Outcome<Option<Form>> {
    let output = arguments.text("output");
    let formats = if arguments.knows("label-columns") { FORMATS_OF_GET } else { FORMATS };
    let (name, value) = match output.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (output, None),
    };
    let given = if arguments.knows("template") { arguments.text("template") } else { "" };
    let value = value.unwrap_or(given);
    let with_headers = !(arguments.knows("no-headers") && arguments.is("no-headers"));
    let template = |text: &str| {
        if text.is_empty() {
            return Err(Failure::Plain(
                "template format specified but no template given".to_owned(),
            ));
        }
        let mut template = Template::parse(text)?;
        template.allow_missing = arguments.is("allow-missing-template-keys");
        Ok(template)
    };
    let file = |path: &str| {
        std::fs::read_to_string(path).map_err(|error| {
            Failure::Plain(format!("error reading --template {path}, {}\n", io_text(path, &error)))
        })
    };
    Ok(Some(match name {
        "" if !given.is_empty() => return go_template(given, arguments).map(Some),
        "" => return Ok(None),
        "wide" if arguments.knows("label-columns") || arguments.knows("wide") => return Ok(None),
        "json" => Form::Json,
        "yaml" => Form::Yaml,
        "kyaml" => Form::Kyaml,
        "name" => Form::Name,
        "jsonpath" => Form::JsonPath(template(value)?, false),
        "jsonpath-as-json" => Form::JsonPath(template(value)?, true),
        "jsonpath-file" => Form::JsonPath(template(&file(value)?)?, false),
        "custom-columns" if arguments.knows("label-columns") => {
            Form::Columns(Columns::parse(value, with_headers)?)
        }
        "custom-columns-file" if arguments.knows("label-columns") => {
            Form::Columns(Columns::from_file(&file(value)?, with_headers)?)
        }
        "go-template" | "template" => return go_template(value, arguments).map(Some),
        "go-template-file" | "templatefile" => {
            return go_template(&file(value)?, arguments).map(Some);
        }
        _ => {
            return Err(format!(
                "unable to match a printer suitable for the output format \"{output}\", allowed formats \
                 are: {formats}"
            )
            .into());
        }
    }))
}

/// What kubectl calls a template, and what it has besides Go's own functions.
static DIALECT: Dialect = Dialect { name: "output", functions: &["exists", "base64decode"] };

fn go_template(text: &str, arguments: &Arguments) -> Outcome<Form> {
    if text.is_empty() {
        return Err("template format specified but no template given".into());
    }
    let missing_keys = match arguments.is("allow-missing-template-keys") {
        true => MissingKeys::Allowed,
        false => MissingKeys::Faults,
    };
    let template = template::Template::parse(text, &DIALECT, missing_keys);
    let template = template.map_err(|error| format!("error parsing template {text}, {error}\n"))?;
    Ok(Form::GoTemplate(template))
}

/// An error of a file in Go's words.
pub fn io_text(path: &str, error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => format!("open {path}: no such file or directory"),
        std::io::ErrorKind::PermissionDenied => format!("open {path}: permission denied"),
        _ => format!("open {path}: {error}"),
    }
}

impl Printer {
    pub fn new(form: Form, arguments: &Arguments) -> Printer {
        let show_managed_fields =
            arguments.knows("show-managed-fields") && arguments.is("show-managed-fields");
        Printer { form, show_managed_fields, printed: 0 }
    }

    /// The one that the flags name, if they name one.
    pub fn of(arguments: &Arguments) -> Outcome<Option<Printer>> {
        Ok(form(arguments)?.map(|form| Printer::new(form, arguments)))
    }

    pub fn print(&mut self, object: &Value, out: &mut dyn Write) -> Outcome {
        self.printed += 1;
        match &mut self.form {
            Form::Json => {
                let object = without_managed_fields(object, self.show_managed_fields);
                writeln!(out, "{}", pretty(&object))?;
            }
            Form::Yaml => {
                if self.printed > 1 {
                    writeln!(out, "---")?;
                }
                let object = without_managed_fields(object, self.show_managed_fields);
                out.write_all(yaml::encode(&object).as_bytes())?;
            }
            Form::Name => match object["items"].as_array() {
                Some(items) if object["kind"].as_str().is_some_and(|k| k.ends_with("List")) => {
                    for item in items {
                        writeln!(out, "{}", name_of(item))?;
                    }
                }
                _ => writeln!(out, "{}", name_of(object))?,
            },
            Form::Kyaml => {
                let object = without_managed_fields(object, self.show_managed_fields);
                out.write_all(kyaml::encode(&object).as_bytes())?;
            }
            Form::GoTemplate(template) => {
                let (text, result) = template.print(object);
                out.write_all(&text)?;
                result.map_err(|error| error.to_string())?;
            }
            Form::JsonPath(template, as_json) => {
                out.write_all(template.render(object, *as_json)?.as_bytes())?;
            }
            Form::Columns(columns) => out.write_all(columns.lines(object)?.as_bytes())?,
        }
        Ok(())
    }
}

/// Tells what was done to an object: in a line, or as the object in the form that was asked for.
pub struct Telling {
    printer: Option<Printer>,
    suffix: &'static str,
}

impl Telling {
    pub fn new(arguments: &Arguments, dry_run: crate::write::DryRun) -> Outcome<Telling> {
        Ok(Telling { printer: Printer::of(arguments)?, suffix: dry_run.suffix() })
    }

    /// `deployment.apps/web created (dry run)`
    pub fn tell(&mut self, object: &Value, done: &str, out: &mut dyn Write) -> Outcome {
        match &mut self.printer {
            Some(printer) => printer.print(object, out),
            None => Ok(writeln!(out, "{} {done}{}", name_of(object), self.suffix)?),
        }
    }

    pub fn prints_objects(&self) -> bool {
        self.printer.is_some()
    }
}

/// `pod/web`, `deployment.apps/web`
pub fn name_of(object: &Value) -> String {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let kind = kind_of(object);
    match name {
        // What has no metadata is no object of a server.
        "" if object.get("metadata").is_none() => format!("{kind}/<unknown>"),
        "" => kind,
        name => format!("{kind}/{name}"),
    }
}

/// `pod`, `deployment.apps`
pub fn kind_of(object: &Value) -> String {
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let kind = object["kind"].as_str().unwrap_or_default().to_ascii_lowercase();
    match version.split_once('/') {
        Some((group, _)) => format!("{kind}.{group}"),
        None => kind,
    }
}

/// JSON as Go indents it, with its escapes.
pub fn pretty<T: Serialize + ?Sized>(value: &T) -> String {
    let mut out = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, formatter);
    if value.serialize(&mut serializer).is_err() {
        return String::new();
    }
    let text = String::from_utf8(out).unwrap_or_default();
    // These stand in strings only.
    let text = text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    text.replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

fn without_managed_fields(object: &Value, keep: bool) -> Value {
    let mut object = object.clone();
    if !keep {
        forget_managed_fields(&mut object);
    }
    object
}

pub fn forget_managed_fields(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    if let Some(items) = object.get_mut("items").and_then(Value::as_array_mut) {
        items.iter_mut().for_each(forget_managed_fields);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn json_is_go_s() {
        assert_eq!(
            pretty(&json!({ "a": "<&>", "b": [], "c": {} })),
            "{\n    \"a\": \"\\u003c\\u0026\\u003e\",\n    \"b\": [],\n    \"c\": {}\n}"
        );
    }

    #[test]
    fn names_carry_kind_and_group() {
        let of = |version: &str, kind: &str| {
            name_of(&json!({ "apiVersion": version, "kind": kind, "metadata": { "name": "x" } }))
        };
        assert_eq!(of("v1", "Pod"), "pod/x");
        assert_eq!(of("apps/v1", "Deployment"), "deployment.apps/x");
    }
}
