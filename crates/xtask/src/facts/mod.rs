//! `cargo xtask facts PATH`: regenerates the table of schema facts from the published API
//! definitions, the Go types below `PATH` (a Kubernetes source tree). Only facts are taken:
//! names, numbers, types and markers; no prose. A second table has the names of Go's own types.
mod go;
mod shapes;

use go::{Definition, GoField, GoPackage};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// Where API types live below `staging/src/k8s.io`; `*` stands for one folder.
const SOURCES: &[&str] = &[
    "apimachinery/pkg/types",
    "apimachinery/pkg/apis/meta/v1",
    "api/*/*",
    "apiextensions-apiserver/pkg/apis/apiextensions/v1",
    "kube-aggregator/pkg/apis/apiregistration/v1",
    "metrics/pkg/apis/metrics/v1beta1",
    "metrics/pkg/apis/metrics/v1",
    "metrics/pkg/apis/custom_metrics/v1beta2",
    "metrics/pkg/apis/external_metrics/v1beta1",
    "apiserver/pkg/apis/audit/v1",
];

/// Go types that are scalars of the table.
const SCALARS: &[(&str, &str)] = &[
    ("string", "string"),
    ("bool", "bool"),
    ("int", "int32"),
    ("int32", "int32"),
    ("int64", "int64"),
    ("uint64", "int64"),
    ("float64", "double"),
    ("[]byte", "bytes"),
    ("interface{}", "JSON"),
    ("k8s.io/apimachinery/pkg/api/resource.Quantity", "Quantity"),
    ("k8s.io/apimachinery/pkg/util/intstr.IntOrString", "IntOrString"),
    ("k8s.io/apimachinery/pkg/runtime.RawExtension", "RawExtension"),
    ("k8s.io/apimachinery/pkg/runtime.Unknown", "RawExtension"),
    ("k8s.io/apimachinery/pkg/apis/meta/v1.Time", "Time"),
    ("k8s.io/apimachinery/pkg/apis/meta/v1.MicroTime", "MicroTime"),
    ("k8s.io/apimachinery/pkg/apis/meta/v1.Duration", "Duration"),
    ("k8s.io/apimachinery/pkg/apis/meta/v1.FieldsV1", "FieldsV1"),
    ("k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSON", "JSON"),
];

const EITHERS: &[(&str, &str)] = &[
    ("JSONSchemaPropsOrBool", "bool"),
    ("JSONSchemaPropsOrArray", "list"),
    ("JSONSchemaPropsOrStringArray", "strings"),
];

/// The two tables.
pub struct Facts {
    pub schema: String,
    pub shapes: String,
}

pub fn generate(root: &Path) -> Result<Facts, String> {
    let mut packages: BTreeMap<String, GoPackage> = BTreeMap::new();
    let base = root.join("staging/src/k8s.io");
    for source in SOURCES {
        for folder in expand(&base, source) {
            let package = read_package(&base.join(&folder))?;
            packages.insert(format!("k8s.io/{folder}"), package);
        }
    }
    let writer = Writer { packages: &packages };
    let mut table = String::new();
    for path in packages.keys() {
        writer.package(path, &mut table)?;
    }
    Ok(Facts { schema: table, shapes: shapes::table(&packages)? })
}

fn expand(base: &Path, pattern: &str) -> Vec<String> {
    let Some(prefix) = pattern.strip_suffix("/*/*") else { return vec![pattern.to_owned()] };
    let mut found = Vec::new();
    for group in folders(&base.join(prefix)) {
        for version in folders(&base.join(prefix).join(&group)) {
            if version.starts_with('v') {
                found.push(format!("{prefix}/{group}/{version}"));
            }
        }
    }
    found
}

fn folders(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn read_package(folder: &Path) -> Result<GoPackage, String> {
    let mut package = GoPackage::default();
    let entries = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let generated = name.contains("generated") || name.ends_with("_test.go");
        if name.ends_with(".go") && !generated {
            let source = std::fs::read_to_string(&file).map_err(|e| format!("{name}: {e}"))?;
            package.read(&source);
        }
    }
    Ok(package)
}

/// Whether a list that is a type travels as a message of its own.
fn is_message(markers: &[String]) -> bool {
    markers.iter().any(|m| m.starts_with("protobuf.nullable"))
}

/// `k8s.io/api/core/v1` → `core/v1`, as the table calls it.
fn short(path: &str) -> String {
    let parts: Vec<&str> = path.rsplitn(3, '/').collect();
    match parts[..] {
        [version, group, _] if version.starts_with('v') => format!("{group}/{version}"),
        [last, ..] => last.to_owned(),
        [] => String::new(),
    }
}

struct Writer<'a> {
    packages: &'a BTreeMap<String, GoPackage>,
}

