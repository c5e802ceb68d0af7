//! KubeSchedulerConfiguration `v1`: what a file says, with upstream's defaults and complaints.
//!
//! `facts.txt` is the file's schema, so that unknown and repeated fields are found as in any other
//! object; `file` is what is written, `plugins` and `args` what comes of it. Nothing here reads a file.
pub mod args;
mod file;
mod plugins;
#[cfg(test)]
mod tests;
mod validate;

pub use args::{Args, DefaultSpread, Shape, Strategy};
pub use file::{Extender, ExtenderTls, ManagedResource};
pub use validate::is_extended;

use crate::filter::FILTERS;
use crate::score::SCORES;
use api::codec::{json, yaml};
use api::field::{Path, aggregate};
use api::schema::Schema;
use serde_json::Value;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// Everything that a file decides, complete.
#[derive(Debug, Clone)]
pub struct Configuration {
    pub profiles: Vec<Arc<Profile>>,
    pub extenders: Vec<Extender>,
    pub pod_initial_backoff: Duration,
    pub pod_max_backoff: Duration,
    /// After how long a pod is tried again, whatever was missed; no file says it.
    pub longest_wait: Duration,
    /// Pod groups mean something: upstream's gate `GenericWorkload`; no file says it.
    pub gangs: bool,
    pub leader_election: LeaderElection,
    /// Where the API server is and who we are to it; empty: as the command line says.
    pub kubeconfig: String,
}

/// What a file says of the election; what it does not say is `None`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LeaderElection {
    pub leader_elect: Option<bool>,
    pub lease_duration: Option<Duration>,
    pub renew_deadline: Option<Duration>,
    pub retry_period: Option<Duration>,
    pub resource_name: Option<String>,
    pub resource_namespace: Option<String>,
}

/// How pods are scheduled that name one scheduler.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    pub scheduler_name: Box<str>,
    /// Of all nodes, how many that fit are enough to choose from; zero: as many as is usual.
    pub percentage_of_nodes_to_score: usize,
    /// Gates keep pods out of the queue.
    pub honors_gates: bool,
    /// Rows of [`FILTERS`] that may stop a pod before any node is asked.
    pub pre_filters: u32,
    /// Rows of [`FILTERS`], in order.
    pub filters: Vec<u8>,
    /// Rows of [`SCORES`] and their weights.
    pub scores: Vec<(u8, i64)>,
    /// Whether claims may be given back, and whether other pods may have to go.
    pub frees_claims: bool,
    pub preempts: bool,
    pub args: Args,
}

impl Profile {
    /// Upstream's usual profile.
    pub fn usual(scheduler_name: &str) -> Profile {
        let chosen = plugins::choose(scheduler_name, &plugins::complete(None));
        Profile::of(scheduler_name, 0, &chosen.unwrap_or_default(), Args::default())
    }

    fn of(name: &str, percentage: usize, chosen: &plugins::Chosen, args: Args) -> Profile {
        let filter = |name: &&str| FILTERS.iter().position(|row| row.name == *name);
        let score = |(name, weight): &(&str, i64)| {
            let at = SCORES.iter().position(|row| row.name == *name)?;
            Some((at as u8, *weight))
        };
        let pre = chosen.pre_filter.iter().filter_map(filter).fold(0, |all, at| all | 1 << at);
        Profile {
            scheduler_name: name.into(),
            percentage_of_nodes_to_score: percentage,
            honors_gates: chosen.pre_enqueue.contains(&"SchedulingGates"),
            pre_filters: pre,
            filters: chosen.filter.iter().filter_map(filter).map(|at| at as u8).collect(),
            scores: chosen.score.iter().filter_map(score).collect(),
            frees_claims: chosen.post_filter.contains(&"DynamicResources"),
            preempts: chosen.post_filter.contains(&"DefaultPreemption"),
            args,
        }
    }
}

impl Default for Configuration {
    fn default() -> Configuration {
        Configuration {
            profiles: vec![Arc::new(Profile::usual("default-scheduler"))],
            extenders: Vec::new(),
            pod_initial_backoff: Duration::from_secs(1),
            pod_max_backoff: Duration::from_secs(10),
            longest_wait: LONGEST_WAIT,
            gangs: false,
            leader_election: LeaderElection::default(),
            kubeconfig: String::new(),
        }
    }
}

static FACTS: LazyLock<Schema> = LazyLock::new(|| {
    Schema::parse(include_str!("facts.txt")).expect("a test reads the schema of the file")
});

/// Upstream's `pod-max-in-unschedulable-pods-duration`.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

const GROUP: &str = "kubescheduler.config.k8s.io";
const KIND: &str = "KubeSchedulerConfiguration";

impl Configuration {
    /// Reads a file's text, JSON or YAML.
    pub fn read(bytes: &[u8]) -> Result<Configuration, String> {
        let document = yaml::decode_untyped(bytes).map_err(|error| error.to_string())?;
        expect_kind(&document.value, KIND)?;
        let mut problems: Vec<String> = document.problems.iter().map(ToString::to_string).collect();
        let (value, found) = settled(document.value, KIND)?;
        problems.extend(found);
        let mut file: file::File =
            serde_json::from_value(value).map_err(|error| error.to_string())?;
        for (index, profile) in file.profiles.iter_mut().enumerate() {
            for (at, config) in profile.plugin_config.iter_mut().enumerate() {
                let place = format!("decoding .profiles[{index}].pluginConfig[{at}]");
                let about = format!("{place}: decoding args for plugin {}", config.name);
                let found = own_args(config).map_err(|problem| match problem {
                    Wrong::Args(text) => format!("{about}: {text}"),
                    Wrong::Kind(text) => format!("{place}: {text}"),
                })?;
                // Upstream's words for errors in errors.
                problems.extend(found.map(|text| {
                    format!("{place}: strict decoding error: decoding args for plugin {}: strict decoding error: {text}", config.name)
                }));
            }
        }
        if !problems.is_empty() {
            return Err(format!("strict decoding error: {}", problems.join(", ")));
        }
        complete(file)
    }
}

