//! How answers are printed: JSON, YAML, templates, tables.
use crate::failure::{Failure, Outcome, While};
use crate::message;
use crate::session::Session;
use api::template::{Dialect, MissingKeys, Template};
use prost::Message;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::HashMap;

/// Between columns.
const GAP: usize = 3;
/// A column of most tables is at least this wide, with the gap.
pub const WIDE: usize = 20;

/// What upstream calls a template, and what it has besides Go's own functions.
static DIALECT: Dialect =
    Dialect { name: "tmplExecuteRawJSON", functions: &["json", "title", "lower", "upper"] };

/// Text of others that reaches a person's terminal, without what would control it.
pub fn tame(text: &str) -> Cow<'_, str> {
    let harmful = |c: char| c.is_control() && c != '\n' && c != '\t';
    match text.contains(harmful) {
        true => Cow::Owned(
            text.chars()
                .map(|c| if harmful(c) { c.escape_debug().to_string() } else { c.to_string() })
                .collect(),
        ),
        false => Cow::Borrowed(text),
    }
}

/// Rows as lines; the last column is not padded.
pub fn table(rows: &[Vec<String>], least: usize) -> String {
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(|cell| tame(cell).replace(['\n', '\t'], " ")).collect())
        .collect();
    let mut widths: Vec<usize> = Vec::new();
    for row in &rows {
        for (at, cell) in row.iter().enumerate() {
            let width = (cell.chars().count() + GAP).max(least);
            match widths.get_mut(at) {
                Some(known) => *known = width.max(*known),
                None => widths.push(width),
            }
        }
    }
    let mut out = String::new();
    for row in &rows {
        for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
            out.push_str(cell);
            if at + 1 < row.len() {
                out.extend(std::iter::repeat_n(' ', width - cell.chars().count()));
            }
        }
        out.push('\n');
    }
    out
}

/// The first thirteen characters of what follows a prefix.
pub fn truncated(id: &str, prefix: &str) -> String {
    id.strip_prefix(prefix).unwrap_or(id).chars().take(13).collect()
}

