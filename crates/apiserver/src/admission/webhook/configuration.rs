//! The hooks of all configurations, in the order in which they are asked.
use super::rules::Rule;
use crate::admission::manifests::{MUTATING_WEBHOOKS, Said, Sort};
use crate::admission::policy::MatchConditions;
use crate::extend::backend::{Backend, Backends, Clients, Place};
use crate::server::ApiServer;
use crate::state::following::{self, Kept};
use api::kinds::Resource;
use api::selector::label::Selector;
use api::status::Status;
use k8s_openapi::api::admissionregistration::v1::MatchCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use store::Key;

/// What a webhook's configuration says, read once.
pub struct Hook {
    /// It is of a manifest beside the server.
    pub is_manifest: bool,
    pub configuration: String,
    pub name: String,
    /// Tells it from every other.
    pub id: String,
    pub rules: Vec<Rule>,
    pub matches_equivalents: bool,
    pub namespace_selector: Result<Selector, String>,
    pub object_selector: Result<Selector, String>,
    /// Expressions that must all hold before it is asked.
    pub conditions: MatchConditions,
    pub ignores_failures: bool,
    /// Whether it may be asked about what is only tried.
    pub side_effects: Option<String>,
    pub timeout: Duration,
    /// Whether it is asked again about what others changed after it.
    pub reinvoked: bool,
    pub review_versions: Vec<String>,
    pub backend: Result<Arc<Backend>, String>,
}

/// The hooks of one moment.
#[derive(Clone, Default)]
pub struct Snapshot {
    pub mutating: Vec<Arc<Hook>>,
    pub validating: Vec<Arc<Hook>>,
}

/// The hooks that are asked now: those of manifests, and then those that are stored.
#[derive(Default)]
pub struct Hooks {
    current: RwLock<Arc<Snapshot>>,
    parts: Mutex<Parts>,
}

#[derive(Default)]
struct Parts {
    manifests: Snapshot,
    stored: Snapshot,
}

impl Hooks {
    pub fn current(&self) -> Arc<Snapshot> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// One more, whatever its configuration would say of it.
    #[cfg(test)]
    pub fn put_validating(&self, hook: Hook) {
        self.change(|parts| parts.stored.validating.push(Arc::new(hook)));
    }

    fn change(&self, change: impl FnOnce(&mut Parts)) {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut parts);
        let Parts { manifests, stored } = &*parts;
        let snapshot = Snapshot {
            mutating: [manifests.mutating.clone(), stored.mutating.clone()].concat(),
            validating: [manifests.validating.clone(), stored.validating.clone()].concat(),
        };
        // While the parts are held, so that nobody puts back what they were before.
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(snapshot);
    }
}

/// Puts the hooks of manifests in force, in place of those that there were.
pub fn take_manifests(api: &ApiServer, sort: &'static Sort, said: &Said) {
    let (backends, clients) = (&api.extend().backends, &api.admission().settings.webhooks);
    let is_mutating = *sort == MUTATING_WEBHOOKS;
    let clients = if is_mutating { &clients.mutating } else { &clients.validating };
    let configurations = said.objects.iter();
    let hooks = configurations.flat_map(|told| hooks(told, true, backends, clients)).collect();
    api.extend().hooks.change(|parts| match is_mutating {
        true => parts.manifests.mutating = hooks,
        false => parts.manifests.validating = hooks,
    });
}

const VERSION: &str = "admissionregistration.k8s.io/v1";

/// Reads the configurations, and follows them from then on.
pub async fn start(api: &ApiServer) -> Result<(), Status> {
    following::keep::<Configurations>(api).await
}

/// What each configuration says: they are asked in the order of their names.
#[derive(Default)]
struct Configurations {
    mutating: Kept<Configured>,
    validating: Kept<Configured>,
}

/// A configuration whose hooks are read once, when somebody has them in force.
struct Configured {
    told: Value,
    hooks: Option<Vec<Arc<Hook>>>,
}

impl following::Index for Configurations {
    const KINDS: &'static [(&'static str, &'static str)] =
        &[(VERSION, "MutatingWebhookConfiguration"), (VERSION, "ValidatingWebhookConfiguration")];

    fn take(&mut self, kind: &'static Resource, key: &Key, object: Option<Value>) {
        let all = match kind.plural {
            "mutatingwebhookconfigurations" => &mut self.mutating,
            _ => &mut self.validating,
        };
        all.put(key, object.map(|told| Configured { told, hooks: None }));
    }

