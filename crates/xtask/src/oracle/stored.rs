//! What is asked about an object that exists: updates and patches of it, of its status and its
//! other parts, and its table.
use super::creation::{about, collection};
use super::mutate::{self, Change};
use super::server::{Pair, Request, TABLE};
use super::{NAMESPACE, SEED, SEVERAL};
use api::kinds::{Resource, Subresource, Verb};
use api::schema::TypeRef;
use http::Method;
use serde_json::{Value, json};
use testkit::sample::Random;

/// So often, and with such pauses, a controller's word is waited for.
const READS: usize = 100;
const PAUSE: std::time::Duration = std::time::Duration::from_millis(50);

/// Both servers' object.
pub struct Stored<'r> {
    resource: &'r Resource,
    path: String,
    ours: Value,
    theirs: Value,
}

/// Creates the object for good on both servers, with its status. `None`: one of them refused.
pub async fn create<'r>(
    pair: &mut Pair,
    resource: &'r Resource,
    object: &Value,
) -> anyhow::Result<Option<Stored<'r>>> {
    let place = collection(resource);
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let path = format!("{place}/{name}");
    remove(pair, resource, &path).await?;
    let post = Request::new(Method::POST, place, object, format!("store {path}"));
    if !both_can(pair, &post).await? {
        return Ok(None);
    }
    let Some((mut ours, mut theirs)) = read(pair, &path).await? else { return Ok(None) };
    let has_status = resource.subresource("status").is_some();
    if let Some(status) = object.get("status").filter(|_| has_status) {
        (ours["status"], theirs["status"]) = (status.clone(), status.clone());
        let about = format!("store the status of {path}");
        let path = format!("{path}/status");
        both_can(pair, &Request::each(Method::PUT, path, [&ours, &theirs], about)).await?;
    }
    if object["metadata"].get("deletionTimestamp").is_some() {
        both_can(pair, &Request::new(Method::DELETE, path.clone(), &Value::Null, path.clone()))
            .await?;
    }
    let Some((ours, theirs)) = settled(pair, resource, &path).await? else { return Ok(None) };
    let mut stored = Stored { resource, path, ours, theirs };
    if has_status && stored.ours.get("status") != stored.theirs.get("status") {
        stored.copy_status(pair).await?;
    }
    Ok(Some(stored))
}

/// What both servers have, once the controllers in theirs have had their say.
async fn settled(
    pair: &mut Pair,
    resource: &Resource,
    path: &str,
) -> anyhow::Result<Option<(Value, Value)>> {
    let last = match resource.kind {
        "CustomResourceDefinition" => "Established",
        "APIService" => "Available",
        _ => return read(pair, path).await,
    };
    let said = |theirs: &Value| {
        let conditions = theirs["status"]["conditions"].as_array().into_iter().flatten();
        let mut conditions = conditions.filter(|condition| condition["type"] == last);
        conditions.any(|condition| last != "Established" || condition["status"] == "True")
    };
    for _ in 0..READS {
        match read(pair, path).await? {
            Some((_, theirs)) if !said(&theirs) => tokio::time::sleep(PAUSE).await,
            other => return Ok(other),
        }
    }
    read(pair, path).await
}

async fn both_can(pair: &mut Pair, request: &Request) -> anyhow::Result<bool> {
    let (ours, theirs) = pair.ask(request).await?;
    let mut can = true;
    for said in [Some(ours), theirs].into_iter().flatten().filter(|said| said.code >= 300) {
        println!("{}: {} {}", request.about, said.code, said.body["message"]);
        can = false;
    }
    Ok(can)
}

async fn read(pair: &mut Pair, path: &str) -> anyhow::Result<Option<(Value, Value)>> {
    let get = Request::get(path.to_owned(), super::server::JSON, "read".into());
    let (ours, theirs) = pair.ask(&get).await?;
    Ok(theirs
        .filter(|theirs| ours.code == 200 && theirs.code == 200)
        .map(|theirs| (ours.body, theirs.body)))
}

