//! What a request is about, as hooks are told.
use super::versions;
use crate::admission::{Attributes, Operation};
use crate::guard::authn::User;
use api::kinds::{Registry, Resource, ResourceRef, Subresource};
use api::rules::defaults;
use api::schema::{TypeRef, builtin};
use serde_json::Value;
use std::sync::{Arc, OnceLock};

/// A resource in one of its versions, and the kind that it is read and written as.
#[derive(Debug, Clone)]
pub struct Named {
    pub group: String,
    pub version: String,
    pub resource: String,
    pub kind: Kind,
    /// What the kind is, if it is the resource's own.
    pub row: Option<ResourceRef>,
}

/// A kind with its own group and version: a subresource may have one of another group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kind {
    pub group: String,
    pub version: String,
    pub kind: String,
}

impl Kind {
    pub fn api_version(&self) -> String {
        match self.group.is_empty() {
            true => self.version.clone(),
            false => format!("{}/{}", self.group, self.version),
        }
    }
}

impl Named {
    pub fn of(resource: &ResourceRef, part: Option<&Subresource>) -> Named {
        let own = (resource.group, resource.version, resource.kind);
        let foreign = part.and_then(|part| part.kind);
        let (group, version, kind) =
            foreign.map_or(own, |kind| (kind.group, kind.version, kind.kind));
        Named {
            group: resource.group.into(),
            version: resource.version.into(),
            resource: resource.plural.into(),
            kind: Kind { group: group.into(), version: version.into(), kind: kind.into() },
            row: foreign.is_none().then(|| resource.clone()),
        }
    }

    /// What objects of the kind are made of, if that is known.
    pub fn ty(&self) -> Option<TypeRef<'_>> {
        match &self.row {
            Some(row) => Some(row.ty()),
            None => builtin().kind(&self.kind.group, &self.kind.version, &self.kind.kind),
        }
    }

    pub fn set_defaults(&self, object: &mut Value) {
        match (&self.row, self.ty()) {
            (Some(row), _) => row.set_defaults(object),
            (None, Some(ty)) => defaults::set(object, ty),
            (None, None) => {}
        }
    }
}

/// A request.
pub struct Matter<'a> {
    pub operation: Operation,
    /// As the request names it.
    pub named: Named,
    pub subresource: String,
    /// A request on a namespace is in that namespace.
    pub namespace: String,
    /// Empty for a collection, and for a name that is still to be made up.
    pub name: String,
    pub user: &'a User,
    pub dry_run: bool,
    /// `CreateOptions` and the like; nothing for a stream.
    pub options: Value,
    resource: &'a Resource,
    part: Option<&'a Subresource>,
    registry: Arc<Registry>,
    others: OnceLock<Vec<Named>>,
}

impl<'a> Matter<'a> {
    pub fn of(attributes: &Attributes<'a>) -> Matter<'a> {
        let call = attributes.call;
        let resource = &call.resource;
        let mut name = call.name.clone();
        if name.is_empty() && attributes.operation == Operation::Create {
            let given = attributes.new_object()["metadata"]["name"].as_str();
            name = given.unwrap_or_default().to_owned();
        }
        let is_namespace = resource.is("", "Namespace");
        let namespace = if is_namespace { name.clone() } else { call.namespace.clone() };
        Matter {
            operation: attributes.operation,
            named: Named::of(resource, call.subresource),
            subresource: attributes.part().to_owned(),
            namespace,
            name,
            user: attributes.user,
            dry_run: attributes.dry_run(),
            options: attributes.write_options(),
            resource,
            part: call.subresource,
            registry: attributes.api.registry(),
            others: OnceLock::new(),
        }
    }

    /// The same resource in the other versions that are served.
    pub fn others(&self) -> &[Named] {
        self.others.get_or_init(|| versions::others(&self.registry, self.resource, self.part))
    }

    /// Whether it is a namespace itself that comes to be or changes: its labels are the request's.
    pub fn brings_its_own_labels(&self) -> bool {
        self.named.resource == "namespaces"
            && self.subresource.is_empty()
            && matches!(self.operation, Operation::Create | Operation::Update)
    }

    #[cfg(test)]
    pub fn for_test(
        resource: &'static Resource,
        operation: Operation,
        namespace: &str,
        name: &str,
    ) -> Matter<'a> {
        use std::sync::LazyLock;
        static USER: LazyLock<User> = LazyLock::new(|| User {
            name: "jane".into(),
            groups: vec!["dev".into()],
            ..User::default()
        });
        Matter {
            operation,
            named: Named::of(&resource.into(), None),
            subresource: String::new(),
            namespace: namespace.into(),
            name: name.into(),
            user: &USER,
            dry_run: false,
            options: Value::Null,
            resource,
            part: None,
            registry: Arc::default(),
            others: OnceLock::new(),
        }
    }
}
