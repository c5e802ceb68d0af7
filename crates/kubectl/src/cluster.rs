//! The connection: which server, who we are to it, which namespace is meant, and how it is asked.
//!
//! Everything but streams goes through [`client::Source`], so that a test can put a world in memory
//! in the server's place.
use crate::failure::{Failure, Outcome};
use crate::flags::Arguments;
use crate::kubeconfig::{self, Files};
use crate::mapper::{self, Mapper};
use api::duration::Duration as Span;
use api::kubeconfig::{Cluster as ClusterEntry, User};
use api::quote::Quoted;
use api::selector::{field, label};
use client::https::{Config, Https, Policy};
use client::source::{
    Ask, Call, Collection, Delete, Page, Patch, Propagation, Raw, RawAnswer, Said, Source, Write,
};
use client::{ApiResource, Context};
use parking_lot::Mutex;
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// As client-go has it where nothing is configured.
const NOWHERE: &str = "http://localhost:8080";
/// No limit, in words that a timer understands.
const ALWAYS: Duration = Duration::from_secs(10 * 365 * 86400);

/// Field manager of writes that say none.
pub const USER_AGENT: &str = "kubectl";

#[derive(Clone)]
pub struct Cluster {
    pub source: Arc<dyn Source>,
    /// For streams; a world in memory has none.
    pub https: Option<Https>,
    pub server: String,
    pub namespace: String,
    /// Said by a flag: what files say has to agree.
    pub namespace_given: bool,
    mapper: Arc<tokio::sync::OnceCell<Mapper>>,
    warnings: Arc<Mutex<Vec<String>>>,
}

impl Cluster {
    pub fn connect(arguments: &Arguments, policy: Policy) -> Outcome<Cluster> {
        let mut config = config(arguments)?;
        config.proof.policy = policy;
        let warnings: Arc<Mutex<Vec<String>>> = Arc::default();
        let heard = warnings.clone();
        let config = Config {
            on_warning: Some(Arc::new(move |text| {
                let mut heard = heard.lock();
                if !heard.iter().any(|other| other == text) {
                    heard.push(text.to_owned());
                    eprintln!("Warning: {text}");
                }
            })),
            ..config
        };
        let (server, namespace) = (config.server.clone(), config.namespace.clone());
        let https = Https::new(&Context::new(), config.for_component(USER_AGENT))
            .map_err(|error| Failure::Plain(error.to_string()))?;
        let cluster = Cluster::of(Arc::new(https.clone()), &namespace);
        let cluster = Cluster { https: Some(https), server, warnings, ..cluster };
        Ok(match arguments.some("namespace") {
            Some(namespace) => cluster.in_namespace(namespace),
            None => cluster,
        })
    }

    /// Any source.
    pub fn of(source: Arc<dyn Source>, namespace: &str) -> Cluster {
        Cluster {
            source,
            https: None,
            server: String::new(),
            namespace: namespace.to_owned(),
            namespace_given: false,
            mapper: Arc::default(),
            warnings: Arc::default(),
        }
    }

    /// The same in a namespace that was said.
    pub fn in_namespace(&self, namespace: &str) -> Cluster {
        Cluster { namespace: namespace.to_owned(), namespace_given: true, ..self.clone() }
    }

    /// How many warnings the server gave.
    pub fn warnings(&self) -> usize {
        self.warnings.lock().len()
    }

    /// What the server serves, asked once.
    pub async fn mapper(&self) -> Outcome<&Mapper> {
        self.mapper.get_or_try_init(|| mapper::discover(self)).await
    }

    /// Asks by path.
    pub async fn raw(&self, request: Raw) -> Outcome<RawAnswer> {
        Ok(self.source.raw(request).await?)
    }

    pub async fn get_json(&self, path: &str, accept: &str) -> Outcome<Value> {
        let mut request = Raw::get(path);
        if !accept.is_empty() {
            request.accept = accept.to_owned();
        }
        let bytes = self.raw(request).await?.bytes().await?;
        serde_json::from_slice(&bytes)
            .map_err(|error| Failure::Plain(format!("unable to decode an answer: {error}")))
    }