/// Removes the object from both servers, whatever holds it.
async fn remove(pair: &mut Pair, resource: &Resource, path: &str) -> anyhow::Result<()> {
    let now = format!("{path}?gracePeriodSeconds=0");
    let delete = Request::new(Method::DELETE, now, &Value::Null, "remove".into());
    pair.ask(&delete).await?;
    let free = json!({ "metadata": { "finalizers": null } });
    let patch = Request::new(Method::PATCH, path.to_owned(), &free, "free".into());
    pair.ask(&patch.content_type("application/merge-patch+json")).await?;
    if resource.subresource("finalize").is_some()
        && let Some((mut ours, mut theirs)) = read(pair, path).await?
    {
        (ours["spec"], theirs["spec"]) = (json!({}), json!({}));
        let path = format!("{path}/finalize");
        let both = [&ours, &theirs];
        pair.ask(&Request::each(Method::PUT, path, both, "finalize".into())).await?;
    }
    pair.ask(&delete).await?;
    Ok(())
}

impl Stored<'_> {
    pub async fn remove(self, pair: &mut Pair) -> anyhow::Result<()> {
        remove(pair, self.resource, &self.path).await
    }

    /// Their server has a few controllers inside, which write statuses.
    async fn copy_status(&mut self, pair: &mut Pair) -> anyhow::Result<()> {
        self.ours["status"] = self.theirs["status"].clone();
        let path = format!("{}/status", self.path);
        let about = "the same status".to_owned();
        pair.ask_ours(&Request::new(Method::PUT, path, &self.ours, about)).await?;
        if let Some((ours, theirs)) = read(pair, &self.path).await? {
            (self.ours, self.theirs) = (ours, theirs);
        }
        Ok(())
    }

    /// Its table, alone and in a list.
    pub fn tables(&self) -> Vec<Request> {
        let path = format!("{}?includeObject=None", self.path);
        let list = collection(self.resource);
        let selector = format!("{list}?fieldSelector=metadata.name=no-such&includeObject=None");
        vec![
            Request::get(path, TABLE, "table".into()),
            Request::get(selector, TABLE, "table of nothing".into()),
        ]
    }

    /// One update of it or of a part, dry.
    pub fn update(
        &self,
        part: &str,
        changed: impl Fn(&Value) -> Option<Value>,
        about: &str,
    ) -> Option<Request> {
        let path = self.part(part);
        let path = format!("{path}?dryRun=All&fieldValidation=Strict");
        let (ours, theirs) = (changed(&self.ours)?, changed(&self.theirs)?);
        let about = format!("update {part} {about}");
        Some(Request::each(Method::PUT, path, [&ours, &theirs], about))
    }

    fn part(&self, part: &str) -> String {
        match part {
            "" => self.path.clone(),
            part => format!("{}/{part}", self.path),
        }
    }

    /// Updates and patches of the object itself.
    pub fn updates(&self) -> Vec<Request> {
        let both = [&self.ours, &self.theirs];
        let changes = both.map(|object| mutate::all(object, self.resource.ty(), false));
        self.writes("", both, changes)
    }

    /// The same through its status, and through each part that is written as the whole.
    pub fn parts(&self) -> Vec<Request> {
        let mut all = Vec::new();
        let (ty, both) = (self.resource.ty(), [&self.ours, &self.theirs]);
        for part in self.resource.subresources {
            if part.kind.is_some() || !part.verbs.contains(Verb::Update) {
                continue;
            }
            let changes = both.map(|object| {
                let mut changes = mutate::all(object, ty, true);
                if part.name != "status" {
                    changes.extend(mutate::all(object, ty, false));
                }
                changes
            });
            all.extend(self.writes(part.name, both, changes));
        }
        all
    }

    /// The parts that have kinds of their own.
    pub async fn foreign(&self, pair: &mut Pair) -> anyhow::Result<Vec<Request>> {
        let mut all = Vec::new();
        for part in self.resource.subresources {
            let Some(kind) = &part.kind else { continue };
            let path = format!("{}/{}", self.path, part.name);
            if part.verbs.contains(Verb::Update) && kind.kind == "Scale" {
                let Some((ours, theirs)) = read(pair, &path).await? else { continue };
                let both = [&ours, &theirs];
                let changes = both.map(|object| mutate::all(object, kind.ty(), false));
                all.extend(self.writes(part.name, both, changes));
            } else if let Some(body) = self.question(part) {
                all.extend(questions(&path, &body, kind.ty()));
            }
        }
        Ok(all)
    }

    /// A valid body for a part that is only created.
    fn question(&self, part: &Subresource) -> Option<Value> {
        let name = &self.theirs["metadata"]["name"];
        Some(match part.name {
            "binding" => json!({ "apiVersion": "v1", "kind": "Binding",
                "metadata": { "name": name, "namespace": NAMESPACE, "labels": { "a": "b" } },
                "target": { "kind": "Node", "name": "n", "apiVersion": "v1" } }),
            "eviction" => json!({ "apiVersion": "policy/v1", "kind": "Eviction",
                "metadata": { "name": name, "namespace": NAMESPACE },
                "deleteOptions": { "gracePeriodSeconds": 5, "propagationPolicy": "Background" } }),
            "token" => json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
                "metadata": { "name": name, "namespace": NAMESPACE },
                "spec": { "audiences": ["a"], "expirationSeconds": 900 } }),
            _ => return None,
        })
    }

    /// Each change as an update and as one of the patches, and some together. The changes are made
    /// for each server's own object, which has names that the server made up.
    fn writes(&self, part: &str, both: [&Value; 2], changes: [Vec<Change>; 2]) -> Vec<Request> {
        let path = self.part(part);
        let strict = format!("{path}?dryRun=All&fieldValidation=Strict");
        let put = |bodies: [&Value; 2], about: String| {
            Request::each(Method::PUT, strict.clone(), bodies, format!("update {part} {about}"))
        };
        let mut all = vec![put(both, "as it is".into())];
        let [ours, theirs] = &changes;
        for (i, change) in ours.iter().zip(theirs).enumerate() {
            let (mine, right) = change;
            if let (Some(mine), Some(right)) = (mine.apply(both[0]), right.apply(both[1])) {
                all.push(put([&mine, &right], change.1.about()));
            }
            all.extend(patch(i, &path, [mine, right], both));
        }
        let some = changes.map(|list| mutate::several(&list, SEVERAL, &mut Random::new(SEED)));
        let [ours, theirs] = &some;
        let changed = |object: &Value, some: &[Change]| {
            some.iter().try_fold(object.clone(), |object, change| change.apply(&object))
        };
        for (mine, right) in ours.iter().zip(theirs) {
            if let (Some(a), Some(b)) = (changed(both[0], mine), changed(both[1], right)) {
                all.push(put([&a, &b], about(right)));
            }
        }
        all
    }
}

