//! `kubectl kuberc`: shows the file of preferences, and changes it.
use super::{Command, Group};
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, Gate, each, switch, switch_on, text};
use crate::kuberc::{self, Alias, Defaults, Preference, Setting};
use crate::print::{self, Printer};
use crate::session::Session;
use api::codec::yaml;
use api::quote::Quoted;
use std::path::Path;

pub static COMMAND: Command = Command {
    name: "kuberc",
    group: Group::Other,
    about: "Manage kuberc configuration files",
    usage: "SUBCOMMAND",
    children: &[&SET, &VIEW],
    gate: Gate::Kuberc,
    ..Command::EMPTY
};

static VIEW_FLAGS: &[Flag] = &[
    switch_on("allow-missing-template-keys", "What a template names and is not there is no error."),
    text("kuberc", "", "File to show; KUBERC=off reads none."),
    text("output", "yaml", "How to print.").short('o'),
    switch("show-managed-fields", "Taken for compatibility."),
    text("template", "", "Template, or its file."),
];

static VIEW: Command = Command {
    name: "view",
    about: "Display the current kuberc configuration",
    flags: &[VIEW_FLAGS],
    run: Some(|session, arguments| Box::pin(async move { view(session, &arguments) })),
    ..Command::EMPTY
};

static SET_FLAGS: &[Flag] = &[
    each("allowlist-entry", "Credential program that may run: command=NAME; may be repeated."),
    each("appendarg", "Word to put behind an alias's own; may be repeated."),
    text("command", "", "Command that is meant: get, \"set env\"."),
    text("kuberc", "", "File to change; KUBERC=off reads none."),
    text("name", "", "Name of the alias."),
    each("option", "Flag with its value: output=wide; may be repeated."),
    switch("overwrite", "Replace what is there."),
    text("policy", "", "Which credential programs may run: AllowAll, DenyAll or Allowlist."),
    each("prependarg", "Word to put before an alias's own; may be repeated."),
    text("section", "", "What to set: defaults, aliases or credentialplugin.").required(),
];

static SET: Command = Command {
    name: "set",
    about: "Set values in the kuberc configuration",
    usage: "--section (defaults|aliases) --command COMMAND",
    flags: &[SET_FLAGS],
    run: Some(|session, arguments| Box::pin(async move { set(session, &arguments) })),
    ..Command::EMPTY
};

/// The file that is meant, and whether somebody named it.
fn place(arguments: &Arguments) -> Outcome<kuberc::Place> {
    kuberc::place(arguments.text("kuberc"), &kuberc::environment)?
        .ok_or_else(|| "KUBERC is disabled via KUBERC=off environment variable".into())
}

/// What a file says, if all of it is understood; none if it is not there.
fn read(path: &Path) -> Outcome<Option<Option<Preference>>> {
    let failed = |text: String| Failure::Plain(format!("error reading kuberc file: {text}"));
    match kuberc::load(path) {
        Ok(Some((_, problems))) if !problems.is_empty() => Err(failed(problems)),
        Ok(found) => Ok(Some(found.map(|(preference, _)| preference))),
        Err(error) if error.is_missing() => Ok(None),
        Err(error) => Err(failed(error.to_string())),
    }
}

fn view(session: &mut Session, arguments: &Arguments) -> Outcome {
    let kuberc::Place { path, is_explicit } = place(arguments)?;
    let mut preference = match read(&path)? {
        Some(found) => found.unwrap_or_default(),
        None if is_explicit => {
            return Err(format!("kuberc file not found at {}", path.display()).into());
        }
        None => return offer(session, &path),
    };
    preference.aliases.get_or_insert_default();
    preference.defaults.get_or_insert_default();
    let mut printer =
        Printer::of(arguments)?.ok_or(Failure::Plain("an output format is needed".to_owned()))?;
    printer.print(&preference.tree(), &mut session.out)
}

/// Who has no file yet may have one with what upstream recommends.
fn offer(session: &mut Session, path: &Path) -> Outcome {
    writeln!(session.out, "kuberc file not found at {}", path.display())?;
    write!(
        session.out,
        "Would you like to generate a default kuberc file with recommended options? (y/N): "
    )?;
    session.out.flush()?;
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    if line.trim().eq_ignore_ascii_case("y") {
        return write(session, &recommended(), path);
    }
    Ok(())
}

fn recommended() -> Preference {
    let on = |command: &str, name: &str| Defaults {
        command: command.to_owned(),
        options: Some(vec![Setting { name: name.to_owned(), value: "true".to_owned() }]),
    };
    Preference {
        defaults: Some(vec![on("apply", "server-side"), on("delete", "interactive")]),
        ..Preference::default()
    }
}

