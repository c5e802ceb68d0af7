//! The eviction subresource: a deletion that asks the pod's disruption budget first.
use super::binding::put_condition;
use crate::admission;
use crate::answer;
use crate::call::DeleteOptions;
use crate::state::objects;
use crate::verbs::delete;
use crate::verbs::object::{decode_as, text};
use crate::verbs::{Context, Outgoing};
use api::field::{Error, Path};
use api::group::{GroupKind, GroupResource};
use api::kinds::{Resource, find_kind};
use api::schema::builtin;
use api::selector::label::{Lookup, Selector};
use api::status::{Details, Status};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};

/// Evictions that the budget's controller has not seen yet; more means that it is not there.
const MAX_DISRUPTED: usize = 2000;
const CAUSE: &str = "DisruptionBudget";
const REFUSED: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

pub async fn run(context: Context<'_>) -> Outgoing {
    let call = context.call;
    let view = context.own_view()?;
    let ty = builtin().named("policy/v1.Eviction").expect("an eviction is in the facts");
    let (mut eviction, mut warnings) = decode_as(context, ty, "policy/v1", "Eviction")?;
    if text(&eviction, "name") != call.name {
        return Err(Status::bad_request("name in URL does not match name in Eviction object"));
    }
    let dry_run: &[&str] = if call.is_dry_run() { &["All"] } else { &[] };
    check_options(&eviction["deleteOptions"], dry_run, &call.name)?;
    warnings.extend(admission::pass(context, &mut eviction).await?);
    let mut options = DeleteOptions::read(&eviction["deleteOptions"])?;
    options.dry_run |= call.is_dry_run();
    evict(context, &options).await?;
    Ok((answer::done(&view), warnings))
}

/// The request and what it holds say the same about a dry run, and no store is broken open.
fn check_options(options: &Value, dry_run: &[&str], name: &str) -> Result<(), Status> {
    let given = options["dryRun"].as_array().into_iter().flatten();
    let given: Vec<&str> = given.filter_map(Value::as_str).collect();
    if !given.is_empty() && !dry_run.is_empty() && given != dry_run {
        let (one, other) = (dry_run.join(" "), given.join(" "));
        let message =
            format!("Non-matching dry-run options in request and content: [{one}] and [{other}]");
        return Err(Status { code: 500, message, ..Status::default() });
    }
    const UNSAFE: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";
    if options[UNSAFE] != true {
        return Ok(());
    }
    let path = Path::new("deleteOptions");
    let detail = "can not be set for pod eviction, try after removing the option";
    let error = Error::invalid(&path.child(UNSAFE), &Value::Bool(true), detail);
    Err(Status::invalid(GroupKind::new("policy", "Eviction"), name, &[error]))
}

async fn evict(context: Context<'_>, asked: &DeleteOptions) -> Result<(), Status> {
    loop {
        let call = context.call;
        let pod = objects::get(context.api, &call.resource, &call.namespace, &call.name).await?;
        let mut options = asked.clone();
        // From here on the pod must stay what it was judged as.
        let mut pinned = false;
        let mut budget_name = String::new();
        if needs_no_budget(&pod) {
            pinned = phase(&pod) == "Pending" && text(&pod, "deletionTimestamp").is_empty();
        } else if let Some(budget) = budget_of(context, &pod).await? {
            budget_name = text(&budget, "name").to_owned();
            if spares_budget(&pod, &budget) {
                pinned = true;
            } else {
                take_disruption(context, &pod, &budget_name, options.dry_run).await?;
            }
        }
        if pinned && asked.resource_version.is_empty() {
            options.resource_version = text(&pod, "resourceVersion").to_owned();
        }
        match remove(context, &options).await {
            // It changed under our hands, and the client did not mean one version of it.
            Err(status) if status.is_conflict() && pinned && asked.resource_version.is_empty() => {
                if !needs_no_budget(&pod) {
                    return Err(not_yet(&budget_name));
                }
            }
            outcome => return outcome,
        }
    }
}

/// Says why the pod goes, and deletes it.
async fn remove(context: Context<'_>, options: &DeleteOptions) -> Result<(), Status> {
    let call = context.call;
    let mut options = options.clone();
    if !options.dry_run {
        let place = (call.namespace.as_str(), call.name.as_str());
        let marked = objects::modify(context.api, &call.resource, place, false, |pod| {
            delete::check_preconditions(pod, &call.resource, &options)?;
            let condition = json!({
                "type": "DisruptionTarget", "status": "True",
                "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
            });
            put_condition(pod, condition, Timestamp::now());
            Ok(())
        })
        .await?;
        if !options.resource_version.is_empty() {
            options.resource_version = text(&marked, "resourceVersion").to_owned();
        }
    }
    delete::remove_admitted(context, &call.namespace, &call.name, &options).await.map(drop)
}

fn phase(pod: &Value) -> &str {
    pod["status"]["phase"].as_str().unwrap_or_default()
}

/// A pod that does not run disturbs nobody when it goes.
fn needs_no_budget(pod: &Value) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed" | "Pending")
        || !text(pod, "deletionTimestamp").is_empty()
}

