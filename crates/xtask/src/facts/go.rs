//! Reads the API types out of Go source: just enough Go for files that hold only declarations.
use std::collections::BTreeMap;

/// One package's declarations.
#[derive(Default)]
pub struct GoPackage {
    /// From the package comment (`+groupName=`) or the constant `GroupName`.
    pub group: Option<String>,
    /// `+k8s:openapi-model-package=`.
    pub openapi: Option<String>,
    pub types: BTreeMap<String, GoType>,
    /// Typed string constants: (type, name, value).
    pub constants: Vec<(String, String, String)>,
    /// Import alias → path, over all files: API packages alias consistently.
    pub imports: BTreeMap<String, String>,
}

pub struct GoType {
    pub definition: Definition,
    /// The `+marker` lines of its comment, without the plus.
    pub markers: Vec<String>,
}

pub enum Definition {
    Struct(Vec<GoField>),
    /// `type A B`: a new type with B's shape.
    Of(String),
    /// `type A = B`: another name for B.
    Alias(String),
}

pub struct GoField {
    /// `None` when embedded.
    pub name: Option<String>,
    pub ty: String,
    pub tags: BTreeMap<String, String>,
    pub markers: Vec<String>,
}

impl GoPackage {
    pub fn read(&mut self, source: &str) {
        let mut comment: Vec<String> = Vec::new();
        let mut lines = source.lines();
        while let Some(line) = lines.next() {
            let line = line.trim();
            if let Some(text) = line.strip_prefix("//") {
                comment.extend(text.trim().strip_prefix('+').map(str::to_owned));
                continue;
            }
            if line.starts_with("package ") {
                self.read_package_comment(&comment);
            } else if line == "import (" {
                for line in lines.by_ref().map(str::trim).take_while(|line| *line != ")") {
                    self.read_import(line);
                }
            } else if let Some(line) = line.strip_prefix("import ") {
                self.read_import(line);
            } else if line == "const (" {
                for line in lines.by_ref().map(str::trim).take_while(|line| *line != ")") {
                    self.read_constant(line);
                }
            } else if let Some(line) = line.strip_prefix("const ") {
                self.read_constant(line);
            } else if line.starts_with("func ") && !line.ends_with('}') {
                for _ in lines.by_ref().take_while(|line| *line != "}") {}
            } else if let Some(declaration) = line.strip_prefix("type ") {
                let markers = std::mem::take(&mut comment);
                if let Some((name, definition)) = read_type(declaration, &mut lines) {
                    self.types.insert(name, GoType { definition, markers });
                }
            }
            comment.clear();
        }
    }

    fn read_package_comment(&mut self, comment: &[String]) {
        for marker in comment {
            if let Some(group) = marker.strip_prefix("groupName=") {
                self.group = Some(group.to_owned());
            }
            if let Some(openapi) = marker.strip_prefix("k8s:openapi-model-package=") {
                self.openapi = Some(openapi.to_owned());
            }
        }
    }

    fn read_import(&mut self, line: &str) {
        let Some((alias, rest)) = line.split_once('"') else { return };
        let path = rest.trim_end_matches('"');
        let base = path.rsplit('/').next().unwrap_or(path);
        let alias = if alias.trim().is_empty() { base } else { alias.trim() };
        self.imports.insert(alias.to_owned(), path.to_owned());
    }

    /// `Name Type = "value"`; untyped and computed constants are of no interest, but for the
    /// group's name.
    fn read_constant(&mut self, line: &str) {
        let Some((left, value)) = line.split_once('=') else { return };
        let Some(value) = value.trim().strip_prefix('"').and_then(|v| v.split('"').next()) else {
            return;
        };
        match left.split_whitespace().collect::<Vec<_>>()[..] {
            [name, ty] => self.constants.push((ty.into(), name.into(), value.into())),
            ["GroupName"] => self.group = Some(value.into()),
            _ => {}
        }
    }
}

fn read_type<'a>(
    declaration: &str,
    lines: &mut impl Iterator<Item = &'a str>,
) -> Option<(String, Definition)> {
    let (name, rest) = declaration.split_once(' ')?;
    let rest = rest.split("//").next()?.trim();
    let definition = match rest {
        "struct {" => Definition::Struct(read_fields(lines)),
        "struct{}" | "struct {}" => Definition::Struct(Vec::new()),
        _ if rest.starts_with("interface") => {
            if rest.ends_with('{') {
                for _ in lines.by_ref().take_while(|line| *line != "}") {}
            }
            return None;
        }
        _ => match rest.strip_prefix("= ") {
            Some(target) => Definition::Alias(target.to_owned()),
            None => Definition::Of(rest.to_owned()),
        },
    };
    Some((name.to_owned(), definition))
}

fn read_fields<'a>(lines: &mut impl Iterator<Item = &'a str>) -> Vec<GoField> {
    let mut fields = Vec::new();
    let mut markers: Vec<String> = Vec::new();
    for line in lines {
        let line = line.trim();
        if line == "}" {
            break;
        }
        if let Some(text) = line.strip_prefix("//") {
            markers.extend(text.trim().strip_prefix('+').map(str::to_owned));
            continue;
        }
        if let Some((declaration, tags)) = line.split_once('`') {
            let tags = read_tags(tags.split('`').next().unwrap_or(""));
            let (name, ty) = match declaration.split_whitespace().collect::<Vec<_>>()[..] {
                [ty] => (None, ty),
                [name, ty] => (Some(name.to_owned()), ty),
                _ => continue,
            };
            let markers = std::mem::take(&mut markers);
            fields.push(GoField { name, ty: ty.to_owned(), tags, markers });
        }
        markers.clear();
    }
    fields
}

/// `json:"a,omitempty" protobuf:"bytes,1"` → its parts.
fn read_tags(text: &str) -> BTreeMap<String, String> {
    let mut tags = BTreeMap::new();
    let mut rest = text;
    while let Some((key, after)) = rest.split_once(":\"") {
        let Some((value, after)) = after.split_once('"') else { break };
        tags.insert(key.trim().to_owned(), value.to_owned());
        rest = after;
    }
    tags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_structs_scalars_and_constants() {
        let mut package = GoPackage::default();
        package.read(
            r#"
// +groupName=apps
package v1

import (
	core "k8s.io/api/core/v1"
)

// Mode says how.
// +enum
type Mode string

const (
	// Fast is fast.
	Fast Mode = "Fast"
)

type Thing struct {
	core.TypeMeta `json:",inline"`

	// name is its name.
	// +optional
	Name *string `json:"name,omitempty" protobuf:"bytes,2,opt,name=name"`
}
"#,
        );
        assert_eq!(package.group.as_deref(), Some("apps"));
        assert_eq!(package.imports["core"], "k8s.io/api/core/v1");
        assert_eq!(package.types["Mode"].markers, ["enum"]);
        assert_eq!(package.constants, [("Mode".into(), "Fast".into(), "Fast".into())]);
        let Definition::Struct(fields) = &package.types["Thing"].definition else { panic!() };
        assert_eq!(fields[0].name, None);
        assert_eq!(fields[1].ty, "*string");
        assert_eq!(fields[1].tags["protobuf"], "bytes,2,opt,name=name");
        assert_eq!(fields[1].markers, ["optional"]);
    }
}