/// The change as a patch, one kind of them in turn.
fn patch(turn: usize, path: &str, changes: [&Change; 2], both: [&Value; 2]) -> Option<Request> {
    let [mine, right] = changes;
    let (media, query, bodies) = match turn % 4 {
        0 => (
            "application/json-patch+json",
            "",
            [mine.json_patch(both[0]), right.json_patch(both[1])],
        ),
        1 => (
            "application/merge-patch+json",
            "",
            [mine.merge_patch(both[0])?, right.merge_patch(both[1])?],
        ),
        2 => (
            "application/strategic-merge-patch+json",
            "",
            [mine.merge_patch(both[0])?, right.merge_patch(both[1])?],
        ),
        _ => (
            "application/apply-patch+yaml",
            "&fieldManager=oracle&force=true",
            [applied(mine.apply(both[0])?), applied(right.apply(both[1])?)],
        ),
    };
    let path = format!("{path}?dryRun=All&fieldValidation=Strict{query}");
    let about = format!("{media} {path} {}", right.about());
    let [mine, right] = &bodies;
    Some(Request::each(Method::PATCH, path, [mine, right], about).content_type(media))
}

/// What a client would apply: the object without what the server adds.
fn applied(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in ["managedFields", "uid", "resourceVersion", "creationTimestamp", "generation"]
        {
            metadata.remove(field);
        }
    }
    object
}

fn questions(path: &str, body: &Value, ty: TypeRef<'_>) -> Vec<Request> {
    let post = |body: &Value, about: String| {
        let path = format!("{path}?dryRun=All&fieldValidation=Strict");
        Request::new(Method::POST, path.clone(), body, format!("{path} {about}"))
    };
    let changes = mutate::all(body, ty, false);
    let changed = changes.iter().filter_map(|change| {
        let body = change.apply(body)?;
        Some(post(&body, change.about()))
    });
    [post(body, "as it is".into())].into_iter().chain(changed).collect()
}
