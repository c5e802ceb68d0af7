//! Match conditions: expressions that must all hold before a policy or a webhook is asked.
use super::compiled::Expression;
use super::environment::{Has, environment};
use super::input::{Asked, Input, Scope, request};
use crate::admission::{Attributes, joined};
use api::kinds::Resource;
use cel::{MATCH_CONDITIONS_BUDGET, Type};
use k8s_openapi::api::admissionregistration::v1::MatchCondition;
use serde_json::Value;
use std::time::{Duration, Instant};

/// What conditions came to.
pub struct Met {
    /// Whether all hold; else the errors of those that fail, if none is false.
    pub outcome: Result<bool, String>,
    /// How many failed before one was false.
    pub errors: usize,
    /// None if there are no conditions.
    pub took: Option<Duration>,
}

/// The conditions of one policy or webhook, compiled.
pub struct MatchConditions(Vec<Expression>);

impl MatchConditions {
    /// Of a webhook. One that does not compile counts as one that fails.
    pub fn of_webhook(conditions: Option<&[MatchCondition]>) -> Self {
        MatchConditions::of_policy(conditions, false)
    }

    pub fn of_policy(conditions: Option<&[MatchCondition]>, params: bool) -> Self {
        let conditions = conditions.unwrap_or_default();
        if conditions.is_empty() {
            return MatchConditions(Vec::new());
        }
        let environment = environment(Has { params, authorizer: true, patches: false });
        let compile = |condition: &MatchCondition| {
            Expression::compile(&environment, &condition.expression, &[Type::Bool])
        };
        MatchConditions(conditions.iter().map(compile).collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a request that is about `matched` meets them.
    pub fn hold(
        &self,
        attributes: &Attributes<'_>,
        matched: &Resource,
        object: &Value,
        old: &Value,
    ) -> Met {
        let request = request(attributes, matched);
        let authorizer = Asked { api: attributes.api, user: attributes.user };
        let (namespace, params) = (&Value::Null, &Value::Null);
        self.met(Input {
            object,
            old,
            request: &request,
            namespace,
            params,
            authorizer: &authorizer,
        })
    }

    pub(super) fn met(&self, input: Input<'_>) -> Met {
        if self.is_empty() {
            return Met { outcome: Ok(true), errors: 0, took: None };
        }
        let (begun, mut errors) = (Instant::now(), Vec::new());
        let outcome = self.judge(input, &mut errors);
        Met { outcome, errors: errors.len(), took: Some(begun.elapsed()) }
    }

    fn judge(&self, input: Input<'_>, errors: &mut Vec<String>) -> Result<bool, String> {
        let scope = Scope::new(Input { namespace: &Value::Null, ..input }, &[]);
        let mut budget = MATCH_CONDITIONS_BUDGET;
        let mut outcomes = Vec::with_capacity(self.0.len());
        for condition in &self.0 {
            outcomes.push(scope.evaluate(condition, &mut budget)?);
        }
        // One that is false decides, whatever the others come to.
        for outcome in outcomes {
            match outcome {
                Ok(value) if value.as_bool() == Some(false) => return Ok(false),
                Ok(_) => {}
                Err(error) => errors.push(error),
            }
        }
        if errors.is_empty() { Ok(true) } else { Err(joined(errors)) }
    }
}
