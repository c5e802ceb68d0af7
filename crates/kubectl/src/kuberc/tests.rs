//! What files of preferences make of command lines.
use super::*;
use api::codec::yaml;

/// What becomes of a command line: its words, and what flags are that nobody typed.
fn check(preferences: &str, line: &str, expected: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("kuberc");
    let head = "apiVersion: kubectl.config.k8s.io/v1beta1\nkind: Preference\n";
    std::fs::write(&path, format!("{head}{preferences}")).expect("it is written");
    let (preference, _) = load(&path).expect("it is read").expect("there is something");
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let mut err = Vec::new();
    let said = match preference.apply(&words, &mut err) {
        Ok(preferred) => {
            let found = find(&preferred.words, preferred.alias.as_ref());
            let command = found.command.map_or("-", |command| command.name);
            let mut said = format!("{command} | {}", preferred.words.join(" "));
            for (flag, value) in &preferred.values {
                said.push_str(&format!(" | {}={value}", flag.name));
            }
            said
        }
        Err(text) => text,
    };
    let err = String::from_utf8(err).expect("it is text");
    assert_eq!(format!("{err}{said}"), expected, "{line}\n{preferences}");
}

#[test]
fn defaults_are_those_of_a_command_that_does_not_say_otherwise() {
    let wide = "defaults: [{command: get, options: [{name: output, default: wide}, {name: watch, default: 'true'}]}]";
    check(wide, "get pods", "get | get pods | output=wide | watch=true");
    check(wide, "get pods -ojson", "get | get pods -ojson | watch=true");
    check(wide, "get pods --output=name", "get | get pods --output=name | watch=true");
    check(wide, "-n x get pods -Aw", "get | -n x get pods -Aw | output=wide");
    check(wide, "describe pods", "describe | describe pods");
    check(wide, "bogus", "- | bogus");
    // Any group of letters with the flag's own counts.
    check(wide, "get pods -ow", "get | get pods -ow");
    let nested = "defaults: [{command: set env, options: [{name: overwrite, default: 'false'}]}]";
    check(nested, "set env pod/a B=c", "env | set env pod/a B=c | overwrite=false");
    let global = "defaults: [{command: get, options: [{name: namespace, default: x}]}]";
    check(global, "get pods", "get | get pods | namespace=x");
}

#[test]
fn an_alias_is_replaced_with_what_it_means() {
    let alias = "aliases: [{name: getn, command: get, prependArgs: [nodes], appendArgs: [--show-labels], \
                 options: [{name: output, default: wide}]}]";
    check(alias, "getn", "get | getn nodes --show-labels | output=wide");
    check(alias, "getn n1 -o json", "get | getn nodes n1 -o json --show-labels");
    check(alias, "-v=1 getn n1", "get | -v=1 getn nodes n1 --show-labels | output=wide");
    check(alias, "get pods", "get | get pods");
    // A flag's value is taken for the command, as upstream does.
    check(alias, "-n getn get pods", "get | -n getn get pods");
    check(alias, "-n x getn", "- | -n x getn");
    // What completes is left at the end.
    check(alias, "__complete getn n", "- | __complete getn nodes n | output=wide");
    let family = "aliases: [{name: c, command: config, options: [{name: namespace, default: x}]}]";
    check(family, "c view", "view | c view | namespace=x");
    let both = "aliases: [{name: k, command: get}]\ndefaults: [{command: get, options: [{name: output, default: wide}]}]";
    check(both, "k pods", "get | k pods");
}