enum Wrong {
    Args(String),
    Kind(String),
}

/// Brings a plugin's arguments into the form of their kind; those of nobody we know are left alone.
fn own_args(config: &mut file::PluginConfig) -> Result<Option<String>, Wrong> {
    let kind = format!("{}Args", config.name);
    if FACTS.named(&format!("config/v1.{kind}")).is_none() {
        return Ok(None);
    }
    if config.args.is_null() {
        config.args = Value::Object(serde_json::Map::new());
    }
    if let Some(given) = config.args["kind"].as_str()
        && given != kind
    {
        return Err(Wrong::Kind(format!(
            "args for plugin {} were not of type {kind}.{GROUP}, got {given}.{GROUP}",
            config.name
        )));
    }
    let (value, problems) = settled(config.args.take(), &kind).map_err(Wrong::Args)?;
    config.args = value;
    Ok((!problems.is_empty()).then(|| problems.join(", ")))
}

fn settled(value: Value, kind: &str) -> Result<(Value, Vec<String>), String> {
    let ty = FACTS.named(&format!("config/v1.{kind}")).expect("the schema has it");
    let decoded = json::canonicalize_given(value, ty).map_err(|error| error.to_string())?;
    Ok((decoded.value, decoded.problems.iter().map(ToString::to_string).collect()))
}

fn expect_kind(document: &Value, kind: &str) -> Result<(), String> {
    let text = |field: &str| document[field].as_str().unwrap_or_default();
    let (version, found) = (text("apiVersion"), text("kind"));
    if found.is_empty() {
        return Err("Object 'Kind' is missing".to_owned());
    }
    if version.is_empty() {
        return Err("Object 'apiVersion' is missing".to_owned());
    }
    match found == kind && version == format!("{GROUP}/v1") {
        true => Ok(()),
        false => Err(format!(
            "no kind {found:?} is registered for version {version:?} in scheme \"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme/scheme.go:30\""
        )),
    }
}

fn complete(mut file: file::File) -> Result<Configuration, String> {
    if file.profiles.is_empty() {
        file.profiles.push(file::Profile::default());
    }
    if let [only] = &mut file.profiles[..] {
        only.scheduler_name.get_or_insert_with(|| "default-scheduler".to_owned());
    }
    let mut all_args = Vec::new();
    let mut wrong = Vec::new();
    let list = Path::new("profiles");
    for (index, profile) in file.profiles.iter().enumerate() {
        let path = list.index(index);
        let path = path.child("pluginConfig");
        let mut args = Args::default();
        let mut errors = api::field::ErrorList::new();
        for (at, config) in profile.plugin_config.iter().enumerate() {
            let path = path.index(at);
            let path = path.child("args");
            errors.extend(args.set(&config.name, config.args.clone(), &path)?);
        }
        all_args.push(args);
        wrong.push(errors);
    }
    let mut errors = api::field::ErrorList::new();
    validate::file(&file, wrong, &mut errors);
    if let Some(text) = aggregate(&errors) {
        return Err(text);
    }
    // What an extender looks after is not ours to count.
    let ignored: Vec<Box<str>> = file
        .extenders
        .iter()
        .flat_map(|extender| &extender.managed_resources)
        .filter(|resource| resource.ignored_by_scheduler)
        .map(|resource| resource.name.as_str().into())
        .collect();
    for args in &mut all_args {
        args.fit.ignored.extend(ignored.iter().cloned());
    }
    let everywhere = file.percentage_of_nodes_to_score.unwrap_or(0);
    let mut profiles = Vec::new();
    for (profile, args) in file.profiles.iter().zip(all_args) {
        let name = profile.scheduler_name.as_deref().unwrap_or_default();
        let chosen = plugins::choose(name, &plugins::complete(profile.plugins.as_ref())).map_err(
            |text| {
                format!("initializing profiles: creating profile for scheduler name {name}: {text}")
            },
        )?;
        let percentage = profile.percentage_of_nodes_to_score.unwrap_or(everywhere);
        profiles.push(Arc::new(Profile::of(name, percentage.max(0) as usize, &chosen, args)));
    }
    let seconds = |value: Option<i64>, usual| Duration::from_secs(value.unwrap_or(usual) as u64);
    let election = file.leader_election;
    let some = |text: String| Some(text).filter(|text| !text.is_empty());
    Ok(Configuration {
        profiles,
        extenders: file.extenders,
        pod_initial_backoff: seconds(file.pod_initial_backoff_seconds, 1),
        pod_max_backoff: seconds(file.pod_max_backoff_seconds, 10),
        longest_wait: LONGEST_WAIT,
        gangs: false,
        leader_election: LeaderElection {
            leader_elect: election.leader_elect,
            lease_duration: duration(&election.lease_duration),
            renew_deadline: duration(&election.renew_deadline),
            retry_period: duration(&election.retry_period),
            resource_name: some(election.resource_name),
            resource_namespace: some(election.resource_namespace),
        },
        kubeconfig: file.client_connection.kubeconfig,
    })
}

/// Nothing, and nothing at all, are the usual.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let parsed = api::duration::Duration::parse(text).ok()?;
    Some(Duration::from_nanos(u64::try_from(parsed.nanos).ok()?)).filter(|it| !it.is_zero())
}
