//! `skiff why`: one plain answer to why something is as it is, and what to type next.
//!
//! ```text
//!  gather   the object, and what it depends on, from the API
//!  answer   that, as one sentence and one command            (pure: a row per kind)
//! ```
//! It knows no more than the API says: statuses, conditions, events, finalizers, selectors; but for a pod
//! that fits nowhere, of which the scheduler of this machine is asked what it said of each node.
mod answer;
mod gather;

use anyhow::Context as _;
use api::kinds::{RESOURCES, Resource};
use client::Context;
use client::https::{Config, Https};
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Options {
    /// What is asked about: `pod/web`, or `pod web`.
    #[arg(required = true, num_args = 1..=2)]
    object: Vec<String>,
    /// Where it is.
    #[arg(short, long, default_value = "default")]
    namespace: String,
    /// Where the cluster's state is kept.
    #[arg(long, default_value_os_t = crate::places::data_dir())]
    data_dir: PathBuf,
    /// Ask with another kubeconfig than the administrator's.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
}

pub async fn run(options: Options) -> anyhow::Result<()> {
    let (kind, name) = wanted(&options.object)?;
    let file = crate::places::kubeconfig(options.kubeconfig.as_ref(), &options.data_dir);
    let config = Config::from_kubeconfig(&file, None)
        .context("is there a cluster here? `skiff up` makes one")?;
    let source = Https::new(&Context::new(), config.for_component("skiff-why"))?;
    let kind = match built_in(&kind) {
        Some(row) => row.into(),
        None => gather::defined(&source, &kind).await?.with_context(|| {
            format!("no kind is called {kind:?}: `kubectl api-resources` lists them")
        })?,
    };
    let mut facts = gather::gather(&source, &kind, &options.namespace, &name).await?;
    if kind.kind == "Pod" {
        let uid = facts.object["metadata"]["uid"].as_str().unwrap_or_default();
        let socket = crate::scheduler::socket(&options.data_dir);
        facts.refusals = gather::refusals(&socket, uid).await;
    }
    let answer = answer::answer(&facts);
    println!("{}", answer.says);
    if !answer.next.is_empty() {
        println!("next: {}", answer.next);
    }
    Ok(())
}

/// What the kind is called, and the name.
fn wanted(words: &[String]) -> anyhow::Result<(String, String)> {
    let (kind, name) = match words {
        [one] => one.split_once('/').map(|(kind, name)| (kind.to_owned(), name.to_owned())),
        [kind, name] => Some((kind.clone(), name.clone())),
        _ => None,
    }
    .context("say what is asked about, as kubectl has it: pod/web")?;
    Ok((kind.to_lowercase(), name))
}

/// A kind that every cluster has; others are defined in it.
fn built_in(kind: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|row| {
        row.plural == kind || row.kind.to_lowercase() == kind || row.short_names.contains(&kind)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_called_as_kubectl_calls_them() {
        let check = |words: &[&str], expected: Result<(&str, &str), &str>| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            match (wanted(&words), expected) {
                (Ok((kind, name)), Ok(expected)) => {
                    let kind = built_in(&kind).map_or(&*kind, |row| row.kind);
                    assert_eq!((kind, &*name), expected);
                }
                (Err(error), Err(expected)) => {
                    assert!(error.to_string().starts_with(expected), "{error}");
                }
                (found, expected) => panic!("{:?} {expected:?}", found.map(|found| found.1)),
            }
        };
        check(&["pod/web"], Ok(("Pod", "web")));
        check(&["po", "web"], Ok(("Pod", "web")));
        check(&["Deployment/web"], Ok(("Deployment", "web")));
        check(&["ns/x"], Ok(("Namespace", "x")));
        check(&["web"], Err("say what is asked about"));
        // Somebody may have defined it.
        check(&["Boats.example.com/x"], Ok(("boats.example.com", "x")));
    }
}