#[test]
fn what_makes_no_sense_is_refused() {
    check(
        "aliases: [{name: a-b, command: get}]",
        "get",
        "invalid alias name, can only include alphabetical characters",
    );
    check(
        "aliases: [{name: a, command: get}, {name: a, command: set}]",
        "get",
        "duplicate alias name a",
    );
    check(
        "defaults: [{command: get, options: [{name: --output, default: wide}]}]",
        "get",
        "flag name --output should be in long form without dashes",
    );
    check(
        "aliases: [{name: a, command: bogus x}]",
        "a",
        "command \"bogus x\" not found to set alias \"a\": [bogus x]",
    );
    check(
        "aliases: [{name: a, command: get, options: [{name: bogus, default: x}]}]",
        "a",
        "invalid alias flag bogus in alias kubectl",
    );
    check(
        "defaults: [{command: get, options: [{name: bogus, default: x}]}]",
        "get",
        "invalid flag bogus for command get",
    );
    check(
        "defaults: [{command: get, options: [{name: chunk-size, default: x}]}]",
        "get",
        "could not apply override value x to flag chunk-size in command get err: invalid argument \"x\" for \
         \"--chunk-size\" flag: strconv.ParseInt: parsing \"x\": invalid syntax",
    );
    check(
        "defaults: [{command: bogus, options: []}]",
        "get",
        "Warning: command \"bogus\" not found to set kuberc override\nget | get",
    );
    check(
        "aliases: [{name: get, command: set}]",
        "__complete get",
        "Warning: Setting alias \"get\" to a built-in command is not supported\n- | __complete get",
    );
    check(
        "aliases: [{name: a, command: get}]\ndefaults: [{command: a, options: [{name: output, default: wide}]}]",
        "a pods",
        "alias a can not be overridden",
    );
    check("credentialPluginPolicy: Bogus", "get", "unknown plugin policy: \"Bogus\"");
}

#[test]
fn the_flag_counts_before_the_variable() {
    let place = |flag: &str, kuberc: &str| {
        let variable = |name: &str| match name {
            "KUBERC" => kuberc.to_owned(),
            "HOME" => "/home/u".to_owned(),
            _ => String::new(),
        };
        match place(flag, &variable) {
            Ok(Some(Place { path, is_explicit })) => format!("{} {is_explicit}", path.display()),
            Ok(None) => "none".to_owned(),
            Err(text) => text,
        }
    };
    assert_eq!(place("", ""), "/home/u/.kube/kuberc false");
    assert_eq!(place("", "/k"), "/k true");
    assert_eq!(place("/f", "/k"), "/f true");
    assert_eq!(place("", "off"), "none");
    assert!(place("/f", "off").contains("mutually exclusive"));
    let named = |line: &str| {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        named(&words)
    };
    assert_eq!(named("get --kuberc=/f pods"), Ok("/f".to_owned()));
    assert_eq!(named("get --kuberc /f pods"), Ok("/f".to_owned()));
    assert_eq!(named("exec p -- sh --kuberc /f"), Ok(String::new()));
    assert!(named("get --kuberc").is_err() && named("--kuberc= get").is_err());
}

#[test]
fn a_file_that_was_asked_for_has_to_be_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("kuberc").display().to_string();
    let read = |flag: &str, home: &str| {
        let variable = |name: &str| if name == "HOME" { home.to_owned() } else { String::new() };
        let mut err = Vec::new();
        let found = preference(flag, &variable, &mut err);
        let found = found.map(|found| found.map(|found| yaml::encode(&found.tree())));
        let err = String::from_utf8(err).expect("it is text");
        format!("{err}{found:?}").replace(&path, "FILE")
    };
    assert_eq!(read(&path, ""), "Err(\"kuberc: open FILE: no such file or directory\")");
    assert_eq!(read("", folder.path().to_str().expect("a path")), "Ok(None)");
    std::fs::write(&path, "apiVersion: v1\nkind: Pod\n").expect("it is written");
    assert_eq!(
        read(&path, ""),
        "Err(\"kuberc: no valid preferences found in FILE, use --v=5 to see details\")"
    );
    std::fs::create_dir(folder.path().join(".kube")).expect("a folder");
    std::fs::copy(&path, folder.path().join(".kube/kuberc")).expect("a copy");
    let home = folder.path().to_str().expect("a path");
    assert_eq!(
        read("", home).replace(home, "HOME"),
        "kuberc: no preferences loaded from HOME/.kube/kuberc: no valid preferences found in HOME/.kube/kuberc, \
         use --v=5 to see detailsOk(None)"
    );
}
