//! `kubectl completion`: words of commands and flags, for shells.
use super::{COMMANDS, Command, Group};
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, GLOBAL};
use crate::session::Session;
use std::fmt::Write as _;

pub static COMMAND: Command = Command {
    name: "completion",
    group: Group::Settings,
    about: "Output shell completion code for the specified shell (bash, zsh, or fish)",
    usage: "SHELL",
    run: Some(|session, arguments| Box::pin(async move { run(session, &arguments) })),
    ..Command::EMPTY
};

fn run(session: &mut Session, arguments: &Arguments) -> Outcome {
    let text = match arguments.words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {
            return Err(
                "Shell not specified.\nSee 'kubectl completion -h' for help and examples".into()
            );
        }
        ["bash"] => bash(),
        ["zsh"] => {
            format!("#compdef kubectl\nautoload -U +X bashcompinit && bashcompinit\n{}", bash())
        }
        ["fish"] => fish(),
        [other] => {
            return Err(Failure::Plain(format!(
                "Unsupported shell type {other:?}.\nSee 'kubectl completion -h' for help and examples"
            )));
        }
        _ => return Err("Too many arguments. Expected only the shell type.".into()),
    };
    Ok(session.out.write_all(text.as_bytes())?)
}

/// Every command's path with the words that may follow it.
fn rows() -> Vec<(String, Vec<String>)> {
    fn add(command: &Command, before: &str, all: &mut Vec<(String, Vec<String>)>) {
        let path = format!("{before} {}", command.name).trim().to_owned();
        let mut words: Vec<String> =
            command.children.iter().map(|child| child.name.to_owned()).collect();
        words.extend(command.flags.iter().flat_map(|rows| rows.iter()).map(long));
        all.push((path.clone(), words));
        command.children.iter().for_each(|child| add(child, &path, all));
    }
    let mut all = vec![(String::new(), COMMANDS.iter().map(|one| one.name.to_owned()).collect())];
    COMMANDS.iter().for_each(|command| add(command, "", &mut all));
    all
}

fn long(flag: &Flag) -> String {
    format!("--{}", flag.name)
}

fn bash() -> String {
    let mut out = String::from("_kubectl_words() {\n  case \"$1\" in\n");
    for (path, words) in rows() {
        let _ = writeln!(out, "    \"{path}\") echo \"{}\" ;;", words.join(" "));
    }
    let global: Vec<String> = GLOBAL.iter().map(long).collect();
    // Words that lead to no command are flags' values, or names of objects.
    let _ = write!(
        out,
        "    *) return 1 ;;\n  esac\n}}\n_kubectl_complete() {{\n  local word=\"${{COMP_WORDS[COMP_CWORD]}}\" path=\"\" \
         each next\n  for each in \"${{COMP_WORDS[@]:1:COMP_CWORD-1}}\"; do\n    case \"$each\" in -*) continue ;; esac\n    \
         next=\"${{path:+$path }}$each\"\n    _kubectl_words \"$next\" > /dev/null && path=\"$next\"\n  done\n  \
         COMPREPLY=($(compgen -W \"$(_kubectl_words \"$path\") {}\" -- \"$word\"))\n}}\ncomplete -o default -F \
         _kubectl_complete kubectl\n",
        global.join(" ")
    );
    out
}

fn fish() -> String {
    let mut out = String::from("complete -c kubectl -f\n");
    let quoted = |text: &str| text.replace('\'', "\\'");
    for command in COMMANDS {
        let _ = writeln!(
            out,
            "complete -c kubectl -n __fish_use_subcommand -a {} -d '{}'",
            command.name,
            quoted(command.about)
        );
        let seen = format!("'__fish_seen_subcommand_from {}'", command.name);
        for child in command.children {
            let _ = writeln!(
                out,
                "complete -c kubectl -n {seen} -a {} -d '{}'",
                child.name,
                quoted(child.about)
            );
        }
        for flag in command.flags.iter().flat_map(|rows| rows.iter()) {
            let _ = writeln!(
                out,
                "complete -c kubectl -n {seen} -l {} -d '{}'",
                flag.name,
                quoted(flag.about)
            );
        }
    }
    for flag in GLOBAL {
        let _ = writeln!(out, "complete -c kubectl -l {} -d '{}'", flag.name, quoted(flag.about));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command as Program;

    #[test]
    fn every_command_s_words_are_known() {
        let rows = rows();
        let words =
            |path: &str| rows.iter().find(|(other, _)| other == path).map(|(_, words)| words);
        assert!(words("").unwrap().contains(&"get".to_owned()));
        assert!(words("get").unwrap().contains(&"--watch".to_owned()));
        assert!(words("config").unwrap().contains(&"use-context".to_owned()));
        assert!(words("rollout status").unwrap().contains(&"--timeout".to_owned()));
    }

    #[test]
    fn a_shell_completes() {
        let script = format!(
            "{}\nCOMP_WORDS=(kubectl -n x rollout sta); COMP_CWORD=4; _kubectl_complete; echo \"${{COMPREPLY[@]}}\"\n\
             COMP_WORDS=(kubectl get pods --watch-o); COMP_CWORD=3; _kubectl_complete; echo \"${{COMPREPLY[@]}}\"",
            bash()
        );
        // Machines without that shell have nobody to complete for.
        let Ok(output) = Program::new("bash").arg("-c").arg(script).output() else { return };
        assert_eq!(String::from_utf8_lossy(&output.stdout), "status\n--watch-only\n");
    }
}
