//! What is wrong with the rules of a definition, told when it is written
//! (`apiextensions-apiserver/pkg/apis/apiextensions/validation`).
use super::evaluate::Update;
use super::rules::{Compiler, Rules, given};
use crate::cost::RUNTIME_BUDGET;
use crate::shape::{Shape, Step};
use api::field::{Error, ErrorList, Path};
use api::rules::definition::{rule_shown, schemas};
use serde_json::Value as Json;
use std::sync::Arc;

/// What the rules of a definition lack. `known`: what is wrong with it otherwise. A schema that is
/// faulty already, or that is as it was, is not looked at.
pub fn faults(new: &Json, old: Option<&Json>, known: &[Error]) -> ErrorList {
    let before = |version: &str| {
        let versions = old?["spec"]["versions"].as_array()?;
        versions.iter().find(|old| old["name"] == version)?.pointer("/schema/openAPIV3Schema")
    };
    let mut errors = ErrorList::new();
    for placed in schemas(new) {
        let is_faulty = known.iter().any(|error| error.field.starts_with(&placed.path));
        if is_faulty || before(placed.version) == Some(placed.schema) {
            continue;
        }
        errors.extend(of_schema(placed.schema, &Path::new(&placed.path)));
    }
    errors
}

fn of_schema(schema: &Json, path: &Path<'_>) -> ErrorList {
    if !has_rules(schema) {
        return ErrorList::new();
    }
    let schema = Arc::new(schema.clone());
    let mut defaults = Defaults { schema: &schema, errors: ErrorList::new(), left: BUDGET };
    defaults.level(Shape::whole(&schema), path, &mut Vec::new());
    if !defaults.errors.is_empty() {
        return defaults.errors;
    }
    let mut walk = Walk {
        schema: &schema,
        way: Vec::new(),
        errors: ErrorList::new(),
        total: 0,
        dearest: Vec::new(),
    };
    walk.level(Shape::whole(&schema), path, Around { uncorrelated: None, times: Some(1) });
    let Walk { mut errors, total, dearest, .. } = walk;
    if total > SCHEMA_LIMIT {
        let detail = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
        errors.extend(dearest.iter().map(|(_, rule)| Error::forbidden(&Path::new(rule), detail)));
        let who = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        errors.push(Error::forbidden(path, too_dear(who, total, SCHEMA_LIMIT)));
    }
    errors
}

const BUDGET: i64 = RUNTIME_BUDGET as i64;

/// What one rule may be estimated to cost, and what all of a schema may.
const RULE_LIMIT: u64 = 10_000_000;
const SCHEMA_LIMIT: u64 = 100_000_000;

/// So many rules are named where all together cost too much.
const MOST_NAMED: usize = 4;

fn too_dear(who: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = match factor {
        // So much more says nothing but that something is not bounded.
        _ if factor > 100.0 => "more than 100x".to_owned(),
        _ if factor < 1.5 => format!("{factor:.6}x"),
        _ => format!("{factor:.1}x"),
    };
    format!(
        "{who} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}

/// Whether there are rules in a schema, where rules can be.
fn has_rules(schema: &Json) -> bool {
    let several = |field: &str| schema[field].as_object().into_iter().flatten();
    schema["x-kubernetes-validations"].as_array().is_some_and(|rules| !rules.is_empty())
        || several("properties").any(|(_, inner)| has_rules(inner))
        || schema["items"].is_object() && has_rules(&schema["items"])
        || schema["additionalProperties"].is_object() && has_rules(&schema["additionalProperties"])
}

/// Defaults keep the rules of their place: as they come to be, and as they stay.
struct Defaults<'s> {
    schema: &'s Arc<Json>,
    errors: ErrorList,
    left: i64,
}

impl Defaults<'_> {
    fn level(&mut self, shape: Shape<'_>, path: &Path<'_>, way: &mut Vec<Step>) {
        let default = &shape.written()["default"];
        if !default.is_null()
            && has_rules(shape.written())
            && let Some(rules) = Rules::at(self.schema, shape, way)
        {
            let path = path.child("default");
            let said = |old: Option<&Json>, left: &mut i64| {
                let update = Update { new: default, old, ratchets: false };
                rules.said_of(shape, &path, update, left).errors
            };
            let (mut stays, mut comes) = (self.left, self.left);
            let mut errors = said(Some(default), &mut stays);
            if errors.is_empty() {
                errors = said(None, &mut comes);
            }
            self.left = stays.min(comes);
            self.errors.extend(errors);
        }
        if self.left < 0 {
            return;
        }
        if let Some(items) = shape.items() {
            way.push(Step::Items);
            self.level(items, &path.child("items"), way);
            way.pop();
        }
        let properties = path.child("properties");
        for (name, _) in shape.written()["properties"].as_object().into_iter().flatten() {
            let Some(inner) = shape.property(name) else { continue };
            way.push(Step::Property(name.clone()));
            self.level(inner, &properties.key(name), way);
            way.pop();
        }
    }
}

