//! An object held against its definition's rules.
use super::correlation::{Keyed, Pair, Ratchet};
use super::rules::{Level, Reason, Rule, Rules};
use crate::cost::RUNTIME_BUDGET;
use crate::evaluate::{Activation, Program};
use crate::library::Outcome;
use crate::shape::{Identity, Shape};
use crate::value::{Value, View};
use crate::work::Error as EvaluationError;
use api::field::{BadValue, Error, ErrorList, Path};
use api::quote::Quoted;
use serde_json::Value as Json;

/// So long a message may be that an expression makes.
const MOST_MESSAGE: usize = 5 << 10;

const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// A write: what comes to be, and what was before.
#[derive(Clone, Copy)]
pub struct Update<'v> {
    pub new: &'v Json,
    pub old: Option<&'v Json>,
    /// Faults of what is as it was are warnings.
    pub ratchets: bool,
}

/// What the rules have against an object.
#[derive(Debug, Default)]
pub struct Said {
    pub errors: ErrorList,
    pub warnings: Vec<String>,
}

impl Rules {
    /// What the rules say of a custom object, by the schema that they were compiled from.
    pub fn said(&self, schema: &Json, update: Update<'_>) -> Said {
        let mut left = RUNTIME_BUDGET as i64;
        self.said_of(Shape::whole(schema), &Path::NIL, update, &mut left)
    }

    /// The same of a part, within a budget; what is left of it is negative when it was not enough.
    pub(super) fn said_of<'v>(
        &self,
        shape: Shape<'v>,
        path: &Path<'_>,
        update: Update<'v>,
        left: &mut i64,
    ) -> Said {
        let mut run = Run { left: *left, said: Said::default() };
        let pair = update.old.filter(|_| update.ratchets);
        let pair = pair.map(|old| Pair::new(update.new, old, shape));
        let at = Place { path, shape, new: update.new, old: update.old };
        run.level(&self.root, at, Ratchet { current: pair.as_ref(), parent: None });
        *left = run.left;
        run.said
    }
}

#[derive(Clone, Copy)]
struct Place<'p, 'v> {
    path: &'p Path<'p>,
    shape: Shape<'v>,
    new: &'v Json,
    old: Option<&'v Json>,
}

struct Run {
    left: i64,
    said: Said,
}

/// Nothing more is evaluated.
struct Stopped;

impl Run {
    fn level(&mut self, level: &Level, at: Place<'_, '_>, ratchet: Ratchet<'_, '_>) {
        // Null is what the level above may ask about.
        if at.new.is_null() {
            return;
        }
        let at = Place { old: at.old.filter(|old| !old.is_null()), ..at };
        if self.rules(level, at, ratchet).is_err() {
            self.left = -1;
            return;
        }
        match at.new {
            Json::Array(items) => self.items(level, items, at, ratchet),
            Json::Object(fields) => self.fields(level, fields, at, ratchet),
            _ => {}
        }
    }

