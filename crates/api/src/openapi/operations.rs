//! The paths of a version and what can be done on each, derived from the registry's rows.
use super::parameters::{
    DELETE, DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION, FORCE, LIST, LOG, NAME, NAMESPACE, OPTIONS,
    PRETTY, PROXY_PATH, Parameter,
};
use crate::kinds::{Registry, Resource, Subresource, Verb};
use crate::schema::{TypeRef, builtin};

pub(super) struct Path {
    pub path: String,
    pub operations: Vec<Operation>,
}

pub(super) struct Operation {
    pub method: &'static str,
    pub id: String,
    pub description: String,
    pub tag: String,
    /// `x-kubernetes-action` and the kind it is about; discovery has neither.
    pub action: Option<(&'static str, Gvk)>,
    pub parameters: Vec<Parameter>,
    pub body: Option<Body>,
    pub answer: Answer,
    /// Of a custom resource: neither protobuf nor strategic merge.
    pub custom: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Gvk {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
}

pub(super) enum Body {
    Object(Model),
    /// Delete options, which may be left out.
    Options(Model),
    Patch(Model),
}

/// What an object is: a built-in type, or what a definition publishes under this name.
#[derive(Debug, Clone)]
pub(super) enum Model {
    Type(TypeRef<'static>),
    Defined(String),
}

impl Model {
    fn of(resource: &Resource) -> Model {
        match resource.definition {
            Some(_) => Model::Defined(model_name(resource.group, resource.version, resource.kind)),
            None => builtin()
                .kind(resource.group, resource.version, resource.kind)
                .map_or_else(|| Model::Defined(resource.kind.to_owned()), Model::Type),
        }
    }

    fn of_list(resource: &Resource) -> Option<Model> {
        let (group, version, kind) = (resource.group, resource.version, resource.list_kind);
        match resource.definition {
            Some(_) => Some(Model::Defined(model_name(group, version, kind))),
            None => resource.list_ty().map(Model::Type),
        }
    }
}

/// `com.example.v1.Widget`: the name that a definition's kind is published under.
pub(super) fn model_name(group: &str, version: &str, kind: &str) -> String {
    let mut parts: Vec<&str> = group.split('.').rev().collect();
    parts.extend([version, kind]);
    parts.join(".")
}

pub(super) struct Answer {
    /// `None`: text or a stream.
    pub ty: Option<Model>,
    pub codes: &'static [(u16, &'static str)],
    pub media: Media,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Media {
    Object,
    /// Objects that may come one by one.
    Watchable,
    Text,
    Stream,
}

const OK: &[(u16, &str)] = &[(200, "OK")];
const CREATED: &[(u16, &str)] = &[(200, "OK"), (201, "Created")];
const CREATED_OR_ACCEPTED: &[(u16, &str)] = &[(200, "OK"), (201, "Created"), (202, "Accepted")];
const ACCEPTED: &[(u16, &str)] = &[(200, "OK"), (202, "Accepted")];

/// All paths of one group and version, sorted.
pub(super) fn paths(registry: &Registry, group: &str, version: &str) -> Vec<Path> {
    let mut paths = Vec::new();
    let rows: Vec<&Resource> = registry.rows_of(group, version).map(|row| &**row).collect();
    // Of definitions only what they define is published.
    if let Some(row) = rows.first().filter(|row| row.definition.is_none()) {
        paths.push(discovery(row));
    }
    for resource in rows {
        Row { resource }.paths(&mut paths);
    }
    paths.sort_by(|a, b| a.path.cmp(&b.path));
    paths
}

/// `/api/v1` or `/apis/apps/v1`.
pub(super) fn root(group: &str, version: &str) -> String {
    if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") }
}

/// `Apps`, `RbacAuthorization`, `Core`: the group in an operation's id.
pub(super) fn group_id(group: &str) -> String {
    if group.is_empty() {
        return "Core".into();
    }
    let group = group.strip_suffix(".k8s.io").unwrap_or(group);
    group.split('.').map(capital).collect()
}

pub(super) fn tag(group: &str, version: Option<&str>) -> String {
    let mut tag = group_id(group);
    tag[..1].make_ascii_lowercase();
    match version {
        Some(version) => format!("{tag}_{version}"),
        None => tag,
    }
}

fn capital(word: &str) -> String {
    let mut word = word.to_owned();
    if let Some(first) = word.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    word
}

pub(super) fn meta(kind: &str) -> Model {
    let ty = builtin().named(&format!("meta/v1.{kind}"));
    Model::Type(ty.expect("meta/v1 has every kind named here: a test says so"))
}

fn discovery(row: &Resource) -> Path {
    let id = format!("get{}{}APIResources", group_id(row.group), capital(row.version));
    let operation = Operation {
        method: "get",
        id,
        description: "lists the resources of this version".into(),
        tag: tag(row.group, Some(row.version)),
        action: None,
        parameters: Vec::new(),
        body: None,
        answer: Answer { ty: Some(meta("APIResourceList")), codes: OK, media: Media::Object },
        custom: false,
    };
    Path { path: format!("{}/", root(row.group, row.version)), operations: vec![operation] }
}

struct Row<'r> {
    resource: &'r Resource,
}

impl Row<'_> {
    fn paths(&self, paths: &mut Vec<Path>) {
        let r = self.resource;
        let root = root(r.group, r.version);
        let within = if r.is_namespaced() { "/namespaces/{namespace}" } else { "" };
        let collection = format!("{root}{within}/{}", r.plural);
        let object = format!("{collection}/{{name}}");

        self.add(
            paths,
            &collection,
            vec![self.list(false), self.create(), self.delete_collection()],
        );
        self.add(paths, &object, vec![self.read(), self.replace(), self.patch(), self.delete()]);
        if r.is_namespaced() && r.verbs.contains(Verb::List) {
            self.add(paths, &format!("{root}/{}", r.plural), vec![self.list(true)]);
        }
        if r.verbs.contains(Verb::Watch) && r.definition.is_none() {
            self.add(
                paths,
                &format!("{root}/watch{within}/{}", r.plural),
                vec![self.watch("watchlist", false)],
            );
            let one = format!("{root}/watch{within}/{}/{{name}}", r.plural);
            self.add(paths, &one, vec![self.watch("watch", false)]);
            if r.is_namespaced() {
                self.add(
                    paths,
                    &format!("{root}/watch/{}", r.plural),
                    vec![self.watch("watchlist", true)],
                );
            }
        }
        for subresource in r.subresources {
            self.subresource(subresource, &format!("{object}/{}", subresource.name), paths);
        }
    }

