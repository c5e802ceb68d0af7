//! Doing what was decided.
use crate::action::{Action, Balance, Create, Target};
use crate::world::{Gone, World};
use api::names::NamespacedName;
use api::object::Object;
use api::status::Status;
use bytes::Bytes;
use client::events::{Happening, Recorder};
use client::source::{Ask, Delete, Raw, Said};
use client::{Client, OwnWrites};
use futures_util::future::{BoxFuture, FutureExt, join_all};
use k8s_openapi::api::core::v1::ObjectReference;
use std::sync::Arc;
use std::time::Duration;

/// How large an answer may be that is no object, and how long it may take: another server may have made it. The
/// API server takes as much from one that it asks for itself.
const MOST_READ: usize = 32 << 20;
const PATIENCE: Duration = Duration::from_secs(30);

/// A key that waits for a moment is looked at this often meanwhile: clocks are set, and machines sleep.
const LONGEST_WAIT: Duration = Duration::from_secs(600);

/// The hands of one controller.
pub struct Hands {
    pub client: Client,
    pub world: World,
    pub recorder: Recorder,
    /// By the queue's key, as text.
    pub own: OwnWrites<Arc<str>>,
}

/// One key's turn.
pub struct Turn<'a> {
    pub hands: &'a Hands,
    pub key: Arc<str>,
}

/// When the key is to come again, if that was asked for.
pub type Outcome = Result<Option<Duration>, Status>;