/// A pod that is not ready does not count, as long as enough others are.
fn spares_budget(pod: &Value, budget: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    let ready = conditions
        .is_some_and(|all| all.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"));
    let number = |field: &str| budget["status"][field].as_i64().unwrap_or(0);
    !ready
        && (budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
            || number("currentHealthy") >= number("desiredHealthy") && number("desiredHealthy") > 0)
}

fn budgets() -> &'static Resource {
    find_kind("policy/v1", "PodDisruptionBudget").expect("budgets are in the registry")
}

/// The budget that covers the pod; more than one is a mistake of the user's.
async fn budget_of(context: Context<'_>, pod: &Value) -> Result<Option<Value>, Status> {
    let mut covering: Vec<Value> = Vec::new();
    for budget in objects::list(context.api, budgets(), &context.call.namespace).await? {
        let selector: Option<LabelSelector> =
            serde_json::from_value(budget["spec"]["selector"].clone()).unwrap_or_default();
        // A budget whose selector is broken covers nothing: its own controller complains.
        let Ok(selector) = Selector::from_label_selector(selector.as_ref()) else { continue };
        let labels = &pod["metadata"]["labels"];
        if selector.matches(&Lookup::new(|key: &str| labels[key].as_str())) {
            covering.push(budget);
        }
    }
    match covering.len() {
        0 | 1 => Ok(covering.pop()),
        _ => Err(Status {
            message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.".into(),
            code: 500,
            ..Status::default()
        }),
    }
}

/// Takes one of the disruptions that the budget allows.
async fn take_disruption(
    context: Context<'_>,
    pod: &Value,
    budget: &str,
    dry_run: bool,
) -> Result<(), Status> {
    let place = (context.call.namespace.as_str(), budget);
    let now = Timestamp::now();
    objects::modify(context.api, budgets(), place, dry_run, |budget| {
        allows(budget)?;
        let left = budget["status"]["disruptionsAllowed"].as_i64().unwrap_or(0) - 1;
        budget["status"]["disruptionsAllowed"] = left.into();
        if left == 0 {
            exhausted(budget, now);
        }
        if !budget["status"]["disruptedPods"].is_object() {
            budget["status"]["disruptedPods"] = json!({});
        }
        budget["status"]["disruptedPods"][text(pod, "name")] =
            api::time::format(now.as_second()).into();
        Ok(())
    })
    .await
    .map(drop)
}

fn allows(budget: &Value) -> Result<(), Status> {
    let name = text(budget, "name").to_owned();
    let status = &budget["status"];
    let number = |field: &str| status[field].as_i64().unwrap_or(0);
    if number("observedGeneration") < budget["metadata"]["generation"].as_i64().unwrap_or(0) {
        return Err(not_yet(&name));
    }
    let forbidden = |why: &str, what: &str| {
        Err(Status::forbidden(GroupResource::new("policy", "poddisruptionbudget"), &name, why)
            .with_cause(
                CAUSE,
                format!(
                    "The disruption budget {name} does not allow evicting pods currently: {what}"
                ),
                "",
            ))
    };
    if number("disruptionsAllowed") < 0 {
        let why = "pdb disruptions allowed is negative";
        return forbidden(why, why);
    }
    if status["disruptedPods"].as_object().is_some_and(|pods| pods.len() > MAX_DISRUPTED) {
        return forbidden(
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
            "too many pending evictions not confirmed by PDB controller",
        );
    }
    if number("disruptionsAllowed") == 0 {
        return Err(too_many(0).with_cause(CAUSE, why_not(budget), ""));
    }
    Ok(())
}

/// Why a budget allows nothing now, in words.
fn why_not(budget: &Value) -> String {
    let name = text(budget, "name");
    let status = &budget["status"];
    let number = |field: &str| status[field].as_i64().unwrap_or(0);
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let condition = status["conditions"].as_array().into_iter().flatten().find(|condition| {
        condition["type"] == "DisruptionAllowed"
            && condition["status"] == "False"
            && !word(&condition["message"]).is_empty()
    });
    let (reason, message) =
        condition.map(|c| (word(&c["reason"]), word(&c["message"]))).unwrap_or_default();
    if reason == "SyncFailed" {
        return format!(
            "The disruption budget {name} does not allow evicting pods currently because it failed sync: {message}"
        );
    }
    let (healthy, desired) = (number("currentHealthy"), number("desiredHealthy"));
    if healthy <= desired {
        return format!(
            "The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
        );
    }
    match condition {
        Some(_) => format!(
            "The disruption budget {name} does not allow evicting pods currently ({reason}): {message}"
        ),
        None => format!("The disruption budget {name} does not allow evicting pods currently"),
    }
}

fn exhausted(budget: &mut Value, now: Timestamp) {
    let generation = budget["status"]["observedGeneration"].clone();
    let condition = json!({
        "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods",
        "message": "", "observedGeneration": generation,
    });
    put_condition(budget, condition, now);
}

fn too_many(retry: i32) -> Status {
    let mut status = Status::too_many_requests(REFUSED, retry);
    status.details.get_or_insert_with(|| Box::new(Details::default()));
    status
}

/// The budget's controller has not caught up.
fn not_yet(budget: &str) -> Status {
    let text = format!("The disruption budget {budget} is still being processed by the server.");
    too_many(10).with_cause(CAUSE, text, "")
}
