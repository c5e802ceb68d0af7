//! Deployments, Jobs, CronJobs.

use serde_json::{Value, json};

use super::{Generator, Made, Rim, command, name, put, strings};
use crate::failure::Outcome;
use crate::flags::{Arguments, Flag, list, number, text};

pub static DEPLOYMENT: Generator = Generator {
    name: "deployment",
    aliases: &["deploy"],
    about: "Create a deployment with the specified name",
    usage: "NAME --image=image -- [COMMAND] [args...]",
    flags: &[
        list("image", "Images to run, one container each.").required(),
        number("port", "-1", "Port that the container exposes."),
        number("replicas", "1", "How many replicas to have.").short('r'),
    ],
    required: &["image"],
    refused: "failed to create deployment: ",
    make: deployment,
};

fn deployment(arguments: &Arguments, rim: &Rim<'_>) -> Outcome<Made> {
    let (name, images) = (name(arguments)?, arguments.list("image"));
    let command = command(arguments);
    if images.len() > 1 && !command.is_empty() {
        return Err("cannot specify multiple --image options and command".into());
    }
    let mut containers: Vec<Value> =
        images.iter().map(|image| container(&container_name(image, rim), image, command)).collect();
    let port = arguments.number("port");
    if let Some(container) = containers.first_mut().filter(|_| port >= 0) {
        container["ports"] = json!([{"containerPort": port}]);
    }
    let labels = json!({"app": name});
    let object = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": arguments.number("replicas"),
            "selector": {"matchLabels": labels},
            "strategy": {},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
        },
        "status": {},
    });
    Ok(object.into())
}

fn container(name: &str, image: &str, command: &[String]) -> Value {
    let mut container = json!({"name": name, "image": image, "resources": {}});
    put(&mut container, "command", strings(command));
    container
}

/// The last part of an image's name. What may not stand in a container's name makes room for a few
/// random characters, so that two such names differ.
fn container_name(image: &str, rim: &Rim<'_>) -> String {
    let name = image.rsplit('/').next().unwrap_or(image);
    let name = name.split([':', '@']).next().unwrap_or(name);
    match name.contains(['_', '.']) {
        true => format!("{}-{}", name.replace(['_', '.'], "-"), (rim.random)(5)),
        false => name.to_owned(),
    }
}

static JOB_FLAGS: &[Flag] = &[
    text("image", "", "Image to run."),
    text("from", "", "CronJob to make the Job of: cronjob/NAME."),
];

pub static JOB: Generator = Generator {
    name: "job",
    about: "Create a job with the specified name",
    usage: "NAME --image=image [--from=cronjob/name] -- [COMMAND] [args...]",
    flags: JOB_FLAGS,
    refused: "failed to create job: ",
    make: job,
    ..Generator::EMPTY
};

/// What can be said before the CronJob is looked for.
pub fn check_job(arguments: &Arguments) -> Outcome {
    name(arguments)?;
    let (image, from) = (arguments.text("image"), arguments.text("from"));
    if image.is_empty() == from.is_empty() {
        return Err("either --image or --from must be specified".into());
    }
    if !command(arguments).is_empty() && !from.is_empty() {
        return Err("cannot specify --from and command".into());
    }
    Ok(())
}

fn job(arguments: &Arguments, rim: &Rim<'_>) -> Outcome<Made> {
    check_job(arguments)?;
    let (name, command) = (name(arguments)?, command(arguments));
    let image = arguments.text("image");
    if let Some(cron) = rim.cron_job.filter(|_| image.is_empty()) {
        return of_cron_job(name, cron).map(Made::from);
    }
    let spec = json!({"containers": [container(name, image, command)], "restartPolicy": "Never"});
    let object = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": {"metadata": {}, "spec": spec}},
        "status": {},
    });
    Ok(object.into())
}

/// The Job that a CronJob would make if its time had come.
fn of_cron_job(name: &str, cron: &Value) -> Outcome<Value> {
    if cron["kind"] != "CronJob" {
        // In upstream's words the type is Go's.
        let version =
            cron["apiVersion"].as_str().unwrap_or_default().rsplit('/').next().unwrap_or_default();
        let kind = cron["kind"].as_str().unwrap_or_default();
        return Err(format!("unknown object type *{version}.{kind}").into());
    }
    let template = &cron["spec"]["jobTemplate"];
    let mut annotations = json!({"cronjob.kubernetes.io/instantiate": "manual"});
    for (key, value) in template["metadata"]["annotations"].as_object().into_iter().flatten() {
        annotations[key] = value.clone();
    }
    let metadata = &cron["metadata"];
    let owner = json!({
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": true,
    });
    let mut object = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "annotations": annotations, "ownerReferences": [owner]},
        "spec": template["spec"],
        "status": {},
    });
    put(&mut object["metadata"], "labels", template["metadata"]["labels"].clone());
    Ok(object)
}

pub static CRON_JOB: Generator = Generator {
    name: "cronjob",
    aliases: &["cj"],
    about: "Create a cron job with the specified name",
    usage: "NAME --image=image --schedule='0/5 * * * ?' -- [COMMAND] [args...]",
    flags: &[
        text("image", "", "Image to run.").required(),
        text("schedule", "", "When to run it, in cron's form.").required(),
        text("restart", "", "The job's restart policy: OnFailure or Never."),
    ],
    required: &["image", "schedule"],
    refused: "failed to create cronjob: ",
    make: cron_job,
};

fn cron_job(arguments: &Arguments, _: &Rim<'_>) -> Outcome<Made> {
    let name = name(arguments)?;
    let restart = arguments.some("restart").unwrap_or("OnFailure");
    let container = container(name, arguments.text("image"), command(arguments));
    let pod =
        json!({"metadata": {}, "spec": {"containers": [container], "restartPolicy": restart}});
    let object = json!({
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": name},
        "spec": {
            "schedule": arguments.text("schedule"),
            "jobTemplate": {"metadata": {"name": name}, "spec": {"template": pod}},
        },
        "status": {},
    });
    Ok(object.into())
}
