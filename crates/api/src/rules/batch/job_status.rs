//! What a job may say of itself.
use super::super::Field;
use super::super::table::timestamp;
use super::indexes;
use crate::field::BadValue;

pub fn word(job: &Field<'_, '_>) -> &'static str {
    match () {
        () if is(job, "Complete") => "Complete",
        () if is(job, "Failed") => "Failed",
        () if job.at("metadata.deletionTimestamp").exists() => "Terminating",
        () if is(job, "Suspended") => "Suspended",
        () if is(job, "FailureTarget") => "FailureTarget",
        () if is(job, "SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    }
}

fn is(job: &Field<'_, '_>, kind: &str) -> bool {
    let conditions = job.at("status.conditions");
    let found = conditions.items().find(|condition| condition.at("type").text() == kind);
    found.is_some_and(|condition| condition.at("status").text() == "True")
}

pub fn validate(job: &Field<'_, '_>, old: &Field<'_, '_>) {
    let (status, spec) = (job.at("status"), job.at("spec"));
    for field in ["active", "succeeded", "failed", "ready", "terminating"] {
        status.at(field).nonnegative();
    }
    let mut seen = Vec::new();
    for list in ["succeeded", "failed"] {
        let uncounted = status.at("uncountedTerminatedPods");
        for uid in uncounted.at(list).items() {
            if uid.text().is_empty() {
                uid.invalid("must not be empty");
            } else if seen.contains(&uid.text()) {
                uid.duplicate();
            } else {
                seen.push(uid.text());
            }
        }
    }
    conditions(job);
    times(job);
    let indexed = spec.at("completionMode").text() == "Indexed";
    let (done, failed) = (status.at("completedIndexes"), status.at("failedIndexes"));
    for (field, name) in [(&done, "completedIndexes"), (&failed, "failedIndexes")] {
        let tracked = name == "completedIndexes" || spec.at("backoffLimitPerIndex").exists();
        if let Err(fault) = indexes::count(field.text(), spec.at("completions").int())
            && spec.at("completions").exists()
            && tracked
        {
            field.invalid(format!("error parsing {name}: {fault}"));
        }
    }
    if !done.is_empty() && !indexed {
        done.invalid("cannot set non-empty completedIndexes when non-indexed completion mode");
    }
    if failed.exists() && !spec.at("backoffLimitPerIndex").exists() {
        failed.invalid("cannot set non-null failedIndexes when backoffLimitPerIndex is null");
    }
    let (a, b) = (indexes::intervals(done.text()), indexes::intervals(failed.text()));
    for (first, last) in b {
        if let Some((start, end)) = a.iter().find(|(start, end)| first <= *end && *start <= last) {
            failed.invalid(format!(
                "failedIndexes and completedIndexes overlap at index: {}",
                first.max(*start).min(*end)
            ));
        }
    }
    if status.at("ready").int() > status.at("active").int() {
        status.at("ready").invalid("cannot set more ready pods than active");
    }
    transitions(job, old);
}

/// What has been said stays said.
fn transitions(job: &Field<'_, '_>, old: &Field<'_, '_>) {
    let (status, before, spec) = (job.at("status"), old.at("status"), job.at("spec"));
    let conditions = status.at("conditions");
    for kind in ["Failed", "Complete", "FailureTarget"] {
        if is(old, kind) && !is(job, kind) {
            let detail = format!("cannot disable the terminal {kind}=True condition");
            conditions.invalid_as(BadValue::OMITTED, detail);
        }
    }
    let elastic = spec.at("completionMode").text() == "Indexed"
        && spec.at("completions").value() == spec.at("parallelism").value();
    for (counter, counts) in [("failed", true), ("succeeded", !elastic)] {
        let now = status.at(counter);
        if counts && now.int() < before.at(counter).int() {
            now.invalid_as(now.int(), format!("cannot decrease the {counter} counter"));
        }
    }
    let (end, ended) = (status.at("completionTime"), before.at("completionTime"));
    if end.exists() && ended.exists() && end.value() != ended.value() {
        end.invalid("field is immutable");
    }
    let (start, started) = (status.at("startTime"), before.at("startTime"));
    let resuming = old.at("spec.suspend").flag() && !spec.at("suspend").flag();
    if started.exists()
        && start.value() != started.value()
        && !spec.at("suspend").flag()
        && !resuming
    {
        let shown = if start.exists() { start.shown() } else { BadValue::null() };
        start.invalid_as(shown, "field is immutable for unsuspended job once set");
    }
    if is(old, "SuccessCriteriaMet") && !is(job, "SuccessCriteriaMet") {
        let detail = "cannot disable the SuccessCriteriaMet=True condition";
        conditions.invalid_as(BadValue::OMITTED, detail);
    }
}

fn conditions(job: &Field<'_, '_>) {
    let place = job.at("status.conditions");
    let wrong = |detail: &'static str| place.invalid_as(BadValue::OMITTED, detail);
    let has = |kind| is(job, kind);
    if has("Complete") && has("Failed") {
        wrong("cannot set Complete=True and Failed=true conditions");
    }
    if has("Complete") && has("FailureTarget") {
        wrong("cannot set Complete=True and FailureTarget=true conditions");
    }
    if has("Failed") && !has("FailureTarget") {
        wrong("cannot set Failed=True condition without the FailureTarget=true condition");
    }
    if has("Complete") && !has("SuccessCriteriaMet") {
        wrong("cannot set Complete=True condition without the SuccessCriteriaMet=true condition");
    }
    if has("SuccessCriteriaMet") && has("Failed") {
        wrong("cannot set SuccessCriteriaMet=True and Failed=true conditions");
    }
    if has("SuccessCriteriaMet") && has("FailureTarget") {
        wrong("cannot set SuccessCriteriaMet=True and FailureTarget=true conditions");
    }
}

fn times(job: &Field<'_, '_>) {
    let status = job.at("status");
    let finished = is(job, "Complete") || is(job, "Failed");
    let (start, end) = (status.at("startTime"), status.at("completionTime"));
    if end.exists() && !is(job, "Complete") {
        end.invalid("cannot set completionTime when there is no Complete=True condition");
    }
    if !end.exists() && is(job, "Complete") {
        end.required("completionTime is required for Complete jobs");
    }
    if let (Some(start), Some(finish)) = (timestamp(&start), timestamp(&end))
        && finish < start
    {
        end.invalid("must be equal to or after `startTime`");
    }
    if finished {
        if status.at("active").int() > 0 {
            status.at("active").invalid("active>0 is invalid for finished job");
        }
        if !start.exists() {
            start.required("startTime is required for finished job");
        }
        let uncounted = status.at("uncountedTerminatedPods");
        if !uncounted.at("succeeded").is_empty() || !uncounted.at("failed").is_empty() {
            uncounted
                .invalid_as(BadValue::json(uncounted.value()), "must be empty for finished job");
        }
        if status.at("terminating").int() > 0 {
            status.at("terminating").invalid("terminating>0 is invalid for finished job");
        }
    }
}
