//! `/logs/?query=kubelet`: what a service of the machine wrote, from its journal or its file
//! (`pkg/kubelet/kubelet_server_journal.go`). Only where the configuration allows it.
use super::answer::{self, Refused, Reply};
use super::files;
use super::route::Asked;
use http::StatusCode;
use jiff::Timestamp;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::process::Command;

const MOST_SERVICES: usize = 4;
const LONGEST_NAME: usize = 256;
const MOST_LINES: i64 = 100_000;
/// How long a journal may be read.
const PATIENCE: Duration = Duration::from_secs(30);
/// Most that is sent of a journal.
const MOST_BYTES: u64 = 32 << 20;

#[derive(Debug, Clone, Default, PartialEq)]
struct Query {
    services: Vec<String>,
    files: Vec<String>,
    options: Options,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct Options {
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    tail: Option<i64>,
    boot: Option<i64>,
    pattern: String,
}

/// What is asked for, if anything is; else it is about a file that the path names.
pub async fn page(asked: &Asked<'_>, path: &str) -> Option<Result<Reply, Refused>> {
    let query = match parse(asked) {
        Ok(query) if query == Query::default() => return None,
        Ok(query) => query,
        Err(why) => return Some(Err(answer::bad_request(why))),
    };
    let refused = |why: &str| Some(Err(answer::refuse(StatusCode::NOT_ACCEPTABLE, why)));
    if !path.trim_matches('/').is_empty() {
        return refused("path not allowed in query mode");
    }
    if let Err(why) = validate(&query) {
        return refused(&why);
    }
    if let [file] = query.files.as_slice() {
        return Some(files::page(&file.replace('\\', "/")).await);
    }
    Some(Ok(answer::text(StatusCode::OK, services(&query).await)))
}

fn invalid(field: &str, value: &str, why: &str) -> String {
    format!("{field}: Invalid value: {value:?}: {why}")
}

fn parse(asked: &Asked<'_>) -> Result<Query, String> {
    let mut query = Query::default();
    let all = asked.all("query");
    for one in &all {
        match one.contains(['/', '\\']) {
            true => query.files.push(one.clone()),
            false if one.trim().is_empty() => {}
            false => query.services.push(one.clone()),
        }
    }
    if !all.is_empty() && query == Query::default() {
        return Err(invalid("query", &all.join(" "), "may not be empty"));
    }
    let given = |name: &str| Some(asked.get(name).to_owned()).filter(|text| !text.is_empty());
    let time = |name: &str| {
        let read = |text: String| {
            text.parse::<Timestamp>().map_err(|_| invalid(name, &text, "invalid time format"))
        };
        given(name).map(read).transpose()
    };
    let number = |name: &str| {
        let read = |text: String| {
            text.parse::<i64>().map_err(|error| invalid(name, &text, &error.to_string()))
        };
        given(name).map(read).transpose()
    };
    query.options = Options {
        since: time("sinceTime")?,
        until: time("untilTime")?,
        tail: number("tailLines")?,
        boot: number("boot")?,
        pattern: given("pattern").unwrap_or_default(),
    };
    Ok(query)
}

fn validate(query: &Query) -> Result<(), String> {
    let Query { services, files, options } = query;
    for name in services {
        if name.len() > LONGEST_NAME {
            let why = format!("length must be less than {LONGEST_NAME}");
            return Err(invalid("query", name, &why));
        }
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.:@".contains(letter);
        if !name.chars().all(is_plain) {
            return Err(invalid("query", name, "input contains unsupported characters"));
        }
    }
    if services.len() > MOST_SERVICES {
        let count = services.len();
        return Err(format!("query: Too many: {count}: must have at most {MOST_SERVICES} items"));
    }
    let shown = files.join(" ");
    match (files.len(), services.len()) {
        (0, 0) => return Err("query: Required value: cannot be empty with options".to_owned()),
        (1.., 1..) => return Err(invalid("query", &shown, "cannot specify a file and service")),
        (2.., _) => return Err(invalid("query", &shown, "cannot specify more than one file")),
        (1, _) if *options != Options::default() => {
            return Err(invalid("query", &shown, "cannot specify file with options"));
        }
        _ => {}
    }
    if let (Some(since), Some(until)) = (options.since, options.until)
        && since > until
    {
        return Err(invalid("untilTime", &until.to_string(), "must be after `sinceTime`"));
    }
    if let Some(boot) = options.boot.filter(|boot| *boot > 0) {
        return Err(invalid("boot", &boot.to_string(), "must be less than 1"));
    }
    if let Some(tail) = options.tail.filter(|tail| !(0..=MOST_LINES).contains(tail)) {
        let why = format!("must be between 0 and {MOST_LINES}, inclusive");
        return Err(invalid("tailLines", &tail.to_string(), &why));
    }
    Ok(())
}

/// What the journal is asked; each is one word to it, whatever is in it.
fn arguments(services: &[String], options: &Options) -> Vec<String> {
    let mut words = ["--utc", "--no-pager", "--output=short-precise"].map(str::to_owned).to_vec();
    let time = |time: Timestamp| time.strftime("%Y-%m-%d %H:%M:%S").to_string();
    words.extend(options.since.map(|since| format!("--since={}", time(since))));
    words.extend(options.until.map(|until| format!("--until={}", time(until))));
    if let Some(tail) = options.tail {
        words.extend(["--pager-end".to_owned(), format!("--lines={tail}")]);
    }
    words.extend(services.iter().map(|service| format!("--unit={service}")));
    if !options.pattern.is_empty() {
        words.push(format!("--grep={}", options.pattern));
    }
    if let Some(boot) = options.boot {
        words.extend(["--boot".to_owned(), boot.to_string()]);
    }
    words
}

/// No more of it is read than is sent, however much there is.
async fn journal(words: &[String]) -> Option<String> {
    let mut program = Command::new("journalctl")
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .ok()?;
    let mut bytes = Vec::new();
    let mut output = program.stdout.take()?.take(MOST_BYTES);
    let read = tokio::time::timeout(PATIENCE, output.read_to_end(&mut bytes)).await;
    read.ok()?.ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

async fn services(query: &Query) -> String {
    let known = journal(&["--field".to_owned(), "_SYSTEMD_UNIT".to_owned()]).await;
    let known = known.unwrap_or_default();
    let in_journal = |service: &&String| known.contains(&format!("{service}.service"));
    let (with, without): (Vec<&String>, Vec<&String>) = query.services.iter().partition(in_journal);
    let mut text = String::new();
    if !with.is_empty() {
        let units: Vec<String> = with.into_iter().cloned().collect();
        let said = journal(&arguments(&units, &query.options)).await;
        text += &said.unwrap_or_else(|| "\nerror: journal output not available\n".to_owned());
    }
    if !without.is_empty() && query.options != Options::default() {
        let names: Vec<&str> = without.iter().map(|name| name.as_str()).collect();
        return text
            + &format!(
                "\noptions present and query resolved to log files for [{}]\ntry without specifying options\n",
                names.join(" ")
            );
    }
    for service in without {
        text += &of_file(Path::new(files::ROOT), service);
    }
    text
}

/// A service without a journal may write to a file that has its name.
fn of_file(root: &Path, service: &str) -> String {
    let names = [service.to_owned(), format!("{service}.log"), format!("{service}/{service}.log")];
    let found = names.iter().find_map(|name| files::text(root, name));
    found.unwrap_or_else(|| format!("\nlog not found for {service}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let asked =
            Asked { rest: Vec::new(), query: form_urlencoded::parse(text.as_bytes()).collect() };
        let said = match parse(&asked).and_then(|query| validate(&query).map(|()| query)) {
            Ok(query) if !query.files.is_empty() => query.files.join(" "),
            Ok(query) => arguments(&query.services, &query.options)[3..].join(" "),
            Err(why) => why,
        };
        assert_eq!(said, expected, "{text}");
    }

    #[test]
    fn a_query_becomes_words_for_the_journal() {
        check("query=kubelet", "--unit=kubelet");
        check(
            "query=a&query=b&tailLines=5&boot=-1&pattern=x%20y",
            "--pager-end --lines=5 --unit=a --unit=b --grep=x y --boot -1",
        );
        check("query=a&sinceTime=2026-01-02T03:04:05Z", "--since=2026-01-02 03:04:05 --unit=a");
        check("query=/messages", "/messages");
    }

    #[test]
    fn what_is_wrong_is_told() {
        check("query=%20", "query: Invalid value: \" \": may not be empty");
        check(
            "query=a;rm",
            "query: Invalid value: \"a;rm\": input contains unsupported characters",
        );
        check("tailLines=5", "query: Required value: cannot be empty with options");
        check(
            "query=a&query=/b",
            "query: Invalid value: \"/b\": cannot specify a file and service",
        );
        check(
            "query=/a&query=/b",
            "query: Invalid value: \"/a /b\": cannot specify more than one file",
        );
        check("query=/a&boot=0", "query: Invalid value: \"/a\": cannot specify file with options");
        check("query=a&boot=1", "boot: Invalid value: \"1\": must be less than 1");
        check(
            "query=a&tailLines=100001",
            "tailLines: Invalid value: \"100001\": must be between 0 and 100000, inclusive",
        );
        check("query=a&sinceTime=now", "sinceTime: Invalid value: \"now\": invalid time format");
        check(
            "query=a&query=b&query=c&query=d&query=e",
            "query: Too many: 5: must have at most 4 items",
        );
    }

    #[test]
    fn a_service_may_have_a_file_of_its_name() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("web")).unwrap();
        std::fs::write(folder.path().join("web/web.log"), "hello\n").unwrap();
        assert_eq!(of_file(folder.path(), "web"), "hello\n");
        assert_eq!(of_file(folder.path(), "none"), "\nlog not found for none\n");
    }
}
