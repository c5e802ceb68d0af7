//! CronJob.
use super::super::table::{AGE, Column, NAME, containers, count, selector, text, text_or, with};
use super::super::{Field, Kind, NameRule, Part, Strategy};
use super::{cron, job};
use crate::names::{self, Faults};
use k8s_openapi::api::batch::v1::CronJob;

const TEMPLATE: &str = "spec.jobTemplate.spec.template.spec";

impl Kind for CronJob {
    const STRATEGY: Strategy = Strategy::USUAL.creates_on_update();
    const NAME: NameRule = name;
    const COLUMNS: &[Column] = &[
        NAME,
        text("Schedule", "spec.schedule"),
        text_or("Timezone", "spec.timeZone", "<none>"),
        with("Suspend", |job, _| {
            match job.at("spec.suspend").value().as_bool() {
                Some(true) => "True",
                Some(false) => "False",
                None => "<unset>",
            }
            .into()
        })
        .of("boolean"),
        count("Active", "status.active"),
        with("Last Schedule", |job, now| {
            let last = job.at("status.lastScheduleTime");
            if last.exists() {
                super::super::table::age(&last, now).into()
            } else {
                "<none>".into()
            }
        }),
        AGE,
        with("Containers", |job, _| containers(&job.at(TEMPLATE), "name")).wide(),
        with("Images", |job, _| containers(&job.at(TEMPLATE), "image")).wide(),
        with("Selector", |job, _| selector(&job.at("spec.jobTemplate.spec.selector"))).wide(),
    ];

    fn validate(job: &Field<'_, '_>) {
        validate(job, false);
    }

    fn validate_update(new: &Field<'_, '_>, old: &Field<'_, '_>, part: Part<'_>) {
        if part == Part::Main {
            validate(new, has_zone(&old.at("spec.schedule")));
        }
    }

    fn warnings(new: &Field<'_, '_>, old: Option<&Field<'_, '_>>) -> Vec<String> {
        let mut warnings = Vec::new();
        let faults = names::dns1123_label(new.at("metadata.name").text());
        if old.is_none() && !faults.is_empty() {
            warnings.push(format!("metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: [{}]", faults.join(" ")));
        }
        warnings.extend(job::spec_warnings(&new.at("spec.jobTemplate.spec")));
        if new.at("spec.schedule").text().contains("TZ") {
            warnings.push("spec.schedule: CRON_TZ or TZ used in schedule is not officially supported, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/#unsupported-timezone-specification for more details".to_owned());
        }
        warnings
    }
}

/// Room for what is added to make the names of jobs.
fn name(name: &str, prefix: bool) -> Faults {
    let mut faults = names::name_is_dns_subdomain(name, prefix);
    if !prefix && name.len() > names::CRON_JOB_NAME_MAX {
        faults.push(format!("must be no more than {} characters", names::CRON_JOB_NAME_MAX));
    }
    faults
}

fn validate(job: &Field<'_, '_>, zoned: bool) {
    let spec = job.at("spec");
    schedule(&spec, zoned);
    spec.at("startingDeadlineSeconds").nonnegative();
    let zone = spec.at("timeZone");
    if zone.exists() {
        cron::time_zone(&zone);
    }
    let policy = spec.at("concurrencyPolicy");
    if policy.require() {
        policy.one_of(&["Allow", "Forbid", "Replace"]);
    }
    let template = spec.at("jobTemplate.spec");
    job::validate_spec(&template, false);
    let selector = template.at("selector");
    if selector.exists() && !template.at("manualSelector").flag() {
        let shown = super::super::workload::selector_shown(&selector);
        selector.invalid_as(shown, "`selector` will be auto-generated");
    }
    if template.at("manualSelector").flag() {
        template.at("manualSelector").push(crate::field::Error::not_supported(
            template.at("manualSelector").path(),
            true,
            ["nil", "false"],
        ));
    }
    for field in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        spec.at(field).nonnegative();
    }
}

/// Zones were once written into schedules.
fn has_zone(schedule: &Field<'_, '_>) -> bool {
    schedule.text().contains("TZ")
}

/// `zoned`: the schedule may name a zone, because it did.
fn schedule(spec: &Field<'_, '_>, zoned: bool) {
    let schedule = spec.at("schedule");
    if !schedule.declared().require() {
        return;
    }
    if let Err(fault) = cron::parse(schedule.text()) {
        schedule.invalid(fault);
    }
    if has_zone(&schedule) && !zoned {
        schedule.invalid("cannot use TZ or CRON_TZ in schedule, use timeZone field instead");
    } else if has_zone(&schedule) && spec.at("timeZone").exists() {
        schedule.invalid("cannot use both timeZone field and TZ or CRON_TZ in schedule");
    }
}