    fn add(&self, paths: &mut Vec<Path>, path: &str, operations: Vec<Option<Operation>>) {
        let operations: Vec<Operation> = operations.into_iter().flatten().collect();
        if !operations.is_empty() {
            paths.push(Path { path: path.to_owned(), operations });
        }
    }

    /// An operation on the resource's own kind, if the row has its verb.
    fn operation(
        &self,
        verb: Verb,
        method: &'static str,
        action: &'static str,
    ) -> Option<Operation> {
        let r = self.resource;
        r.verbs.contains(verb).then(|| Operation {
            method,
            id: String::new(),
            description: String::new(),
            tag: tag(r.group, Some(r.version)),
            action: Some((action, Gvk { group: r.group, version: r.version, kind: r.kind })),
            parameters: vec![PRETTY],
            body: None,
            answer: Answer { ty: Some(Model::of(r)), codes: OK, media: Media::Object },
            custom: r.definition.is_some(),
        })
    }

    /// `{verb}AppsV1{middle}NamespacedDeployment{suffix}`.
    fn id(&self, verb: &str, middle: &str, all_namespaces: bool, suffix: &str) -> String {
        let r = self.resource;
        let scope = if r.is_namespaced() && !all_namespaces { "Namespaced" } else { "" };
        let end = if all_namespaces { "ForAllNamespaces" } else { "" };
        let (group, version) = (group_id(r.group), capital(r.version));
        format!("{verb}{group}{version}{middle}{scope}{}{suffix}{end}", r.kind)
    }

    fn namespace(&self) -> Option<Parameter> {
        self.resource.is_namespaced().then_some(NAMESPACE)
    }

    fn list(&self, all_namespaces: bool) -> Option<Operation> {
        let mut operation = self.operation(Verb::List, "get", "list")?;
        operation.id = self.id("list", "", all_namespaces, "");
        operation.description = format!("lists or watches {} objects", self.resource.kind);
        operation.parameters.extend_from_slice(LIST);
        operation.parameters.extend(self.namespace().filter(|_| !all_namespaces));
        operation.answer.ty = Model::of_list(self.resource);
        operation.answer.media = Media::Watchable;
        Some(operation)
    }

