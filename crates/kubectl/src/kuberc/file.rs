//! A file of preferences: the first document that is one, in either version, and what is wrong with it.
use super::{Alias, Defaults, Preference};
use crate::print::io_text;
use api::codec::yaml;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

const API_VERSION: &str = "kubectl.config.k8s.io/v1beta1";
const OLDER: &str = "kubectl.config.k8s.io/v1alpha1";
const KIND: &str = "Preference";
/// No preferences are longer.
const LONGEST: u64 = 4 << 20;

/// A flag and what it means where it is not typed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Setting {
    pub name: String,
    pub value: String,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}", io_text(&.0.display().to_string(), .1))]
    Read(PathBuf, #[source] std::io::Error),
    #[error("no valid preferences found in {}, use --v=5 to see details", .0.display())]
    NoPreference(PathBuf),
    #[error("{} is larger than {LONGEST} bytes", .0.display())]
    TooLong(PathBuf),
}

impl Error {
    pub fn is_missing(&self) -> bool {
        matches!(self, Error::Read(_, source) if source.kind() == std::io::ErrorKind::NotFound)
    }
}

/// What the file says, and what strict decoding says of it; none if there is nothing in it.
pub fn load(path: &Path) -> Result<Option<(Preference, String)>, Error> {
    use std::io::Read;
    let failed = |source| Error::Read(path.to_owned(), source);
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(LONGEST + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > LONGEST {
        return Err(Error::TooLong(path.to_owned()));
    }
    let text = String::from_utf8_lossy(&bytes);
    let mut is_empty = true;
    for document in documents(&text) {
        is_empty = false;
        if let Some(found) = decode(&document) {
            return Ok(Some(found));
        }
    }
    if is_empty { Ok(None) } else { Err(Error::NoPreference(path.to_owned())) }
}

/// What stands between lines that begin with dashes; one that is all comment is a document, as upstream has it.
fn documents(text: &str) -> impl Iterator<Item = String> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let parts: Vec<String> =
        lines.split(|line| line.starts_with("---")).map(<[&str]>::concat).collect();
    parts.into_iter().filter(|part| !part.trim().is_empty())
}

fn decode(document: &str) -> Option<(Preference, String)> {
    let decoded = yaml::decode_untyped(document.as_bytes()).ok()?;
    let tree = decoded.value.as_object()?;
    let is_older = match tree.get("apiVersion")?.as_str()? {
        API_VERSION => false,
        OLDER => true,
        _ => return None,
    };
    if tree.get("kind")?.as_str()? != KIND {
        return None;
    }
    let mut reader = Reader { unknown: Vec::new() };
    let preference = reader.preference(tree, is_older)?;
    let mut problems: Vec<String> =
        decoded.problems.iter().map(|problem| problem.to_string()).collect();
    // In the order of JSON that was made of YAML.
    reader.unknown.sort();
    problems.extend(reader.unknown.iter().map(|path| format!("unknown field {path:?}")));
    let problems = match &problems[..] {
        [] => String::new(),
        all => format!("strict decoding error: {}", all.join(", ")),
    };
    Some((preference, problems))
}

/// Reads fields by their types: none where one has another, and the paths of those that nobody knows.
struct Reader {
    unknown: Vec<String>,
}

type Fields = Map<String, Value>;