impl Turn<'_> {
    /// One after another, until one fails.
    pub fn run(&self, actions: Vec<Action>) -> BoxFuture<'_, Outcome> {
        async move {
            let mut again = None;
            for action in actions {
                again = earlier(again, self.act(action).await?);
            }
            Ok(again)
        }
        .boxed()
    }

    async fn act(&self, action: Action) -> Outcome {
        tracing::debug!(key = &*self.key, "{action}");
        let client = &self.hands.client;
        match action {
            Action::Create(create) => self.create(create).await?,
            Action::Update { resource, part, object } => {
                let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                let (namespace, name) = (namespace.to_owned(), name.to_owned());
                let ask = Ask::Update(object, client.write_options());
                let call = client::source::Call {
                    resource: resource.clone(),
                    namespace,
                    name,
                    subresource: part.into(),
                    ask,
                };
                let updated = client.source().call(call).await?.object()?;
                self.wrote(&resource, &updated);
            }
            Action::Patch { object, part, patch } => {
                let Target { resource, namespace, name, .. } = object;
                match client.patch_in(resource.clone(), &namespace, &name, part, patch).await {
                    Ok(patched) => self.wrote(&resource, &patched),
                    // What is gone needs no change.
                    Err(status) if status.is_not_found() => {}
                    Err(status) => return Err(status),
                }
            }
            Action::Delete { object, options, tell } => self.delete(object, options, tell).await?,
            Action::DeleteCollection(of) => {
                client.delete_collection(of, background()).await?;
            }
            Action::Record(happening) => self.hands.recorder.record(happening),
            Action::Again(after) => return Ok(Some(after.min(LONGEST_WAIT))),
            Action::Several { actions, otherwise } => {
                let done = self.slowly(actions).await;
                if let (Err(failure), Some(otherwise)) = (&done, otherwise) {
                    self.run(otherwise(failure)).await?;
                }
                return done;
            }
            Action::Look { object, then } => {
                let Target { resource, namespace, name, .. } = object;
                let found = match client.get_in(resource, &namespace, &name, "").await {
                    Ok(found) => Some(found),
                    Err(status) if status.is_not_found() => None,
                    Err(status) => return Err(status),
                };
                return self.run(then(found)).await;
            }
            Action::Ask { resource, object, then } => {
                let answer = client.create_in(resource, "", object).await?;
                let answer = answer.tree().map_err(Status::internal_error)?;
                return self.run(then(answer)).await;
            }
            Action::Gather { of, then } => {
                let mut lists = Vec::with_capacity(of.len());
                for of in of {
                    let items = match client.list(of.clone()).await {
                        Ok(list) => list.items,
                        // A custom resource whose definition has gone meanwhile.
                        Err(status) if status.is_not_found() => Vec::new(),
                        Err(status) => return Err(status),
                    };
                    lists.push((of, items));
                }
                return self.run(then(lists)).await;
            }
            Action::Try { call, then } => {
                let resource = call.resource.clone();
                let is_write = !matches!(call.ask, Ask::Get);
                let said = client.source().call(call).await.map(|outcome| outcome.object);
                let answer = match said {
                    Ok(Said::Object(object)) => {
                        if is_write {
                            self.wrote(&resource, &object);
                        }
                        object.tree().map_err(Status::internal_error)
                    }
                    Ok(Said::Status(_)) => Ok(serde_json::Value::Null),
                    Err(status) => Err(status),
                };
                return self.run(then(answer)).await;
            }
            Action::Read { requests, then } => {
                let reads = requests.into_iter().map(|request| self.read(request));
                return self.run(then(join_all(reads).await)).await;
            }
            Action::Fail(status) => return Err(status),
            Action::Remember(memo) => self.hands.world.remember(memo),
            Action::Balance { provider, balance, then } => {
                let said = match balance {
                    Balance::Get(service) => provider.0.get(&service).await,
                    Balance::Ensure(service, nodes) => {
                        provider.0.ensure(&service, &nodes).await.map(Some)
                    }
                    Balance::Update(service, nodes) => {
                        provider.0.update(&service, &nodes).await.map(|()| None)
                    }
                    Balance::Delete(service) => provider.0.delete(&service).await.map(|()| None),
                };
                return self.run(then(said)).await;
            }
        }
        Ok(None)
    }

    async fn read(&self, request: Raw) -> Result<Bytes, Status> {
        let read =
            async { self.hands.client.source().raw(request).await?.at_most(MOST_READ).await };
        let read = tokio::time::timeout(PATIENCE, read).await;
        read.unwrap_or_else(|_| Err(Status::timeout("an answer does not come", 0)))
    }

    /// One, then twice as many while all succeed (`slowStartBatch` in upstream's replica_set.go).
    async fn slowly(&self, actions: Vec<Action>) -> Outcome {
        let (mut rest, mut size, mut again) = (actions.into_iter(), 1, None);
        loop {
            let batch: Vec<_> = rest.by_ref().take(size).collect();
            if batch.is_empty() {
                return Ok(again);
            }
            for done in join_all(batch.into_iter().map(|action| self.run(vec![action]))).await {
                again = earlier(again, done?);
            }
            size *= 2;
        }
    }

    async fn create(&self, create: Create) -> Result<(), Status> {
        let Create { resource, object, tell, may_exist } = create;
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        let kind = resource.kind.to_lowercase();
        match self.hands.client.create_in(resource.clone(), &namespace, object).await {
            Ok(made) => {
                self.wrote(&resource, &made);
                if let Some(owner) = tell {
                    let note = format!("Created {kind}: {}", made.name());
                    self.record(Happening::normal(owner, "SuccessfulCreate", note));
                }
                Ok(())
            }
            // Nothing can be made there any more, which is no failure of this controller.
            Err(status) if status.cause("NamespaceTerminating").is_some() => Ok(()),
            Err(status) if may_exist && status.is_already_exists() => Ok(()),
            Err(status) => {
                if let Some(owner) = tell {
                    let note = format!("Error creating: {}", status.message);
                    self.record(Happening::warning(owner, "FailedCreate", note));
                }
                Err(status)
            }
        }
    }

    async fn delete(
        &self,
        object: Target,
        options: Delete,
        tell: Option<ObjectReference>,
    ) -> Result<(), Status> {
        let Target { resource, namespace, name, uid } = object;
        let kind = resource.kind.to_lowercase();
        let client = &self.hands.client;
        match client.delete_in(resource.clone(), &namespace, &name, options).await {
            Ok(said) => {
                let key = NamespacedName::new(&namespace, &name);
                match said {
                    Said::Object(left) => self.wrote(&resource, &left),
                    Said::Status(_) => {
                        let gone = Gone { resource: &resource, name: &key, uid: &uid };
                        self.hands.world.deleted(&self.hands.own, &self.key, &gone);
                    }
                }
                if let Some(owner) = tell {
                    let note = format!("Deleted {kind}: {name}");
                    self.record(Happening::normal(owner, "SuccessfulDelete", note));
                }
                Ok(())
            }
            Err(status) if status.is_not_found() => Ok(()),
            Err(status) => {
                if let Some(owner) = tell {
                    let note = format!("Error deleting: {}", status.message);
                    self.record(Happening::warning(owner, "FailedDelete", note));
                }
                Err(status)
            }
        }
    }

    fn wrote(&self, resource: &client::ApiResource, object: &Arc<Object>) {
        self.hands.world.wrote(&self.hands.own, &self.key, resource, object);
    }

    fn record(&self, happening: Happening) {
        self.hands.recorder.record(happening);
    }
}

fn background() -> Delete {
    Delete::default().propagating(client::source::Propagation::Background)
}

fn earlier(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    one.into_iter().chain(other).min()
}
