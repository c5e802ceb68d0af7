//! Facts, as one sentence and the command that leads on.
use super::gather::Facts;
use serde_json::{Value, json};

#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    pub says: String,
    /// Empty where there is nothing to do.
    pub next: String,
}

fn answer_of(says: impl Into<String>, next: impl Into<String>) -> Answer {
    Answer { says: says.into(), next: next.into() }
}

/// What is known of one kind; nothing, if nothing is wrong with it.
type Row = fn(&Facts) -> Option<Answer>;

/// Kinds, and who knows them. What none of them explains is told by its events and conditions.
#[rustfmt::skip]
const KINDS: &[(&str, Row)] = &[
    ("Pod", |facts| pod(&facts.object, &facts.warnings).map(|answer| by_node(answer, facts))),
    ("Service", service),
    ("Deployment", workload),
    ("ReplicaSet", workload),
    ("StatefulSet", workload),
    ("DaemonSet", workload),
    ("ReplicationController", workload),
    ("Job", workload),
    ("Node", node),
    ("PersistentVolumeClaim", claim),
];

pub fn answer(facts: &Facts) -> Answer {
    let kind = text(&facts.object["kind"]);
    let of_kind = KINDS.iter().find(|(name, _)| *name == kind).and_then(|(_, row)| row(facts));
    deleting(facts)
        .or(of_kind)
        .or_else(|| warned(facts))
        .or_else(|| condition(facts))
        .unwrap_or_else(|| {
            answer_of(format!("Nothing is known to be wrong with {}.", title(&facts.object)), "")
        })
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn title(object: &Value) -> String {
    let metadata = &object["metadata"];
    let kind = text(&object["kind"]).to_lowercase();
    match text(&metadata["namespace"]) {
        "" => format!("{kind} {}", text(&metadata["name"])),
        namespace => format!("{kind} {namespace}/{}", text(&metadata["name"])),
    }
}

/// The object as an argument of kubectl.
fn argument(object: &Value) -> String {
    let metadata = &object["metadata"];
    let kind = text(&object["kind"]).to_lowercase();
    let namespace = match text(&metadata["namespace"]) {
        "" | "default" => String::new(),
        namespace => format!(" -n {namespace}"),
    };
    format!("{kind}/{}{namespace}", text(&metadata["name"]))
}

/// Why it does not go.
fn deleting(facts: &Facts) -> Option<Answer> {
    let object = &facts.object;
    let since = object["metadata"]["deletionTimestamp"].as_str()?;
    let title = title(object);
    let finalizers: Vec<&str> = items(&object["metadata"]["finalizers"]).map(text).collect();
    if !finalizers.is_empty() {
        let says = format!(
            "{title} is to go since {since}, but {} must be taken off it first, by whoever put it there.",
            finalizers.join(" and ")
        );
        return Some(answer_of(says, format!("kubectl get {} -o yaml", argument(object))));
    }
    if object["kind"] == "Namespace" {
        let remaining = items(&object["status"]["conditions"])
            .filter(|one| one["status"] == "True")
            .map(|one| text(&one["message"]))
            .collect::<Vec<_>>();
        let name = text(&object["metadata"]["name"]);
        let says = format!("{title} is to go since {since}. {}", remaining.join(" "));
        return Some(answer_of(says.trim(), format!("kubectl get all -n {name}")));
    }
    let node = text(&object["spec"]["nodeName"]);
    let ready = facts.node.as_ref().is_some_and(|node| is_true(node, "Ready"));
    match (object["kind"] == "Pod" && !node.is_empty(), ready) {
        (true, false) => Some(answer_of(
            format!("{title} is to go since {since}, but its node {node} does not answer."),
            format!("skiff why node/{node}"),
        )),
        (true, true) => {
            Some(answer_of(format!("{title} is ending: its containers have until {since}."), ""))
        }
        (false, _) => None,
    }
}

fn is_true(object: &Value, condition: &str) -> bool {
    items(&object["status"]["conditions"])
        .any(|one| one["type"] == condition && one["status"] == "True")
}

/// Nodes that are named for one reason; the others are counted.
const NAMED: usize = 10;

/// What the scheduler said of each node, where it said something.
fn by_node(answer: Answer, facts: &Facts) -> Answer {
    let mut says = answer.says;
    for (reason, nodes) in &facts.refusals {
        let named = nodes.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = match nodes.len().saturating_sub(NAMED) {
            0 => String::new(),
            count => format!(" and {count} more"),
        };
        says.push_str(&format!("\n  {named}{more}: {reason}"));
    }
    Answer { says, ..answer }
}

/// Why a pod does not run, or is not ready.
fn pod(pod: &Value, warnings: &[Value]) -> Option<Answer> {
    let (status, title, it) = (&pod["status"], title(pod), argument(pod));
    let unscheduled = items(&status["conditions"])
        .find(|one| one["type"] == "PodScheduled" && one["status"] == "False");
    if let Some(condition) = unscheduled {
        let message = text(&condition["message"]);
        return Some(match text(&condition["reason"]) {
            "SchedulingGated" => answer_of(
                format!("{title} waits for somebody to open its scheduling gates."),
                format!("kubectl get {it} -o jsonpath={{.spec.schedulingGates}}"),
            ),
            _ => {
                let next = match waited_for(pod, message) {
                    Some(claim) => format!("skiff why {}", argument(&claim)),
                    None => "kubectl describe nodes".to_owned(),
                };
                answer_of(format!("{title} fits nowhere: {message}"), next)
            }
        });
    }
    if text(&pod["spec"]["nodeName"]).is_empty() {
        let scheduler = text(&pod["spec"]["schedulerName"]);
        let says =
            format!("{title} has no node yet: its scheduler, {scheduler}, has not looked at it.");
        return Some(answer_of(says, "skiff status"));
    }
    let containers = ["initContainerStatuses", "containerStatuses"];
    let mut statuses = containers.iter().flat_map(|list| items(&status[list]));
    if let Some(answer) = statuses.find_map(|one| waiting(&title, &it, one)) {
        return Some(answer);
    }
    if status["phase"] == "Failed" {
        let why = [text(&status["reason"]), text(&status["message"])].join(": ");
        let why = why.trim_matches([':', ' ']);
        let ended = items(&status["containerStatuses"]).find_map(ended);
        let why = if why.is_empty() { ended.unwrap_or_default() } else { why.to_owned() };
        return Some(answer_of(format!("{title} has failed. {why}"), format!("kubectl logs {it}")));
    }
    if status["phase"] == "Running" && !is_true(pod, "Ready") {
        let unready: Vec<&str> = items(&status["containerStatuses"])
            .filter(|one| one["ready"] != true)
            .map(|one| text(&one["name"]))
            .collect();
        let probe = warnings.iter().rev().find(|event| event["reason"] == "Unhealthy");
        let why = probe.map_or("its readiness gates are not met", |event| text(&event["message"]));
        let says = format!("{title} runs, but {} is not ready: {why}", unready.join(", "));
        return Some(answer_of(says, format!("kubectl logs {it}")));
    }
    if status["phase"] == "Pending" {
        let says = match warnings.last() {
            Some(event) => format!("{title} does not start: {}", text(&event["message"])),
            None => format!("{title} is being started."),
        };
        return Some(answer_of(says, format!("kubectl describe {it}")));
    }
    None
}

/// The claim that a pod waits for, if that is what its scheduler says.
fn waited_for(pod: &Value, message: &str) -> Option<Value> {
    let volumes = items(&pod["spec"]["volumes"]);
    let claims: Vec<&str> =
        volumes.filter_map(|one| one["persistentVolumeClaim"]["claimName"].as_str()).collect();
    // Some messages name the claim, others say that there is one.
    let named = claims.iter().find(|claim| message.contains(&format!("\"{claim}\"")));
    let any = claims.first().filter(|_| message.contains("PersistentVolumeClaims"));
    let metadata = json!({ "name": named.or(any)?, "namespace": pod["metadata"]["namespace"] });
    Some(json!({ "kind": "PersistentVolumeClaim", "metadata": metadata }))
}

/// A container that waits, and not only for its turn.
fn waiting(title: &str, it: &str, status: &Value) -> Option<Answer> {
    let (name, waiting) = (text(&status["name"]), &status["state"]["waiting"]);
    let (reason, message) = (text(&waiting["reason"]), text(&waiting["message"]));
    let why = |what: &str| format!("{title}: container {name} {what}: {message}");
    match reason {
        "" | "ContainerCreating" | "PodInitializing" => None,
        "CrashLoopBackOff" => {
            let last = ended(status).unwrap_or_else(|| message.to_owned());
            let says = format!("{title}: container {name} ends again and again. {last}");
            Some(answer_of(says, format!("kubectl logs {it} -c {name} --previous")))
        }
        "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull" => {
            Some(answer_of(why("has no image"), format!("kubectl describe {it}")))
        }
        _ => Some(answer_of(why("cannot start"), format!("kubectl describe {it}"))),
    }
}

/// How a container ended the last time.
fn ended(status: &Value) -> Option<String> {
    let states = [&status["state"]["terminated"], &status["lastState"]["terminated"]];
    let end = states.into_iter().find(|state| !state.is_null())?;
    let said = text(&end["message"]).trim();
    let said = if said.is_empty() { String::new() } else { format!(" It said: {said}") };
    Some(match text(&end["reason"]) {
        "OOMKilled" => format!("It took more memory than its limit.{said}"),
        _ => format!("It ended with exit code {}.{said}", end["exitCode"]),
    })
}

/// Why a service leads nowhere.
fn service(facts: &Facts) -> Option<Answer> {
    let (service, title) = (&facts.object, title(&facts.object));
    let mut endpoints = facts.slices.iter().flat_map(|slice| items(&slice["endpoints"]));
    if endpoints.any(|one| one["conditions"]["ready"] != false) {
        return None;
    }
    let selector = &service["spec"]["selector"];
    if service["spec"]["type"] == "ExternalName" {
        return None;
    }
    if selector.as_object().is_none_or(serde_json::Map::is_empty) {
        let says = format!(
            "{title} leads nowhere: it has no selector, and nobody has made endpoints for it."
        );
        return Some(answer_of(says, format!("kubectl edit {}", argument(service))));
    }
    let Some(first) = facts.pods.first() else {
        let says =
            format!("{title} leads nowhere: no pod has the labels that it selects, {selector}.");
        return Some(answer_of(says, "kubectl get pods --show-labels"));
    };
    let says = format!(
        "{title} leads nowhere: of the {} pods that it selects none is ready.",
        facts.pods.len()
    );
    Some(answer_of(says, format!("skiff why {}", argument(&named(first, "Pod")))))
}

/// An item of a list, whose kind is not repeated there.
fn named(item: &Value, kind: &str) -> Value {
    let mut named = item.clone();
    named["kind"] = kind.into();
    named
}

/// Why a workload has fewer pods than it should: nobody may make them, or one of them says.
fn workload(facts: &Facts) -> Option<Answer> {
    let (object, title) = (&facts.object, title(&facts.object));
    let failed = [("ReplicaFailure", "gets no pods"), ("Failed", "has failed")];
    let refused = items(&object["status"]["conditions"]).find_map(|one| {
        let what =
            failed.iter().find(|(kind, _)| one["type"] == *kind && one["status"] == "True")?;
        Some((one, what.1))
    });
    if let Some((condition, what)) = refused {
        let says = format!("{title} {what}: {}", text(&condition["message"]));
        return Some(answer_of(says, format!("kubectl describe {}", argument(object))));
    }
    let troubled = facts.pods.iter().find_map(|one| {
        let one = named(one, "Pod");
        let answer = pod(&one, &[])?;
        Some((one, answer))
    });
    if let Some((one, answer)) = troubled {
        let next = format!("skiff why {}", argument(&one));
        return Some(answer_of(format!("{title} waits for a pod. {}", answer.says), next));
    }
    if object["spec"]["paused"] == true {
        return Some(answer_of(
            format!("{title} is paused."),
            format!("kubectl rollout resume {}", argument(object)),
        ));
    }
    None
}

fn node(facts: &Facts) -> Option<Answer> {
    let (node, title) = (&facts.object, title(&facts.object));
    let ready = items(&node["status"]["conditions"]).find(|one| one["type"] == "Ready");
    match ready {
        Some(one) if one["status"] != "True" => {
            let says = format!("{title} is not ready: {}", text(&one["message"]));
            Some(answer_of(says, "skiff status"))
        }
        _ if node["spec"]["unschedulable"] == true => {
            let name = text(&node["metadata"]["name"]);
            Some(answer_of(
                format!("{title} takes no new pods: somebody has cordoned it."),
                format!("kubectl uncordon {name}"),
            ))
        }
        _ => None,
    }
}

fn claim(facts: &Facts) -> Option<Answer> {
    let claim = &facts.object;
    if claim["status"]["phase"] != "Pending" || !facts.warnings.is_empty() {
        return None;
    }
    let class = text(&claim["spec"]["storageClassName"]);
    let says = match class {
        "" => format!("{} waits: it names no storage class, and no volume suits it.", title(claim)),
        class => format!(
            "{} waits for a volume of class {class}, or for the first pod that uses it.",
            title(claim)
        ),
    };
    Some(answer_of(says, format!("kubectl describe {}", argument(claim))))
}

/// The last bad news.
fn warned(facts: &Facts) -> Option<Answer> {
    let event = facts.warnings.last()?;
    let says = format!("{}: {}", title(&facts.object), text(&event["message"]));
    Some(answer_of(says, format!("kubectl describe {}", argument(&facts.object))))
}

/// The first condition that does not hold and says why.
fn condition(facts: &Facts) -> Option<Answer> {
    let good = ["Available", "Ready", "Established", "Approved", "Complete", "Initialized"];
    let unmet = items(&facts.object["status"]["conditions"]).find(|one| {
        good.iter().any(|kind| one["type"] == *kind)
            && one["status"] == "False"
            && !text(&one["message"]).is_empty()
    })?;
    let says = format!(
        "{} is not {}: {}",
        title(&facts.object),
        text(&unmet["type"]).to_lowercase(),
        text(&unmet["message"])
    );
    Some(answer_of(says, format!("kubectl describe {}", argument(&facts.object))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn facts(yaml: &str) -> Facts {
        let tree: Value = serde_saphyr::from_str(yaml).expect("facts");
        let list = |name: &str| tree[name].as_array().cloned().unwrap_or_default();
        Facts {
            object: tree["object"].clone(),
            warnings: list("warnings"),
            pods: list("pods"),
            slices: list("slices"),
            node: Some(tree["node"].clone()).filter(|node| !node.is_null()),
            refusals: serde_json::from_value(tree["refusals"].clone()).unwrap_or_default(),
        }
    }

    fn check(yaml: &str, expected: Expect) {
        let Answer { says, next } = answer(&facts(yaml));
        expected.assert_eq(&format!("{says}\n> {next}"));
    }

    #[test]
    fn a_pod_says_what_it_waits_for() {
        check(
            "object: {kind: Pod, metadata: {name: web, namespace: default}, spec: {}, status: {phase: Pending,
               conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable, message: '0/1 nodes are available: 1 Insufficient cpu.'}]}}",
            expect![[r#"
                pod default/web fits nowhere: 0/1 nodes are available: 1 Insufficient cpu.
                > kubectl describe nodes"#]],
        );
        check(
            "object: {kind: Pod, metadata: {name: web}, spec: {}, status: {phase: Pending,
               conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable, message: '0/13 nodes are available.'}]}}
