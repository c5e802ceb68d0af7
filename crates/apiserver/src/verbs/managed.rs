//! Who owns which field: `metadata.managedFields`, kept by every write.
use super::Context;
use crate::extend::definitions;
use crate::state::peculiar;
use api::convert;
use api::custom;
use api::kinds::Resource;
use api::patch::apply::typed::{self, View};
use api::patch::apply::{ConvertError, FieldManager, Filter};
use api::rules::Part;
use api::schema::builtin;
use api::status::Status;
use http::header;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The new object with the managed fields that an ordinary write gives it.
pub async fn updated(context: Context<'_>, old: &Value, new: Value, now: Timestamp) -> Value {
    let given = context.call.write_options().field_manager.as_str();
    let agent = context.received.header(header::USER_AGENT);
    let manager = if given.is_empty() { &program(agent) } else { given };
    let conversions = Conversions::default();
    let update = |new: Value| {
        with_manager(context, &conversions, |fields| fields.update_or_keep(old, new, manager, now))
    };
    let definition = context.call.resource.definition.as_ref();
    if !definition.is_some_and(|definition| definition.family.converts_by_webhook()) {
        return update(new);
    }
    loop {
        let updated = update(new.clone());
        if !conversions.ask(context).await {
            return updated;
        }
    }
}

/// The live object with a configuration applied to it. If a webhook has to convert something for that, it fails,
/// and is to be done again when the webhook has been [asked](Conversions::ask).
pub fn applied(
    context: Context<'_>,
    conversions: &Conversions,
    live: &Value,
    config: &Value,
) -> Result<Value, Status> {
    let options = context.call.write_options();
    let force = options.force.unwrap_or(false);
    with_manager(context, conversions, |fields| {
        Ok(fields.apply(live, config, &options.field_manager, force, Timestamp::now())?)
    })
}

/// What a webhook made of the objects of one write in the versions that their managers used. Who owns what is
/// found out without waiting for anybody; so a conversion that nobody has asked for yet is noted, and all begins
/// again with its answer.
#[derive(Default)]
pub struct Conversions(Mutex<Asked>);

#[derive(Default)]
struct Asked {
    known: Vec<Conversion>,
    /// An object, and the version that it is wanted in.
    missing: Option<(Value, String)>,
}

struct Conversion {
    object: Value,
    to: String,
    outcome: Result<Value, String>,
}

impl Conversions {
    /// Asks for what was missing; answers whether anything was.
    pub async fn ask(&self, context: Context<'_>) -> bool {
        let missing = self.0.lock().missing.take();
        let definition = context.call.resource.definition.as_ref();
        let (Some((object, to)), Some(definition)) = (missing, definition) else { return false };
        let outcome = definitions::in_version(context.api, definition, object.clone(), &to).await;
        let outcome = outcome.map_err(|status| status.message);
        self.0.lock().known.push(Conversion { object, to, outcome });
        true
    }

    fn get(&self, object: &Value, to: &str) -> Result<Value, String> {
        let mut bare = object.clone();
        // Who owns what says nothing of the object, and nobody owns it.
        if let Some(Value::Object(metadata)) = bare.get_mut("metadata") {
            metadata.remove("managedFields");
        }
        let mut asked = self.0.lock();
        let known = asked.known.iter().find(|known| known.to == to && known.object == bare);
        if let Some(known) = known {
            return known.outcome.clone();
        }
        asked.missing.get_or_insert((bare, to.to_owned()));
        Err("the conversion webhook has not been asked yet".to_owned())
    }
}

/// An object of the kind with nothing in it: what a first apply is applied to.
pub fn empty(resource: &Resource) -> Value {
    json!({ "apiVersion": resource.api_version(), "kind": resource.kind, "metadata": {} })
}

/// A client that does not name itself is named after its program, by as much of the program's name as the name of
/// a manager may be long (`prefixFromUserAgent` in upstream's `endpoints/handlers/create.go`).
fn program(user_agent: &str) -> String {
    const LONGEST: usize = 128;
    let name = user_agent.split('/').next().unwrap_or_default();
    let mut program = String::new();
    for character in name.chars().filter(|character| !character.is_control()) {
        if program.len() + character.len_utf8() > LONGEST {
            break;
        }
        program.push(character);
    }
    if program.is_empty() { "unknown".to_owned() } else { program }
}

fn with_manager<T>(
    context: Context<'_>,
    conversions: &Conversions,
    run: impl FnOnce(&FieldManager<'_, '_>) -> T,
) -> T {
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
            let version = definition.family.version(to).ok_or(ConvertError::MissingVersion)?;
            let converted = match definition.family.converts_by_webhook() {
                true => conversions.get(object, to).map_err(ConvertError::Failed)?,
                false => custom::renamed(object.clone(), version),
            };
            // What the other version does not know cannot be told apart there.
            return match typed::validate(&converted, version.schema.root(), false) {
                Ok(()) => Ok(converted),
                Err(errors) => Err(ConvertError::Failed(errors.to_string())),
            };
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

#[cfg(test)]
mod tests {
    use super::program;

    #[test]
    fn a_program_s_name_is_as_long_as_a_manager_s_may_be() {
        assert_eq!(program("kubectl/v1.37.0 (linux/amd64)"), "kubectl");
        assert_eq!(program(""), "unknown");
        assert_eq!(program("/1"), "unknown");
        assert_eq!(program("a\tb c"), "ab c");
        assert_eq!(program(&"x".repeat(200)), "x".repeat(128));
        assert_eq!(program(&format!("{}éé", "x".repeat(127))), "x".repeat(127));
    }
}
