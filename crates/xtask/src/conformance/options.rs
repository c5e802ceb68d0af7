//! What a run is told.
use super::report::Subject;
use super::suite::sig;
use super::upstream::{self, Part};
use regex_automata::meta::Regex;
use std::path::PathBuf;

pub const USAGE: &str = "[--smoke] [--any] [--focus RE] [--skip RE] [--sig NAME] [--failed] [--procs N] \
                         [--nodes N] [--timeout 2h] \
                         [--with kubelet,kube-proxy,kube-scheduler,kube-controller-manager,kube-apiserver] \
                         [--runtime containerd] [--kubectl own] [--kubeconfig FILE | --skiff FILE]";

pub struct Options {
    /// Only the tests of `conformance/smoke.txt`; they need no images and leave the page alone.
    pub smoke: bool,
    /// To choose from are upstream's end-to-end tests that do not make up conformance; they have a page
    /// of their own.
    pub any: bool,
    pub focus: Option<Regex>,
    pub skip: Option<Regex>,
    pub sig: Option<String>,
    /// Only what failed in its last run.
    pub failed: bool,
    pub procs: usize,
    /// How many nodes our cluster has.
    pub nodes: u8,
    /// Upstream's parts in the place of ours.
    pub with: Vec<&'static Part>,
    /// What our kubelets run pods on.
    pub runtime: Runtime,
    /// Tests are given our kubectl in the place of upstream's.
    pub own_kubectl: bool,
    pub timeout: String,
    /// A cluster that runs already, in place of one of ours.
    pub kubeconfig: Option<PathBuf>,
    /// The program to judge, in place of the one built from this tree.
    pub skiff: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Runtime {
    Embedded,
    /// Debian's, over its CRI socket.
    Containerd,
}

impl Options {
    /// What is judged: each has places and a page of its own.
    pub fn subject(&self) -> Subject {
        if self.runtime == Runtime::Containerd {
            return Subject {
                name: "containerd",
                page: "docs/conformance-containerd.md",
                title: "Conformance on containerd",
                besides: " with Debian's containerd in the place of the embedded runtime"
                    .to_owned(),
            };
        }
        if self.any {
            return Subject {
                name: "e2e",
                page: "docs/e2e.md",
                title: "Upstream's other end-to-end tests",
                besides: String::new(),
            };
        }
        if self.with.is_empty() {
            return Subject {
                name: "conformance",
                page: "docs/conformance.md",
                title: "Conformance",
                besides: String::new(),
            };
        }
        let parts: Vec<&str> = self.with.iter().map(|part| part.name).collect();
        if upstream::is_stock(&self.with) {
            return Subject {
                name: "stock",
                page: "docs/conformance-stock.md",
                title: "Conformance in upstream's cluster",
                besides: format!(" in a cluster of upstream's etcd, {}", parts.join(", ")),
            };
        }
        Subject {
            name: "mixed",
            page: "docs/conformance-mixed.md",
            title: "Conformance of a mixture",
            besides: format!(" with upstream's {}", parts.join(", ")),
        }
    }

