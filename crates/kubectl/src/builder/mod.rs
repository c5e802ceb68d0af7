//! Arguments → what is meant by them: objects of files, objects by name, collections.
//!
//! [`targets`] reads the words; nothing has been asked of the server then but what it serves.
//! [`infos`] has the objects, each with the resource that it is served as.
pub mod files;
pub mod words;

use crate::cluster::{Cluster, collection};
use crate::failure::{Failure, Outcome};
use crate::flags::{Arguments, Flag, MANIFESTS, each, switch, text};
use crate::mapper::{Mapper, Resource};
use client::ApiResource;
use serde_json::Value;
pub use words::Target;

/// What commands take that work on files.
pub static FILES: &[Flag] =
    &[FILENAME, text("kustomize", "", "Folder with a kustomization.").short('k'), RECURSIVE];

/// What commands take that work on files and on nothing that is made of them.
pub static PLAIN_FILES: &[Flag] = &[FILENAME, RECURSIVE];

/// The same without folders below folders.
pub static FILE_NAMES: &[Flag] = &[FILENAME];

const FILENAME: Flag = each("filename", "File, folder or URL with objects; may be repeated.")
    .short('f')
    .offers(MANIFESTS);
const RECURSIVE: Flag = switch("recursive", "Look into folders below those of -f.").short('R');

pub static SELECTOR: &[Flag] =
    &[text("selector", "", "Labels to select by: a=b, a!=b, a in (b,c), !a.").short('l')];

pub static FIELD_SELECTOR: &[Flag] =
    &[text("field-selector", "", "Fields to select by: metadata.name=x,status.phase!=y.")];

pub static ALL_NAMESPACES: &[Flag] = &[switch("all-namespaces", "In all namespaces.").short('A')];

pub static ALL: &[Flag] = &[switch("all", "All objects of the types that are named.")];

/// An object and where it is served.
#[derive(Debug, Clone)]
pub struct Info {
    pub resource: Resource,
    pub namespace: String,
    pub name: String,
    pub object: Value,
    /// The file that it is of; empty for those that the server gave.
    pub source: String,
}

impl Info {
    pub fn api(&self) -> &ApiResource {
        &self.resource.api
    }

    /// `pod/web`, `deployment.apps/web`.
    pub fn shown(&self) -> String {
        let kind = self.resource.api.kind.to_ascii_lowercase();
        match &*self.resource.api.group {
            "" => format!("{kind}/{}", self.name),
            group => format!("{kind}.{group}/{}", self.name),
        }
    }

    /// `deployments/web`: as messages name it.
    pub fn object_name(&self) -> String {
        format!("{}/{}", self.api().plural, self.name)
    }

    pub fn with_object(&self, object: Value) -> Info {
        Info { object, ..self.clone() }
    }
}

/// What the flags and words of a command ask for.
#[derive(Debug, Clone, Default)]
pub struct Request {
    pub words: Vec<String>,
    pub files: Vec<String>,
    pub kustomize: String,
    pub recursive: bool,
    pub selector: String,
    pub field_selector: String,
    pub all: bool,
    pub all_namespaces: bool,
    /// A type alone means all of it: `get pods`.
    pub type_is_all: bool,
    pub chunk: i64,
}

impl Request {
    pub fn of(arguments: &Arguments) -> Request {
        let is = |name: &str| arguments.knows(name) && arguments.is(name);
        let text = |name: &str| match arguments.knows(name) {
            true => arguments.text(name).to_owned(),
            false => String::new(),
        };
        Request {
            words: arguments.words.clone(),
            files: match arguments.knows("filename") {
                true => arguments.list("filename").to_vec(),
                false => Vec::new(),
            },
            kustomize: text("kustomize"),
            recursive: is("recursive"),
            selector: text("selector"),
            field_selector: text("field-selector"),
            all: is("all"),
            all_namespaces: is("all-namespaces"),
            type_is_all: false,
            chunk: if arguments.knows("chunk-size") { arguments.number("chunk-size") } else { 500 },
        }
    }

    pub fn with_words(self, words: &[String]) -> Request {
        Request { words: words.to_vec(), ..self }
    }

    pub fn has_files(&self) -> bool {
        !self.files.is_empty() || !self.kustomize.is_empty()
    }
}

