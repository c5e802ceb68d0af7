//! The compiled rules of a schema.
use crate::environment::{CompileError, Environment};
use crate::evaluate::Program;
use crate::shape::{SELF, Shape, ShapeTypes, Step};
use crate::types::Type;
use api::rules::definition::field_path;
use serde_json::Value as Json;
use std::sync::Arc;

/// All rules of a schema. The schema itself stays whose it is, and is given again to evaluate them.
pub struct Rules {
    pub(super) root: Level,
}

/// The rules on one level of a schema, and on those below that have any.
#[derive(Default)]
pub(super) struct Level {
    pub rules: Vec<Rule>,
    /// Expressions cannot see what is here, so that its rules mean nothing.
    pub untyped: bool,
    pub items: Option<Box<Level>>,
    pub values: Option<Box<Level>>,
    pub properties: Vec<(String, Level)>,
}

pub(super) struct Rule {
    /// None if there is no expression.
    pub program: Result<Option<Program>, String>,
    /// As the definition has it: `rule`, `message`, `reason`, …
    pub text: String,
    pub message: String,
    pub message_expression: String,
    pub message_program: Result<Option<Program>, String>,
    pub reason: Option<Reason>,
    /// Where the fault is told, seen from here; empty if it is here.
    pub path: String,
    pub optional_old: bool,
    pub uses_old: bool,
    /// What it can cost at worst, and what its message can, where somebody asked.
    pub costs: [u64; 2],
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Reason {
    Invalid,
    Forbidden,
    Required,
    Duplicate,
}

impl Rules {
    /// Compiles the rules of a definition's schema; none if it has none.
    pub fn of(schema: &Arc<Json>) -> Option<Rules> {
        let root = Level::of(schema, Shape::whole(schema), &mut Vec::new())?;
        Some(Rules { root })
    }

    /// The rules of a part of the schema.
    pub(super) fn at(schema: &Arc<Json>, shape: Shape<'_>, way: &mut Vec<Step>) -> Option<Rules> {
        Level::of(schema, shape, way).map(|root| Rules { root })
    }
}

impl Level {
    fn of(schema: &Arc<Json>, shape: Shape<'_>, way: &mut Vec<Step>) -> Option<Level> {
        let mut level = Level::default();
        let given = given(shape);
        if !given.is_empty() {
            match Compiler::at(schema, shape, way) {
                Some(compiler) => {
                    level.rules = given.iter().map(|rule| compiler.rule(rule, shape)).collect();
                }
                None => level.untyped = true,
            }
        }
        let mut below = |step: Step, inner: Shape<'_>| {
            way.push(step);
            let level = Level::of(schema, inner, way);
            way.pop();
            level
        };
        if let Some(items) = shape.items() {
            level.items = below(Step::Items, items).map(Box::new);
        }
        let properties = shape.written()["properties"].as_object();
        for name in properties.into_iter().flatten().map(|(name, _)| name) {
            // What expressions cannot see is not looked into.
            let Some(inner) = shape.property(name) else { continue };
            if inner.declared(SELF).is_none() {
                continue;
            }
            if let Some(inner) = below(Step::Property(name.clone()), inner) {
                level.properties.push((name.clone(), inner));
            }
        }
        if let Some(values) = shape.values() {
            level.values = below(Step::Values, values).map(Box::new);
        }
        let some = level.untyped
            || !level.rules.is_empty()
            || level.items.is_some()
            || level.values.is_some()
            || !level.properties.is_empty();
        some.then_some(level)
    }
}

/// The rules as the schema gives them.
pub(super) fn given(shape: Shape<'_>) -> &[Json] {
    shape.written()["x-kubernetes-validations"].as_array().map_or(&[], Vec::as_slice)
}

/// Compiles the rules of one level.
pub(super) struct Compiler {
    /// Without and with an old value that may be missing.
    environments: [Environment; 2],
    types: Arc<ShapeTypes>,
    estimates: bool,
}

impl Compiler {
    /// None if expressions cannot see what is at this place.
    pub fn at(schema: &Arc<Json>, shape: Shape<'_>, way: &[Step]) -> Option<Compiler> {
        let ty = shape.declared(SELF)?;
        let types = Arc::new(ShapeTypes::new(schema.clone(), way.to_vec()));
        let with = |old: Type| {
            Environment::new()
                .types(types.clone())
                .variable("self", ty.clone())
                .variable("oldSelf", old)
        };
        let environments = [with(ty.clone()), with(Type::optional(ty.clone()))];
        Some(Compiler { environments, types, estimates: false })
    }

    /// The same, and costs are estimated.
    pub fn estimating(self) -> Compiler {
        Compiler { estimates: true, ..self }
    }

    /// A program with its cost, or why there is none: in front of that who fails, then what must be
    /// of which type.
    fn compiled(
        &self,
        environment: &Environment,
        text: &str,
        wanted: Type,
        [who, what, article]: [&str; 3],
    ) -> (Result<Option<Program>, String>, u64) {
        let compiled = match self.estimates {
            true => environment.compile_estimated(text, &[wanted], &*self.types),
            false => environment.compile(text, &[wanted]).map(|program| (program, 0)),
        };
        let error = match compiled {
            Ok((program, cost)) => return (Ok(Some(program)), cost),
            Err(error) => error,
        };
        let fault = match error {
            CompileError::Issues(issues) => format!("{who}compilation failed: {issues}"),
            CompileError::Output { .. } => format!("{what} must evaluate to {article}"),
            CompileError::Constant(fault) if who.is_empty() => {
                format!("program instantiation failed: {fault}")
            }
            CompileError::Constant(fault) => format!("{who}instantiation failed: {fault}"),
        };
        (Err(fault), 0)
    }

    pub fn rule(&self, rule: &Json, shape: Shape<'_>) -> Rule {
        let text = |field: &str| rule[field].as_str().unwrap_or_default().to_owned();
        let optional_old = rule["optionalOldSelf"] == true;
        let environment = &self.environments[usize::from(optional_old)];
        let expression = text("rule");
        let (program, cost) = match expression.trim().is_empty() {
            true => (Ok(None), 0),
            false => {
                let words = ["", "cel expression", "a bool"];
                self.compiled(environment, &expression, Type::Bool, words)
            }
        };
        let message_expression = text("messageExpression");
        // What is said of a rule that means nothing is never asked.
        let is_asked = !message_expression.is_empty() && matches!(program, Ok(Some(_)));
        let (message_program, message_cost) = match is_asked {
            true => {
                let words = ["messageExpression ", "messageExpression", "a string"];
                self.compiled(environment, &message_expression, Type::String, words)
            }
            false => (Ok(None), 0),
        };
        let uses_old = matches!(&program, Ok(Some(program)) if program.names("oldSelf"));
        let reason = rule["reason"].as_str().map(|reason| match reason {
            "FieldValueForbidden" => Reason::Forbidden,
            "FieldValueRequired" => Reason::Required,
            "FieldValueDuplicate" => Reason::Duplicate,
            _ => Reason::Invalid,
        });
        let path = field_path(&text("fieldPath"), shape.written()).unwrap_or_default();
        Rule {
            program,
            text: expression,
            message: text("message"),
            message_expression,
            message_program,
            reason,
            path,
            optional_old,
            uses_old,
            costs: [cost, message_cost],
        }
    }
}