    /// Whether a test is asked for by name and group.
    pub fn chooses(&self, name: &str) -> bool {
        self.focus.as_ref().is_none_or(|focus| focus.is_match(name))
            && self.skip.as_ref().is_none_or(|skip| !skip.is_match(name))
            && self.sig.as_ref().is_none_or(|wanted| sig(name) == wanted.trim_start_matches("sig-"))
    }
}

pub fn parse(arguments: &[String]) -> Result<Options, String> {
    let mut options = Options {
        smoke: false,
        any: false,
        focus: None,
        skip: None,
        sig: None,
        failed: false,
        procs: 4,
        nodes: 1,
        with: Vec::new(),
        runtime: Runtime::Embedded,
        own_kubectl: false,
        timeout: "4h".to_owned(),
        kubeconfig: None,
        skiff: None,
    };
    let mut words = arguments.iter();
    while let Some(flag) = words.next() {
        let mut value = || words.next().cloned().ok_or_else(|| format!("{flag} needs a value"));
        match flag.as_str() {
            "--smoke" => options.smoke = true,
            "--any" => options.any = true,
            "--failed" => options.failed = true,
            "--focus" => options.focus = Some(expression(value()?)?),
            "--skip" => options.skip = Some(expression(value()?)?),
            "--sig" => options.sig = Some(value()?),
            "--procs" => {
                options.procs = value()?.parse().map_err(|error| format!("--procs: {error}"))?;
            }
            "--nodes" => {
                options.nodes = value()?.parse().map_err(|error| format!("--nodes: {error}"))?;
            }
            "--with" => {
                options.with =
                    value()?.split(',').map(upstream::find).collect::<Result<_, String>>()?;
            }
            "--runtime" => options.runtime = runtime(&value()?)?,
            "--kubectl" => {
                options.own_kubectl = match value()?.as_str() {
                    "own" => true,
                    "upstream" => false,
                    other => return Err(format!("no kubectl {other}; there are own, upstream")),
                }
            }
            "--timeout" => options.timeout = value()?,
            "--kubeconfig" => options.kubeconfig = Some(value()?.into()),
            "--skiff" => options.skiff = Some(value()?.into()),
            _ => return Err(format!("no option {flag}; there are {USAGE}")),
        }
    }
    if options.any && options.focus.is_none() && options.sig.is_none() {
        return Err("--any without --focus or --sig would be thousands of tests".to_owned());
    }
    if options.any && (options.runtime != Runtime::Embedded || !options.with.is_empty()) {
        return Err("--any is about Skiff alone".to_owned());
    }
    if options.runtime != Runtime::Embedded && !options.with.is_empty() {
        return Err("upstream's parts run beside the embedded runtime".to_owned());
    }
    match options.nodes > 1 && !options.with.is_empty() {
        true => Err("upstream's parts run on one node".to_owned()),
        false => Ok(options),
    }
}

fn expression(text: String) -> Result<Regex, String> {
    Regex::new(&text).map_err(|error| format!("{text:?}: {error}"))
}

fn runtime(name: &str) -> Result<Runtime, String> {
    match name {
        "embedded" => Ok(Runtime::Embedded),
        "containerd" => Ok(Runtime::Containerd),
        _ => Err(format!("no runtime {name}; there are embedded, containerd")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(arguments: &str, expected: &[&str]) {
        let words: Vec<String> = arguments.split_whitespace().map(str::to_owned).collect();
        let options = parse(&words).expect("options");
        let names = ["[sig-apps] Job runs", "[sig-node] Pod runs", "[sig-node] Probe"];
        let chosen: Vec<&str> = names.into_iter().filter(|name| options.chooses(name)).collect();
        assert_eq!(chosen, expected, "{arguments}");
    }

    #[test]
    fn tests_are_chosen_by_name_and_group() {
        check("--focus runs$", &["[sig-apps] Job runs", "[sig-node] Pod runs"]);
        check("--sig node --focus Pr.be", &["[sig-node] Probe"]);
        check("--sig sig-apps --procs 2", &["[sig-apps] Job runs"]);
        check("--focus runs --skip Job|Probe", &["[sig-node] Pod runs"]);
    }

    #[test]
    fn what_is_judged_has_its_own_places_and_page() {
        let check = |arguments: &str, name: &str, page: &str| {
            let words: Vec<String> = arguments.split_whitespace().map(str::to_owned).collect();
            let subject = parse(&words).expect("options").subject();
            assert_eq!((subject.name, subject.page), (name, page), "{arguments}");
        };
        check("--sig node", "conformance", "docs/conformance.md");
        check("--runtime embedded", "conformance", "docs/conformance.md");
        check("--any --sig node", "e2e", "docs/e2e.md");
        check("--with kubelet,kube-proxy", "mixed", "docs/conformance-mixed.md");
        check("--with kube-apiserver,kube-scheduler", "stock", "docs/conformance-stock.md");
        check("--runtime containerd --nodes 2", "containerd", "docs/conformance-containerd.md");
    }

    #[test]
    fn what_is_no_option_is_told() {
        let problem = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            parse(&words).err().expect("no option")
        };
        assert_eq!(problem(&["--procs"]), "--procs needs a value");
        assert_eq!(problem(&["--procs", "x"]), "--procs: invalid digit found in string");
        let known = "no runtime docker; there are embedded, containerd";
        assert_eq!(problem(&["--runtime", "docker"]), known);
        let mixed = problem(&["--runtime", "containerd", "--with", "kubelet"]);
        assert_eq!(mixed, "upstream's parts run beside the embedded runtime");
        assert!(problem(&["--any"]).starts_with("--any without --focus"));
        assert!(problem(&["--quick"]).starts_with("no option --quick; there are [--smoke]"));
    }
}