/// What the schemas around one say of it.
#[derive(Clone, Copy)]
struct Around<'p> {
    /// Inside of which list nobody knows what an item was before.
    uncorrelated: Option<&'p str>,
    /// How often values can be here; none if nothing bounds it.
    times: Option<u64>,
}

struct Walk<'s> {
    schema: &'s Arc<Json>,
    way: Vec<Step>,
    errors: ErrorList,
    /// What all rules are estimated to cost, and which of them cost most.
    total: u64,
    dearest: Vec<(u64, String)>,
}

impl Walk<'_> {
    fn level(&mut self, shape: Shape<'_>, path: &Path<'_>, around: Around<'_>) {
        let inside = Around {
            times: around.times.zip(most_children(shape)).map(|(a, b)| a.saturating_mul(b)),
            ..around
        };
        if let Some(values) = shape.values() {
            self.below(Step::Values, values, &path.child("additionalProperties"), inside);
        }
        let properties = path.child("properties");
        for (name, _) in shape.written()["properties"].as_object().into_iter().flatten() {
            if let Some(inner) = shape.property(name) {
                self.below(Step::Property(name.clone()), inner, &properties.key(name), inside);
            }
        }
        if let Some(items) = shape.items() {
            let here = path.to_string();
            let is_keyed = shape.written()["x-kubernetes-list-type"] == "map";
            let uncorrelated = around.uncorrelated.or((!is_keyed).then_some(&*here));
            let inside = Around { uncorrelated, ..inside };
            self.below(Step::Items, items, &path.child("items"), inside);
        }
        self.rules(shape, path, around);
    }

    fn below(&mut self, step: Step, shape: Shape<'_>, path: &Path<'_>, around: Around<'_>) {
        self.way.push(step);
        self.level(shape, path, around);
        self.way.pop();
    }

    fn rules(&mut self, shape: Shape<'_>, path: &Path<'_>, around: Around<'_>) {
        let given = given(shape);
        if given.is_empty() {
            return;
        }
        let all = path.child("x-kubernetes-validations");
        let Some(compiler) = Compiler::at(self.schema, shape, &self.way) else {
            let fault = "internal error: failed to construct type information for x-kubernetes-validations rules: unable to convert structural schema to CEL declarations";
            return self.errors.push(Error::internal(&all, fault));
        };
        let compiler = compiler.estimating();
        let times = around.times.unwrap_or_else(|| shape.most_times());
        for (index, rule) in given.iter().enumerate() {
            let (compiled, path) = (compiler.rule(rule, shape), all.index(index));
            let (at_rule, at_message) = (path.child("rule"), path.child("messageExpression"));
            let [cost, message_cost] = compiled.costs;
            self.costs(&at_rule, "estimated rule cost", cost.saturating_mul(times));
            if let Err(fault) = &compiled.program {
                self.errors.push(Error::invalid(&at_rule, rule_shown(rule), fault.clone()));
            }
            match &compiled.message_program {
                Err(fault) => {
                    self.errors.push(Error::invalid(&at_message, rule_shown(rule), fault.clone()));
                }
                Ok(Some(_)) => {
                    self.costs(&at_message, "estimated messageExpression cost", message_cost);
                }
                Ok(None) => {}
            }
            match (compiled.uses_old, around.uncorrelated) {
                (true, Some(list)) => {
                    let detail = format!(
                        "oldSelf cannot be used on the uncorrelatable portion of the schema within {list}"
                    );
                    self.errors.push(Error::invalid(&at_rule, compiled.text.as_str(), detail));
                }
                (false, _) if !rule["optionalOldSelf"].is_null() => {
                    let detail = "may not be set if oldSelf is not used in rule";
                    let path = path.child("optionalOldSelf");
                    self.errors.push(Error::invalid(&path, &rule["optionalOldSelf"], detail));
                }
                _ => {}
            }
        }
    }

    /// Counts what an expression can cost.
    fn costs(&mut self, path: &Path<'_>, who: &str, cost: u64) {
        if cost > RULE_LIMIT {
            self.errors.push(Error::forbidden(path, too_dear(who, cost, RULE_LIMIT)));
        }
        self.total = self.total.saturating_add(cost);
        if cost >= SCHEMA_LIMIT / 100 {
            self.dearest.push((cost, path.to_string()));
            self.dearest.sort_by_key(|(cost, _)| std::cmp::Reverse(*cost));
            self.dearest.truncate(MOST_NAMED);
        }
    }
}

/// How many values can be below one value; none if nothing bounds it.
fn most_children(shape: Shape<'_>) -> Option<u64> {
    let schema = shape.written();
    let bound = |field: &str| {
        let bound = schema.get(field)?;
        bound.as_u64().or_else(|| bound.as_i64().map(|_| 0))
    };
    match schema["type"].as_str() {
        Some("object") if !schema["additionalProperties"].is_null() => bound("maxProperties"),
        Some("array") => bound("maxItems"),
        _ => Some(1),
    }
}
