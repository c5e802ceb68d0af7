//! RBAC's index: who is granted what, by subject, so that a decision looks at the few bindings that
//! concern its user.
use super::rules::allows;
use super::{Attributes, What};
use crate::guard::authn::User;
use crate::server::ApiServer;
use crate::state::following::{self, typed};
use api::kinds::Resource;
use api::status::Status;
use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use parking_lot::{RwLock, RwLockReadGuard};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use store::Key;

/// Who a binding is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Who {
    User(String),
    Group(String),
}

/// A role's rules, given to somebody somewhere.
#[derive(Debug)]
struct Grant {
    /// None: everywhere.
    namespace: Option<String>,
    rules: Arc<Vec<PolicyRule>>,
    /// Why, in upstream's words.
    reason: String,
}

/// A ClusterRole, or a Role of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct RoleName {
    namespace: Option<String>,
    name: String,
}

impl RoleName {
    /// The role that a binding in a namespace, or in none, refers to; nothing if it cannot be one.
    fn of(role: &RoleRef, namespace: Option<&str>) -> Option<RoleName> {
        let namespace = match (role.kind.as_str(), namespace) {
            ("ClusterRole", _) => None,
            ("Role", Some(namespace)) => Some(namespace.to_owned()),
            _ => return None,
        };
        Some(RoleName { namespace, name: role.name.clone() })
    }
}

/// Who gets which role, and where.
#[derive(Debug)]
struct Binding {
    namespace: Option<String>,
    role: RoleName,
    /// Each with why, in upstream's words.
    subjects: Vec<(Who, String)>,
}

/// Where a grant is from: bindings of the whole cluster come first, then by key, then by subject.
type Origin = (bool, Key, usize);

/// Roles and bindings as they are now, and the grants that they come to.
#[derive(Debug, Default)]
pub struct Index {
    grants: HashMap<Who, BTreeMap<Origin, Grant>>,
    roles: HashMap<RoleName, Arc<Vec<PolicyRule>>>,
    bindings: HashMap<Key, Binding>,
    /// The bindings that refer to a role, whether or not it is there.
    bound: HashMap<RoleName, BTreeSet<Key>>,
}

/// The index that counts now.
#[derive(Debug, Default)]
pub struct Rbac(RwLock<Index>);

impl Rbac {
    /// Nobody waits for anything while he holds it.
    pub fn read(&self) -> RwLockReadGuard<'_, Index> {
        self.0.read()
    }
}

/// One role or binding as it is now.
enum Change {
    Role(RoleName, Option<Vec<PolicyRule>>),
    Binding(Key, Option<Binding>),
}

/// What was read and is not yet in force.
#[derive(Default)]
struct Changes {
    read: Vec<Change>,
    /// What is in force is changed; before that it is replaced.
    is_begun: bool,
}

/// Builds the index, and keeps it true from then on.
pub async fn start(api: &ApiServer) -> Result<(), Status> {
    following::keep::<Changes>(api).await
}

impl following::Index for Changes {
    const KINDS: &'static [(&'static str, &'static str)] = &[
        ("rbac.authorization.k8s.io/v1", "ClusterRole"),
        ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
        ("rbac.authorization.k8s.io/v1", "Role"),
        ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    ];

    fn take(&mut self, kind: &'static Resource, key: &Key, object: Option<Value>) {
        self.read.push(Change::read(kind, key, object));
    }

    async fn settle(&mut self, api: &ApiServer) {
        let read = std::mem::take(&mut self.read);
        if self.is_begun {
            let mut index = api.rbac().0.write();
            read.into_iter().for_each(|change| index.apply(change));
        } else {
            let mut index = Index::default();
            read.into_iter().for_each(|change| index.apply(change));
            *api.rbac().0.write() = index;
            self.is_begun = true;
        }
    }
}

