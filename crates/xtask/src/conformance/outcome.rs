//! What became of a test, read from ginkgo's report.
use super::shell;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub verdict: Verdict,
    pub seconds: u64,
    /// The failed assertion or the reason for skipping, in one line.
    pub message: String,
    /// Everything that the test said.
    pub log: String,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    Passed,
    Failed,
    Skipped,
}

impl Verdict {
    pub const ALL: [Verdict; 3] = [Verdict::Passed, Verdict::Failed, Verdict::Skipped];

    pub fn word(self) -> &'static str {
        match self {
            Verdict::Passed => "passed",
            Verdict::Failed => "failed",
            Verdict::Skipped => "skipped",
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Suite {
    spec_reports: Option<Vec<Spec>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[derive(Default)]
struct Spec {
    container_hierarchy_texts: Option<Vec<String>>,
    leaf_node_text: String,
    leaf_node_type: String,
    state: String,
    /// In nanoseconds.
    run_time: u64,
    num_attempts: u64,
    failure: Option<Failure>,
    captured_ginkgo_writer_output: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct Failure {
    message: String,
    location: Location,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct Location {
    file_name: String,
    line_number: u64,
}

/// The outcomes of these tests; one that was not begun has none.
pub fn read(report: &str, names: &[&str]) -> Result<BTreeMap<String, Outcome>, String> {
    let suites: Vec<Suite> =
        serde_json::from_str(report).map_err(|error| format!("ginkgo's report: {error}"))?;
    let specs: Vec<Spec> =
        suites.into_iter().flat_map(|s| s.spec_reports.unwrap_or_default()).collect();
    // Without the suite's beginning no test is begun: say why instead of nothing.
    if let Some(broken) = specs.iter().find(|s| s.leaf_node_type != "It" && s.state == "failed") {
        let message = broken.failure.as_ref().map(one_line).unwrap_or_default();
        return Err(format!("the suite failed before its tests: {message}"));
    }
    let outcomes =
        specs.into_iter().filter(|spec| spec.leaf_node_type == "It").filter_map(|spec| {
            let mut words = spec.container_hierarchy_texts.clone().unwrap_or_default();
            words.push(spec.leaf_node_text.clone());
            let name = words.join(" ");
            names.contains(&name.as_str()).then(|| Some((name, outcome(spec)?)))?
        });
    Ok(outcomes.collect())
}

fn outcome(spec: Spec) -> Option<Outcome> {
    let verdict = match spec.state.as_str() {
        "passed" => Verdict::Passed,
        "skipped" if spec.num_attempts > 0 => Verdict::Skipped,
        "failed" | "panicked" | "timedout" => Verdict::Failed,
        // Left out, or cut short by the one who ran it.
        _ => return None,
    };
    let message = spec.failure.as_ref().map(one_line).unwrap_or_default();
    let whole = spec.failure.map(|failure| failure.message).unwrap_or_default();
    let log = format!("{whole}\n\n{}", spec.captured_ginkgo_writer_output);
    Some(Outcome { verdict, seconds: spec.run_time.div_ceil(1_000_000_000), message, log })
}

fn one_line(failure: &Failure) -> String {
    let words: Vec<&str> = failure.message.split_whitespace().collect();
    let text: String = words.join(" ").chars().take(240).collect();
    let place = Path::new(&failure.location.file_name).file_name().unwrap_or_default();
    format!("{text} ({}:{})", place.to_string_lossy(), failure.location.line_number)
}

/// One file for each failed test.
pub fn keep_failures(folder: &Path, outcomes: &BTreeMap<String, Outcome>) -> Result<(), String> {
    for (name, outcome) in outcomes.iter().filter(|(_, o)| o.verdict == Verdict::Failed) {
        let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
        let file: String = name.chars().map(plain).take(180).collect();
        let path = folder.join("failures").join(format!("{file}.log"));
        shell::write(&path, format!("{name}\n{}\n\n{}", outcome.message, outcome.log))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(specs: &str, expected: &str) {
        let report = format!(r#"[{{"SpecReports": [{specs}]}}]"#);
        let told = match read(&report, &["[sig-x] A b"]) {
            Err(problem) => problem,
            Ok(outcomes) => outcomes
                .iter()
                .map(|(n, o)| format!("{n}: {} {}s {}", o.verdict.word(), o.seconds, o.message))
                .collect::<Vec<_>>()
                .join("\n"),
        };
        assert_eq!(told.trim(), expected);
    }

    #[test]
    fn a_test_that_ran_has_an_outcome() {
        let spec = |rest: &str| {
            format!(
                r#"{{"ContainerHierarchyTexts": ["[sig-x] A"], "LeafNodeText": "b",
                    "LeafNodeType": "It", {rest}}}"#
            )
        };
        let failed = r#""State": "failed", "RunTime": 1, "Failure": {"Message": "no\n  way",
                        "Location": {"FileName": "/a/b.go", "LineNumber": 7}}"#;
        check(&spec(r#""State": "passed", "RunTime": 1500000000"#), "[sig-x] A b: passed 2s");
        check(&spec(failed), "[sig-x] A b: failed 1s no way (b.go:7)");
        check(&spec(r#""State": "skipped", "NumAttempts": 0"#), "");
        check(&spec(r#""State": "interrupted", "NumAttempts": 1"#), "");
    }

    #[test]
    fn a_suite_that_does_not_begin_says_why() {
        check(
            r#"{"LeafNodeType": "SynchronizedBeforeSuite", "State": "failed",
                "Failure": {"Message": "no nodes", "Location": {"FileName": "e.go"}}}"#,
            "the suite failed before its tests: no nodes (e.go:0)",
        );
    }
}