    fn watch(&self, action: &'static str, all_namespaces: bool) -> Option<Operation> {
        let mut operation = self.operation(Verb::Watch, "get", action)?;
        let suffix = if action == "watchlist" { "List" } else { "" };
        operation.id = self.id("watch", "", all_namespaces, suffix);
        operation.description = format!(
            "watches {}; deprecated: use the parameter watch of a list",
            self.resource.kind
        );
        operation.parameters.extend_from_slice(LIST);
        operation.parameters.extend(self.namespace().filter(|_| !all_namespaces));
        operation.parameters.extend((action == "watch").then_some(NAME));
        operation.answer.ty = Some(meta("WatchEvent"));
        operation.answer.media = Media::Watchable;
        Some(operation)
    }

    fn create(&self) -> Option<Operation> {
        let mut operation = self.operation(Verb::Create, "post", "post")?;
        operation.id = self.id("create", "", false, "");
        operation.description = format!("creates a {}", self.resource.kind);
        operation.parameters.extend([DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION]);
        operation.parameters.extend(self.namespace());
        operation.body = Some(Body::Object(Model::of(self.resource)));
        operation.answer.codes = CREATED_OR_ACCEPTED;
        Some(operation)
    }

    fn delete_collection(&self) -> Option<Operation> {
        let mut operation = self.operation(Verb::DeleteCollection, "delete", "deletecollection")?;
        operation.id = self.id("delete", "Collection", false, "");
        operation.description = format!("deletes all {} objects that match", self.resource.kind);
        operation.parameters.extend_from_slice(DELETE);
        let of_watch = ["allowWatchBookmarks", "watch"];
        operation.parameters.extend(LIST.iter().filter(|p| !of_watch.contains(&p.name)));
        operation.parameters.extend(self.namespace());
        operation.body = Some(Body::Options(meta("DeleteOptions")));
        operation.answer.ty = Some(meta("Status"));
        Some(operation)
    }

    fn read(&self) -> Option<Operation> {
        let mut operation = self.operation(Verb::Get, "get", "get")?;
        operation.id = self.id("read", "", false, "");
        operation.description = format!("reads a {}", self.resource.kind);
        self.on_object(operation)
    }

    fn replace(&self) -> Option<Operation> {
        let mut operation = self.operation(Verb::Update, "put", "put")?;
        operation.id = self.id("replace", "", false, "");
        operation.description = format!("replaces a {}", self.resource.kind);
        write(&mut operation, Body::Object(Model::of(self.resource)));
        self.on_object(operation)
    }

    fn patch(&self) -> Option<Operation> {
        let mut operation = self.operation(Verb::Patch, "patch", "patch")?;
        operation.id = self.id("patch", "", false, "");
        operation.description = format!("changes a part of a {}", self.resource.kind);
        write(&mut operation, Body::Patch(meta("Patch")));
        self.on_object(operation)
    }

    fn delete(&self) -> Option<Operation> {
        let mut operation = self.operation(Verb::Delete, "delete", "delete")?;
        operation.id = self.id("delete", "", false, "");
        operation.description = format!("deletes a {}", self.resource.kind);
        operation.parameters.extend_from_slice(DELETE);
        operation.body = Some(Body::Options(meta("DeleteOptions")));
        if !self.resource.returns_deleted {
            operation.answer.ty = Some(meta("Status"));
        }
        operation.answer.codes = ACCEPTED;
        self.on_object(operation)
    }

    fn on_object(&self, mut operation: Operation) -> Option<Operation> {
        operation.parameters.push(NAME);
        operation.parameters.extend(self.namespace());
        Some(operation)
    }

    fn subresource(&self, subresource: &'static Subresource, path: &str, paths: &mut Vec<Path>) {
        let options = subresource
            .kind
            .and_then(|kind| OPTIONS.iter().find(|(name, _)| *name == kind.kind))
            .map(|(_, parameters)| *parameters);
        if let Some(parameters) = options {
            let proxied = subresource.name == "proxy";
            paths.push(self.connect(subresource, path, parameters, false));
            if proxied {
                paths.push(self.connect(
                    subresource,
                    &format!("{path}/{{path}}"),
                    parameters,
                    true,
                ));
            }
            return;
        }
        let operations =
            subresource.verbs.iter().filter_map(|verb| self.subresource_verb(subresource, verb));
        paths.push(Path { path: path.to_owned(), operations: operations.collect() });
    }

