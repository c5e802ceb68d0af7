//! What a resource is called, whoever defined it.
use api::group::GroupResource;
use api::kinds::{self, Scope};
use api::rules::Form;
use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};

/// A resource that an API server may serve: a row of ours, or somebody's custom one.
#[derive(Debug, Clone)]
pub struct ApiResource {
    pub group: Cow<'static, str>,
    pub version: Cow<'static, str>,
    pub plural: Cow<'static, str>,
    pub kind: Cow<'static, str>,
    pub scope: Scope,
    /// The row of a built-in one.
    pub row: Option<&'static kinds::Resource>,
}

impl ApiResource {
    pub fn of<T: Form>() -> ApiResource {
        match kinds::find_kind(T::API_VERSION, T::KIND) {
            Some(row) => row.into(),
            // Types of versions that nobody serves by default. Their scope is not to be had from
            // the type here, and most are namespaced.
            None => ApiResource {
                group: T::GROUP.into(),
                version: T::VERSION.into(),
                plural: T::URL_PATH_SEGMENT.into(),
                kind: T::KIND.into(),
                scope: Scope::Namespaced,
                row: None,
            },
        }
    }

    /// One that is not among our rows.
    pub fn custom(group: &str, version: &str, plural: &str, kind: &str, scope: Scope) -> Self {
        ApiResource {
            group: group.to_owned().into(),
            version: version.to_owned().into(),
            plural: plural.to_owned().into(),
            kind: kind.to_owned().into(),
            scope,
            row: kinds::find(group, version, plural),
        }
    }

    pub fn is_namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }

    pub fn api_version(&self) -> String {
        match &*self.group {
            "" => self.version.to_string(),
            group => format!("{group}/{}", self.version),
        }
    }

    pub fn group_resource(&self) -> GroupResource<'_> {
        GroupResource::new(&self.group, &self.plural)
    }

    /// `/api/v1/namespaces/default/pods/web/status`; empty parts are left out.
    pub fn path(&self, namespace: &str, name: &str, subresource: &str) -> String {
        let mut path = match &*self.group {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        };
        let namespace = if self.is_namespaced() { namespace } else { "" };
        let folder = if namespace.is_empty() { "" } else { "namespaces" };
        for part in [folder, namespace, &self.plural, name, subresource] {
            if !part.is_empty() {
                path.push('/');
                path.push_str(part);
            }
        }
        path
    }

    fn identity(&self) -> [&str; 3] {
        [&self.group, &self.version, &self.plural]
    }
}

impl From<&'static kinds::Resource> for ApiResource {
    fn from(row: &'static kinds::Resource) -> ApiResource {
        ApiResource {
            group: row.group.into(),
            version: row.version.into(),
            plural: row.plural.into(),
            kind: row.kind.into(),
            scope: row.scope,
            row: Some(row),
        }
    }
}

impl PartialEq for ApiResource {
    fn eq(&self, other: &ApiResource) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for ApiResource {}

impl Hash for ApiResource {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}

/// `pods`, `deployments.apps`.
impl fmt::Display for ApiResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.group_resource().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::{apps::v1::Deployment, core::v1::Node, core::v1::Pod};

    #[test]
    fn paths_are_upstreams() {
        let path =
            |resource: ApiResource, namespace, name, part| resource.path(namespace, name, part);
        let pods = ApiResource::of::<Pod>();
        assert_eq!(path(pods.clone(), "", "", ""), "/api/v1/pods");
        assert_eq!(path(pods, "a", "b", "status"), "/api/v1/namespaces/a/pods/b/status");
        assert_eq!(path(ApiResource::of::<Node>(), "ignored", "n", ""), "/api/v1/nodes/n");
        let deployments = ApiResource::of::<Deployment>();
        assert_eq!(deployments.to_string(), "deployments.apps");
        assert_eq!(
            path(deployments, "a", "b", "scale"),
            "/apis/apps/v1/namespaces/a/deployments/b/scale"
        );
        let custom = ApiResource::custom("e.com", "v1", "things", "Thing", Scope::Cluster);
        assert_eq!(path(custom, "", "x", ""), "/apis/e.com/v1/things/x");
    }
}
