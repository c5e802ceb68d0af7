//! The flags of this process, for `/flagz`: what was typed, what the configuration file said, and the
//! defaults of the rest. A process has one command line, so that all of its components show the same.
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};
use client::zpages::Flags;
use std::ffi::OsStr;
use std::sync::OnceLock;

/// Flags whose values are secrets, or may hold one.
const CLASSIFIED: &[&str] = &["token", "manifest-url-header", "storage-driver-password"];
/// What is shown of them: upstream's word.
const WITHHELD: &str = "CLASSIFIED";

static GIVEN: OnceLock<Flags> = OnceLock::new();

/// To be called once, when the command line is known.
pub fn remember(cli: &Command, found: &ArgMatches) {
    // A second command line has no say.
    let _ = GIVEN.set(of(cli, found));
}

pub fn given() -> Flags {
    GIVEN.get().cloned().unwrap_or_default()
}

fn of(cli: &Command, found: &ArgMatches) -> Flags {
    let Some((name, inner)) = found.subcommand() else { return Flags::new() };
    let Some(command) = cli.find_subcommand(name) else { return Flags::new() };
    // Flags of all commands are found with the command, wherever they were typed.
    let everywhere = cli.get_arguments().filter(|flag| flag.is_global_set());
    let all = command.get_arguments().chain(everywhere);
    all.filter_map(|flag| Some((flag.get_long()?.to_owned(), value(flag, inner)?))).collect()
}

/// What a flag is set to; nothing for one of upstream's that means nothing here and was not given.
fn value(flag: &Arg, found: &ArgMatches) -> Option<String> {
    let (name, id) = (flag.get_long()?, flag.get_id().as_str());
    if matches!(name, "help" | "version") {
        return None;
    }
    let source = found.try_contains_id(id).ok().and_then(|_| found.value_source(id));
    if flag.is_hide_set() && source != Some(ValueSource::CommandLine) {
        return None;
    }
    if CLASSIFIED.contains(&name) {
        return Some(if source.is_some() { WITHHELD.to_owned() } else { String::new() });
    }
    let values = found.try_get_raw(id).ok().flatten();
    let words: Vec<String> =
        values.into_iter().flatten().map(OsStr::to_string_lossy).map(String::from).collect();
    Some(words.iter().map(|word| without_password(word)).collect::<Vec<_>>().join(","))
}

/// A URL without what stands before its `@`.
fn without_password(word: &str) -> String {
    let Some((scheme, rest)) = word.split_once("://") else { return word.to_owned() };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..end].rfind('@') {
        Some(at) => format!("{scheme}://{WITHHELD}@{}", &rest[at + 1..]),
        None => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    fn check(typed: &str, expected: &[(&str, Option<&str>)]) {
        let cli = crate::Cli::command();
        let found = cli.clone().try_get_matches_from(typed.split_whitespace()).expect("understood");
        let flags = of(&cli, &found);
        for (name, expected) in expected {
            assert_eq!(flags.get(*name).map(String::as_str), *expected, "{name} of {typed:?}");
        }
    }

    #[test]
    fn flags_are_shown_with_their_defaults() {
        check(
            "skiff scheduler -v 2 --kubeconfig=/k --leader-elect=false --profiling=false",
            &[
                ("v", Some("2")),
                ("kubeconfig", Some("/k")),
                ("leader-elect", Some("false")),
                ("pod-max-in-unschedulable-pods-duration", Some("5m")),
                // Without effect here; shown only to those who gave it.
                ("profiling", Some("false")),
                ("vmodule", None),
                ("config", Some("")),
                ("help", None),
            ],
        );
        check(
            "skiff up --disable dns --disable proxy",
            &[("disable", Some("dns,proxy")), ("v", Some("0")), ("token", Some(""))],
        );
    }

    #[test]
    fn secrets_are_not_shown() {
        check(
            "skiff agent --server https://host:6443 --token K10abc::node:xyz",
            &[("token", Some(WITHHELD)), ("server", Some("https://host:6443"))],
        );
        check(
            "skiff kubelet --kubeconfig /k --manifest-url-header=Authorization:secret \
             --manifest-url=https://me:pw@host/a@b",
            &[
                ("manifest-url-header", Some(WITHHELD)),
                ("manifest-url", Some("https://CLASSIFIED@host/a@b")),
            ],
        );
        assert_eq!(without_password("http://h/a@b"), "http://h/a@b");
        assert_eq!(without_password("a@b"), "a@b");
    }

    /// A new flag whose name sounds like a secret's is either one or known to be none.
    #[test]
    fn every_flag_that_sounds_secret_was_looked_at() {
        const NONE: &[&str] = &[
            "authentication-token-webhook",
            // How soon files of volumes follow.
            "configmap-secret-change-detection-strategy",
            "enable-bootstrap-token-auth",
            "image-pull-credentials-verification-policy",
            // The name of a cluster of etcd's.
            "initial-cluster-token",
            "legacy-service-account-token-clean-up-period",
            "use-service-account-credentials",
        ];
        let sounds = |name: &str| {
            ["token", "secret", "password", "credential", "header"]
                .iter()
                .any(|one| name.contains(one))
        };
        // A file's name, a period or a count of something secret is none.
        let tame = |name: &str| {
            let ends = ["-file", "-ttl", "-config", "-dir", "-version", "-expiration", "-syncs"];
            ends.iter().any(|end| name.ends_with(end)) || name.starts_with("requestheader-")
        };
        for command in crate::Cli::command().get_subcommands() {
            for flag in command.get_arguments().filter_map(Arg::get_long) {
                let known = CLASSIFIED.contains(&flag) || NONE.contains(&flag) || tame(flag);
                assert!(!sounds(flag) || known, "--{flag} of {}", command.get_name());
            }
        }
    }
}
