//! Job.
use super::super::metadata::IMMUTABLE;
use super::super::table::{AGE, Column, NAME, containers, elapsed, selector, timestamp, with};
use super::super::{Field, Kind, Part, Strategy, pod, prepare, shown};
use super::{job_policy, job_selector, job_status};
use crate::field::BadValue;
use crate::names;
use crate::selector::label::Selector;
use k8s_openapi::api::batch::v1::Job;
use serde_json::Value;

const MAX_PARALLELISM: i64 = 100_000;
const MANY_COMPLETIONS: i64 = 100_000;
const LIMIT_FOR_MANY: i64 = 10_000;

impl Kind for Job {
    const STRATEGY: Strategy = Strategy::USUAL.creates_on_update();
    const COLUMNS: &[Column] = &[
        NAME,
        with("Status", |job, _| job_status::word(job).into()),
        with("Completions", |job, _| {
            let (done, wanted) = (job.at("status.succeeded").int(), job.at("spec.completions"));
            match (wanted.exists(), job.at("spec.parallelism").int()) {
                (true, _) => format!("{done}/{}", wanted.int()).into(),
                (false, parallel) if parallel > 1 => format!("{done}/1 of {parallel}").into(),
                _ => format!("{done}/1").into(),
            }
        }),
        with("Duration", |job, now| {
            let (start, end) = (
                timestamp(&job.at("status.startTime")),
                timestamp(&job.at("status.completionTime")),
            );
            start.map_or_else(String::new, |start| elapsed(start, end.unwrap_or(now))).into()
        }),
        AGE,
        with("Containers", |job, _| containers(&job.at("spec.template.spec"), "name")).wide(),
        with("Images", |job, _| containers(&job.at("spec.template.spec"), "image")).wide(),
        with("Selector", |job, _| selector(&job.at("spec.selector"))).wide(),
    ];

    fn prepare_create(job: &mut Value) {
        job_selector::generate(job);
        prepare::create(job, &Self::STRATEGY);
    }

    fn validate(job: &Field<'_, '_>) {
        job_selector::validate(job);
        validate_spec(&job.at("spec"), true);
        name_allows_completions(job);
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, part: Part<'_>) {
        if part != Part::Main {
            return job_status::validate(new, old);
        }
        let (spec, before) = (new.at("spec"), old.at("spec"));
        validate_spec(&spec, true);
        completions(&spec, &before);
        spec.at("selector").immutable(&before.at("selector"));
        template_update(&spec, &before, old);
        for (field, rows) in [
            ("completionMode", None),
            ("podFailurePolicy", Some(shown::FAILURE_POLICY)),
            ("backoffLimitPerIndex", None),
            ("managedBy", None),
            ("successPolicy", Some(shown::SUCCESS_POLICY)),
        ] {
            let (now, then) = (spec.at(field), before.at(field));
            match rows {
                Some(rows) if now.value() != then.value() => {
                    now.invalid_as(shown::pointer(now.value(), rows), IMMUTABLE);
                }
                _ => {
                    now.immutable(&then);
                }
            }
        }
        name_allows_completions(new);
    }

    fn warnings(new: &Field<'_, '_>, old: Option<&Field<'_, '_>>) -> Vec<String> {
        let mut warnings = Vec::new();
        let faults = names::dns1123_label(new.at("metadata.name").text());
        if old.is_none() && !faults.is_empty() {
            warnings.push(format!("metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: [{}]", faults.join(" ")));
        }
        warnings.extend(spec_warnings(&new.at("spec")));
        warnings
    }
}

pub fn spec_warnings(spec: &Field<'_, '_>) -> Vec<String> {
    let mut warnings = Vec::new();
    let (completions, parallelism) = (spec.at("completions").int(), spec.at("parallelism").int());
    if spec.at("completionMode").text() == "Indexed"
        && completions > MANY_COMPLETIONS
        && parallelism > LIMIT_FOR_MANY
    {
        warnings.push(format!("{}: In Indexed Jobs with a number of completions higher than {MANY_COMPLETIONS}, a parallelism higher than {LIMIT_FOR_MANY} might be throttled", spec.path()));
    }
    warnings.extend(pod::template_warnings(&spec.at("template")));
    warnings
}

fn name_allows_completions(job: &Field<'_, '_>) {
    let completions = job.at("spec.completions").int();
    if job.at("spec.completionMode").text() != "Indexed" || completions <= 0 {
        return;
    }
    let name = job.at("metadata.name");
    let longest = format!("{}-{}", name.text(), completions - 1);
    if !names::dns1123_label(&longest).is_empty() {
        name.invalid(format!("will not able to create pod with invalid DNS label: {longest}"));
    }
}