fn write(session: &mut Session, preference: &Preference, path: &Path) -> Outcome {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(|error| {
            Failure::Plain(format!("failed to create directory {}: {error}", folder.display()))
        })?;
    }
    // In its place and not beside it: somebody's file may be a link.
    std::fs::write(path, yaml::encode(&preference.tree())).map_err(|error| {
        let text = print::io_text(&path.display().to_string(), &error);
        Failure::Plain(format!("failed to write kuberc file: {text}"))
    })?;
    Ok(writeln!(session.out, "Updated {}", path.display())?)
}

fn set(session: &mut Session, arguments: &Arguments) -> Outcome {
    if !arguments.given("section") {
        return Err("required flag(s) \"section\" not set".into());
    }
    let path = place(arguments)?.path;
    check(arguments)?;
    let mut preference = read(&path)?.flatten().unwrap_or_default();
    let options = options(arguments)?;
    match arguments.text("section") {
        "defaults" => set_defaults(&mut preference, arguments, options)?,
        "aliases" => set_alias(&mut preference, arguments, options)?,
        _ => {
            if arguments.text("policy") == "Allowlist" {
                preference.allowlist = Some(allowed(arguments.list("allowlist-entry"))?);
            }
            preference.policy = arguments.text("policy").to_owned();
        }
    }
    write(session, &preference, &path)
}

fn check(arguments: &Arguments) -> Outcome {
    let (section, policy) = (arguments.text("section"), arguments.text("policy"));
    let has = |name: &str| !arguments.list(name).is_empty();
    let is_given = |name: &str| arguments.some(name).is_some();
    let text = match section {
        "aliases" if !is_given("name") => "--name is required when --section=aliases".to_owned(),
        "defaults" if is_given("name") => {
            "--name should not be specified when --section=defaults".to_owned()
        }
        "defaults" if has("prependarg") || has("appendarg") => {
            "--prependarg and --appendarg are only valid for --section=aliases".to_owned()
        }
        "aliases" | "defaults" if !is_given("command") => {
            "--command is required when --section=aliases or --section=defaults".to_owned()
        }
        "aliases" | "defaults" => return Ok(()),
        "credentialplugin" => match policy {
            "" => "--policy is required when --section=credentialplugin".to_owned(),
            "AllowAll" | "DenyAll" if has("allowlist-entry") => {
                "--allowlist-entry may only be used when --section=credentialplugin and \
                 --policy=Allowlist"
                    .to_owned()
            }
            "Allowlist" if !has("allowlist-entry") => {
                "--allowlist-entry is required when --section=credentialplugin and \
                 --policy=Allowlist"
                    .to_owned()
            }
            "AllowAll" | "DenyAll" | "Allowlist" => return Ok(()),
            other => format!(
                " --policy must be  \"AllowAll\", \"DenyAll\", or \"Allowlist\", got: {other}"
            ),
        },
        other => format!(
            "--section must be \"defaults\", \"aliases\", or \"credentialplugin\", got: {other}"
        ),
    };
    Err(text.into())
}

fn options(arguments: &Arguments) -> Outcome<Option<Vec<Setting>>> {
    let mut all = Vec::new();
    for option in arguments.list("option") {
        let Some((name, value)) = option.split_once('=') else {
            return Err(
                format!("invalid option format {}, expected flag=value", Quoted(option)).into()
            );
        };
        let name = name.trim_start_matches('-').to_owned();
        all.push(Setting { name, value: value.to_owned() });
    }
    Ok(Some(all).filter(|all| !all.is_empty()))
}

fn set_defaults(
    preference: &mut Preference,
    arguments: &Arguments,
    options: Option<Vec<Setting>>,
) -> Outcome {
    let command = arguments.text("command").to_owned();
    let all = preference.defaults.get_or_insert_default();
    let Some(found) = all.iter_mut().find(|defaults| defaults.command == command) else {
        all.push(Defaults { command, options });
        return Ok(());
    };
    if !arguments.is("overwrite") {
        return Err(format!(
            "defaults for command {} already exist, use --overwrite to replace",
            Quoted(&command)
        )
        .into());
    }
    // What is not named stays.
    found.options = options.or(found.options.take());
    Ok(())
}

fn set_alias(
    preference: &mut Preference,
    arguments: &Arguments,
    options: Option<Vec<Setting>>,
) -> Outcome {
    let words = |name: &str| Some(arguments.list(name).to_vec()).filter(|words| !words.is_empty());
    let alias = Alias {
        name: arguments.text("name").to_owned(),
        command: arguments.text("command").to_owned(),
        prepended: words("prependarg"),
        appended: words("appendarg"),
        options,
    };
    let all = preference.aliases.get_or_insert_default();
    let Some(found) = all.iter_mut().find(|other| other.name == alias.name) else {
        all.push(alias);
        return Ok(());
    };
    if !arguments.is("overwrite") {
        return Err(format!(
            "alias {} already exists, use --overwrite to replace",
            Quoted(&alias.name)
        )
        .into());
    }
    let before = std::mem::take(found);
    *found = Alias {
        prepended: alias.prepended.or(before.prepended),
        appended: alias.appended.or(before.appended),
        options: alias.options.or(before.options),
        ..alias
    };
    Ok(())
}