refusals: {Insufficient cpu: [a, b], Too many pods: [c, d, e, f, g, h, i, j, k, l, m]}",
            expect![[r#"
                pod web fits nowhere: 0/13 nodes are available.
                  a, b: Insufficient cpu
                  c, d, e, f, g, h, i, j, k, l and 1 more: Too many pods
                > kubectl describe nodes"#]],
        );
        check(
            "object: {kind: Pod, metadata: {name: web, namespace: shop}, spec: {nodeName: one}, status: {phase: Running,
               containerStatuses: [{name: a, state: {waiting: {reason: CrashLoopBackOff}},
                 lastState: {terminated: {exitCode: 2, reason: Error, message: 'no such file'}}}]}}",
            expect![[r#"
                pod shop/web: container a ends again and again. It ended with exit code 2. It said: no such file
                > kubectl logs pod/web -n shop -c a --previous"#]],
        );
        check(
            "object: {kind: Pod, metadata: {name: web}, spec: {nodeName: one}, status: {phase: Running, conditions: [{type: Ready, status: 'False'}],
               containerStatuses: [{name: a, ready: false, state: {running: {}}}]}}
warnings: [{reason: Unhealthy, message: 'Readiness probe failed: HTTP probe failed with statuscode: 503'}]",
            expect![[r#"
                pod web runs, but a is not ready: Readiness probe failed: HTTP probe failed with statuscode: 503
                > kubectl logs pod/web"#]],
        );
        check(
            "object: {kind: Pod, metadata: {name: web}, spec: {nodeName: one}, status: {phase: Running, conditions: [{type: Ready, status: 'True'}]}}",
            expect![[r#"
                Nothing is known to be wrong with pod web.
                > "#]],
        );
    }

    #[test]
    fn a_pod_that_waits_for_a_claim_leads_to_the_claim() {
        let pod = |message: &str| {
            format!(
                "object: {{kind: Pod, metadata: {{name: db, namespace: shop}}, spec: {{volumes: [\
                 {{name: a, persistentVolumeClaim: {{claimName: logs}}}}, {{name: b, persistentVolumeClaim: \
                 {{claimName: data}}}}]}}, status: {{conditions: [{{type: PodScheduled, status: 'False', \
                 reason: Unschedulable, message: '{message}'}}]}}}}"
            )
        };
        check(
            &pod("0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."),
            expect![[r#"
                pod shop/db fits nowhere: 0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.
                > skiff why persistentvolumeclaim/logs -n shop"#]],
        );
        check(
            &pod(r#"persistentvolumeclaim "data" not found"#),
            expect![[r#"
                pod shop/db fits nowhere: persistentvolumeclaim "data" not found
                > skiff why persistentvolumeclaim/data -n shop"#]],
        );
        check(
            &pod("0/1 nodes are available: 1 Insufficient cpu."),
            expect![[r#"
                pod shop/db fits nowhere: 0/1 nodes are available: 1 Insufficient cpu.
                > kubectl describe nodes"#]],
        );
    }

    #[test]
    fn a_job_that_has_failed_says_so() {
        check(
            "object: {kind: Job, metadata: {name: once}, spec: {}, status: {conditions: [{type: Failed, status: 'True', message: Job has reached the specified backoff limit}]}}",
            expect![[r#"
                job once has failed: Job has reached the specified backoff limit
                > kubectl describe job/once"#]],
        );
    }

    #[test]
    fn a_service_says_why_it_leads_nowhere() {
        let service = "object: {kind: Service, metadata: {name: web, namespace: default}, spec: {selector: {app: web}}}";
        check(
            service,
            expect![[r#"
                service default/web leads nowhere: no pod has the labels that it selects, {"app":"web"}.
                > kubectl get pods --show-labels"#]],
        );
        check(
            &format!(
                "{service}\npods: [{{metadata: {{name: web-1, namespace: default}}}}]\nslices: [{{endpoints: [{{conditions: {{ready: false}}}}]}}]"
            ),
            expect![[r#"
                service default/web leads nowhere: of the 1 pods that it selects none is ready.
                > skiff why pod/web-1"#]],
        );
    }

    #[test]
    fn what_does_not_go_says_who_keeps_it() {
        check(
            "object: {kind: PersistentVolumeClaim, metadata: {name: data, namespace: default, deletionTimestamp: '2026-01-01T00:00:00Z', finalizers: [kubernetes.io/pvc-protection]}}",
            expect![[r#"
                persistentvolumeclaim default/data is to go since 2026-01-01T00:00:00Z, but kubernetes.io/pvc-protection must be taken off it first, by whoever put it there.
                > kubectl get persistentvolumeclaim/data -o yaml"#]],
        );
        check(
            "object: {kind: Pod, metadata: {name: web, deletionTimestamp: '2026-01-01T00:00:00Z'}, spec: {nodeName: one}}
node: {status: {conditions: [{type: Ready, status: Unknown}]}}",
            expect![[r#"
                pod web is to go since 2026-01-01T00:00:00Z, but its node one does not answer.
                > skiff why node/one"#]],
        );
    }

    #[test]
    fn a_workload_passes_on_what_its_pod_says() {
        check(
            "object: {kind: Deployment, metadata: {name: web, namespace: default}, spec: {}, status: {}}
pods: [{metadata: {name: web-1, namespace: default}, spec: {nodeName: one}, status: {phase: Pending, containerStatuses: [{name: a, state: {waiting: {reason: ImagePullBackOff, message: 'Back-off pulling image x'}}}]}}]",
            expect![[r#"
                deployment default/web waits for a pod. pod default/web-1: container a has no image: Back-off pulling image x
                > skiff why pod/web-1"#]],
        );
        check(
            "object: {kind: ReplicaSet, metadata: {name: web}, spec: {}, status: {conditions: [{type: ReplicaFailure, status: 'True', message: 'exceeded quota: q'}]}}",
            expect![[r#"
                replicaset web gets no pods: exceeded quota: q
                > kubectl describe replicaset/web"#]],
        );
    }
}