impl Change {
    /// One that cannot be read grants nothing.
    fn read(kind: &Resource, key: &Key, object: Option<Value>) -> Change {
        let (namespace, name) = place(kind, key);
        match kind.plural {
            "clusterroles" => {
                let role = typed::<ClusterRole>(object).map(|role| role.rules.unwrap_or_default());
                Change::Role(RoleName { namespace, name }, role)
            }
            "roles" => {
                let role = typed::<Role>(object).map(|role| role.rules.unwrap_or_default());
                Change::Role(RoleName { namespace, name }, role)
            }
            "clusterrolebindings" => {
                let binding = typed::<ClusterRoleBinding>(object).and_then(|binding| {
                    let origin = format!("ClusterRoleBinding {name:?}");
                    Binding::new(None, &binding.role_ref, binding.subjects.as_deref(), &origin)
                });
                Change::Binding(key.clone(), binding)
            }
            _ => {
                let binding = typed::<RoleBinding>(object).and_then(|binding| {
                    let place = namespace.as_deref();
                    let origin = format!("RoleBinding \"{name}/{}\"", place.unwrap_or_default());
                    Binding::new(place, &binding.role_ref, binding.subjects.as_deref(), &origin)
                });
                Change::Binding(key.clone(), binding)
            }
        }
    }
}

/// Namespace, if the kind has one, and name: the end of a key.
fn place(kind: &Resource, key: &Key) -> (Option<String>, String) {
    let key = key.to_string();
    let rest = key.strip_prefix(&kind.key_prefix()).unwrap_or(&key);
    match rest.split_once('/').filter(|_| kind.is_namespaced()) {
        Some((namespace, name)) => (Some(namespace.to_owned()), name.to_owned()),
        None => (None, rest.to_owned()),
    }
}

impl Binding {
    /// Nothing if it refers to what can be no role.
    fn new(
        namespace: Option<&str>,
        role: &RoleRef,
        subjects: Option<&[Subject]>,
        origin: &str,
    ) -> Option<Binding> {
        let name = RoleName::of(role, namespace)?;
        let given = subjects.unwrap_or_default().iter().filter_map(|subject| {
            let (who, shown) = who(subject, namespace)?;
            let (kind, name) = (&role.kind, &role.name);
            Some((who, format!("RBAC: allowed by {origin} of {kind} {name:?} to {shown}")))
        });
        let subjects = given.collect();
        Some(Binding { namespace: namespace.map(str::to_owned), role: name, subjects })
    }
}

impl Index {
    /// A role or binding as it is now; `place` is its namespace, if it has one, and its name: `ns/name`.
    /// A server hears of them from its store; this is for who has none, such as benchmarks.
    pub fn put(&mut self, kind: &'static Resource, place: &str, object: Option<Value>) {
        let key = Key::from(format!("{}{place}", kind.key_prefix()).as_str());
        self.apply(Change::read(kind, &key, object));
    }

    fn apply(&mut self, change: Change) {
        match change {
            Change::Role(name, rules) => self.put_role(name, rules),
            Change::Binding(key, binding) => self.put_binding(key, binding),
        }
    }

    /// A role changes what its bindings grant.
    fn put_role(&mut self, name: RoleName, rules: Option<Vec<PolicyRule>>) {
        let bound: Vec<Key> = self.bound.get(&name).into_iter().flatten().cloned().collect();
        bound.iter().for_each(|key| self.withdraw(key));
        match rules {
            Some(rules) => self.roles.insert(name, Arc::new(rules)),
            None => self.roles.remove(&name),
        };
        bound.iter().for_each(|key| self.grant(key));
    }

    fn put_binding(&mut self, key: Key, binding: Option<Binding>) {
        self.withdraw(&key);
        if let Some(old) = self.bindings.remove(&key)
            && let Some(bound) = self.bound.get_mut(&old.role)
        {
            bound.remove(&key);
            if bound.is_empty() {
                self.bound.remove(&old.role);
            }
        }
        if let Some(binding) = binding {
            self.bound.entry(binding.role.clone()).or_default().insert(key.clone());
            self.bindings.insert(key.clone(), binding);
            self.grant(&key);
        }
    }

