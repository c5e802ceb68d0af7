//! What the sources themselves keep: the order of the layers, and that no code tells a kind by its bare
//! name. Both are checked by reading them.
use std::fs;
use std::path::{Path, PathBuf};

/// The layers, each of which may use those that follow it and itself.
const LAYERS: [&str; 11] = [
    "doors",     // where requests come in: HTTP, and within the process
    "pass",      // what others answer
    "verbs",     // get, list, watch, create, update, patch, delete
    "admission", // what may be written, and as what
    "extend",    // what others bring: definitions, conversion
    "asked",     // a request that may be done, with all that came with it
    "guard",     // who asks, whether he may, whose turn it is, what is recorded
    "answer",    // how an answer leaves
    "state",     // what is kept, and how
    "call",      // what is asked for
    "ground",    // files, certificates, clients, turns
];

/// What puts the layers together, and so knows them all. The handle ([`crate::server`]) may be named by
/// each of them, because it goes with every request.
const ABOVE: [&str; 5] = ["bootstrap", "lib", "server", "testing", "tidy"];

struct Source {
    path: PathBuf,
    /// The folder or file below `src` that it is in.
    place: String,
    /// Without comments and tests.
    code: String,
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut folders = vec![root.clone()];
    let mut all = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let inner = path.strip_prefix(&root).expect("it is below");
            let is_test = inner.ends_with("tests.rs");
            if path.extension().is_none_or(|ending| ending != "rs") || is_test {
                continue;
            }
            let first = inner.components().next().expect("a name").as_os_str();
            let place = first.to_string_lossy().trim_end_matches(".rs").to_owned();
            let code = code_of(&fs::read_to_string(&path).expect("a source"));
            all.push(Source { path: inner.to_owned(), place, code });
        }
    }
    all.sort_by(|one, other| one.path.cmp(&other.path));
    all
}

fn code_of(text: &str) -> String {
    let shipped = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines = shipped.lines().map(|line| match line.trim_start().starts_with("//") {
        true => "",
        false => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// What a source names of its own crate: the first part of each path.
fn named(code: &str) -> Vec<String> {
    let mut all = Vec::new();
    for (at, start) in code.match_indices("crate::") {
        if code[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_') {
            continue;
        }
        let rest = &code[at + start.len()..];
        match rest.strip_prefix('{') {
            None => all.push(word(rest)),
            Some(group) => {
                let mut depth = 0;
                let mut begins = true;
                for (at, letter) in group.char_indices() {
                    match letter {
                        '{' => depth += 1,
                        '}' if depth == 0 => break,
                        '}' => depth -= 1,
                        ',' if depth == 0 => begins = true,
                        _ if begins && letter.is_alphanumeric() => {
                            all.push(word(&group[at..]));
                            begins = false;
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    all
}

fn word(text: &str) -> String {
    text.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect()
}

#[test]
fn layers_use_only_what_is_below_them() {
    let order = |place: &str| LAYERS.iter().position(|layer| *layer == place);
    let mut faults = Vec::new();
    let mut arrows = 0;
    for Source { path, place, code } in sources() {
        if ABOVE.contains(&place.as_str()) {
            continue;
        }
        let Some(own) = order(&place) else {
            faults.push(format!("{}: {place} is no layer", path.display()));
            continue;
        };
        for name in named(&code).into_iter().filter(|name| name != "server") {
            arrows += 1;
            match order(&name) {
                Some(other) if other >= own => {}
                Some(_) => faults.push(format!("{}: {place} uses {name}", path.display())),
                None => faults.push(format!("{}: {name} is no layer", path.display())),
            }
        }
    }
    assert!(arrows > 300, "{arrows}");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// A custom resource may have the name of any built-in kind, so a name alone says nothing. Code that is
/// about one kind asks for its group as well (`Resource::is`, `Resource::built_in`), and what all verbs
/// need of a kind is a row of `state::peculiar`.
#[test]
fn no_code_tells_a_kind_by_its_bare_name() {
    let mut faults = Vec::new();
    for Source { path, code, .. } in sources().into_iter().filter(|source| source.place != "tidy") {
        for (number, line) in code.lines().enumerate().filter(|(_, line)| tells_by_name(line)) {
            faults.push(format!("{}:{}: {}", path.display(), number + 1, line.trim()));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Whether a line compares the kind of a row with a text.
fn tells_by_name(line: &str) -> bool {
    let is_of_row =
        ["resource.kind", "row.kind", "resource().kind"].iter().any(|kind| line.contains(kind));
    let compares = ["== \"", "!= \"", "match ", "matches!(", ".contains(&", "starts_with("];
    let has_text = compares.iter().any(|sign| line.contains(sign));
    let reversed = line.contains("\" == ") || line.contains("\" != ");
    is_of_row && (has_text || reversed)
}

/// Generic code asks the table, and no kind by its name, whatever its group.
#[test]
fn verbs_know_no_kind() {
    let mut faults = Vec::new();
    for Source { path, place, code } in sources() {
        let is_generic = ["asked", "answer", "call", "doors"].contains(&place.as_str())
            || place == "verbs" && !path.starts_with("verbs/subresource")
            || place == "state" && !path.starts_with("state/peculiar");
        for (number, line) in code.lines().enumerate().filter(|_| is_generic) {
            if line.contains(".is(\"") || line.contains("resource.built_in()") {
                faults.push(format!("{}:{}: {}", path.display(), number + 1, line.trim()));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_comparison_by_name_is_seen() {
    for line in [
        "if resource.kind == \"Pod\" {",
        "match call.resource.kind {",
        "match (attributes.call.resource.kind, part) {",
        "if \"Pod\" == row.kind {",
        "KINDS.contains(&resource.kind)",
    ] {
        assert!(tells_by_name(line), "{line}");
    }
    for line in [
        "resource.is(\"\", \"Pod\")",
        "match resource.built_in() {",
        "json!({ \"kind\": resource.kind })",
        "found.kind != resource.kind",
    ] {
        assert!(!tells_by_name(line), "{line}");
    }
}

#[test]
fn paths_are_read_from_sources() {
    let code = "use crate::state::{self, keys::range};\nuse crate::{verbs, answer::{a, b}};\nmycrate::x;\nlet y = crate::call::text(a);";
    assert_eq!(named(code), ["state", "verbs", "answer", "call"]);
    assert_eq!(code_of("a\n// crate::b\n#[cfg(test)]\nmod tests { crate::c }"), "a\n");
}
