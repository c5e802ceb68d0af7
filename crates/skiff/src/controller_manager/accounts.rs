//! Each loop writes as its own service account, with the rights that a stock cluster gives it.
//!
//! The account is made if it is missing; its token is asked for, and asked for anew before it ends.
use anyhow::Context as _;
use client::https::{Config, Https, Token};
use client::source::{
    Answer, Call, Collection, List, Outcome, Page, Raw, RawAnswer, Said, Watch, WatchFrom,
};
use client::{Client, Context, NamespacedName, Source, Status};
use controllers::Sources;
use futures_util::FutureExt;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

const NAMESPACE: &str = "kube-system";
const LIFE: Duration = Duration::from_secs(3600);
/// A token is used for so long: well before its end there is another.
const USED: Duration = Duration::from_secs(2700);

/// Reads are made with what the manager itself is.
pub fn each_its_own(context: &Context, config: &Config, shared: Arc<dyn Source>) -> Sources {
    let (context, config, root) = (context.clone(), config.clone(), shared.clone());
    let own = move |name: &str| -> Arc<dyn Source> {
        Arc::new(Account {
            context: context.clone(),
            config: config.clone(),
            root: Client::new(root.clone()),
            name: name.to_owned(),
            current: Mutex::default(),
        })
    };
    Sources { shared, own: Arc::new(own) }
}

struct Account {
    context: Context,
    /// Where the API server is; who we are there is the token's to say.
    config: Config,
    root: Client,
    name: String,
    current: Mutex<Option<(Arc<Https>, Instant)>>,
}

impl Account {
    async fn source(&self) -> Result<Arc<Https>, Status> {
        let mut current = self.current.lock().await;
        if let Some((source, since)) = &*current
            && since.elapsed() < USED
        {
            return Ok(source.clone());
        }
        let token = self.token().await?;
        let mut config = self.config.clone();
        config.proof.certificate = None;
        config.proof.basic = None;
        config.proof.exec = None;
        config.proof.token = Some(Token::Given(token));
        let made = Https::new(&self.context, config)
            .context("failed to reach the API server as a service account")
            .map_err(|error| Status::internal_error(format!("{error:#}")))?;
        let made = Arc::new(made);
        *current = Some((made.clone(), Instant::now()));
        Ok(made)
    }

    async fn token(&self) -> Result<String, Status> {
        let metadata = ObjectMeta {
            name: Some(self.name.clone()),
            namespace: Some(NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        };
        let account = ServiceAccount { metadata, ..ServiceAccount::default() };
        match self.root.get::<ServiceAccount>(NAMESPACE, &self.name).await {
            Err(status) if status.is_not_found() => match self.root.create(&account).await {
                Err(status) if !status.is_already_exists() => return Err(status),
                _ => {}
            },
            _ => {}
        }
        let key = NamespacedName::new(NAMESPACE, &self.name);
        let body = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": { "expirationSeconds": LIFE.as_secs() } });
        let said = self.root.post::<ServiceAccount>(&key, "token", &body).await?;
        let Said::Object(answer) = said else {
            return Err(Status::internal_error("no token was given"));
        };
        let answer = answer.tree().map_err(Status::internal_error)?;
        let token = answer["status"]["token"].as_str().unwrap_or_default().to_owned();
        if token.is_empty() { Err(Status::internal_error("no token was given")) } else { Ok(token) }
    }
}

impl Source for Account {
    fn call(&self, call: Call) -> Answer<'_, Outcome> {
        async move { self.source().await?.call(call).await }.boxed()
    }

    fn list(&self, of: Collection, page: Page) -> Answer<'_, List> {
        async move { self.source().await?.list(of, page).await }.boxed()
    }

    fn watch(&self, of: Collection, from: WatchFrom) -> Answer<'_, Watch> {
        async move { self.source().await?.watch(of, from).await }.boxed()
    }

    fn raw(&self, request: Raw) -> Answer<'_, RawAnswer> {
        async move { self.source().await?.raw(request).await }.boxed()
    }
}
