//! Who owns which field: `metadata.managedFields`, kept by every write.
use super::Context;
use crate::extend::definitions;
use crate::state::peculiar;
use api::convert;
use api::kinds::Resource;
use api::patch::apply::typed::View;
use api::patch::apply::{ConvertError, FieldManager, Filter};
use api::rules::Part;
use api::schema::builtin;
use api::status::Status;
use http::header;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The new object with the managed fields that an ordinary write gives it.
pub fn updated(context: Context<'_>, old: &Value, new: Value, now: Timestamp) -> Value {
    let given = context.call.write_options().field_manager.as_str();
    let agent = context.received.header(header::USER_AGENT);
    let manager = if given.is_empty() { program(agent) } else { given };
    with_manager(context, |fields| fields.update_or_keep(old, new, manager, now))
}

/// The live object with a configuration applied to it.
pub fn applied(context: Context<'_>, live: &Value, config: &Value) -> Result<Value, Status> {
    let options = context.call.write_options();
    let force = options.force.unwrap_or(false);
    with_manager(context, |fields| {
        Ok(fields.apply(live, config, &options.field_manager, force, Timestamp::now())?)
    })
}

/// An object of the kind with nothing in it: what a first apply is applied to.
pub fn empty(resource: &Resource) -> Value {
    json!({ "apiVersion": resource.api_version(), "kind": resource.kind, "metadata": {} })
}

/// A client that does not name itself is named after its program.
fn program(user_agent: &str) -> &str {
    user_agent.split('/').next().filter(|name| !name.is_empty()).unwrap_or("unknown")
}

fn with_manager<T>(context: Context<'_>, run: impl FnOnce(&FieldManager<'_, '_>) -> T) -> T {
    let resource = &context.call.resource;
    let types = |api_version: &str| {
        if let Some(definition) = &resource.definition {
            return definition.family.version(api_version).map(|version| version.schema.root());
        }
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        builtin().kind(group, version, resource.kind)
    };
    let convert = |object: &Value, _: &str, to: &str| {
        if let Some(definition) = &resource.definition {
            if definition.family.version(to).is_none() {
                return Err(ConvertError::MissingVersion);
            }
            return definitions::convert(object.clone(), definition, to)
                .map_err(|status| ConvertError::Failed(status.message));
        }
        convert::convert(object.clone(), to).map_err(|e| ConvertError::Failed(e.to_string()))
    };
    // What the write does not change, its client cannot come to own.
    let has_status = resource.subresource("status").is_some();
    let keeps_metadata = !resource.rules.strategy.status_resets.is_empty();
    let is_custom = resource.definition.is_some();
    let peculiar = (peculiar::of(resource).unowned)(context.part());
    let ignored: &[&[&str]] = peculiar.unwrap_or_else(|| match context.part() {
        Part::Sub("approval") => &[&["spec"], &["status", "certificate"]],
        Part::Main if has_status => &[&["status"]],
        Part::Sub("status") if keeps_metadata || is_custom => &[&["spec"], &["metadata"]],
        Part::Sub("status") => &[&["spec"]],
        Part::Sub("finalize") => &[&["status"]],
        _ => &[],
    });
    let filter = (!ignored.is_empty()).then(|| Filter::exclude(ignored));
    // A status is the same in all versions of a definition: whoever wrote the rest in another of them
    // keeps it.
    let versions: Vec<String> = match (&resource.definition, context.part()) {
        (Some(definition), Part::Sub("status")) => {
            definition.family.versions.iter().map(|version| version.api_version.clone()).collect()
        }
        _ => vec![resource.api_version()],
    };
    let filters = filter.into_iter().cycle().zip(versions);
    let reset: BTreeMap<String, Filter> =
        filters.map(|(filter, version)| (version, filter)).collect();
    run(&FieldManager {
        api_version: &resource.api_version(),
        kind: resource.kind,
        subresource: context.call.subresource.map_or("", |subresource| subresource.name),
        types: &types,
        convert: &convert,
        reset: &reset,
        view: View::Typed,
        unchecked: is_custom,
    })
}