    /// Gives what a binding gives; nothing as long as its role is not there.
    fn grant(&mut self, key: &Key) {
        let Some(binding) = self.bindings.get(key) else { return };
        let Some(rules) = self.roles.get(&binding.role) else { return };
        for (at, (who, reason)) in binding.subjects.iter().enumerate() {
            let grant = Grant {
                namespace: binding.namespace.clone(),
                rules: rules.clone(),
                reason: reason.clone(),
            };
            let origin = (binding.namespace.is_some(), key.clone(), at);
            self.grants.entry(who.clone()).or_default().insert(origin, grant);
        }
    }

    fn withdraw(&mut self, key: &Key) {
        let Some(binding) = self.bindings.get(key) else { return };
        for (at, (who, _)) in binding.subjects.iter().enumerate() {
            let Some(granted) = self.grants.get_mut(who) else { continue };
            granted.remove(&(binding.namespace.is_some(), key.clone(), at));
            if granted.is_empty() {
                self.grants.remove(who);
            }
        }
    }

    /// The rules of a role; none if there is no such role.
    pub fn rules_of(
        &self,
        role: &RoleRef,
        namespace: Option<&str>,
    ) -> Option<Arc<Vec<PolicyRule>>> {
        self.roles.get(&RoleName::of(role, namespace)?).cloned()
    }

    /// Why the user may, if so.
    pub fn find(&self, user: &User, attributes: &Attributes) -> Option<String> {
        let namespace = match &attributes.what {
            What::Resource { namespace, .. } => namespace.as_str(),
            What::Path(_) => "",
        };
        self.grants_of(user)
            .filter(|grant| applies(grant, namespace))
            .find(|grant| grant.rules.iter().any(|rule| allows(rule, attributes)))
            .map(|grant| grant.reason.clone())
    }

    /// Everything that the user is granted in a namespace, or everywhere.
    pub fn rules_for(&self, user: &User, namespace: &str) -> Vec<PolicyRule> {
        let grants = self.grants_of(user).filter(|grant| applies(grant, namespace));
        grants.flat_map(|grant| grant.rules.iter().cloned()).collect()
    }

    fn grants_of<'a>(&'a self, user: &'a User) -> impl Iterator<Item = &'a Grant> {
        let subjects = std::iter::once(Who::User(user.name.clone()))
            .chain(user.groups.iter().cloned().map(Who::Group));
        subjects.filter_map(|who| self.grants.get(&who)).flat_map(BTreeMap::values)
    }
}

fn applies(grant: &Grant, namespace: &str) -> bool {
    grant.namespace.as_deref().is_none_or(|granted| granted == namespace)
}

