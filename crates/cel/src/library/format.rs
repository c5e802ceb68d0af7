//! Named formats of texts: `format.dns1123Label().validate(x)`.
use super::{Outcome, Row, row};
use crate::cost;
use crate::value::Value;
use crate::work::{Error, Work};
use api::names;

pub struct Format {
    /// As the function is called.
    pub name: &'static str,
    validate: fn(&str) -> Vec<String>,
    /// How long the pattern is that upstream checks with, for the cost.
    pub pattern_size: u64,
}

const fn named(name: &'static str, validate: fn(&str) -> Vec<String>, pattern_size: u64) -> Format {
    Format { name, validate, pattern_size }
}

static FORMATS: &[Format] = &[
    named("dns1123Label", |text| faults(names::name_is_dns_label(text, false)), 30),
    named("dns1123Subdomain", |text| faults(names::name_is_dns_subdomain(text, false)), 60),
    named("dns1035Label", |text| faults(names::name_is_dns1035_label(text, false)), 30),
    named("qualifiedName", |text| faults(names::qualified_name(text)), 60),
    named("dns1123LabelPrefix", |text| faults(names::name_is_dns_label(text, true)), 30),
    named("dns1123SubdomainPrefix", |text| faults(names::name_is_dns_subdomain(text, true)), 60),
    named("dns1035LabelPrefix", |text| faults(names::name_is_dns1035_label(text, true)), 30),
    named("labelValue", |text| faults(names::label_value(text)), 40),
    named("uri", uri, 1101),
    named("uuid", |text| known("uuid", text, "does not match the UUID format"), 72),
    named("byte", |text| known("byte", text, "invalid base64"), 84),
    named("date", |text| known("date", text, "invalid date"), 72),
    named("datetime", |text| known("datetime", text, "invalid datetime"), 72),
];

/// One row for every format makes it; the row's place is the format's.
pub static ROWS: &[Row] = &[
    row("format.dns1123Label", &["() -> Format"], |_, _| Ok(Value::Format(&FORMATS[0])), cost::one),
    row(
        "format.dns1123Subdomain",
        &["() -> Format"],
        |_, _| Ok(Value::Format(&FORMATS[1])),
        cost::one,
    ),
    row("format.dns1035Label", &["() -> Format"], |_, _| Ok(Value::Format(&FORMATS[2])), cost::one),
    row(
        "format.qualifiedName",
        &["() -> Format"],
        |_, _| Ok(Value::Format(&FORMATS[3])),
        cost::one,
    ),
    row(
        "format.dns1123LabelPrefix",
        &["() -> Format"],
        |_, _| Ok(Value::Format(&FORMATS[4])),
        cost::one,
    ),
    row(
        "format.dns1123SubdomainPrefix",
        &["() -> Format"],
        |_, _| Ok(Value::Format(&FORMATS[5])),
        cost::one,
    ),
    row(
        "format.dns1035LabelPrefix",
        &["() -> Format"],
        |_, _| Ok(Value::Format(&FORMATS[6])),
        cost::one,
    ),
    row("format.labelValue", &["() -> Format"], |_, _| Ok(Value::Format(&FORMATS[7])), cost::one),
    row("format.uri", &["() -> Format"], |_, _| Ok(Value::Format(&FORMATS[8])), cost::one),
    row("format.uuid", &["() -> Format"], |_, _| Ok(Value::Format(&FORMATS[9])), cost::one),
    row("format.byte", &["() -> Format"], |_, _| Ok(Value::Format(&FORMATS[10])), cost::one),
    row("format.date", &["() -> Format"], |_, _| Ok(Value::Format(&FORMATS[11])), cost::one),
    row("format.datetime", &["() -> Format"], |_, _| Ok(Value::Format(&FORMATS[12])), cost::one),
    row("format.named", &["(string) -> optional(Format)"], by_name, cost::one),
    row("validate", &["Format.(string) -> optional(list(string))"], validate, cost::format),
];

fn faults(faults: impl IntoIterator<Item = impl Into<String>>) -> Vec<String> {
    faults.into_iter().map(Into::into).collect()
}

fn uri(text: &str) -> Vec<String> {
    api::url::Url::parse_request(text).err().map(|error| error.to_string()).into_iter().collect()
}

fn known(format: &str, text: &str, fault: &str) -> Vec<String> {
    if api::conform::conforms(format, text) { Vec::new() } else { vec![fault.to_owned()] }
}

fn by_name<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    let [name] = args else { return Err(Error::NoOverload) };
    let name = name.as_str().ok_or(Error::NoOverload)?;
    let found = FORMATS.iter().find(|format| format.name == name);
    Ok(found.map_or_else(Value::none, |format| Value::some(Value::Format(format))))
}

fn validate<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    let [Value::Format(format), text] = args else { return Err(Error::NoOverload) };
    let faults = (format.validate)(text.as_str().ok_or(Error::NoOverload)?);
    Ok(if faults.is_empty() { Value::none() } else { Value::some(Value::texts(faults)) })
}