/// The programs that `--allowlist-entry` names.
fn allowed(entries: &[String]) -> Outcome<Vec<String>> {
    let (mut commands, mut faults) = (Vec::new(), Vec::new());
    for pair in entries.iter().flat_map(|entry| entry.split(',')) {
        match pair.split_once('=') {
            None => {
                faults.push(format!("improperly formatted allowlist entry: {}", Quoted(pair)));
            }
            Some(("name", _)) => faults.push(
                "allowlist entry field \"name\" is deprecated, use \"command\" instead".to_owned(),
            ),
            Some(("command", value)) if value.trim().is_empty() => {
                faults.push("empty value in allowlist entry for field \"command\"".to_owned());
            }
            Some(("command", value)) => commands.push(value.to_owned()),
            Some((field, _)) => {
                faults.push(format!("unrecognized allowlist entry field: {}", Quoted(field)));
            }
        }
    }
    Failure::of_all(faults.into_iter().map(Failure::Plain).collect())?;
    Ok(commands)
}

#[cfg(test)]
mod tests {
    use crate::session::tests::{told, world};
    use expect_test::expect;

    #[tokio::test]
    async fn preferences_are_set_and_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/kuberc").display().to_string();
        let world = world();
        let run = async |line: &str| {
            let line = format!("kuberc {line} --kuberc {path}");
            told(&world, &line).await.replace(&path, "FILE")
        };
        let set = async |line: &str| run(&format!("set --section {line}")).await;
        assert_eq!(run("view").await, "error: kuberc file not found at FILE\n");
        assert_eq!(set("defaults --command get --option --output=wide").await, "Updated FILE\n");
        assert_eq!(
            set("aliases --name k --command get --prependarg nodes --appendarg=--").await,
            "Updated FILE\n"
        );
        assert_eq!(
            set("credentialplugin --policy Allowlist --allowlist-entry command=a,command=/b").await,
            "Updated FILE\n"
        );
        expect![[r#"
            aliases:
            - appendArgs:
              - --
              command: get
              name: k
              prependArgs:
              - nodes
            apiVersion: kubectl.config.k8s.io/v1beta1
            credentialPluginAllowlist:
            - command: a
            - command: /b
            credentialPluginPolicy: Allowlist
            defaults:
            - command: get
              options:
              - default: wide
                name: output
            kind: Preference
        "#]]
        .assert_eq(&run("view").await);
        assert_eq!(
            set("defaults --command get").await,
            "error: defaults for command \"get\" already exist, use --overwrite to replace\n"
        );
        assert_eq!(
            set("aliases --command get --name k").await,
            "error: alias \"k\" already exists, use --overwrite to replace\n"
        );
        assert_eq!(
            set("aliases --overwrite --name k --command describe --option a=b").await,
            "Updated FILE\n"
        );
        let shown = run("view -o jsonpath={.aliases}").await;
        assert_eq!(
            shown,
            r#"[{"appendArgs":["--"],"command":"describe","name":"k","options":[{"default":"b","name":"a"}],"prependArgs":["nodes"]}]"#
        );
    }

    #[tokio::test]
    async fn what_cannot_be_set_is_refused() {
        let world = world();
        for (line, expected) in [
            ("", "required flag(s) \"section\" not set"),
            (
                "--section x",
                "--section must be \"defaults\", \"aliases\", or \"credentialplugin\", got: x",
            ),
            ("--section aliases", "--name is required when --section=aliases"),
            (
                "--section defaults --name a",
                "--name should not be specified when --section=defaults",
            ),
            (
                "--section defaults",
                "--command is required when --section=aliases or --section=defaults",
            ),
            ("--section credentialplugin", "--policy is required when --section=credentialplugin"),
            (
                "--section defaults --command get --option x",
                "invalid option format \"x\", expected flag=value",
            ),
        ] {
            let line = format!("kuberc set --kuberc /nowhere/kuberc {line}");
            assert_eq!(told(&world, &line).await, format!("error: {expected}\n"), "{line}");
        }
        let line = "kuberc set --kuberc /nowhere/kuberc --section credentialplugin --policy Allowlist \
                    --allowlist-entry a,name=b,command=,x=y";
        assert_eq!(
            told(&world, line).await,
            "improperly formatted allowlist entry: \"a\"\nallowlist entry field \"name\" is deprecated, use \
             \"command\" instead\nempty value in allowlist entry for field \"command\"\nunrecognized allowlist \
             entry field: \"x\"\n"
        );
    }
}
