//! Chores of the repository: `cargo xtask` lists them.
mod conformance;
mod differential;
mod discovery;
mod facts;
mod fuzz;
mod gateway;
mod openapi;
mod oracle;
mod roundtrip;

use std::path::Path;
use std::process::ExitCode;

struct Chore {
    name: &'static str,
    arguments: &'static str,
    about: &'static str,
    run: fn(&[String]) -> Result<(), String>,
}

const CHORES: &[Chore] = &[
    Chore {
        name: "conformance",
        arguments: conformance::USAGE,
        about: "run upstream's conformance suite and write docs/conformance.md; needs root and Go",
        run: conformance::run,
    },
    Chore {
        name: "differential",
        arguments: "OURS THEIRS [STORY]",
        about: "tell two clusters the same stories and compare what their control loops make of them",
        run: |arguments| match arguments {
            [ours, theirs] => differential::run(Path::new(ours), Path::new(theirs), None),
            [ours, theirs, story] => {
                differential::run(Path::new(ours), Path::new(theirs), Some(story))
            }
            _ => Err("give two kubeconfigs".into()),
        },
    },
    Chore {
        name: "discovery",
        arguments: "PATH",
        about: "compare our discovery documents with the published ones in the folder at PATH",
        run: |arguments| {
            let [path] = arguments else {
                return Err("give the path of a folder of documents".into());
            };
            discovery::run(Path::new(path))
        },
    },
    Chore {
        name: "openapi",
        arguments: "PATH",
        about: "compare our OpenAPI v3 documents with the published ones in the folder at PATH",
        run: |arguments| {
            let [path] = arguments else {
                return Err("give the path of a folder of documents".into());
            };
            openapi::run(Path::new(path))
        },
    },
    Chore {
        name: "fuzz",
        arguments: "KUBECONFIG COUNT [SEED]",
        about: "send an API server so many requests that are a little wrong",
        run: |arguments| {
            let number = |text: &String| text.parse::<u64>().map_err(|e| format!("{text:?}: {e}"));
            let (path, count, seed) = match arguments {
                [path, count] => (path, number(count)?, 1),
                [path, count, seed] => (path, number(count)?, number(seed)?),
                _ => return Err("give a kubeconfig and a number".into()),
            };
            fuzz::run(Path::new(path), count, seed)
        },
    },
    Chore {
        name: "oracle",
        arguments: "OURS THEIRS [KIND,…|all [FAMILY]]",
        about: "send two API servers (kubeconfigs) the same requests and compare their answers",
        run: |arguments| match arguments {
            [ours, theirs, rest @ ..] if rest.len() <= 2 => {
                let word = |i: usize| rest.get(i).map_or("", String::as_str);
                oracle::run(Path::new(ours), Path::new(theirs), word(0), word(1))
            }
            _ => Err("give two kubeconfigs".into()),
        },
    },
    Chore {
        name: "facts",
        arguments: "PATH",
        about: "regenerate the schema facts from the API types of the Kubernetes source at PATH",
        run: |arguments| {
            let [path] = arguments else { return Err("give the path of a source tree".into()) };
            let facts = facts::generate(Path::new(path))?;
            let api = concat!(env!("CARGO_MANIFEST_DIR"), "/../api/src");
            for (file, table) in
                [("schema/facts.txt", facts.schema), ("hash/shapes.txt", facts.shapes)]
            {
                let target = format!("{api}/{file}");
                std::fs::write(&target, table).map_err(|e| format!("{target}: {e}"))?;
            }
            Ok(())
        },
    },
    Chore {
        name: "gateway",
        arguments: "PATH",
        about: "regenerate Gateway API's definitions from the checkout of kubernetes-sigs/gateway-api at PATH",
        run: |arguments| {
            let [path] = arguments else { return Err("give the path of a checkout".into()) };
            gateway::run(Path::new(path))
        },
    },
    Chore {
        name: "roundtrip",
        arguments: "PATH",
        about: "decode and re-encode every sample object (json, yaml, pb) in the folder at PATH",
        run: |arguments| {
            let [path] = arguments else {
                return Err("give the path of a folder of samples".into());
            };
            roundtrip::run(Path::new(path))
        },
    },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let chore = arguments.first().and_then(|name| CHORES.iter().find(|c| c.name == name));
    let Some(chore) = chore else {
        eprintln!("usage: cargo xtask CHORE\n");
        for chore in CHORES {
            eprintln!("  {:<28} {}", format!("{} {}", chore.name, chore.arguments), chore.about);
        }
        return ExitCode::from(2);
    };
    match (chore.run)(&arguments[1..]) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{}: {problem}", chore.name);
            ExitCode::FAILURE
        }
    }
}
