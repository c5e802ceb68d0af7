//! Upstream's conformance suite, run against Skiff: the yardstick.
//!
//! ```text
//! conformance/go.mod ─► programs ─► images ─► cluster ─► suite ─► outcome ─► report
//! ```
//! Everything made is in `target/conformance`: programs, images, the cluster's data while it runs,
//! and of each run the reports and a log of every failed test.
mod cluster;
mod containerd;
mod images;
mod interrupted;
mod options;
mod outcome;
mod programs;
mod recipe;
mod registry;
mod report;
mod shell;
mod stock;
mod suite;
mod upstream;

use cluster::{Cluster, Ours};
use images::Kitchen;
use options::Options;
use report::Rows;
use std::path::{Path, PathBuf};
use std::process::Command;

pub use options::USAGE;

pub fn run(arguments: &[String]) -> Result<(), String> {
    let options = options::parse(arguments)?;
    interrupted::listen();
    let places = Places::new()?;
    let programs = places.made.join("bin");
    programs::build(&places.repository.join("conformance"), &programs, options.smoke)?;
    for part in &options.with {
        part.install()?;
        programs::build_part(&places.repository.join("conformance"), &programs, part)?;
    }
    let upstream = programs::upstream(&places.repository.join("conformance"))?;
    let kitchen = Kitchen {
        recipes: &places.repository.join("conformance/images"),
        programs: &programs,
        upstream: &upstream,
        folder: &places.made.join("images"),
    };
    let images = if options.smoke { Vec::new() } else { images::make(&kitchen)? };

    let subject = options.subject();
    let page = places.repository.join(subject.page);
    let written = if options.smoke { None } else { std::fs::read_to_string(&page).ok() };
    let mut rows = report::rows(&written.unwrap_or_default());
    let names = match options.any {
        true => suite::other_tests(&programs)?,
        false => suite::tests(&upstream)?,
    };
    let smoke = shell::read(&places.repository.join("conformance/smoke.txt"))?;
    let failed = |name: &str| rows.get(name).is_some_and(|row| row.result == "failed");
    let chosen: Vec<&str> = names
        .iter()
        .map(String::as_str)
        .filter(|name| options.chooses(name) && (!options.failed || failed(name)))
        .filter(|name| !options.smoke || smoke.lines().any(|line| line == *name))
        .collect();
    if chosen.is_empty() {
        return Err("no test is called that".into());
    }

    let cluster = match &options.kubeconfig {
        Some(path) => Cluster::Named(path.clone()),
        None => {
            let skiff = skiff(&options)?;
            let folder = places.made.join(subject.name);
            interrupted::cluster_begins();
            Cluster::Ours(Box::new(Ours::start(&skiff, &folder, &images, &options, &programs)?))
        }
    };
    interrupted::check()?;
    let kubectl = match options.own_kubectl {
        true => own_kubectl(&skiff(&options)?, &places.made.join(subject.name))?,
        false => programs.join("kubectl"),
    };
    let commit = commit(&places.repository)?;
    let (alone, together): (Vec<&str>, Vec<&str>) =
        chosen.iter().partition(|name| suite::is_alone(name));
    for (kind, procs, tests) in [("together", options.procs, together), ("alone", 1, alone)] {
        if tests.is_empty() {
            continue;
        }
        let folder = places.made.join(subject.name).join("runs").join(kind);
        let timeout = options.timeout.as_str();
        let (programs, kubectl, cluster) = (&programs, &kubectl, &cluster);
        let run = suite::Run { programs, kubectl, cluster, procs, timeout, folder };
        rows = report::updated(rows, &run.tests(&tests)?, &commit);
        if options.smoke {
            continue;
        }
        let recipes: Vec<_> = images.iter().map(|made| &made.recipe).collect();
        let counted = counted(&options, &names, &chosen, &rows);
        shell::write(&page, report::page(&subject, &counted, &rows, &recipes))?;
    }
    drop(cluster);
    let counted = counted(&options, &names, &chosen, &rows);
    println!("{}", report::sum(counted.iter(), &rows));
    let failed = |name: &&&str| rows.get(**name).is_some_and(|row| row.result == "failed");
    match chosen.iter().filter(failed).count() {
        0 => Ok(()),
        count => Err(format!("{count} of the {} tests of this run failed", chosen.len())),
    }
}

/// The tests that a sum is about: all of conformance; of others those that were ever chosen, as most are
/// about clouds and systems that we are not.
fn counted(options: &Options, names: &[String], chosen: &[&str], rows: &Rows) -> Vec<String> {
    if !options.smoke && !options.any {
        return names.to_vec();
    }
    let counts = |name: &&String| {
        chosen.contains(&name.as_str()) || (options.any && rows.contains_key(*name))
    };
    names.iter().filter(counts).cloned().collect()
}

/// Our program by the name by which it is kubectl.
fn own_kubectl(skiff: &Path, folder: &Path) -> Result<PathBuf, String> {
    shell::make_folder(folder)?;
    let link = folder.join("kubectl");
    let _ = std::fs::remove_file(&link);
    let program = skiff.canonicalize().map_err(shell::failed("find", skiff))?;
    std::os::unix::fs::symlink(program, &link).map_err(shell::failed("link", &link))?;
    Ok(link)
}

struct Places {
    repository: PathBuf,
    /// Where everything made is.
    made: PathBuf,
}

impl Places {
    fn new() -> Result<Places, String> {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let repository = repository.canonicalize().map_err(|error| error.to_string())?;
        let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
        let made = target.unwrap_or_else(|| repository.join("target")).join("conformance");
        shell::make_folder(&made)?;
        let made = made.canonicalize().map_err(|error| error.to_string())?;
        Ok(Places { repository, made })
    }
}

/// The program to judge: the one named, or the one beside this program, built now.
fn skiff(options: &Options) -> Result<PathBuf, String> {
    if let Some(path) = &options.skiff {
        return Ok(path.clone());
    }
    shell::run(Command::new("cargo").args(["build", "--quiet", "--package", "skiff"]))?;
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    Ok(own.with_file_name("skiff"))
}

/// The commit that rows are marked with; one with changes besides says so.
fn commit(repository: &Path) -> Result<String, String> {
    let git = |arguments: &[&str]| {
        shell::output(Command::new("git").current_dir(repository).args(arguments))
    };
    let commit = git(&["rev-parse", "--short", "HEAD"])?;
    let changed = !git(&["status", "--porcelain", "--untracked-files=no", "crates"])?.is_empty();
    Ok(format!("{}{}", commit.trim(), if changed { "+" } else { "" }))
}