    fn items<'v>(
        &mut self,
        level: &Level,
        items: &'v [Json],
        at: Place<'_, 'v>,
        ratchet: Ratchet<'_, 'v>,
    ) {
        let (Some(level), Some(shape)) = (&level.items, at.shape.items()) else { return };
        let old = at.old.and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
        let keyed = match at.shape.identity() {
            Identity::Keys(keys) => Some(Keyed::new(old, keys)),
            _ => None,
        };
        for (index, new) in items.iter().enumerate() {
            let old = keyed.as_ref().and_then(|keyed| keyed.find(new));
            let pair = ratchet.index(old, new);
            let path = at.path.index(index);
            let place = Place { path: &path, shape, new, old };
            self.level(level, place, ratchet.below(pair.as_ref()));
            if self.left < 0 {
                return;
            }
        }
    }

    fn fields<'v>(
        &mut self,
        level: &Level,
        fields: &'v serde_json::Map<String, Json>,
        at: Place<'_, 'v>,
        ratchet: Ratchet<'_, 'v>,
    ) {
        let before = at.old.and_then(Json::as_object);
        for (name, new) in fields {
            let old = before.and_then(|before| before.get(name));
            let (inner, shape, path) = match &level.values {
                Some(values) => (Some(&**values), at.shape.values(), at.path.key(name)),
                None => {
                    let inner = level.properties.iter().find(|(known, _)| known == name);
                    let inner = inner.map(|(_, level)| level);
                    (inner, at.shape.property(name), at.path.child(name))
                }
            };
            let (Some(inner), Some(shape)) = (inner, shape) else { continue };
            let pair = ratchet.key(name);
            // Old and new are of one version here: a change of these two cannot be seen.
            let hidden = ratchet.parent.is_none() && matches!(name.as_str(), "apiVersion" | "kind");
            let ratchet = match hidden && ratchet.current.is_some() {
                true => Ratchet::default(),
                false => ratchet.below(pair.as_ref()),
            };
            self.level(inner, Place { path: &path, shape, new, old }, ratchet);
            if self.left < 0 {
                return;
            }
        }
    }

    fn rules<'v>(
        &mut self,
        level: &Level,
        at: Place<'_, 'v>,
        ratchet: Ratchet<'_, 'v>,
    ) -> Result<(), Stopped> {
        let kind = at.shape.kind();
        if level.untyped {
            let detail = "rule compiler initialization error: failed to convert to declType for CEL validation rules";
            self.said.errors.push(Error::invalid(at.path, kind, detail));
            return Ok(());
        }
        if level.rules.is_empty() {
            return Ok(());
        }
        if self.left <= 0 {
            self.said.errors.push(Error::invalid(at.path, kind, OUT_OF_BUDGET));
            return Err(Stopped);
        }
        let view = View::Shaped(at.shape);
        let new = Value::viewed(at.new, view);
        // No rule here asks for the old value: then none has it.
        let uses_old = level.rules.iter().any(|rule| rule.uses_old);
        let old = at.old.filter(|_| uses_old).map(|old| Value::viewed(old, view));
        for rule in &level.rules {
            self.rule(rule, at, &new, old.as_ref(), uses_old, ratchet)?;
        }
        Ok(())
    }

    fn rule<'v>(
        &mut self,
        rule: &Rule,
        at: Place<'_, 'v>,
        new: &Value<'v>,
        old: Option<&Value<'v>>,
        uses_old: bool,
        ratchet: Ratchet<'_, 'v>,
    ) -> Result<(), Stopped> {
        let kind = at.shape.kind();
        let program = match &rule.program {
            Ok(Some(program)) => program,
            Ok(None) => return Ok(()),
            Err(fault) => {
                let detail = format!("rule compile error: {fault}");
                self.said.errors.push(Error::invalid(at.path, kind, detail));
                return Ok(());
            }
        };
        // What compares with an old value needs one.
        if rule.uses_old && at.old.is_none() && !rule.optional_old {
            return Ok(());
        }
        let optional = Some(Value::Optional(old.cloned().map(std::sync::Arc::new)));
        let given = if rule.optional_old && uses_old { optional } else { old.cloned() };
        let values = Values { new: new.clone(), old: given };
        let evaluated = program.evaluate(&values);
        let Some(left) = self.left.checked_sub_unsigned(evaluated.cost).filter(|left| *left >= 0)
        else {
            self.said.errors.push(Error::invalid(at.path, kind, OUT_OF_BUDGET));
            return Err(Stopped);
        };
        self.left = left;
        match evaluated.value {
            Ok(Value::Bool(true)) => return Ok(()),
            Ok(_) => {}
            Err(error) => return self.failed(rule, at, &error),
        }
        let child = at.path.child(&rule.path);
        let path = if rule.path.is_empty() { at.path } else { &child };
        let is_ratcheted = !rule.uses_old && ratchet.holds();
        let values = Values { new: new.clone(), old: old.cloned() };
        let detail = match self.message(rule, &values) {
            Ok(detail) => detail,
            Err(fault) => {
                self.tell(Error::invalid(path, kind, fault), is_ratcheted);
                return Err(Stopped);
            }
        };
        let value = match kind {
            "object" | "array" => BadValue::OMITTED,
            _ => BadValue::from(at.new),
        };
        let error = match rule.reason {
            Some(Reason::Forbidden) => Error::forbidden(path, detail),
            Some(Reason::Required) => Error::required(path, detail),
            Some(Reason::Duplicate) => Error::duplicate(path, value),
            Some(Reason::Invalid) | None => Error::invalid(path, value, detail),
        };
        self.tell(error, is_ratcheted);
        Ok(())
    }

    fn tell(&mut self, error: Error, is_ratcheted: bool) {
        match is_ratcheted {
            true => self.said.warnings.push(error.to_string()),
            false => self.said.errors.push(error),
        }
    }

    /// A rule that has no value.
    fn failed(
        &mut self,
        rule: &Rule,
        at: Place<'_, '_>,
        error: &EvaluationError,
    ) -> Result<(), Stopped> {
        let name = rule.name();
        let detail = match error {
            EvaluationError::NoOverload => format!(
                "'{error}': call arguments did not match a supported operator, function or macro signature for rule: {name}"
            ),
            EvaluationError::Cost => format!(
                "'{error}': no further validation rules will be run due to call cost exceeds limit for rule: {name}"
            ),
            EvaluationError::Said(_) => format!("{error} evaluating rule: {name}"),
        };
        self.said.errors.push(Error::invalid(at.path, at.shape.kind(), detail));
        if *error == EvaluationError::Cost { Err(Stopped) } else { Ok(()) }
    }

    /// What is said of an object that breaks a rule, or why nothing more can be said at all.
    fn message(&mut self, rule: &Rule, values: &Values<'_>) -> Result<String, String> {
        let made = match &rule.message_program {
            Ok(Some(program)) => self.made(program, rule, values)?,
            _ => None,
        };
        Ok(made.unwrap_or_else(|| match rule.message.is_empty() {
            true => format!("failed rule: {}", rule.name()),
            false => rule.message.trim().to_owned(),
        }))
    }

    /// The message that an expression makes; none if it makes none that can be told.
    fn made(
        &mut self,
        program: &Program,
        rule: &Rule,
        values: &Values<'_>,
    ) -> Result<Option<String>, String> {
        let evaluated = program.evaluate(values);
        let left = self.left.checked_sub_unsigned(evaluated.cost).filter(|left| *left >= 0);
        let Some(left) = left else {
            return Err("messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run".to_owned());
        };
        let value = match evaluated.value {
            Err(EvaluationError::Cost) => {
                let text = Quoted(&rule.message_expression);
                return Err(format!(
                    "no further validation rules will be run due to call cost exceeds limit for messageExpression: {text}"
                ));
            }
            value => value,
        };
        self.left = left;
        let text = value.ok().and_then(|value| Some(value.as_str()?.trim().to_owned()));
        let fits =
            |text: &String| !text.is_empty() && text.len() <= MOST_MESSAGE && !text.contains('\n');
        Ok(text.filter(fits))
    }
}

impl Rule {
    /// How errors call it.
    fn name(&self) -> &str {
        if self.message.is_empty() { self.text.trim() } else { self.message.trim() }
    }
}

struct Values<'v> {
    new: Value<'v>,
    old: Option<Value<'v>>,
}

impl<'v> Activation<'v> for Values<'v> {
    fn find(&self, name: &str) -> Option<Outcome<'v>> {
        match name {
            "self" => Some(Ok(self.new.clone())),
            "oldSelf" => self.old.clone().map(Ok),
            _ => None,
        }
    }
}