impl Reader {
    fn preference(&mut self, tree: &Fields, is_older: bool) -> Option<Preference> {
        let (defaults, options) =
            if is_older { ("overrides", "flags") } else { ("defaults", "options") };
        let mut known = vec!["apiVersion", "kind", "aliases", defaults];
        if !is_older {
            known.extend(["credentialPluginPolicy", "credentialPluginAllowlist"]);
        }
        self.check(tree, &known, "");
        let mut preference = Preference {
            aliases: self.list(tree, "aliases", "", |reader, alias, path| {
                let known = ["name", "command", "prependArgs", "appendArgs", options];
                reader.check(alias, &known, path);
                Some(Alias {
                    name: text(alias, "name")?,
                    command: text(alias, "command")?,
                    prepended: texts(alias, "prependArgs")?,
                    appended: texts(alias, "appendArgs")?,
                    options: reader.settings(alias, options, path)?,
                })
            })?,
            defaults: self.list(tree, defaults, "", |reader, defaults, path| {
                reader.check(defaults, &["command", options], path);
                Some(Defaults {
                    command: text(defaults, "command")?,
                    options: reader.settings(defaults, options, path)?,
                })
            })?,
            ..Preference::default()
        };
        if !is_older {
            preference.policy = text(tree, "credentialPluginPolicy")?;
            let list = "credentialPluginAllowlist";
            preference.allowlist = self.list(tree, list, "", |reader, entry, path| {
                reader.check(entry, &["name", "command"], path);
                // The name is the command's older name.
                match (text(entry, "name")?, text(entry, "command")?) {
                    (name, command) if command.is_empty() => Some(name),
                    (name, command) if name.is_empty() || name == command => Some(command),
                    _ => None,
                }
            })?;
        }
        Some(preference)
    }

    fn settings(&mut self, of: &Fields, name: &str, path: &str) -> Option<Option<Vec<Setting>>> {
        self.list(of, name, path, |reader, option, path| {
            reader.check(option, &["name", "default"], path);
            Some(Setting { name: text(option, "name")?, value: text(option, "default")? })
        })
    }

    /// None for what is no list of such items; none in it for a list that is not there.
    fn list<T>(
        &mut self,
        of: &Fields,
        name: &str,
        path: &str,
        read: impl Fn(&mut Reader, &Fields, &str) -> Option<T>,
    ) -> Option<Option<Vec<T>>> {
        let items = match of.get(name) {
            None | Some(Value::Null) => return Some(None),
            Some(Value::Array(items)) => items,
            Some(_) => return None,
        };
        let mut all = Vec::new();
        let nothing = Fields::new();
        for (at, item) in items.iter().enumerate() {
            let path = join(path, &format!("{name}[{at}]"));
            let item = match item {
                Value::Object(fields) => fields,
                Value::Null => &nothing,
                _ => return None,
            };
            all.push(read(self, item, &path)?);
        }
        Some(Some(all))
    }