fn who(subject: &Subject, namespace: Option<&str>) -> Option<(Who, String)> {
    let name = &subject.name;
    match subject.kind.as_str() {
        "User" => Some((Who::User(name.clone()), format!("User {name:?}"))),
        "Group" => Some((Who::Group(name.clone()), format!("Group {name:?}"))),
        "ServiceAccount" => {
            let place = subject.namespace.as_deref().or(namespace).filter(|n| !n.is_empty())?;
            let user = format!("system:serviceaccount:{place}:{name}");
            Some((Who::User(user), format!("ServiceAccount \"{name}/{place}\"")))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::following::Index as _;
    use api::kinds::find_kind;
    use serde_json::json;

    /// Objects that come and go one at a time, and what they come to: the same, at every step, as all
    /// that is there taken at once.
    #[derive(Default)]
    struct World {
        there: BTreeMap<String, (&'static Resource, Value)>,
        index: Index,
    }

    impl World {
        fn change(&mut self, kind: &str, place: &str, object: Option<Value>) {
            let row = find_kind("rbac.authorization.k8s.io/v1", kind).expect("a row");
            let key = format!("{}{place}", row.key_prefix());
            self.index.put(row, place, object.clone());
            match object {
                Some(object) => self.there.insert(key, (row, object)),
                None => self.there.remove(&key),
            };
            let mut anew = Changes::default();
            for (key, (row, object)) in &self.there {
                anew.take(row, &Key::from(key.as_str()), Some(object.clone()));
            }
            let mut index = Index::default();
            anew.read.into_iter().for_each(|change| index.apply(change));
            let shown = |index: &Index| {
                let mut grants: Vec<String> = index
                    .grants
                    .iter()
                    .map(|(who, granted)| format!("{who:?}: {granted:?}"))
                    .collect();
                grants.sort();
                (grants, index.bound.len())
            };
            assert_eq!(shown(&self.index), shown(&index), "{kind} {place}");
        }

        fn reason(&self, user: &str, verb: &str, namespace: &str) -> String {
            let user = User { name: user.into(), groups: vec!["dev".into()], ..User::default() };
            let wanted = Attributes::right(verb, "", "pods", namespace, "");
            self.index.find(&user, &wanted).unwrap_or_default()
        }
    }

    fn rules(verb: &str) -> Value {
        json!({ "rules": [{ "verbs": [verb], "apiGroups": [""], "resources": ["pods"] }] })
    }

    fn binding(kind: &str, role: &str, subjects: &[(&str, &str)]) -> Value {
        let subject = |(kind, name): &(&str, &str)| json!({ "kind": kind, "name": name });
        let subjects: Vec<Value> = subjects.iter().map(subject).collect();
        json!({ "roleRef": { "apiGroup": "", "kind": kind, "name": role }, "subjects": subjects })
    }

    #[test]
    fn one_change_is_applied_and_nothing_else_is_read() {
        let mut world = World::default();
        // A binding may come before its role.
        let given = binding("Role", "reader", &[("User", "jane"), ("User", "jane")]);
        world.change("RoleBinding", "a/b", Some(given));
        assert_eq!(world.reason("jane", "get", "a"), "");
        world.change("Role", "a/reader", Some(rules("get")));
        let reason = "RBAC: allowed by RoleBinding \"b/a\" of Role \"reader\" to User \"jane\"";
        assert_eq!(world.reason("jane", "get", "a"), reason);
        assert_eq!(world.reason("jane", "get", "b"), "");
        assert_eq!(world.reason("jane", "list", "a"), "");
        // Another namespace's role of that name is another role.
        world.change("Role", "b/reader", Some(rules("list")));
        assert_eq!(world.reason("jane", "list", "a"), "");
        world.change("Role", "a/reader", Some(rules("list")));
        assert_eq!(world.reason("jane", "get", "a"), "");
        assert_eq!(world.reason("jane", "list", "a"), reason);
        // Of what a user is given, that which holds everywhere is named first, whenever it came.
        world.change("ClusterRole", "reader", Some(rules("list")));
        let given = binding("ClusterRole", "reader", &[("Group", "dev"), ("User", "jane")]);
        world.change("ClusterRoleBinding", "all", Some(given));
        let to = "RBAC: allowed by ClusterRoleBinding \"all\" of ClusterRole \"reader\" to";
        assert_eq!(world.reason("jane", "list", "a"), format!("{to} User \"jane\""));
        assert_eq!(world.reason("joe", "list", "c"), format!("{to} Group \"dev\""));
        // A binding's subjects change; a role goes before its binding, and comes back.
        let given = binding("ClusterRole", "reader", &[("User", "joe")]);
        world.change("ClusterRoleBinding", "all", Some(given));
        assert_eq!(world.reason("jane", "list", "a"), reason);
        world.change("ClusterRole", "reader", None);
        assert_eq!(world.reason("joe", "list", "c"), "");
        world.change("ClusterRole", "reader", Some(rules("list")));
        assert!(!world.reason("joe", "list", "c").is_empty());
        // What cannot be read grants nothing.
        world.change("Role", "a/reader", Some(json!({ "rules": "all" })));
        assert_eq!(world.reason("jane", "list", "a"), "");
        world.change("RoleBinding", "a/b", Some(json!({ "roleRef": 1 })));
        world.change("ClusterRoleBinding", "all", None);
        assert!(world.index.grants.is_empty() && world.index.bound.is_empty());
    }
}
