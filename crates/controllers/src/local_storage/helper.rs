//! Pods of ours that make and remove folders on nodes.
//!
//! Their image is built into every node's runtime. They are root with nothing but what files of others need, in a
//! container that has no network worth the name, no token, and one folder: that of all volumes.
use crate::action::{Action, Create, Target};
use crate::pods;
use crate::world::World;
use api::names::NamespacedName;
use api::selector::label::Selector;
use client::ApiResource;
use client::source::{Collection, Delete};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

pub const NAMESPACE: &str = "kube-system";
const IMAGE: &str = "localhost/skiff/volume";
/// The volume that a pod is about.
const VOLUME: &str = "skiff.dev/local-volume";
const STEP: &str = "skiff.dev/local-volume-step";
/// For whom a folder is made: `namespace/name`.
const CLAIM: &str = "skiff.dev/local-volume-claim";
/// Where a pod has the folder of all volumes.
const MOUNT: &str = "/volumes";
/// Below a volume's own folder, which is root's alone: what pods see is open to every user, for a claim does not say
/// as whom they run, and the machine's own users have no business there.
pub const DATA: &str = "data";
/// How long a pod that a node refused stays to be seen.
const SHOWN: Duration = Duration::from_secs(15);
/// As many are on a node at a time: they go before other pods, which a user who claims a thousand volumes has no
/// right to.
const AT_ONCE: usize = 8;
const LATER: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    Make,
    Remove,
}

impl Step {
    fn word(self) -> &'static str {
        match self {
            Step::Make => "make",
            Step::Remove => "remove",
        }
    }
}

/// What a pod of ours says that it is for.
pub struct Helper {
    pub claim: NamespacedName,
    pub volume: NamespacedName,
    pub step: Step,
}

impl Helper {
    pub fn of(pod: &Pod) -> Option<Helper> {
        let label = |key| super::of_map(pod.metadata.labels.as_ref(), key);
        let (namespace, claim) = super::annotation(pod, CLAIM)?.split_once('/')?;
        let step = [Step::Make, Step::Remove].into_iter().find(|it| label(STEP) == Some(it.word()));
        Some(Helper {
            claim: NamespacedName::new(namespace, claim),
            volume: NamespacedName::new("", label(VOLUME)?),
            step: step?,
        })
    }
}

/// All pods of ours.
pub fn collection() -> Collection {
    let ours = Selector::parse(VOLUME).expect("a label's name is a selector");
    Collection::all(ApiResource::of::<Pod>()).in_namespace(NAMESPACE).with_labels(ours)
}

pub fn all(world: &World) -> Vec<Arc<Pod>> {
    let pods = world.keep::<Pod>(collection());
    pods.read().iter().map(|(_, pod)| pod.clone()).collect()
}

pub fn find(world: &World, step: Step, volume: &str) -> Option<Arc<Pod>> {
    world.keep::<Pod>(collection()).get(&NamespacedName::new(NAMESPACE, &pod_name(step, volume)))
}

fn pod_name(step: Step, volume: &str) -> String {
    format!("{}-{volume}", step.word())
}

/// How far a pod of ours is.
pub enum Progress {
    Done,
    /// It goes on by itself; what it said when it failed the last time.
    Trying(Option<String>),
    /// The node does not want it, or has lost it: for so long it stays to be seen.
    Refused(String, Duration),
}

pub fn progress(pod: &Pod, now: Timestamp) -> Progress {
    match pods::phase(pod) {
        "Succeeded" => Progress::Done,
        "Failed" => {
            let status = pod.status.as_ref();
            let message = status.and_then(|it| it.message.clone().or_else(|| it.reason.clone()));
            let ended = status.and_then(|it| it.start_time.as_ref());
            let since = ended.or(pod.metadata.creation_timestamp.as_ref());
            let age = since.and_then(|since| Duration::try_from(now.duration_since(since.0)).ok());
            let left = SHOWN.saturating_sub(age.unwrap_or_default());
            Progress::Refused(message.unwrap_or_else(|| "the node refused it".to_owned()), left)
        }
        _ => Progress::Trying(failure(pod)),
    }
}