/// An answer as `json` or `yaml`; false for other formats, of which the command knows more.
pub fn answer(
    session: &mut Session,
    format: &str,
    name: &str,
    answer: &impl Message,
) -> Outcome<bool> {
    match format {
        "json" => writeln!(session.out, "{}", message::to_text(name, answer)?)?,
        "yaml" => {
            let value = message::to_value(name, answer)?;
            writeln!(session.out, "{}", api::codec::yaml::encode(&value))?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// What is told of one thing: its status, and what the runtime says besides.
#[derive(Debug, Default)]
pub struct Status {
    pub status: Option<Value>,
    pub handlers: Option<Value>,
    pub features: Option<Value>,
    pub info: HashMap<String, String>,
}

impl Status {
    fn into_value(self) -> Outcome<Value> {
        let named = [
            ("status", self.status),
            ("runtimeHandlers", self.handlers),
            ("features", self.features),
        ];
        let mut fields: Map<String, Value> =
            named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
        for (name, text) in self.info {
            let value = match text.starts_with('{') {
                true => serde_json::from_str(&text)
                    .map_err(|error| error.to_string())
                    .during(|| "unmarshal status info JSON".to_owned())?,
                false => Value::from(text.trim_matches('"')),
            };
            fields.insert(name, value);
        }
        Ok(Value::Object(fields))
    }
}

/// One as it is, several as a list.
pub fn statuses(session: &mut Session, all: Vec<Status>, format: &str, template: &str) -> Outcome {
    let mut all = all.into_iter().map(Status::into_value).collect::<Outcome<Vec<Value>>>()?;
    let value = match all.len() {
        0 => return Ok(()),
        1 => all.remove(0),
        _ => Value::Array(all),
    };
    match format {
        "json" => {
            let text = serde_json::to_string_pretty(&value).map_err(|error| error.to_string())?;
            writeln!(session.out, "{}", html_safe(&text))?;
        }
        "yaml" => writeln!(session.out, "{}", api::codec::yaml::encode(&value))?,
        "go-template" => {
            let text = execute(template, &value).during(|| "execute template".to_owned())?;
            session.out.write_all(&text)?;
            writeln!(session.out)?;
        }
        other => return Err(format!("unsupported format: {}", api::quote::Quoted(other)).into()),
    }
    Ok(())
}

/// As Go's encoder leaves what might be markup.
fn html_safe(json: &str) -> String {
    // These only ever occur inside a JSON string, where an escape is allowed.
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

pub fn check_template(text: &str) -> Outcome {
    let read = Template::parse(text, &DIALECT, MissingKeys::Faults);
    read.map(|_| ()).map_err(|error| Failure::Said(error.to_string()))
}

pub fn execute(template: &str, value: &Value) -> Outcome<Vec<u8>> {
    let read = Template::parse(template, &DIALECT, MissingKeys::Faults);
    let template = read.map_err(|error| format!("failed to generate go-template: {error}"))?;
    match template.execute(value) {
        (out, Ok(())) => Ok(out),
        (_, Err(error)) => Err(format!("failed to template data: {error}").into()),
    }
}

/// `Labels:` and the like, sorted.
pub fn pairs(session: &mut Session, title: &str, pairs: &HashMap<String, String>) -> Outcome {
    // An empty map does not survive protobuf: upstream sees none either.
    if pairs.is_empty() {
        return Ok(());
    }
    writeln!(session.out, "{title}:")?;
    let mut sorted: Vec<_> = pairs.iter().collect();
    sorted.sort();
    for (key, value) in sorted {
        writeln!(session.out, "\t{} -> {}", tame(key), tame(value))?;
    }
    Ok(())
}

/// A moment in nanoseconds since 1970 as RFC 3339 with as many digits as it has.
pub fn moment(nanos: i64) -> String {
    match jiff::Timestamp::from_nanosecond(i128::from(nanos)) {
        Ok(moment) => moment.to_string(),
        Err(_) => nanos.to_string(),
    }
}

/// The same as Go prints a moment by itself.
pub fn plain_moment(nanos: i64) -> String {
    moment(nanos).replacen('T', " ", 1).replacen('Z', " +0000 UTC", 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_wide_and_tame() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let text = table(
            &[row(["A", "B", "C"]), row(["a-cell-of-twenty-char", "\u{1b}[31m", "x\ny"])],
            WIDE,
        );
        assert_eq!(
            text,
            "A                       B                   C\n\
             a-cell-of-twenty-char   \\u{1b}[31m          x y\n"
        );
        assert_eq!(truncated("sha256:0123456789abcdef", "sha256:"), "0123456789abc");
        // Not every runtime's ids are letters of one byte.
        assert_eq!(truncated("äöüäöüäöüäöüäöü", ""), "äöüäöüäöüäöüä");
    }

    #[test]
    fn moments_have_the_digits_they_need() {
        assert_eq!(moment(0), "1970-01-01T00:00:00Z");
        assert_eq!(moment(1_700_000_000_120_000_000), "2023-11-14T22:13:20.12Z");
        assert_eq!(plain_moment(120_000_000), "1970-01-01 00:00:00.12 +0000 UTC");
    }

    #[test]
    fn templates_have_upstream_s_functions() {
        let value = serde_json::json!({ "status": { "id": "x" } });
        assert_eq!(execute("{{.status.id}}", &value).unwrap(), b"x");
        assert_eq!(execute("{{json .status}}", &value).unwrap(), b"{\"id\":\"x\"}\n");
        let fault = |text| execute(text, &value).unwrap_err().message().unwrap();
        assert!(fault("{{.bogus}}").contains("map has no entry for key \"bogus\""));
        assert!(fault("{{").starts_with("failed to generate go-template: "));
        assert!(check_template("{{x}}").is_err());
    }
}
