//! Programs from the Go module in `conformance/`: the suite, its runner, and what images hold.
use super::shell;
use super::upstream::Part;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The release that the suite is of; `conformance/go.mod` asks for the same.
pub const RELEASE: &str = "v1.37.1";

struct Program {
    name: &'static str,
    package: &'static str,
    /// A test binary is built by another command.
    is_test: bool,
}

const fn tool(name: &'static str, package: &'static str) -> Program {
    Program { name, package, is_test: false }
}

/// The suite is first: it takes longest and compiles most of what the others need.
const PROGRAMS: &[Program] = &[
    Program { name: "e2e.test", package: "k8s.io/kubernetes/test/e2e", is_test: true },
    tool("ginkgo", "github.com/onsi/ginkgo/v2/ginkgo"),
    tool("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
    tool("agnhost", "k8s.io/kubernetes/test/images/agnhost"),
    tool("nonewprivs", "k8s.io/kubernetes/test/images/nonewprivs"),
    tool("sample-apiserver", "k8s.io/sample-apiserver"),
    tool("etcd", "go.etcd.io/etcd/server/v3"),
];

/// What tests need that run no pod: the suite and its runner.
const FEWEST: usize = 2;

/// Builds those that are missing into the folder; only the fewest, if images are not made.
pub fn build(module: &Path, folder: &Path, fewest: bool) -> Result<(), String> {
    shell::make_folder(folder)?;
    let wanted = if fewest { &PROGRAMS[..FEWEST] } else { PROGRAMS };
    for program in wanted.iter().filter(|program| !folder.join(program.name).exists()) {
        build_one(module, folder, program)?;
    }
    Ok(())
}

/// Upstream's own part of a cluster.
pub fn build_part(module: &Path, folder: &Path, part: &Part) -> Result<(), String> {
    match folder.join(part.name).exists() {
        true => Ok(()),
        false => build_one(module, folder, &tool(part.name, part.package)),
    }
}

fn build_one(module: &Path, folder: &Path, program: &Program) -> Result<(), String> {
    eprintln!("building {} from {}", program.name, program.package);
    // Under another name until it is whole.
    let unfinished = folder.join(format!("{}.unfinished", program.name));
    let mut command = go(module);
    match program.is_test {
        // Whatever vet finds in upstream, nobody mends it here; and it takes minutes.
        true => command.args(["test", "-c", "-vet=off"]),
        false => command.arg("build"),
    };
    command.args(["-gcflags=all=-dwarf=false", "-ldflags", &linking(), "-o"]);
    shell::run(command.arg(&unfinished).arg(program.package))?;
    let target = folder.join(program.name);
    std::fs::rename(&unfinished, &target).map_err(shell::failed("rename", &unfinished))
}

/// Where upstream's module lies in Go's cache: images take files from it.
pub fn upstream(module: &Path) -> Result<PathBuf, String> {
    let mut listed = go(module);
    listed.args(["list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes"]);
    shell::output(&mut listed).map(|path| PathBuf::from(path.trim()))
}

fn go(module: &Path) -> Command {
    let mut command = Command::new("go");
    // Without C the programs run in any image.
    command.current_dir(module).env("CGO_ENABLED", "0").env("GOFLAGS", "-buildvcs=false");
    command
}

/// The pod-certificate tests compare the suite's version with the server's.
fn linking() -> String {
    let package = "k8s.io/component-base/version";
    let mut numbers = RELEASE.trim_start_matches('v').split('.');
    let mut next = || numbers.next().unwrap_or_default();
    let (major, minor) = (next(), next());
    format!(
        "-s -w -X {package}.gitVersion={RELEASE} -X {package}.gitMajor={major} \
         -X {package}.gitMinor={minor}"
    )
}
