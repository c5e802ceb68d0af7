//! `-o custom-columns`: a header and a path each.
use super::jsonpath::{Template, go_value};
use super::tabs::Tabs;
use crate::failure::Outcome;
use serde_json::Value;

#[derive(Debug)]
pub struct Columns {
    headers: Vec<String>,
    paths: Vec<Template>,
    with_headers: bool,
    tabs: Tabs,
}

impl Columns {
    /// `NAME:.metadata.name,IMAGE:.spec.image`
    pub fn parse(spec: &str, with_headers: bool) -> Outcome<Columns> {
        if spec.is_empty() {
            return Err("custom-columns format specified but no custom columns given".into());
        }
        let (mut headers, mut paths) = (Vec::new(), Vec::new());
        for part in spec.split(',') {
            let Some((header, path)) = part.split_once(':') else {
                return Err(format!(
                    "unexpected custom-columns spec: {part}, expected <header>:<json-path-expr>"
                )
                .into());
            };
            headers.push(header.to_owned());
            paths.push(Template::relaxed(path)?);
        }
        Ok(Columns { headers, paths, with_headers, tabs: Tabs::default() })
    }

    /// A file whose first line has the headers and whose second the paths below them.
    pub fn from_file(text: &str, with_headers: bool) -> Outcome<Columns> {
        let mut lines = text.lines();
        let words = |line: Option<&str>| -> Vec<String> {
            line.unwrap_or_default().split_whitespace().map(str::to_owned).collect()
        };
        let (headers, paths) = (words(lines.next()), words(lines.next()));
        if headers.len() != paths.len() || headers.is_empty() {
            return Err(format!(
                "number of headers ({}) and field specifications ({}) don't match",
                headers.len(),
                paths.len()
            )
            .into());
        }
        let paths: Outcome<Vec<Template>> = paths.iter().map(|p| Template::relaxed(p)).collect();
        Ok(Columns { headers, paths: paths?, with_headers, tabs: Tabs::default() })
    }

    /// Lines for an object, or for the items of a list; headers come first, once.
    pub fn lines(&mut self, object: &Value) -> Outcome<String> {
        let mut rows = Vec::new();
        if std::mem::take(&mut self.with_headers) {
            rows.push(self.headers.clone());
        }
        match object["items"].as_array() {
            Some(items) if object["kind"].as_str().is_some_and(|kind| kind.ends_with("List")) => {
                for item in items {
                    rows.push(self.row(item)?);
                }
            }
            _ => rows.push(self.row(object)?),
        }
        Ok(self.tabs.lines(&rows))
    }

    fn row(&self, object: &Value) -> Outcome<Vec<String>> {
        let cells = self.paths.iter().map(|path| {
            let values = path.values(object).unwrap_or_default();
            if values.is_empty() {
                return "<none>".to_owned();
            }
            let texts: Vec<String> = values.iter().map(|value| go_value(value)).collect();
            texts.join(",")
        });
        Ok(cells.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn columns_are_paths_below_headers() {
        let list = json!({ "kind": "List", "items": [
            { "metadata": { "name": "a" }, "spec": { "c": [{ "i": "x" }, { "i": "y" }] } },
            { "metadata": { "name": "b" } } ] });
        let mut columns = Columns::parse("NAME:.metadata.name,I:spec.c[*].i", true).unwrap();
        assert_eq!(columns.lines(&list).unwrap(), "NAME   I\na      x,y\nb      <none>\n");
        let wrong = Columns::parse("NAME", true).unwrap_err().message();
        assert_eq!(
            wrong,
            "error: unexpected custom-columns spec: NAME, expected <header>:<json-path-expr>"
        );
    }
}
