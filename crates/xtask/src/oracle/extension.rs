//! What users add to the API: definitions with their objects, policies and webhooks with their effect. It is
//! a story, for each step depends on those before it; a line of `extension.jsonl` is a step:
//!
//! ```text
//! {"of": "Widget", "post": PATH, "body": {…}, "at": "spec.size", "try": [0, "x"]}
//! {"of": "Widget", "put": PATH, "at": "spec.size", "try": [8]}
//! {"of": "Widget", "patch": PATH, "as": "application/merge-patch+json", "body": {…}}
//! {"of": "Widget", "get": PATH, "table": true}          {"of": "Widget", "delete": PATH}
//! {"until": PATH, "code": 200}                          {"until": PATH, "post": {…}, "not": 201}
//! ```
//!
//! Each value of `try` goes to the place `at`, or is a merge patch of the body without it. What is put is
//! what each server has (at the path, or at the one that `from` names). `until` asks both servers again
//! and again: what is stored is not in force at once.
//!
//! A second story, `hooks.jsonl`, is about webhooks that answer, lie and talk nonsense ([`Hooks`]), and names that
//! others have already.
use super::hooks::Hooks;
use super::mutate::Change;
use super::report::Report;
use super::server::{JSON, Pair, Request, TABLE};
use api::patch::merge;
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;

const STEPS: &str = include_str!("extension.jsonl");
const HOOKS: &str = include_str!("hooks.jsonl");
/// So often, and with such pauses, both servers are asked whether something is in force.
const TRIES: usize = 200;
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    #[serde(default)]
    of: &'static str,
    get: Option<String>,
    /// A path; or the body that is posted until both answer as they should.
    post: Option<Value>,
    put: Option<String>,
    patch: Option<String>,
    delete: Option<String>,
    until: Option<String>,
    code: Option<u16>,
    not: Option<u16>,
    #[serde(default)]
    body: Value,
    #[serde(rename = "as", default)]
    media: &'static str,
    #[serde(default)]
    table: bool,
    from: Option<String>,
    at: Option<String>,
    #[serde(rename = "try")]
    tries: Option<Vec<Value>>,
    #[serde(default)]
    about: String,
}

pub async fn tell(pair: &mut Pair, report: &mut Report) -> anyhow::Result<()> {
    if !report.wants("extension") {
        return Ok(());
    }
    let hooks = Hooks::start().await?;
    for line in STEPS.lines().chain(HOOKS.lines()) {
        // What a chore reads once it may keep.
        let step: Step = serde_json::from_str(hooks.put_into(line).leak())?;
        if let Some(path) = &step.until {
            step.wait(pair, path).await?;
            continue;
        }
        for request in step.requests(pair).await? {
            report.ask("extension", step.of, pair, &request).await?;
        }
    }
    Ok(())
}

impl Step {
    /// Asks until both servers answer as the step says.
    async fn wait(&self, pair: &mut Pair, path: &str) -> anyhow::Result<()> {
        let (method, body) = match &self.post {
            Some(body) => (Method::POST, body.clone()),
            None => (Method::GET, Value::Null),
        };
        let request = Request::new(method, path.to_owned(), &body, format!("until {path}"));
        let is_so = |code: u16| match (self.code, self.not) {
            (Some(wanted), _) => code == wanted,
            (None, Some(unwanted)) => code != unwanted,
            (None, None) => true,
        };
        for _ in 0..TRIES {
            let (ours, theirs) = pair.ask(&request).await?;
            if is_so(ours.code) && theirs.is_some_and(|theirs| is_so(theirs.code)) {
                return Ok(());
            }
            tokio::time::sleep(PAUSE).await;
        }
        let (ours, theirs) = pair.ask(&request).await?;
        anyhow::bail!("{path}: ours {}, theirs {:?}", ours.code, theirs.map(|said| said.code))
    }

    async fn requests(&self, pair: &mut Pair) -> anyhow::Result<Vec<Request>> {
        let about = |verb: &str, path: &str| format!("{verb} {path} {}", self.about);
        if let Some(path) = &self.get {
            let accept = if self.table { TABLE } else { JSON };
            return Ok(vec![Request::get(path.clone(), accept, about("get", path))]);
        }
        if let Some(path) = &self.delete {
            let (path, about) = (path.clone(), about("delete", path));
            return Ok(vec![Request::new(Method::DELETE, path, &Value::Null, about)]);
        }
        let (method, path) = match (&self.post, &self.put, &self.patch) {
            (Some(Value::String(path)), ..) => (Method::POST, path),
            (_, Some(path), _) => (Method::PUT, path),
            (.., Some(path)) => (Method::PATCH, path),
            _ => anyhow::bail!("a step that does nothing"),
        };
        let bases = match method {
            Method::PUT => self.stored(pair, path).await?,
            _ => [self.body.clone(), self.body.clone()],
        };
        let mut requests = Vec::new();
        for value in self.tries.as_deref().unwrap_or(&[json!({})]) {
            let [Some(ours), Some(theirs)] = [0, 1].map(|side| self.changed(&bases[side], value))
            else {
                anyhow::bail!("no place for {value} in {path}");
            };
            let shown: String = value.to_string().chars().take(100).collect();
            let at = self.at.as_deref().unwrap_or_default();
            let about = format!("{} {at} {shown}", about(method.as_str(), path));
            let request = Request::each(method.clone(), path.clone(), [&ours, &theirs], about);
            requests.push(match self.media {
                "" => request,
                media => request.content_type(media),
            });
        }
        Ok(requests)
    }

    /// What each server has of what is to be put.
    async fn stored(&self, pair: &mut Pair, path: &str) -> anyhow::Result<[Value; 2]> {
        let path = self.from.as_deref().unwrap_or(path);
        let path = path.split('?').next().unwrap_or_default().to_owned();
        let (ours, theirs) = pair.ask(&Request::get(path, JSON, "read".into())).await?;
        Ok([ours.body, theirs.map(|said| said.body).unwrap_or_default()])
    }

    fn changed(&self, base: &Value, value: &Value) -> Option<Value> {
        match &self.at {
            Some(at) => Change::to(at, value.clone()).apply(base),
            None if self.tries.is_none() => Some(base.clone()),
            None => {
                let mut object = base.clone();
                merge::apply(&mut object, value).ok()?;
                Some(object)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_is_understood() {
        for line in STEPS.lines().chain(HOOKS.lines()) {
            let step: Step = serde_json::from_str(line).expect(line);
            let verbs = [&step.get, &step.put, &step.patch, &step.delete, &step.until];
            let posts = step.post.as_ref().is_some_and(Value::is_string);
            let count = verbs.into_iter().flatten().count() + usize::from(posts);
            assert_eq!(count, 1, "{line}");
            assert!(step.until.is_some() || !step.of.is_empty(), "{line}");
        }
    }
}
