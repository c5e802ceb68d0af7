//! How a job knows its pods.
use super::super::Field;
use crate::field::Error;
use crate::selector::label::Selector;
use serde_json::{Value, json};

/// Unless someone chose a selector, a job's pods are known by its uid.
pub fn generate(job: &mut Value) {
    if job["spec"]["manualSelector"] == true {
        return;
    }
    let (uid, name) = (job["metadata"]["uid"].clone(), job["metadata"]["name"].clone());
    let template = &mut job["spec"]["template"]["metadata"];
    if !template.is_object() {
        *template = json!({});
    }
    if !template["labels"].is_object() {
        template["labels"] = json!({});
    }
    for (label, value) in [
        ("controller-uid", &uid),
        ("job-name", &name),
        ("batch.kubernetes.io/controller-uid", &uid),
        ("batch.kubernetes.io/job-name", &name),
    ] {
        if template["labels"].get(label).is_none() {
            template["labels"][label] = value.clone();
        }
    }
    let selector = &mut job["spec"]["selector"];
    if !selector.is_object() {
        *selector = json!({});
    }
    if !selector["matchLabels"].is_object() {
        selector["matchLabels"] = json!({});
    }
    if selector["matchLabels"].get("batch.kubernetes.io/controller-uid").is_none() {
        selector["matchLabels"]["batch.kubernetes.io/controller-uid"] = uid;
    }
}

pub fn validate(job: &Field<'_, '_>) {
    if job.at("spec.manualSelector").flag() || !job.at("spec.selector").exists() {
        return;
    }
    let (uid, name) = (job.at("metadata.uid").text(), job.at("metadata.name").text());
    let labels = job.at("spec.template.metadata.labels");
    let wanted = [
        ("controller-uid", uid),
        ("job-name", name),
        ("batch.kubernetes.io/controller-uid", uid),
        ("batch.kubernetes.io/job-name", name),
    ];
    for (label, value) in wanted {
        let entry = labels.key(label);
        if !entry.exists() {
            labels.push(Error::required(labels.path(), format!("must be '{value}'")));
        } else if entry.text() != value {
            entry.invalid(format!("must be '{value}'"));
        }
    }
    let expected = wanted
        .iter()
        .map(|(label, value)| ((*label).to_owned(), (*value).to_owned()))
        .collect::<std::collections::BTreeMap<_, _>>();
    let field = job.at("spec.selector");
    if Selector::from_label_selector(field.read().as_ref())
        .is_ok_and(|selector| !selector.matches(&expected))
    {
        field.invalid_as(
            super::super::workload::selector_shown(&field),
            "`selector` not auto-generated",
        );
    }
}
