//! The tests that count, and one run of some of them.
use super::cluster::Cluster;
use super::interrupted;
use super::outcome::{self, Outcome};
use super::shell::{self, failed};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Conformance tests of v1.37.0-rc.1 that the release keeps as ordinary ones. We go by 465.
const DEMOTED: [&str; 3] = [
    "increase cpu & mem on c1, c2, decrease cpu & mem on c3 - net increase",
    "increase cpu & mem on c1, decrease cpu & mem on c2, c3 - net decrease",
    "increase: CPU (c1,c3), memory (c2, c3) ; decrease: CPU (c2)",
];

#[derive(Deserialize)]
struct Entry {
    codename: String,
}

/// The names of all tests, as the release lists them and as the suite calls them.
pub fn tests(upstream: &Path) -> Result<Vec<String>, String> {
    let path = upstream.join("test/conformance/testdata/conformance.yaml");
    let entries: Vec<Entry> =
        serde_saphyr::from_str(&shell::read(&path)?).map_err(failed("read", &path))?;
    let demoted = DEMOTED.iter().map(|what| {
        format!(
            "[sig-node] Pod InPlace Resize Container guaranteed pods with multiple containers \
             3 containers - {what} [MinimumKubeletVersion:1.34]"
        )
    });
    let mut names: Vec<String> =
        entries.into_iter().map(|entry| entry.codename).chain(demoted).collect();
    names.sort();
    Ok(names)
}

/// Upstream's end-to-end tests that do not make up conformance, as the suite itself lists them.
pub fn other_tests(programs: &Path) -> Result<Vec<String>, String> {
    let listed = shell::output(Command::new(programs.join("e2e.test")).arg("--list-tests"))?;
    let names: BTreeSet<&str> = listed.lines().filter_map(listed_name).collect();
    let others = names.into_iter().filter(|name| !name.contains("[Conformance]"));
    Ok(others.map(str::to_owned).collect())
}

/// A line is `FILE:LINE: NAME`.
fn listed_name(line: &str) -> Option<&str> {
    let at = line.find(": [sig-")?;
    Some(line[at + 2..].trim())
}

/// The special interest group that a test's name begins with.
pub fn sig(name: &str) -> &str {
    name.strip_prefix("[sig-").and_then(|rest| rest.split(']').next()).unwrap_or_default()
}

/// Those that disturb others: they run last and one at a time.
pub fn is_alone(name: &str) -> bool {
    name.contains("[Serial]") || name.contains("[Disruptive]")
}

pub struct Run<'a> {
    pub programs: &'a Path,
    pub kubectl: &'a Path,
    pub cluster: &'a Cluster,
    pub procs: usize,
    /// When to end the run, in Go's words (`30m`).
    pub timeout: &'a str,
    /// Where the reports and logs of this run go.
    pub folder: PathBuf,
}

impl Run<'_> {
    /// Runs these tests; what became of each.
    pub fn tests(&self, names: &[&str]) -> Result<BTreeMap<String, Outcome>, String> {
        shell::make_folder(&self.folder)?;
        let json = self.folder.join("report.json");
        let _ = std::fs::remove_file(&json);
        let mut child = self
            .command(names)
            // All that it starts ends with it.
            .process_group(0)
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed("start", &self.programs.join("ginkgo")))?;
        let output = child.stdout.take().expect("asked for a pipe");
        interrupted::suite_is(Some(child.id()));
        self.follow(BufReader::new(output), names.len())?;
        // It fails when a test does; whether the report was written says more.
        child.wait().map_err(|error| error.to_string())?;
        interrupted::suite_is(None);
        interrupted::check()?;
        let log = self.folder.join("run.log");
        let text = std::fs::read_to_string(&json)
            .map_err(|_| format!("the suite did not report: see {}", log.display()))?;
        let outcomes = outcome::read(&text, names)?;
        outcome::keep_failures(&self.folder, &outcomes)?;
        Ok(outcomes)
    }

    fn command(&self, names: &[&str]) -> Command {
        let mut command = self.cluster.within(&self.programs.join("ginkgo"));
        command
            .arg("run")
            .arg(format!("--procs={}", self.procs))
            .arg(format!("--timeout={}", self.timeout))
            .args(["-v", "--no-color", "--json-report=report.json", "--junit-report=junit.xml"])
            .arg(format!("--output-dir={}", self.folder.display()))
            .args(names.iter().map(|name| format!("--focus={}$", quoted(name))))
            .arg(self.programs.join("e2e.test"))
            .arg("--")
            .arg(format!("--kubeconfig={}", self.cluster.kubeconfig().display()))
            .arg(format!("--kubectl-path={}", self.kubectl.display()))
            .args(["--provider=skeleton", "--allowed-not-ready-nodes=-1", "--minStartupPods=0"])
            .args(["--disable-log-dump", "--dump-logs-on-failure=true"]);
        command
    }

    /// Keeps the suite's output and tells of each test that ends.
    fn follow(&self, output: impl BufRead, all: usize) -> Result<(), String> {
        let path = self.folder.join("run.log");
        let mut log = File::create(&path).map_err(failed("create", &path))?;
        let (mut passed, mut broken, mut skipped) = (0, 0, 0);
        for line in output.lines().map_while(Result::ok) {
            writeln!(log, "{line}").map_err(failed("write", &path))?;
            match line.trim_start() {
                line if line.starts_with("• [FAILED]") || line.starts_with("• [PANICKED]") => {
                    broken += 1
                }
                line if line.starts_with("• [") => passed += 1,
                line if line.starts_with("S [SKIPPED]") => skipped += 1,
                line if line.starts_with("[sig-") => {
                    eprintln!(
                        "{passed} passed, {broken} failed, {skipped} skipped, of {all}: {line}"
                    );
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// A regular expression, in Go's words, for a text.
fn quoted(text: &str) -> String {
    let special = |letter: char| r"\.+*?()|[]{}^$".contains(letter);
    text.chars().fold(String::new(), |mut quoted, letter| {
        if special(letter) {
            quoted.push('\\');
        }
        quoted.push(letter);
        quoted
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_their_group_and_whether_they_run_alone() {
        for (name, group, alone) in [
            ("[sig-api-machinery] Watchers should [Conformance]", "api-machinery", false),
            ("[sig-apps] Daemon set [Serial] should [Conformance]", "apps", true),
            ("no group", "", false),
        ] {
            assert_eq!((sig(name), is_alone(name)), (group, alone), "{name}");
        }
    }

    #[test]
    fn tests_are_listed_with_where_they_are() {
        let line =
            "    ../x/network_policy.go:590: [sig-network] Netpol a: b [Feature:NetworkPolicy]";
        let name = "[sig-network] Netpol a: b [Feature:NetworkPolicy]";
        assert_eq!(listed_name(line), Some(name));
        assert_eq!(listed_name("The following spec names can be used:"), None);
    }

    #[test]
    fn a_name_is_quoted_for_the_runner() {
        assert_eq!(quoted("[sig-x] a (b) c.d"), r"\[sig-x\] a \(b\) c\.d");
    }
}
