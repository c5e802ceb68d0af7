//! Plugins on the PATH: their names are commands, and a program `kubectl_complete-NAME` may know what comes
//! behind one.
use super::Answer;
use crate::commands::COMMANDS;
use crate::plugin::is_program;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// What there is to say of plugins; none if a command of kubectl's own is meant.
pub fn answer(typed: &[String], word: &str) -> Option<Answer> {
    let first = typed.first()?;
    if first.starts_with('-') || is_own(first) {
        return None;
    }
    let folders = folders();
    let all = installed(&folders);
    let meant = all
        .iter()
        .flat_map(|path| (1..=path.len()).map(|length| &path[..length]))
        .filter(|path| typed.starts_with(path))
        .max_by_key(|path| path.len())?
        .to_vec();
    let rest = &typed[meant.len()..];
    let mut answer = Answer::default();
    if rest.is_empty() && !word.starts_with('-') {
        let below = all.iter().filter(|path| path.starts_with(&meant));
        answer.candidates = described(below.filter_map(|path| path.get(meant.len())), word);
    }
    let name: Vec<String> = meant.iter().map(|part| part.replace('-', "_")).collect();
    let program = format!("kubectl_complete-{}", name.join("-"));
    if let Some(program) =
        folders.iter().map(|folder| folder.join(&program)).find(|p| is_program(p))
    {
        let output = Command::new(program)
            .args(rest)
            .arg(word)
            .stdin(Stdio::inherit())
            .stderr(Stdio::inherit())
            .output();
        if let Ok(output) =
            output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        {
            let (candidates, directive) = said(&output);
            answer.candidates.extend(candidates);
            answer.directive = directive;
        }
    }
    Some(answer)
}

/// Plugins that the first word may be.
pub fn first_words(word: &str) -> Vec<String> {
    let all = installed(&folders());
    let first = all.iter().filter_map(|path| path.first()).filter(|name| !is_own(name));
    described(first, word)
}

fn is_own(name: &str) -> bool {
    COMMANDS.iter().any(|command| command.name == name || command.aliases.contains(&name))
}

fn described<'n>(names: impl Iterator<Item = &'n String>, word: &str) -> Vec<String> {
    let mut names: Vec<&String> = names.filter(|name| name.starts_with(word)).collect();
    names.sort();
    names.dedup();
    let about =
        |name: &&String| format!("{name}\tThe command {name} is a plugin installed by the user");
    names.iter().map(about).collect()
}

fn folders() -> Vec<PathBuf> {
    std::env::var_os("PATH").iter().flat_map(std::env::split_paths).collect()
}

/// The words that each plugin is called by: `kubectl-foo-bar_baz` is `foo bar-baz`.
fn installed(folders: &[PathBuf]) -> Vec<Vec<String>> {
    let entries = folders.iter().flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten());
    let programs = entries.flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let words = name.strip_prefix("kubectl-").filter(|words| !words.is_empty())?;
        let is_plain = !words.chars().any(|c| c.is_control() || c.is_whitespace());
        (is_plain && is_program(&entry.path()))
            .then(|| words.split('-').map(|word| word.replace('_', "-")).collect())
    });
    programs.collect()
}

/// The lines that a program wrote, and what the last may say: `:4`.
fn said(output: &str) -> (Vec<String>, u8) {
    let mut lines: Vec<String> =
        output.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
    let directive = lines.last().and_then(|line| line.strip_prefix(':')?.parse().ok());
    if directive.is_some() {
        lines.pop();
    }
    (lines, directive.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::super::NO_FILES;
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn plugins_are_called_by_their_words() {
        let folder = tempfile::tempdir().unwrap();
        for (name, mode) in
            [("kubectl-foo-bar_baz", 0o755), ("kubectl-no", 0o644), ("other", 0o755)]
        {
            let path = folder.path().join(name);
            std::fs::write(&path, "").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let all = installed(&[folder.path().to_owned(), "/nowhere".into()]);
        assert_eq!(all, [["foo", "bar-baz"]]);
        assert_eq!(
            described(all.iter().filter_map(|path| path.first()), "f"),
            ["foo\tThe command foo is a plugin installed by the user"]
        );
    }

    #[test]
    fn a_program_s_last_line_may_be_for_the_shell() {
        assert_eq!(said("a\tx\n\nb\n:4\n"), (vec!["a\tx".to_owned(), "b".to_owned()], NO_FILES));
        assert_eq!(said("a\n:x\n"), (vec!["a".to_owned(), ":x".to_owned()], 0));
        assert_eq!(said(""), (Vec::new(), 0));
    }
}