/// Of a job, or of a CronJob's template, which has no selector yet.
pub fn validate_spec(spec: &Field<'_, '_>, selected: bool) {
    for field in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        spec.at(field).nonnegative();
    }
    let (per_index, most_failed) = (spec.at("backoffLimitPerIndex"), spec.at("maxFailedIndexes"));
    if most_failed.exists() && !per_index.exists() {
        per_index.required("when maxFailedIndexes is specified");
    }
    let manager = spec.at("managedBy");
    if manager.exists() {
        manager.extend(names::domain_prefixed_path(manager.path(), manager.text()));
        if manager.text().len() > 63 {
            manager.too_long(63);
        }
    }
    let indexed = completion_mode(spec);
    if spec.at("podFailurePolicy").exists() {
        job_policy::failure(spec);
    }
    let success = spec.at("successPolicy");
    if success.exists() {
        if indexed {
            job_policy::success(&success, spec.at("completions").int());
        } else {
            let shown = shown::structure(success.value(), shown::SUCCESS_POLICY);
            success.invalid_as(shown, "requires indexed completion mode");
        }
    }
    let replacement = spec.at("podReplacementPolicy");
    if replacement.exists() {
        match spec.at("podFailurePolicy").exists() {
            true => replacement.one_of(&["Failed"]),
            false => replacement.one_of(&["Failed", "TerminatingOrFailed"]),
        };
    }
    pod::template(&spec.at("template"));
    restart_policy(spec);
    if selected {
        let field = spec.at("selector");
        if !field.exists() {
            field.required("");
        }
        field.label_selector();
        let labels = spec.at("template.metadata.labels");
        let selector = Selector::from_label_selector(field.read().as_ref());
        if selector.is_ok_and(|selector| !selector.matches(&labels.labels())) {
            let shown = BadValue::json(labels.value());
            labels.invalid_as(shown, "`selector` does not match template `labels`");
        }
    }
}

/// Whether completions are counted by index.
fn completion_mode(spec: &Field<'_, '_>) -> bool {
    let mode = spec.at("completionMode");
    let (completions, parallelism) = (spec.at("completions"), spec.at("parallelism"));
    let (per_index, most_failed) = (spec.at("backoffLimitPerIndex"), spec.at("maxFailedIndexes"));
    mode.one_of_if_given(&["NonIndexed", "Indexed"]);
    if mode.text() == "Indexed" {
        if !completions.exists() {
            completions.required("when completion mode is Indexed");
        }
        if parallelism.int() > MAX_PARALLELISM {
            parallelism.invalid(format!(
                "must be less than or equal to {MAX_PARALLELISM} when completion mode is Indexed"
            ));
        }
        if completions.exists() && most_failed.int() > completions.int() {
            most_failed.invalid("must be less than or equal to completions");
        }
        if most_failed.int() > MAX_PARALLELISM {
            most_failed.invalid(format!("must be less than or equal to {MAX_PARALLELISM}"));
        }
        if completions.int() > MANY_COMPLETIONS && per_index.exists() {
            if !most_failed.exists() {
                most_failed.required(format!(
                    "must be specified when completions is above {MANY_COMPLETIONS}"
                ));
            }
            for field in [&parallelism, &most_failed] {
                if field.int() > LIMIT_FOR_MANY {
                    field.invalid(format!("must be less than or equal to {LIMIT_FOR_MANY} when completions are above {MANY_COMPLETIONS} and used with backoff limit per index"));
                }
            }
        }
    }
    if !mode.exists() || mode.text() == "NonIndexed" {
        for field in [&per_index, &most_failed] {
            if field.exists() {
                field.invalid("requires indexed completion mode");
            }
        }
    }
    mode.text() == "Indexed"
}

fn restart_policy(spec: &Field<'_, '_>) {
    let policy = spec.at("template.spec.restartPolicy");
    match policy.text() {
        "" | "Always" => policy.required("valid values: \"OnFailure\", \"Never\""),
        "Never" => {}
        "OnFailure" if spec.at("podFailurePolicy").exists() => {
            policy.invalid("only \"Never\" is supported when podFailurePolicy is specified");
        }
        "OnFailure" => {}
        _ => policy.not_supported(&["OnFailure", "Never"]),
    }
}

/// Completions may change only in step with an indexed job's parallelism.
fn completions(new: &Field<'_, '_>, old: &Field<'_, '_>) {
    let (now, then) = (new.at("completions"), old.at("completions"));
    if now.value() == then.value() {
        return;
    }
    let indexed = new.at("completionMode").text() == "Indexed";
    if !indexed || !now.exists() || !then.exists() {
        now.immutable(&then);
        return;
    }
    if now.int() != new.at("parallelism").int() {
        now.invalid(format!(
            "can only be modified in tandem with {}",
            new.at("parallelism").path()
        ));
    }
}

/// A job that never started may still be told where and how its pods run.
fn template_update(new: &Field<'_, '_>, old: &Field<'_, '_>, job: &Field<'_, '_>) {
    let suspended = old.at("suspend").flag()
        && job.at("status.active").int() == 0
        && !job.at("status.startTime").exists();
    let mut allowed = new.at("template").value().clone();
    if suspended {
        let before = old.at("template").value();
        for (parent, fields) in [
            ("/metadata", &["labels", "annotations"][..]),
            ("/spec", &["nodeSelector", "tolerations", "schedulingGates", "affinity"][..]),
        ] {
            for field in fields {
                let was = before.pointer(parent).and_then(|parent| parent.get(field));
                if let Some(parent) = allowed.pointer_mut(parent) {
                    prepare::put(parent, field, was);
                }
            }
        }
        for list in ["containers", "initContainers"] {
            let containers = allowed["spec"].get_mut(list).and_then(Value::as_array_mut);
            let olds = before["spec"][list].as_array();
            for (container, old) in containers.into_iter().flatten().zip(olds.into_iter().flatten())
            {
                prepare::put(container, "resources", old.get("resources"));
            }
        }
    }
    if allowed != *old.at("template").value() {
        let template = new.at("template");
        template.invalid_as(BadValue::json(template.value()), IMMUTABLE);
    }
}