    fn check(&mut self, fields: &Fields, known: &[&str], path: &str) {
        let names = fields.keys().filter(|name| !known.contains(&name.as_str()));
        self.unknown.extend(names.map(|name| join(path, name)));
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn text(of: &Fields, name: &str) -> Option<String> {
    match of.get(name) {
        None | Some(Value::Null) => Some(String::new()),
        Some(Value::String(text)) => Some(text.clone()),
        Some(_) => None,
    }
}

fn texts(of: &Fields, name: &str) -> Option<Option<Vec<String>>> {
    match of.get(name) {
        None | Some(Value::Null) => Some(None),
        Some(Value::Array(items)) => {
            let texts = items.iter().map(|item| match item {
                Value::Null => Some(String::new()),
                item => item.as_str().map(str::to_owned),
            });
            texts.collect::<Option<Vec<String>>>().map(Some)
        }
        Some(_) => None,
    }
}

impl Preference {
    /// As it is written: always in the newer version.
    pub fn tree(&self) -> Value {
        let settings = |options: &[Setting]| {
            let all = options.iter();
            all.map(|option| json!({ "name": option.name, "default": option.value }))
                .collect::<Vec<_>>()
        };
        let aliases = self.aliases.as_ref().map(|all| {
            let trees = all.iter().map(|alias| {
                let mut tree = json!({ "name": alias.name, "command": alias.command });
                let lists = [("prependArgs", &alias.prepended), ("appendArgs", &alias.appended)];
                for (name, list) in lists {
                    if let Some(list) = list.as_ref().filter(|list| !list.is_empty()) {
                        tree[name] = json!(list);
                    }
                }
                if let Some(options) = alias.options.as_ref().filter(|all| !all.is_empty()) {
                    tree["options"] = settings(options).into();
                }
                tree
            });
            trees.collect::<Vec<_>>()
        });
        let defaults = self.defaults.as_ref().map(|all| {
            let trees = all.iter().map(|defaults| {
                json!({ "command": defaults.command, "options": defaults.options.as_deref().map(settings) })
            });
            trees.collect::<Vec<_>>()
        });
        let mut tree = json!({ "apiVersion": API_VERSION, "kind": KIND, "aliases": aliases,
            "defaults": defaults });
        if !self.policy.is_empty() {
            tree["credentialPluginPolicy"] = self.policy.clone().into();
        }
        if let Some(list) = self.allowlist.as_ref().filter(|list| !list.is_empty()) {
            tree["credentialPluginAllowlist"] =
                list.iter().map(|command| json!({ "command": command })).collect();
        }
        tree
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("kuberc");
        std::fs::write(&path, text).expect("it is written");
        let said = match load(&path) {
            Ok(None) => "nothing".to_owned(),
            Ok(Some((preference, problems))) => {
                format!("{}{problems}", yaml::encode(&preference.tree()))
            }
            Err(error) => error.to_string().replace(&path.display().to_string(), "FILE"),
        };
        assert_eq!(said, expected, "{text}");
    }

    const HEAD: &str = "apiVersion: kubectl.config.k8s.io/v1beta1\nkind: Preference\n";
    const NONE: &str = "no valid preferences found in FILE, use --v=5 to see details";

    #[test]
    fn both_versions_are_read_and_the_newer_one_is_written() {
        check(
            "apiVersion: kubectl.config.k8s.io/v1alpha1\nkind: Preference\noverrides:\n- command: get\n  \
             flags: [{name: output, default: wide}]\naliases:\n- {name: k, command: get, prependArgs: [pods]}\n",
            "aliases:\n- command: get\n  name: k\n  prependArgs:\n  - pods\napiVersion: \
             kubectl.config.k8s.io/v1beta1\ndefaults:\n- command: get\n  options:\n  - default: wide\n    name: \
             output\nkind: Preference\n",
        );
        let list = format!(
            "{HEAD}credentialPluginPolicy: Allowlist\ncredentialPluginAllowlist: [{{name: a}}]"
        );
        check(
            &list,
            "aliases: null\napiVersion: kubectl.config.k8s.io/v1beta1\ncredentialPluginAllowlist:\n- command: \
             a\ncredentialPluginPolicy: Allowlist\ndefaults: null\nkind: Preference\n",
        );
    }

    #[test]
    fn the_first_document_that_is_one_counts_and_others_are_passed_by() {
        let aliases = "aliases: null\napiVersion: kubectl.config.k8s.io/v1beta1\ndefaults: null\nkind: Preference\n";
        check(&format!("apiVersion: v1\nkind: Pod\n---\n{HEAD}---\n{HEAD}defaults: 7"), aliases);
        check("", "nothing");
        check("\n---\n \n", "nothing");
        check("# words\n", NONE);
        check("apiVersion: v1\nkind: Pod\n", NONE);
        check(&format!("{HEAD}aliases: 7"), NONE);
        check(
            &format!("{HEAD}defaults: [{{command: get, options: [{{name: a, default: true}}]}}]"),
            NONE,
        );
        check(&format!("{HEAD}credentialPluginAllowlist: [{{name: a, command: b}}]"), NONE);
        check("{{{{", NONE);
    }

    #[test]
    fn what_nobody_knows_is_told() {
        check(
            &format!("{HEAD}more: 1\naliases: [{{name: a, bogus: 2}}]\n"),
            "aliases:\n- command: \"\"\n  name: a\napiVersion: kubectl.config.k8s.io/v1beta1\ndefaults: \
             null\nkind: Preference\nstrict decoding error: unknown field \"aliases[0].bogus\", \
             unknown field \"more\"",
        );
    }
}