/// What is meant, before the server has been asked for any of it.
pub async fn targets(cluster: &Cluster, request: &Request) -> Outcome<Vec<Target>> {
    if request.has_files() {
        if !request.words.is_empty() {
            return Err(
                "when paths, URLs, or stdin is provided as input, you may not specify resource \
                        arguments as well"
                    .into(),
            );
        }
        let infos = file_infos(cluster, request).await?;
        return Ok(infos.into_iter().map(|info| Target::File(Box::new(info))).collect());
    }
    words::check(request)?;
    let mapper = cluster.mapper().await?;
    let kinds = request.words.iter().take(1).flat_map(|word| word.split(['/', ',']).take(1));
    kinds.filter_map(|kind| mapper.ambiguity(kind)).for_each(|warning| eprintln!("{warning}"));
    words::targets(mapper, request, &cluster.namespace)
}

/// The objects of files, as they are there.
pub async fn file_infos(cluster: &Cluster, request: &Request) -> Outcome<Vec<Info>> {
    let (infos, failures) = file_infos_and_failures(cluster, request).await?;
    Failure::of_all(failures).map(|()| infos)
}

/// The same, with what is wrong with some beside those that are good.
pub async fn file_infos_and_failures(
    cluster: &Cluster,
    request: &Request,
) -> Outcome<(Vec<Info>, Vec<Failure>)> {
    let documents = files::documents(request).await?;
    let mapper = cluster.mapper().await?;
    let mut infos = Vec::new();
    let mut failures = Vec::new();
    for (object, source) in documents {
        match info(mapper, cluster, object, &source) {
            Ok(info) => infos.push(info),
            Err(failure) => failures.push(failure),
        }
    }
    Ok((select(infos, &request.selector)?, failures))
}

/// Of files too, labels select.
fn select(infos: Vec<Info>, selector: &str) -> Outcome<Vec<Info>> {
    if selector.is_empty() {
        return Ok(infos);
    }
    let selector = api::selector::label::Selector::parse(selector)
        .map_err(|error| Failure::Plain(error.to_string()))?;
    let fits = |info: &Info| {
        let labels: std::collections::BTreeMap<String, String> = info.object["metadata"]["labels"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()))
            .collect();
        selector.matches(&labels)
    };
    Ok(infos.into_iter().filter(fits).collect())
}

/// Where an object of a file belongs.
pub fn info(mapper: &Mapper, cluster: &Cluster, object: Value, source: &str) -> Outcome<Info> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let metadata = &object["metadata"];
    let (name, namespace) = (text(&metadata["name"]), text(&metadata["namespace"]));
    if kind.is_empty() {
        return Err(
            format!("unable to decode {source:?}: Object 'Kind' is missing in '{object}'").into()
        );
    }
    if version.is_empty() {
        return Err(format!(
            "unable to decode {source:?}: Object 'apiVersion' is missing in '{object}'"
        )
        .into());
    }
    check_metadata(metadata, source)?;
    let Some(resource) = mapper.of_kind(&version, &kind) else {
        let shown = if source.is_empty() { "STDIN" } else { source };
        return Err(format!(
            "resource mapping not found for name: {name:?} namespace: {namespace:?} from {shown:?}: no matches \
             for kind {kind:?} in version {version:?}\nensure CRDs are installed first"
        )
        .into());
    };
    let mut object = object;
    let namespace = match (resource.is_namespaced(), namespace) {
        (false, _) => String::new(),
        (true, said) if said.is_empty() => {
            object["metadata"]["namespace"] = cluster.namespace.clone().into();
            cluster.namespace.clone()
        }
        (true, said) if cluster.namespace_given && said != cluster.namespace => {
            return Err(format!(
                "the namespace from the provided object \"{said}\" does not match the namespace \"{}\". You \
                 must pass '--namespace={said}' to perform this operation.",
                cluster.namespace
            )
            .into());
        }
        (true, said) => said,
    };
    Ok(Info { resource: resource.clone(), namespace, name, object, source: source.to_owned() })
}

/// Labels and annotations are texts, whatever YAML makes of `y` and `1`.
fn check_metadata(metadata: &Value, source: &str) -> Outcome {
    for field in ["labels", "annotations"] {
        let values = metadata[field].as_object().into_iter().flatten().map(|(_, value)| value);
        if let Some(wrong) = values.into_iter().find(|value| !value.is_string() && !value.is_null())
        {
            let kind = match wrong {
                Value::Bool(_) => "bool",
                Value::Number(_) => "number",
                Value::Array(_) => "array",
                _ => "object",
            };
            return Err(format!(
                "unable to decode {source:?}: json: cannot unmarshal {kind} into Go struct field \
                 ObjectMeta.metadata.{field} of type string"
            )
            .into());
        }
    }
    Ok(())
}

