//! Functions that are the same to the byte are one in what is shipped: kinds and codecs make many of them.
//! What is shipped knows its commit; what is built to be tried is not built again for each commit.
use std::path::Path;
use std::process::Command;

fn main() {
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|found| found == value);
    // The linker there is Rust's own. Others may not know the word.
    let target = "x86_64-unknown-linux-gnu";
    if is("PROFILE", "release") && is("TARGET", target) && is("HOST", target) {
        println!("cargo:rustc-link-arg-bins=-Wl,--icf=all");
    }
    let commit = match is("PROFILE", "release") {
        true => git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "no commit".to_owned()),
        false => "debug build".to_owned(),
    };
    println!("cargo:rustc-env=SKIFF_COMMIT={commit}");
    println!("cargo:rerun-if-changed=build.rs");
    // It is written at every commit and every change of branch.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"]).filter(|log| Path::new(log).exists());
    if let Some(log) = log.filter(|_| is("PROFILE", "release")) {
        println!("cargo:rerun-if-changed={log}");
    }
}

/// What git says; nothing outside of a repository.
fn git(arguments: &[&str]) -> Option<String> {
    let said = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(said.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| said.status.success() && !text.is_empty())
}