    async fn settle(&mut self, api: &ApiServer) {
        let backends = &api.extend().backends;
        let clients = &api.admission().settings.webhooks;
        let mutating = in_force(&mut self.mutating, backends, &clients.mutating);
        let validating = in_force(&mut self.validating, backends, &clients.validating);
        api.extend().hooks.change(|parts| parts.stored = Snapshot { mutating, validating });
    }
}

/// The hooks of all configurations: these by name, their hooks as they are listed.
fn in_force(all: &mut Kept<Configured>, backends: &Backends, clients: &Clients) -> Vec<Arc<Hook>> {
    let hooks = |one: &mut Configured| {
        one.hooks.get_or_insert_with(|| hooks(&one.told, false, backends, clients)).clone()
    };
    all.iter_mut().flat_map(hooks).collect()
}

/// The hooks of a configuration, as they are listed.
fn hooks(
    configuration: &Value,
    is_manifest: bool,
    backends: &Backends,
    clients: &Clients,
) -> Vec<Arc<Hook>> {
    let whose = if is_manifest { "manifest/" } else { "" };
    let name = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let its_name = name(&configuration["metadata"]["name"]);
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut all = Vec::new();
    for hook in configuration["webhooks"].as_array().into_iter().flatten() {
        let count = seen.entry(name(&hook["name"])).or_default();
        let id = format!("{whose}{its_name}/{}/{count}", name(&hook["name"]));
        *count += 1;
        let hook = Hook::read(&its_name, id, hook, (backends, clients));
        all.push(Arc::new(Hook { is_manifest, ..hook }));
    }
    all
}

impl Hook {
    pub fn read(
        configuration: &str,
        id: String,
        hook: &Value,
        (backends, clients): (&Backends, &Clients),
    ) -> Hook {
        let strings = |value: &Value| -> Vec<String> {
            let all = value.as_array().into_iter().flatten();
            all.filter_map(|text| text.as_str().map(str::to_owned)).collect()
        };
        let rules = hook["rules"].as_array().into_iter().flatten();
        let conditions: Option<Vec<MatchCondition>> =
            serde_json::from_value(hook["matchConditions"].clone()).unwrap_or_default();
        let place = Place::read(&hook["clientConfig"]);
        Hook {
            is_manifest: false,
            configuration: configuration.to_owned(),
            name: hook["name"].as_str().unwrap_or_default().to_owned(),
            id,
            rules: rules.map(Rule::read).collect(),
            matches_equivalents: hook["matchPolicy"] == "Equivalent",
            namespace_selector: selector(&hook["namespaceSelector"]),
            object_selector: selector(&hook["objectSelector"]),
            conditions: MatchConditions::of_webhook(conditions.as_deref()),
            ignores_failures: hook["failurePolicy"] == "Ignore",
            side_effects: hook["sideEffects"].as_str().map(str::to_owned),
            timeout: Duration::from_secs(hook["timeoutSeconds"].as_u64().unwrap_or(10)),
            reinvoked: hook["reinvocationPolicy"] == "IfNeeded",
            review_versions: strings(&hook["admissionReviewVersions"]),
            backend: place.and_then(|place| backends.get_as(clients.of(&place)?, place)),
        }
    }
}

fn selector(value: &Value) -> Result<Selector, String> {
    if value.is_null() {
        // Defaults have filled it in, but for what was stored without them.
        return Ok(Selector::everything());
    }
    let selector: LabelSelector =
        serde_json::from_value(value.clone()).map_err(|error| error.to_string())?;
    Selector::from_label_selector(Some(&selector)).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn hooks_come_by_configuration_and_then_as_listed() {
        let configuration = |name: &str, hooks: &[&str]| {
            let hooks: Vec<Value> = hooks.iter().map(|name| json!({ "name": name })).collect();
            json!({ "metadata": { "name": name }, "webhooks": hooks })
        };
        let mut all = Kept::default();
        for told in [configuration("b", &["z", "y", "z"]), configuration("a", &["x"])] {
            let key = Key::from(told["metadata"]["name"].as_str().expect("a name"));
            all.put(&key, Some(Configured { told, hooks: None }));
        }
        let hooks = in_force(&mut all, &Backends::default(), &Clients::default());
        let ids: Vec<&str> = hooks.iter().map(|hook| &*hook.id).collect();
        assert_eq!(ids, ["a/x/0", "b/z/0", "b/y/0", "b/z/1"]);
        let hook = &hooks[0];
        assert_eq!((hook.timeout.as_secs(), hook.ignores_failures), (10, false));
        assert!(hook.backend.is_err());
    }
}