/// What a server says of a collection, with what was asked for.
pub fn about_collection(failure: Failure, of: &ApiResource, labels: &str, fields: &str) -> Failure {
    let Failure::Server(mut status) = failure else { return failure };
    if matches!(status.reason, api::status::Reason::BadRequest | api::status::Reason::NotFound) {
        let resource = match &*of.group {
            "" => format!("/{}, Resource={}", of.version, of.plural),
            group => format!("{group}/{}, Resource={}", of.version, of.plural),
        };
        status.message = match (labels, fields) {
            ("", "") => format!("Unable to list {resource:?}: {}", status.message),
            (labels, fields) => format!(
                "Unable to find {resource:?} that match label selector {labels:?}, field selector {fields:?}: {}",
                status.message
            ),
        };
    }
    Failure::Server(status)
}

/// The objects that are meant; those of files are asked for afresh if `latest`.
pub async fn infos(cluster: &Cluster, request: &Request, latest: bool) -> Outcome<Vec<Info>> {
    let (infos, failures) = infos_and_failures(cluster, request, latest).await?;
    Failure::of_all(failures).map(|()| infos)
}

/// The same, with what could not be had beside what could.
pub async fn infos_and_failures(
    cluster: &Cluster,
    request: &Request,
    latest: bool,
) -> Outcome<(Vec<Info>, Vec<Failure>)> {
    let targets = targets(cluster, request).await?;
    let (mut all, mut failures) = (Vec::new(), Vec::new());
    for target in targets {
        match fetch(cluster, request, target, latest).await {
            Ok(infos) => all.extend(infos),
            Err(failure) => failures.push(failure),
        }
    }
    Ok((all, failures))
}

/// The objects of one target.
pub async fn fetch(
    cluster: &Cluster,
    request: &Request,
    target: Target,
    latest: bool,
) -> Outcome<Vec<Info>> {
    match target {
        Target::File(info) if latest => {
            let object = cluster.get(info.api(), &info.namespace, &info.name).await?;
            Ok(vec![info.with_object(object)])
        }
        Target::File(info) => Ok(vec![*info]),
        Target::Named { resource, namespace, name } => {
            let object = cluster.get(&resource.api, &namespace, &name).await?;
            Ok(vec![Info { resource: *resource, namespace, name, object, source: String::new() }])
        }
        Target::All { resource, namespace } => {
            let of =
                collection(&resource.api, &namespace, &request.selector, &request.field_selector)?;
            let objects = cluster.list(of, request.chunk).await.map_err(|failure| {
                let Request { selector, field_selector, .. } = request;
                about_collection(failure, &resource.api, selector, field_selector)
            })?;
            let infos = objects.into_iter().map(|object| {
                let text =
                    |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
                let (namespace, name) = (text("namespace"), text("name"));
                Info {
                    resource: (*resource).clone(),
                    namespace,
                    name,
                    object,
                    source: String::new(),
                }
            });
            Ok(infos.collect())
        }
    }
}

/// Objects of files for which no server is asked: `--local`.
pub async fn local_infos(request: &Request, namespace: &str) -> Outcome<Vec<Info>> {
    if !request.words.is_empty() || !request.has_files() {
        return Err("error: you must specify resources by --filename when --local is set.\nExample resource \
                    specifications include:\n   '-f rsrc.yaml'\n   '--filename=rsrc.json'"
            .into());
    }
    let documents = files::documents(request).await?;
    let infos =
        documents.into_iter().map(|(object, source)| local_info(object, &source, namespace));
    select(infos.collect(), &request.selector)
}

pub fn local_info(object: Value, source: &str, namespace: &str) -> Info {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let api = match api::kinds::find_kind(&version, &kind) {
        Some(row) => row.into(),
        None => {
            let (group, version) = version.split_once('/').unwrap_or(("", &version));
            let plural = format!("{}s", kind.to_lowercase());
            ApiResource::custom(group, version, &plural, &kind, api::kinds::Scope::Namespaced)
        }
    };
    let resource = Resource {
        api,
        singular: kind.to_lowercase(),
        short_names: Vec::new(),
        categories: Vec::new(),
        verbs: Vec::new(),
        subresources: Vec::new(),
        preferred: true,
    };
    let said = text(&object["metadata"]["namespace"]);
    let namespace = if said.is_empty() { namespace.to_owned() } else { said };
    let name = text(&object["metadata"]["name"]);
    Info { resource, namespace, name, object, source: source.to_owned() }
}
