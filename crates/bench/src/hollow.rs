//! `bench -- hollow --kubeconfig FILE --nodes N`: plays so many kubelets until it is ended, or until its
//! standard input is closed where `--while-open` asks for that. Says `ready` when all are registered.
//!
//! Options: `--name PREFIX` (`hollow-`), `--zones N` (3), `--cpu 32`, `--memory 256Gi`, `--pods 110`,
//! `--renewal SECONDS` (20), `--workers N` (64). What pods do is said by an annotation of theirs:
//! [`testkit::hollow`].
use crate::report::Report;
use client::https::{Config, Https};
use client::{Context, Source};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use testkit::hollow::{self, Options};

pub fn run(arguments: &[String], _: &mut Report) {
    let option = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let number = |name: &str, default: usize| {
        option(name).map_or(default, |text| text.parse().expect("a number"))
    };
    let usual = Options::default();
    let options = Options {
        nodes: number("--nodes", usual.nodes),
        name: option("--name").unwrap_or(usual.name),
        zones: number("--zones", usual.zones),
        cpu: option("--cpu").unwrap_or(usual.cpu),
        memory: option("--memory").unwrap_or(usual.memory),
        pods: number("--pods", usual.pods),
        renewal: Duration::from_secs(number("--renewal", usual.renewal.as_secs() as usize) as u64),
        workers: number("--workers", usual.workers),
    };
    let kubeconfig =
        option("--kubeconfig").expect("--kubeconfig FILE says where the API server is");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime can be started").block_on(async {
        let context = Context::new();
        let source = source(&context, Path::new(&kubeconfig));
        let count = options.nodes;
        hollow::start(&context, source, options).await.expect("the nodes can be registered");
        println!("ready: {count} nodes");
        if arguments.iter().any(|argument| argument == "--while-open") {
            let _ = tokio::task::spawn_blocking(|| std::io::stdin().lines().count()).await;
        } else {
            std::future::pending::<()>().await;
        }
        context.stop();
    });
}

/// The API server that a kubeconfig leads to.
pub fn source(context: &Context, kubeconfig: &Path) -> Arc<dyn Source> {
    let config = Config::from_kubeconfig(kubeconfig, None).expect("a kubeconfig");
    Arc::new(Https::new(context, config.for_component("hollow")).expect("a good configuration"))
}