    async fn call(
        &self,
        of: &ApiResource,
        namespace: &str,
        name: &str,
        part: &str,
        ask: Ask,
    ) -> Outcome<Value> {
        let call = Call {
            resource: of.clone(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            subresource: part.to_owned().into(),
            ask,
        };
        let outcome = self.source.call(call).await?;
        Ok(match outcome.object {
            Said::Object(object) => {
                object.tree().map_err(|error| Failure::Plain(error.to_string()))?
            }
            Said::Status(status) => serde_json::to_value(&*status).unwrap_or_default(),
        })
    }

    pub async fn get(&self, of: &ApiResource, namespace: &str, name: &str) -> Outcome<Value> {
        self.call(of, namespace, name, "", Ask::Get).await
    }

    pub async fn get_part(
        &self,
        of: &ApiResource,
        namespace: &str,
        name: &str,
        part: &str,
    ) -> Outcome<Value> {
        self.call(of, namespace, name, part, Ask::Get).await
    }

    pub async fn create(
        &self,
        of: &ApiResource,
        namespace: &str,
        object: &Value,
        write: &Write,
    ) -> Outcome<Value> {
        self.call(of, namespace, "", "", Ask::Create(object.clone(), write.clone())).await
    }

    /// Creates below an object: an eviction, a token.
    pub async fn create_part(
        &self,
        of: &ApiResource,
        (namespace, name, part): (&str, &str, &str),
        object: &Value,
        write: &Write,
    ) -> Outcome<Value> {
        self.call(of, namespace, name, part, Ask::Create(object.clone(), write.clone())).await
    }

    pub async fn update(
        &self,
        of: &ApiResource,
        (namespace, name, part): (&str, &str, &str),
        object: &Value,
        write: &Write,
    ) -> Outcome<Value> {
        self.call(of, namespace, name, part, Ask::Update(object.clone(), write.clone())).await
    }

    pub async fn patch(
        &self,
        of: &ApiResource,
        (namespace, name, part): (&str, &str, &str),
        patch: Patch,
        write: &Write,
    ) -> Outcome<Value> {
        self.call(of, namespace, name, part, Ask::Patch(patch, write.clone())).await
    }

    pub async fn delete(
        &self,
        of: &ApiResource,
        namespace: &str,
        name: &str,
        options: Delete,
    ) -> Outcome<Value> {
        self.call(of, namespace, name, "", Ask::Delete(options)).await
    }

    /// Everything of a collection, page by page.
    pub async fn list(&self, of: Collection, chunk: i64) -> Outcome<Vec<Value>> {
        Ok(self.list_from(of, chunk).await?.0)
    }

    /// The same with the revision of the last page.
    pub async fn list_from(&self, of: Collection, chunk: i64) -> Outcome<(Vec<Value>, u64)> {
        let limit = u32::try_from(chunk).unwrap_or_default();
        let mut page = Page { limit, ..Page::default() };
        let mut all = Vec::new();
        loop {
            let list = self.source.list(of.clone(), page.clone()).await?;
            for object in list.items {
                all.push(object.tree().map_err(|error| Failure::Plain(error.to_string()))?);
            }
            if list.continue_token.is_empty() {
                return Ok((all, list.revision));
            }
            page.continue_token = list.continue_token;
        }
    }
}

/// Objects of a resource that selectors select.
pub fn collection(
    of: &ApiResource,
    namespace: &str,
    labels: &str,
    fields: &str,
) -> Outcome<Collection> {
    let labels = label::Selector::parse(labels)
        .map_err(|error| Failure::Plain(format!("unable to parse requirement: {error}")))?;
    let fields =
        field::Selector::parse(fields).map_err(|error| Failure::Plain(error.to_string()))?;
    Ok(Collection::all(of.clone()).in_namespace(namespace).with_labels(labels).with_fields(fields))
}

/// What `--cascade` says.
pub fn propagation(arguments: &Arguments) -> Outcome<Propagation> {
    match arguments.text("cascade") {
        "background" | "true" => Ok(Propagation::Background),
        "foreground" => Ok(Propagation::Foreground),
        "orphan" | "false" => Ok(Propagation::Orphan),
        other => Err(format!(
            "invalid cascade value ({other}). Must be \"background\", \"foreground\", or \"orphan\""
        )
        .into()),
    }
}

/// What files and flags make of it.
fn config(arguments: &Arguments) -> Outcome<Config> {
    let mut tree = Files::find(arguments).merged()?;
    if let Some(current) = arguments.some("context") {
        tree["current-context"] = current.into();
    }
    let current = tree["current-context"].as_str().unwrap_or_default().to_owned();
    let context = kubeconfig::entry(&tree, "contexts", &current).cloned();
    if context.is_none() && !current.is_empty() {
        return Err(match kubeconfig::names(&tree, "contexts").is_empty() {
            true => Failure::Configuration(format!(
                "context was not found for specified context: {current}"
            )),
            false => Failure::Plain(format!("context \"{current}\" does not exist")),
        });
    }
    let context = context.unwrap_or_default();
    let named = |flag: &str| {
        let said = context[flag].as_str().unwrap_or_default();
        arguments.some(flag).unwrap_or(said).to_owned()
    };
    let part = |list: &str, flag: &str, what: &str| {
        let name = named(flag);
        match (kubeconfig::entry(&tree, list, &name), &*name) {
            (Some(found), _) => Ok(found.clone()),
            (None, "") => Ok(Value::Null),
            (None, name) if arguments.given(flag) => {
                Err(Failure::Plain(format!("{what} \"{name}\" does not exist")))
            }
            // A context may name what is not there: as if it named nothing.
            (None, _) => Ok(Value::Null),
        }
    };
    let cluster = part("clusters", "cluster", "cluster")?;
    let user = part("users", "user", "auth info")?;
    let mut cluster: ClusterEntry = typed(&cluster)?;
    let mut user: User = typed(&user)?;
    override_cluster(&mut cluster, arguments);
    override_user(&mut user, arguments);
    if cluster.server.is_empty() {
        if let Ok(config) = Config::in_cluster() {
            return Ok(Config { timeout: timeout(arguments)?, ..config });
        }
        cluster.server = NOWHERE.to_owned();
    }
    if !cluster.server.contains("://") {
        let is_safe = cluster.certificate_authority.is_some()
            || cluster.certificate_authority_data.is_some()
            || cluster.insecure_skip_tls_verify;
        let scheme = if is_safe { "https" } else { "http" };
        cluster.server = format!("{scheme}://{}", cluster.server);
    }
    if let Some(url) = cluster.proxy_url.as_deref().filter(|url| !url.is_empty()) {
        client::http::proxy::Url::parse(url).map_err(|text| {
            Failure::Plain(format!(
                "invalid 'proxy-url' {} for cluster {}: {text}",
                Quoted(url),
                Quoted(&named("cluster"))
            ))
        })?;
    }
    let mut config = Config::of(&cluster, &user, Path::new("."))?;
    if let Some(namespace) = context["namespace"].as_str().filter(|name| !name.is_empty()) {
        config.namespace = namespace.to_owned();
    }
    if arguments.is("disable-compression") {
        config.compress = false;
    }
    Ok(Config { timeout: timeout(arguments)?, ..config })
}

fn typed<T: Default + for<'d> serde::Deserialize<'d>>(tree: &Value) -> Outcome<T> {
    match tree {
        Value::Null => Ok(T::default()),
        tree => serde_json::from_value(tree.clone())
            .map_err(|error| Failure::Plain(format!("error loading config file: {error}"))),
    }
}

fn override_cluster(cluster: &mut ClusterEntry, arguments: &Arguments) {
    if let Some(server) = arguments.some("server") {
        cluster.server = server.to_owned();
    }
    if arguments.given("insecure-skip-tls-verify") {
        cluster.insecure_skip_tls_verify = arguments.is("insecure-skip-tls-verify");
    }
    if let Some(file) = arguments.some("certificate-authority") {
        cluster.certificate_authority = Some(file.into());
        cluster.certificate_authority_data = None;
    }
    if let Some(url) = arguments.some("proxy-url") {
        cluster.proxy_url = Some(url.to_owned());
    }
    if let Some(name) = arguments.some("tls-server-name") {
        cluster.tls_server_name = Some(name.to_owned());
    }
}

fn override_user(user: &mut User, arguments: &Arguments) {
    if let Some(file) = arguments.some("client-certificate") {
        user.client_certificate = Some(file.into());
        user.client_certificate_data = None;
    }
    if let Some(file) = arguments.some("client-key") {
        user.client_key = Some(file.into());
        user.client_key_data = None;
    }
    if let Some(token) = arguments.some("token") {
        (user.token, user.token_file) = (Some(token.to_owned()), None);
    }
    if let Some(name) = arguments.some("username") {
        user.username = Some(name.to_owned());
    }
    if let Some(password) = arguments.some("password") {
        user.password = Some(password.to_owned());
    }
    if let Some(name) = arguments.some("as") {
        user.impersonate = Some(name.to_owned());
    }
    if let Some(uid) = arguments.some("as-uid") {
        user.impersonate_uid = Some(uid.to_owned());
    }
    if arguments.given("as-group") {
        user.impersonate_groups = arguments.list("as-group").to_vec();
    }
    for extra in arguments.list("as-user-extra") {
        if let Some((key, value)) = extra.split_once('=') {
            user.impersonate_extra.entry(key.to_owned()).or_default().push(value.to_owned());
        }
    }
}

/// `--request-timeout`: a number is of seconds.
pub fn timeout(arguments: &Arguments) -> Outcome<Duration> {
    let text = arguments.text("request-timeout");
    let span = match text.parse::<i64>() {
        Ok(seconds) => Some(Span::from_secs(seconds)),
        Err(_) => Span::parse(text).ok(),
    };
    let span = span.ok_or(
        "Invalid timeout value. Timeout must be a single integer in seconds, or an integer followed by a \
         corresponding time unit (e.g. 1s | 2m | 3h)",
    )?;
    Ok(match u64::try_from(span.nanos) {
        Ok(0) | Err(_) => ALWAYS,
        Ok(nanos) => Duration::from_nanos(nanos),
    })
}
