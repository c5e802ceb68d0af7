//! A policy with its expressions compiled.
use super::conditions::MatchConditions;
use super::environment::{Has, environment};
use cel::{CompileError, Environment, Program, Type, Types};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingAdmissionPolicy, ParamKind, ValidatingAdmissionPolicy, Variable as VariableText,
};
use std::sync::Arc;

/// An expression and its program, or why there is none.
pub struct Expression {
    pub text: String,
    pub program: Result<Program, CompileError>,
}

/// A variable that others of the policy may name; evaluated when one does.
pub struct Variable {
    /// With `variables.` in front.
    pub name: String,
    pub expression: Expression,
}

impl Expression {
    pub fn compile(environment: &Environment, text: &str, wanted: &[Type]) -> Expression {
        Expression { text: text.to_owned(), program: environment.compile(text, wanted) }
    }
}

/// The environments of one policy, which know its variables.
pub struct Composed {
    pub variables: Vec<Variable>,
    params: bool,
    declared: Vec<(String, Type)>,
    subject: Subject,
}

/// The types of what expressions are about, where they are checked for one kind only; the rest may be anything.
#[derive(Default)]
pub struct Subject {
    pub object: Option<Typed>,
    pub params: Option<Typed>,
}

/// A type, and who knows its fields.
#[derive(Clone)]
pub struct Typed {
    pub types: Arc<dyn Types>,
    pub ty: Type,
}

impl Composed {
    pub fn new(variables: Option<&[VariableText]>, params: bool, patches: bool) -> Composed {
        Composed::over(Subject::default(), variables, params, patches)
    }

    /// The same for objects of one kind.
    pub fn about(subject: Subject, variables: Option<&[VariableText]>, params: bool) -> Composed {
        Composed::over(subject, variables, params, false)
    }

    fn over(
        subject: Subject,
        variables: Option<&[VariableText]>,
        params: bool,
        patches: bool,
    ) -> Composed {
        let (compiled, declared) = (Vec::new(), Vec::new());
        let mut composed = Composed { variables: compiled, params, declared, subject };
        for variable in variables.unwrap_or_default() {
            let environment = composed.environment(true, patches);
            let expression = Expression::compile(&environment, &variable.expression, &[]);
            let ty = match &expression.program {
                Ok(program) => program.output().clone(),
                Err(_) => Type::Dyn,
            };
            let name = format!("variables.{}", variable.name);
            composed.declared.push((name.clone(), ty));
            composed.variables.push(Variable { name, expression });
        }
        composed
    }

    pub fn environment(&self, authorizer: bool, patches: bool) -> Environment {
        let mut environment = environment(Has { params: self.params, authorizer, patches });
        environment.declare("variables", Type::object("kubernetes.variables"));
        for (name, ty) in &self.declared {
            environment.declare(name, ty.clone());
        }
        let Subject { object, params } = &self.subject;
        for (names, typed) in [(&["object", "oldObject"][..], object), (&["params"], params)] {
            let Some(Typed { types, ty }) = typed else { continue };
            environment = environment.types(types.clone());
            names.iter().for_each(|name| environment.declare(name, ty.clone()));
        }
        environment.types(Arc::new(Variables))
    }
}

/// The type of `variables` itself: its fields are variables of the environment, found before it.
struct Variables;

impl Types for Variables {
    fn knows(&self, object: &str) -> bool {
        object == "kubernetes.variables"
    }

    fn field(&self, _: &str, _: &str) -> Option<Type> {
        None
    }
}

pub struct Validation {
    pub expression: Expression,
    pub message: String,
    pub message_expression: Option<Expression>,
    pub reason: String,
}

pub struct AuditAnnotation {
    pub key: String,
    pub value: Expression,
}

/// A ValidatingAdmissionPolicy, ready.
pub struct Validating {
    pub conditions: MatchConditions,
    pub composed: Composed,
    pub validations: Vec<Validation>,
    pub annotations: Vec<AuditAnnotation>,
}

impl Validating {
    pub fn compile(policy: &ValidatingAdmissionPolicy) -> Validating {
        let empty = Default::default();
        let spec = policy.spec.as_ref().unwrap_or(&empty);
        let params = spec.param_kind.is_some();
        let composed = Composed::new(spec.variables.as_deref(), params, false);
        let with = composed.environment(true, false);
        let without = composed.environment(false, false);
        let validations = spec.validations.iter().flatten().map(|validation| Validation {
            expression: Expression::compile(&with, &validation.expression, &[Type::Bool]),
            message: validation.message.clone().unwrap_or_default(),
            message_expression: validation
                .message_expression
                .as_ref()
                .filter(|text| !text.is_empty())
                .map(|text| Expression::compile(&without, text, &[Type::String])),
            reason: validation.reason.clone().unwrap_or_default(),
        });
        let annotations =
            spec.audit_annotations.iter().flatten().map(|annotation| AuditAnnotation {
                key: annotation.key.clone(),
                value: Expression::compile(&with, &annotation.value_expression, ANNOTATION),
            });
        Validating {
            conditions: MatchConditions::of_policy(spec.match_conditions.as_deref(), params),
            validations: validations.collect(),
            annotations: annotations.collect(),
            composed,
        }
    }
}

pub const ANNOTATION: &[Type] = &[Type::String, Type::Null];

pub enum Mutation {
    Apply(Expression),
    JsonPatch(Expression),
}

/// A MutatingAdmissionPolicy, ready.
pub struct Mutating {
    pub conditions: MatchConditions,
    pub composed: Composed,
    pub mutations: Vec<Mutation>,
}

impl Mutating {
    pub fn compile(policy: &MutatingAdmissionPolicy) -> Mutating {
        let empty = Default::default();
        let spec = policy.spec.as_ref().unwrap_or(&empty);
        let params = spec.param_kind.is_some();
        let composed = Composed::new(spec.variables.as_deref(), params, true);
        let environment = composed.environment(true, true);
        let mutations = spec.mutations.iter().flatten().filter_map(|mutation| {
            if let Some(apply) = &mutation.apply_configuration {
                let text = apply.expression.as_deref().unwrap_or_default();
                let wanted = [Type::object("Object")];
                return Some(Mutation::Apply(Expression::compile(&environment, text, &wanted)));
            }
            let patch = mutation.json_patch.as_ref()?;
            let text = patch.expression.as_deref().unwrap_or_default();
            let wanted = [Type::list(Type::object("JSONPatch"))];
            Some(Mutation::JsonPatch(Expression::compile(&environment, text, &wanted)))
        });
        Mutating {
            conditions: MatchConditions::of_policy(spec.match_conditions.as_deref(), params),
            mutations: mutations.collect(),
            composed,
        }
    }
}

/// `apps/v1, Kind=Deployment`: as upstream prints it.
pub fn shown(kind: &ParamKind) -> String {
    let version = kind.api_version.as_deref().unwrap_or_default();
    format!("{version}, Kind={}", kind.kind.as_deref().unwrap_or_default())
}