/// The package whose source names a type, and the package of the table where it is written: they
/// differ for a struct that is another package's under a new name (`core/v1.List`).
#[derive(Clone, Copy)]
struct Scope<'a> {
    source: &'a str,
    table: &'a str,
}

impl Writer<'_> {
    fn package(&self, path: &str, out: &mut String) -> Result<(), String> {
        let scope = Scope { source: path, table: path };
        let package = &self.packages[path];
        let name = short(path);
        let openapi = package.openapi.clone().unwrap_or_else(|| {
            // `k8s.io/api/admission/v1` → `io.k8s.api.admission.v1`.
            path.replacen("k8s.io", "io.k8s", 1).replace('/', ".")
        });
        let _ = write!(out, "package {name} {openapi}");
        if let Some(group) = package.group.as_ref().filter(|_| name != "meta/v1") {
            let _ = write!(out, " group={group}");
        }
        out.push('\n');
        for (type_name, ty) in &package.types {
            let full = format!("{path}.{type_name}");
            if SCALARS.iter().any(|(go, _)| *go == full) || type_name == "TypeMeta" {
                continue;
            }
            if let Some((_, which)) = EITHERS.iter().find(|(name, _)| name == type_name) {
                let _ = writeln!(out, "either {type_name} {which}");
                continue;
            }
            match &ty.definition {
                Definition::Alias(_) => {}
                Definition::Struct(fields) => {
                    if fields.iter().any(|field| field.tags.contains_key("json"))
                        || fields.is_empty()
                    {
                        self.structure(scope, type_name, &ty.markers, fields, out)?;
                    }
                }
                Definition::Of(target) => {
                    self.derived(scope, type_name, target, &ty.markers, out)?;
                }
            }
        }
        Ok(())
    }

    /// `type A string`, `type A []B`, `type A map[K]V`, or another struct under a new name.
    fn derived(
        &self,
        scope: Scope<'_>,
        name: &str,
        target: &str,
        markers: &[String],
        out: &mut String,
    ) -> Result<(), String> {
        let path = scope.source;
        let Some(word) = self.type_word(scope, target) else { return Ok(()) };
        if word.starts_with("[]") {
            if is_message(markers) {
                let _ = writeln!(out, "list {name} {word}");
            }
        } else if word.starts_with('{') {
            let _ = writeln!(out, "map {name} {word}");
        } else if SCALARS.iter().any(|(_, scalar)| *scalar == word) {
            let _ = write!(out, "scalar {name} {word}");
            if markers.iter().any(|m| m == "enum") {
                let mut values: Vec<&str> = self.packages[path]
                    .constants
                    .iter()
                    .filter(|(ty, _, _)| ty == name)
                    .map(|(_, _, value)| value.as_str())
                    .collect();
                values.sort_unstable();
                values.dedup();
                for value in values {
                    // An empty value cannot be a word of the table; it is written as two quotes.
                    let _ = write!(out, " {}", if value.is_empty() { "\"\"" } else { value });
                }
            }
            out.push('\n');
        } else if let Some((owner, structure)) = self.lookup(path, target)
            && let Some(target) = self.packages.get(&owner).and_then(|p| p.types.get(&structure))
            && let Definition::Struct(fields) = &target.definition
        {
            self.structure(Scope { source: &owner, ..scope }, name, markers, fields, out)?;
        }
        Ok(())
    }

    fn structure(
        &self,
        scope: Scope<'_>,
        name: &str,
        markers: &[String],
        fields: &[GoField],
        out: &mut String,
    ) -> Result<(), String> {
        let marked = |marker: &str| markers.iter().any(|m| m == marker);
        let atomic = if marked("structType=atomic") { " atomic" } else { "" };
        let union = if marked("union") { " union" } else { "" };
        let _ = writeln!(out, "struct {name}{atomic}{union}");
        for field in fields {
            self.field(scope, field, out).map_err(|e| format!("{}.{name}: {e}", scope.table))?;
        }
        Ok(())
    }

    fn field(&self, scope: Scope<'_>, field: &GoField, out: &mut String) -> Result<(), String> {
        let json = field.tags.get("json").map_or("", String::as_str);
        let mut options = json.split(',');
        let json_name = options.next().unwrap_or("");
        let options: Vec<&str> = options.collect();
        if json_name == "-" {
            return Ok(());
        }
        let number: u32 = field
            .tags
            .get("protobuf")
            .and_then(|tag| tag.split(',').nth(1))
            .and_then(|number| number.parse().ok())
            .unwrap_or(0);
        if field.name.is_none() && json_name.is_empty() {
            if field.ty.ends_with("TypeMeta") {
                out.push_str("  kind 0 string\n  apiVersion 0 string\n");
            } else {
                let ty = self.type_word(scope, &field.ty).ok_or(format!("no type {}", field.ty))?;
                let _ = writeln!(out, "  + {ty} {number}");
            }
            return Ok(());
        }
        let ty = self.type_word(scope, &field.ty).ok_or(format!("no type {}", field.ty))?;
        let json_name =
            if json_name.is_empty() { field.name.as_deref().unwrap_or("") } else { json_name };
        let _ = write!(out, "  {json_name} {number} {ty}");
        if options.contains(&"omitzero") {
            out.push_str(" omitzero");
        } else if !options.contains(&"omitempty") {
            out.push_str(" keep");
        }
        let marked = |marker: &str| field.markers.iter().any(|m| m == marker);
        if marked("required") || !marked("optional") && !options.contains(&"omitempty") {
            out.push_str(" required");
        }
        self.markers(scope.source, field, out);
        out.push('\n');
        Ok(())
    }

    fn markers(&self, path: &str, field: &GoField, out: &mut String) {
        let marker = |name: &str| {
            field
                .markers
                .iter()
                .find_map(|m| m.strip_prefix(name).and_then(|m| m.strip_prefix('=')))
        };
        if field.markers.iter().any(|m| m == "nullable") {
            out.push_str(" nullable");
        }
        if field.markers.iter().any(|m| m == "unionDiscriminator") {
            out.push_str(" discriminator");
        }
        if let Some(default) = marker("default") {
            let value = match default.strip_prefix("ref(").and_then(|d| d.strip_suffix(')')) {
                Some(constant) => self.constant(path, constant),
                None => serde_json::from_str(default).ok(),
            };
            if let Some(value) = value {
                let _ = write!(out, " default={value}");
            }
        }
        match marker("listType") {
            Some("set") => out.push_str(" list=set"),
            Some("map") => {
                let keys: Vec<&str> = field
                    .markers
                    .iter()
                    .filter_map(|m| m.strip_prefix("listMapKey="))
                    .map(|key| key.trim_matches('"'))
                    .collect();
                let _ = write!(out, " list=map:{}", keys.join(","));
            }
            Some("atomic") => out.push_str(" list=atomic"),
            _ => {}
        }
        match marker("mapType").or_else(|| marker("structType")) {
            Some("atomic") => out.push_str(" atomic"),
            Some("granular") => out.push_str(" granular"),
            _ => {}
        }
        if let Some(strategy) = field.tags.get("patchStrategy") {
            let _ = write!(out, " patch={strategy}");
            if let Some(key) = field.tags.get("patchMergeKey") {
                let _ = write!(out, ":{key}");
            }
        }
    }

    fn constant(&self, path: &str, name: &str) -> Option<serde_json::Value> {
        let (_, _, value) = self.packages[path].constants.iter().find(|(_, n, _)| n == name)?;
        Some(value.as_str().into())
    }

    /// A Go type as a word of the table, seen from `scope`.
    fn type_word(&self, scope: Scope<'_>, go: &str) -> Option<String> {
        if let Some((_, scalar)) = SCALARS.iter().find(|(name, _)| *name == go) {
            return Some((*scalar).to_owned());
        }
        if let Some(target) = go.strip_prefix('*') {
            return Some(format!("*{}", self.type_word(scope, target)?));
        }
        if let Some(element) = go.strip_prefix("[]") {
            return Some(format!("[]{}", self.type_word(scope, element)?.trim_start_matches('*')));
        }
        if let Some((key, value)) = go.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
            let value = self.type_word(scope, value)?;
            return Some(match self.type_word(scope, key)?.as_str() {
                "string" => format!("{{{value}}}"),
                key => format!("{{{key}:{value}}}"),
            });
        }
        let (owner, name) = self.lookup(scope.source, go)?;
        let full = format!("{owner}.{name}");
        if let Some((_, scalar)) = SCALARS.iter().find(|(go, _)| *go == full) {
            return Some((*scalar).to_owned());
        }
        // A list's kind is the field's affair, so a name for a list is written out; but for those
        // that are messages.
        if let Some(ty) = self.packages.get(&owner).and_then(|p| p.types.get(&name))
            && let Definition::Of(target) = &ty.definition
            && target.starts_with("[]")
            && !is_message(&ty.markers)
        {
            return self.type_word(Scope { source: &owner, ..scope }, target);
        }
        Some(if owner == scope.table { name } else { format!("{}.{name}", short(&owner)) })
    }

    /// The package and name of the type that `go` names; `type A = B` is followed.
    fn lookup(&self, path: &str, go: &str) -> Option<(String, String)> {
        let (owner, name) = match go.split_once('.') {
            Some((alias, name)) => (self.packages[path].imports.get(alias)?.as_str(), name),
            None => (path, go),
        };
        if let Some(package) = self.packages.get(owner)
            && let Definition::Alias(target) = &package.types.get(name)?.definition
        {
            return self.lookup(owner, target);
        }
        Some((owner.to_owned(), name.to_owned()))
    }
}
