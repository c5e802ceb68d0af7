//! `kubectl api-resources` and `kubectl api-versions`.
use super::{Command, Group};
use crate::failure::Outcome;
use crate::flags::{Arguments, Flag, list, switch, switch_on, text};
use crate::mapper::{Mapper, Resource};
use crate::print::tabs;
use crate::session::Session;
use api::codec::yaml;
use serde_json::{Value, json};

static FLAGS: &[Flag] = &[
    text("api-group", "", "Only resources of this group."),
    switch("cached", "Taken for compatibility; nothing is cached."),
    list("categories", "Only resources of these categories."),
    switch_on("namespaced", "Only resources that are in namespaces, or only others."),
    switch("no-headers", "Without headers."),
    text("output", "", "wide, name, json or yaml.").short('o'),
    switch("show-managed-fields", "Taken for compatibility."),
    text("sort-by", "", "name or kind."),
    list("verbs", "Only resources that know these verbs."),
];

pub static RESOURCES: Command = Command {
    name: "api-resources",
    group: Group::Other,
    about: "Print the supported API resources on the server",
    flags: &[FLAGS],
    run: Some(|session, arguments| Box::pin(resources(session, arguments))),
    ..Command::EMPTY
};

pub static VERSIONS: Command = Command {
    name: "api-versions",
    group: Group::Other,
    about: "Print the supported API versions on the server, in the form of \"group/version\"",
    run: Some(|session, arguments| Box::pin(versions(session, arguments))),
    ..Command::EMPTY
};

async fn versions(session: &mut Session, arguments: Arguments) -> Outcome {
    let cluster = session.cluster(&arguments)?;
    let mut all = cluster.mapper().await?.group_versions.clone();
    all.sort();
    for version in all {
        writeln!(session.out, "{version}")?;
    }
    Ok(())
}

async fn resources(session: &mut Session, arguments: Arguments) -> Outcome {
    if !arguments.words.is_empty() {
        let words = arguments.words.join(" ");
        return Err(format!(
            "unexpected arguments: [{words}]\nSee 'kubectl api-resources -h' for help and examples"
        )
        .into());
    }
    let cluster = session.cluster(&arguments)?;
    let mapper = cluster.mapper().await?;
    let chosen = chosen(&mapper.resources, &arguments)?;
    let text = match arguments.text("output") {
        "" | "wide" => table(&chosen, &arguments),
        "name" => chosen.iter().map(|resource| format!("{}\n", resource.full_name())).collect(),
        "json" => format!("{}\n", crate::print::pretty(&object(&chosen))),
        "yaml" => yaml::encode(&object(&chosen)),
        other => return Err(format!("--output {other} is not available").into()),
    };
    Ok(session.out.write_all(text.as_bytes())?)
}

/// The names of what can be asked for, as `api-resources --verbs=get -o name` has them.
pub fn fetchable(mapper: &Mapper) -> Vec<String> {
    let words = ["--verbs=get".to_owned()];
    let arguments = Arguments::parse("kubectl api-resources", RESOURCES.flags, &words);
    let chosen = arguments.and_then(|arguments| {
        Ok(chosen(&mapper.resources, &arguments)?.iter().map(|one| one.full_name()).collect())
    });
    chosen.unwrap_or_default()
}

/// The resources that the flags leave, each in the version that the server prefers.
fn chosen<'r>(all: &'r [Resource], arguments: &Arguments) -> Outcome<Vec<&'r Resource>> {
    let has_all = |wanted: &[String], has: &[String]| wanted.iter().all(|one| has.contains(one));
    let mut found: Vec<&Resource> = Vec::new();
    for resource in all {
        let fits = (!arguments.given("api-group")
            || resource.api.group == arguments.text("api-group"))
            && (!arguments.given("namespaced")
                || resource.is_namespaced() == arguments.is("namespaced"))
            && has_all(arguments.list("verbs"), &resource.verbs)
            && has_all(arguments.list("categories"), &resource.categories)
            && !resource.verbs.is_empty();
        let is_known = found.iter().any(|other| {
            other.api.group == resource.api.group && other.api.plural == resource.api.plural
        });
        if fits && !is_known {
            found.push(resource);
        }
    }
    let key =
        |resource: &&Resource| (resource.api.group.to_string(), resource.api.plural.to_string());
    match arguments.text("sort-by") {
        "" => found.sort_by_key(key),
        "name" => found.sort_by_key(|resource| resource.api.plural.to_string()),
        "kind" => found.sort_by_key(|resource| resource.api.kind.to_string()),
        _ => return Err("--sort-by accepts only name or kind".into()),
    }
    Ok(found)
}

fn table(chosen: &[&Resource], arguments: &Arguments) -> String {
    let wide = arguments.text("output") == "wide";
    let mut rows: Vec<Vec<String>> = Vec::new();
    if !arguments.is("no-headers") {
        let headers =
            ["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND", "VERBS", "CATEGORIES"];
        rows.push(headers.iter().take(if wide { 7 } else { 5 }).map(|h| (*h).to_owned()).collect());
    }
    for resource in chosen {
        let mut row = vec![
            resource.api.plural.to_string(),
            resource.short_names.join(","),
            resource.api.api_version(),
            resource.is_namespaced().to_string(),
            resource.api.kind.to_string(),
        ];
        if wide {
            row.push(resource.verbs.join(","));
            row.push(resource.categories.join(","));
        }
        rows.push(row);
    }
    tabs::aligned(&rows)
}

fn object(chosen: &[&Resource]) -> Value {
    let rows = chosen.iter().map(|resource| {
        let mut row = json!({ "group": resource.api.group, "kind": resource.api.kind,
            "name": resource.api.plural, "namespaced": resource.is_namespaced(),
            "singularName": resource.singular, "verbs": resource.verbs, "version": resource.api.version });
        if !resource.short_names.is_empty() {
            row["shortNames"] = json!(resource.short_names);
        }
        if !resource.categories.is_empty() {
            row["categories"] = json!(resource.categories);
        }
        row
    });
    json!({ "apiVersion": "v1", "groupVersion": "", "kind": "APIResourceList",
        "resources": rows.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use crate::session::tests::{told, world};

    #[tokio::test]
    async fn resources_are_listed_by_group_and_name() {
        let world = world();
        let text = told(&world, "api-resources --namespaced=false -o wide").await;
        assert_eq!(
            text,
            "NAME         SHORTNAMES   APIVERSION   NAMESPACED   KIND        VERBS                                       \
             CATEGORIES\n\
             namespaces   ns           v1           false        Namespace   get,list,create,patch,delete,watch,update   \
             all\n\
             nodes        no           v1           false        Node        get,list,create,patch,delete,watch,update   \
             all\n"
        );
        assert_eq!(
            told(&world, "api-versions").await,
            "apps/v1\nexample.com/v1\nexample.com/v1beta1\nv1\n"
        );
    }
}
