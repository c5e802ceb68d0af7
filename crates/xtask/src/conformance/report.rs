//! `docs/conformance.md` and its like: what the last run of each test said. The page is also the memory: a run
//! changes the rows of the tests it ran, and no others.
use super::outcome::{Outcome, Verdict};
use super::programs::RELEASE;
use super::recipe::Recipe;
use super::suite::sig;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// The last result of one test, as the page has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub result: String,
    pub seconds: String,
    pub commit: String,
    pub message: String,
}

/// What a page knows, by the names of tests.
pub type Rows = BTreeMap<String, Row>;

/// What is judged, and on which page: clusters that differ have pages that know nothing of each other.
pub struct Subject {
    /// What the cluster and its places are called, so that one can be judged beside another.
    pub name: &'static str,
    pub page: &'static str,
    pub title: &'static str,
    /// What the cluster has besides Skiff, or in the place of a part of it.
    pub besides: String,
}

const NOT_RUN: &str = "not run";
const HEADING: &str = "| SIG | test | result | seconds | commit | message |";

/// The rows of a page written earlier; none of a page that is not one.
pub fn rows(page: &str) -> Rows {
    let table = page.lines().skip_while(|line| *line != HEADING).skip(2);
    table
        .take_while(|line| line.starts_with("| "))
        .filter_map(|line| {
            let cells: Vec<String> =
                line.trim_matches('|').split(" | ").map(|cell| plain(cell.trim())).collect();
            let [_, name, result, seconds, commit, message] = cells.try_into().ok()?;
            (result != NOT_RUN).then_some((name, Row { result, seconds, commit, message }))
        })
        .collect()
}

/// The rows after a run, at this commit.
pub fn updated(mut rows: Rows, outcomes: &BTreeMap<String, Outcome>, commit: &str) -> Rows {
    for (name, outcome) in outcomes {
        let row = Row {
            result: outcome.verdict.word().to_owned(),
            seconds: outcome.seconds.to_string(),
            commit: commit.to_owned(),
            message: outcome.message.clone(),
        };
        rows.insert(name.clone(), row);
    }
    rows
}

/// How many of these tests ended in which way.
pub fn sum<'a>(names: impl Iterator<Item = &'a String>, rows: &Rows) -> String {
    let results: Vec<Option<&str>> =
        names.map(|name| rows.get(name).map(|row| row.result.as_str())).collect();
    let count = |wanted| results.iter().filter(|result| **result == wanted).count();
    let mut text = String::new();
    for verdict in Verdict::ALL {
        let _ = write!(text, "{} {}, ", count(Some(verdict.word())), verdict.word());
    }
    format!("{text}{} {NOT_RUN}, of {}", count(None), results.len())
}

pub fn page(subject: &Subject, names: &[String], rows: &Rows, recipes: &[&Recipe]) -> String {
    let Subject { title, besides, .. } = subject;
    let mut page = format!(
        "# {title}\n\nUpstream's suite {RELEASE} on Skiff{besides}, run by `cargo xtask conformance`, \
         which writes this page: one row per test, with what its last run said.\n\n**{}**\n\n",
        sum(names.iter(), rows)
    );
    page.push_str("| SIG | result |\n| --- | --- |\n");
    let groups: BTreeSet<&str> = names.iter().map(|name| sig(name)).collect();
    for group in groups {
        let members = names.iter().filter(|name| sig(name) == group);
        let _ = writeln!(page, "| {group} | {} |", sum(members, rows));
    }
    page.push_str("\n## Images\n\nStand-ins, made from the recipes in `conformance/images/`.\n\n");
    page.push_str("| image | what it is |\n| --- | --- |\n");
    for recipe in recipes {
        let names = recipe.names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>();
        let _ = writeln!(page, "| {} | {} |", names.join(", "), recipe.note);
    }
    let _ = write!(page, "\n## Tests\n\n{HEADING}\n| --- | --- | --- | ---: | --- | --- |\n");
    for name in names {
        let none = Row {
            result: NOT_RUN.to_owned(),
            seconds: String::new(),
            commit: String::new(),
            message: String::new(),
        };
        let row = rows.get(name).unwrap_or(&none);
        let cells =
            [sig(name), name, &row.result, &row.seconds, &row.commit, &row.message].map(cell);
        let _ = writeln!(page, "| {} |", cells.join(" | "));
    }
    page
}

/// A text that leaves a table whole.
fn cell(text: &str) -> String {
    text.replace('|', "&#124;").replace('<', "&lt;")
}

fn plain(cell: &str) -> String {
    cell.replace("&#124;", "|").replace("&lt;", "<")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(message: &str) -> Outcome {
        let message = message.to_owned();
        Outcome { verdict: Verdict::Failed, seconds: 3, message, log: String::new() }
    }

    #[test]
    fn a_page_keeps_what_it_was_told() {
        let names = ["[sig-a] one", "[sig-a] two"].map(str::to_owned);
        let outcomes = [(names[0].clone(), failed("<nil> | odd"))].into();
        let told = updated(BTreeMap::new(), &outcomes, "abc");
        let subject = Subject {
            name: "conformance",
            page: "docs/conformance.md",
            title: "Conformance",
            besides: " with others".to_owned(),
        };
        let written = page(&subject, &names, &told, &[]);
        assert!(written.starts_with("# Conformance\n"), "{written}");
        assert!(written.contains(" on Skiff with others, run by "), "{written}");
        assert_eq!(rows(&written), told);
        assert!(
            written.contains("**0 passed, 1 failed, 0 skipped, 1 not run, of 2**"),
            "{written}"
        );
    }

    #[test]
    fn a_run_changes_only_the_rows_of_its_tests() {
        let before = updated(BTreeMap::new(), &[("one".to_owned(), failed("x"))].into(), "abc");
        let after = updated(before.clone(), &[("two".to_owned(), failed("y"))].into(), "def");
        assert_eq!(after["one"], before["one"]);
        assert_eq!(after["two"].commit, "def");
    }
}
