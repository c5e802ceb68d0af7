//! `completion`: words of commands and flags, for shells.
use super::{COMMANDS, Command};
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, GLOBAL};
use crate::session::Session;
use std::fmt::Write as _;

pub static COMMAND: Command = Command {
    name: "completion",
    about: "Output shell completion code (bash, zsh or fish)",
    usage: "[SHELL]",
    run: |session, arguments| Box::pin(async move { run(session, &arguments) }),
    ..Command::EMPTY
};

fn run(session: &mut Session, arguments: &Arguments) -> Outcome {
    let text = match arguments.words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] | ["bash"] => bash(),
        ["zsh"] => {
            format!("#compdef crictl\nautoload -U +X bashcompinit && bashcompinit\n{}", bash())
        }
        ["fish"] => fish(),
        [_] => return Err("only bash, zsh and fish are supported".into()),
        _ => return Err(Failure::Help),
    };
    Ok(session.out.write_all(text.as_bytes())?)
}

fn words(flags: &[&[Flag]]) -> String {
    let all = flags.iter().flat_map(|rows| rows.iter()).map(|flag| format!("--{}", flag.name));
    all.collect::<Vec<_>>().join(" ")
}

/// A command's name and aliases.
fn names(command: &Command) -> Vec<&'static str> {
    [command.name].into_iter().chain(command.aliases.iter().copied()).collect()
}

fn bash() -> String {
    let mut out = String::from("_crictl_words() {\n  case \"$1\" in\n");
    for command in COMMANDS {
        let _ =
            writeln!(out, "    {}) echo \"{}\" ;;", names(command).join("|"), words(command.flags));
    }
    let all: Vec<&str> = COMMANDS.iter().flat_map(|command| names(command)).collect();
    let _ = write!(
        out,
        "    *) return 1 ;;\n  esac\n}}\n_crictl_complete() {{\n  local word=\"${{COMP_WORDS[COMP_CWORD]}}\" each\n  \
         for each in \"${{COMP_WORDS[@]:1:COMP_CWORD-1}}\"; do\n    if _crictl_words \"$each\" > /dev/null; then\n      \
         COMPREPLY=($(compgen -W \"$(_crictl_words \"$each\")\" -- \"$word\"))\n      return\n    fi\n  done\n  \
         COMPREPLY=($(compgen -W \"{} {}\" -- \"$word\"))\n}}\ncomplete -o default -F _crictl_complete crictl\n",
        all.join(" "),
        words(&[GLOBAL])
    );
    out
}

fn fish() -> String {
    let mut out = String::from("complete -c crictl -f\n");
    let quoted = |text: &str| text.replace('\'', "\\'");
    for command in COMMANDS {
        let about = quoted(command.about);
        for name in names(command) {
            let _ =
                writeln!(out, "complete -c crictl -n __fish_use_subcommand -a {name} -d '{about}'");
        }
        let seen = format!("'__fish_seen_subcommand_from {}'", names(command).join(" "));
        for flag in command.flags.iter().flat_map(|rows| rows.iter()) {
            let about = quoted(flag.about);
            let _ = writeln!(out, "complete -c crictl -n {seen} -l {} -d '{about}'", flag.name);
        }
    }
    for flag in GLOBAL {
        let about = quoted(flag.about);
        let _ = writeln!(out, "complete -c crictl -l {} -d '{about}'", flag.name);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_completes() {
        let script = format!(
            "{}\nCOMP_WORDS=(crictl -D inspec); COMP_CWORD=2; _crictl_complete; echo \"${{COMPREPLY[@]}}\"\n\
             COMP_WORDS=(crictl img --dig); COMP_CWORD=2; _crictl_complete; echo \"${{COMPREPLY[@]}}\"",
            bash()
        );
        // Machines without that shell have nobody to complete for.
        let Ok(output) = std::process::Command::new("bash").arg("-c").arg(script).output() else {
            return;
        };
        let told = String::from_utf8_lossy(&output.stdout);
        assert_eq!(told, "inspect inspecti inspectp\n--digests\n");
    }
}