fn failure(pod: &Pod) -> Option<String> {
    let container = pod.status.as_ref()?.container_statuses.as_ref()?.first()?;
    let ContainerStatus { state, last_state, .. } = container;
    let states = [state, last_state].into_iter().flatten();
    let ended = states.filter_map(|state| state.terminated.as_ref()).find(|it| it.exit_code != 0);
    let message = ended.map(|it| it.message.clone().unwrap_or_default().trim().to_owned());
    message.or_else(|| state.as_ref()?.waiting.as_ref()?.message.clone())
}

/// What a pod of ours is to do, and where.
pub struct Task<'a> {
    pub step: Step,
    pub volume: &'a str,
    pub claim: &'a NamespacedName,
    pub node: &'a str,
    /// The folder of all volumes of a class.
    pub base: &'a str,
}

/// Whether a node has enough to do: then it is to be asked again a moment later.
pub fn is_busy(node: &str, world: &World) -> Option<Action> {
    let is_there = |pod: &&Arc<Pod>| pods::node(pod) == node && !pods::is_finished(pod);
    (all(world).iter().filter(is_there).count() >= AT_ONCE).then_some(Action::Again(LATER))
}

/// As privileged as a node's own components are when a machine is full, and with no rights in the cluster.
pub fn begin(task: &Task<'_>) -> Action {
    let Task { step, volume, claim, node, base } = task;
    let folder = match step {
        Step::Make => format!("{MOUNT}/{volume}/{DATA}"),
        Step::Remove => format!("{MOUNT}/{volume}"),
    };
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": pod_name(*step, volume), "namespace": NAMESPACE,
            "labels": { VOLUME: volume, STEP: step.word(), "app.kubernetes.io/managed-by": "skiff" },
            "annotations": { CLAIM: format!("{}/{}", claim.namespace, claim.name) },
        },
        "spec": {
            "nodeName": node,
            "restartPolicy": "OnFailure",
            "priorityClassName": "system-node-critical",
            "tolerations": [{ "operator": "Exists" }],
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "terminationGracePeriodSeconds": 1,
            "securityContext": { "runAsUser": 0, "seccompProfile": { "type": "RuntimeDefault" } },
            "containers": [{
                "name": step.word(),
                "image": IMAGE,
                "imagePullPolicy": "IfNotPresent",
                "command": ["/skiff", "volume", step.word(), folder],
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "securityContext": {
                    "allowPrivilegeEscalation": false,
                    "readOnlyRootFilesystem": true,
                    "capabilities": { "drop": ["ALL"], "add": ["DAC_OVERRIDE", "FOWNER"] },
                },
                "volumeMounts": [{ "name": "volumes", "mountPath": MOUNT }],
            }],
            "volumes": [{ "name": "volumes",
                "hostPath": { "path": base, "type": "DirectoryOrCreate" } }],
        },
    });
    let resource = ApiResource::of::<Pod>();
    Action::Create(Create { resource, object: pod, tell: None, may_exist: true })
}

/// Takes it away. It has nothing to put in order.
pub fn end(pod: &Pod) -> Action {
    let object = Target::of(pod);
    let options = Delete { grace_period_seconds: Some(0), ..Delete::uid(&object.uid) };
    Action::Delete { object, options, tell: None }
}

/// Whether nothing has come of it although its node has had time.
pub fn is_stuck(pod: &Pod, now: Timestamp, patience: Duration) -> bool {
    let made = pod.metadata.creation_timestamp.as_ref();
    let age = made.and_then(|made| Duration::try_from(now.duration_since(made.0)).ok());
    let phase = pods::phase(pod);
    (phase.is_empty() || phase == "Pending") && age.is_some_and(|age| age >= patience)
}

/// The node of a pod of ours, and the folder of all volumes there.
pub fn place(pod: &Pod) -> Option<(&str, &str)> {
    let spec = pod.spec.as_ref()?;
    let volume = spec.volumes.as_ref()?.iter().find(|volume| volume.name == "volumes")?;
    Some((spec.node_name.as_deref()?, &volume.host_path.as_ref()?.path))
}