    fn subresource_verb(&self, subresource: &Subresource, verb: Verb) -> Option<Operation> {
        let r = self.resource;
        let suffix = capital(subresource.name);
        let ty = subresource.kind.map_or_else(|| Model::of(r), |kind| Model::Type(kind.ty()));
        let (method, action, word) = match verb {
            Verb::Get => ("get", "get", "read"),
            Verb::Update => ("put", "put", "replace"),
            Verb::Patch => ("patch", "patch", "patch"),
            Verb::Create => ("post", "post", "create"),
            _ => return None,
        };
        let gvk = match subresource.kind {
            Some(kind) => Gvk { group: kind.group, version: kind.version, kind: kind.kind },
            None => Gvk { group: r.group, version: r.version, kind: r.kind },
        };
        let mut operation = Operation {
            method,
            id: self.id(word, "", false, &suffix),
            description: format!("{word}s {} of a {}", subresource.name, r.kind),
            tag: tag(r.group, Some(r.version)),
            action: Some((action, gvk)),
            parameters: vec![PRETTY],
            body: None,
            answer: Answer { ty: Some(ty.clone()), codes: OK, media: Media::Object },
            custom: r.definition.is_some(),
        };
        match verb {
            Verb::Update => write(&mut operation, Body::Object(ty)),
            Verb::Patch => write(&mut operation, Body::Patch(meta("Patch"))),
            Verb::Create => {
                write(&mut operation, Body::Object(ty));
                operation.answer.codes = CREATED_OR_ACCEPTED;
            }
            _ => {}
        }
        if subresource.name == "log" {
            operation.parameters = LOG.to_vec();
            operation.answer = Answer { ty: None, codes: OK, media: Media::Text };
        }
        self.on_object(operation)
    }

    /// A subresource that is a stream: every method the client may open it with.
    fn connect(
        &self,
        subresource: &Subresource,
        path: &str,
        parameters: &[Parameter],
        with_path: bool,
    ) -> Path {
        let methods: &[&'static str] = match subresource.name {
            "proxy" => &["delete", "get", "head", "options", "patch", "post", "put"],
            _ => &["get", "post"],
        };
        let r = self.resource;
        let suffix =
            format!("{}{}", capital(subresource.name), if with_path { "WithPath" } else { "" });
        let gvk = subresource.kind.map_or(
            Gvk { group: r.group, version: r.version, kind: r.kind },
            |kind| Gvk { group: kind.group, version: kind.version, kind: kind.kind },
        );
        let operations = methods.iter().map(|method| {
            let mut all = parameters.to_vec();
            all.push(NAME);
            all.extend(self.namespace());
            all.extend(with_path.then_some(PROXY_PATH));
            Operation {
                method,
                id: self.id("connect", &capital(method), false, &suffix),
                description: format!("connects to {} of a {}", subresource.name, r.kind),
                tag: tag(r.group, Some(r.version)),
                action: Some(("connect", gvk.clone())),
                parameters: all,
                body: None,
                answer: Answer { ty: None, codes: OK, media: Media::Stream },
                custom: false,
            }
        });
        Path { path: path.to_owned(), operations: operations.collect() }
    }
}

fn write(operation: &mut Operation, body: Body) {
    operation.parameters.extend([DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION]);
    if matches!(body, Body::Patch(_)) {
        operation.parameters.push(FORCE);
    }
    operation.body = Some(body);
    operation.answer.codes = CREATED;
}

/// Parameters that every operation of a path has belong to the path; both parts sorted by name.
pub(super) fn share_parameters(operations: &mut [Operation]) -> Vec<Parameter> {
    let Some(first) = operations.first() else { return Vec::new() };
    let mut shared: Vec<Parameter> = first
        .parameters
        .iter()
        .copied()
        .filter(|p| operations.iter().all(|o| o.parameters.contains(p)))
        .collect();
    for operation in operations.iter_mut() {
        operation.parameters.retain(|p| !shared.contains(p));
        operation.parameters.sort_by_key(|p| (p.name, p.place));
    }
    shared.sort_by_key(|p| (p.name, p.place));
    shared
}
