//! Conditions of an authorization webhook: expressions over the question that must all hold before it
//! is asked (`apiserver/pkg/authorization/cel`).
use super::{Attributes, What};
use crate::guard::authn::User;
use cel::{Activation, Declared, Environment, Error, Fields, Program, Type, Value};
use serde_json::{Value as Json, json};
use std::sync::Arc;

/// As many a webhook may have.
const MOST: usize = 64;

#[derive(Default)]
pub struct Conditions(Vec<(String, Program)>);

impl Conditions {
    /// Compiles them; what is wrong with one is told with its place in the list.
    pub fn compile(expressions: &[String]) -> Result<Conditions, String> {
        if expressions.len() > MOST {
            let count = expressions.len();
            return Err(format!(
                "matchConditions: Too many: {count}: must have at most {MOST} items"
            ));
        }
        let environment = Environment::new()
            .types(Arc::new(Declared(fields)))
            .variable("request", Type::object("kubernetes.SubjectAccessReviewSpec"));
        let mut compiled: Vec<(String, Program)> = Vec::new();
        for (i, text) in expressions.iter().enumerate() {
            let place = format!("matchConditions[{i}].expression");
            if text.trim().is_empty() {
                return Err(format!("{place}: Required value"));
            }
            if compiled.iter().any(|(other, _)| other == text) {
                return Err(format!("{place}: Duplicate value: {text:?}"));
            }
            let program = environment.compile(text, &[Type::Bool]);
            let program = program.map_err(|e| format!("{place}: Invalid value: {text:?}: {e}"))?;
            compiled.push((text.clone(), program));
        }
        Ok(Conditions(compiled))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the question meets them. One that is false decides, whatever is wrong with others.
    pub fn hold(&self, user: &User, attributes: &Attributes) -> Result<bool, String> {
        if self.0.is_empty() {
            return Ok(true);
        }
        let request = request(user, attributes);
        let mut errors = Vec::new();
        for (text, program) in &self.0 {
            match program.evaluate(&Request(&request)).value {
                Ok(value) if value.as_bool() == Some(false) => return Ok(false),
                Ok(_) => {}
                Err(error) => errors.push(format!(
                    "cel evaluation error: expression '{text}' resulted in error: {error}"
                )),
            }
        }
        if errors.is_empty() { Ok(true) } else { Err(errors.join(", ")) }
    }
}

struct Request<'a>(&'a Json);

impl<'a> Activation<'a> for Request<'a> {
    fn find(&self, name: &str) -> Option<Result<Value<'a>, Error>> {
        (name == "request").then(|| Ok(Value::json(self.0)))
    }
}

/// The question as expressions see it: texts are there even where they are empty.
fn request(user: &User, attributes: &Attributes) -> Json {
    let mut request = json!({ "user": user.name, "groups": user.groups, "uid": user.uid,
        "extra": user.extra });
    let verb = &attributes.verb;
    match &attributes.what {
        What::Path(path) => {
            request["nonResourceAttributes"] = json!({ "path": path, "verb": verb });
        }
        What::Resource { group, version, resource, subresource, namespace, name } => {
            let mut wanted = json!({ "namespace": namespace, "verb": verb, "group": group,
                "version": version, "resource": resource, "subresource": subresource,
                "name": name });
            attributes.selected.write_into(&mut wanted);
            request["resourceAttributes"] = wanted;
        }
    }
    request
}

#[rustfmt::skip]
fn fields(object: &str) -> Option<Fields> {
    Some(match object {
        "kubernetes.SubjectAccessReviewSpec" => &[
            ("resourceAttributes", "kubernetes.ResourceAttributes"),
            ("nonResourceAttributes", "kubernetes.NonResourceAttributes"),
            ("user", "string"), ("groups", "list(string)"), ("extra", "map(string, list(string))"), ("uid", "string"),
        ],
        "kubernetes.ResourceAttributes" => &[
            ("namespace", "string"), ("verb", "string"), ("group", "string"), ("version", "string"),
            ("resource", "string"), ("subresource", "string"), ("name", "string"),
            ("fieldSelector", "kubernetes.FieldSelectorAttributes"),
            ("labelSelector", "kubernetes.LabelSelectorAttributes"),
        ],
        "kubernetes.FieldSelectorAttributes" | "kubernetes.LabelSelectorAttributes" => &[
            ("rawSelector", "string"), ("requirements", "list(kubernetes.SelectorRequirement)"),
        ],
        "kubernetes.SelectorRequirement" => &[("key", "string"), ("operator", "string"), ("values", "list(string)")],
        "kubernetes.NonResourceAttributes" => &[("path", "string"), ("verb", "string")],
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expressions: &[&str], attributes: &Attributes) -> Result<bool, String> {
        let user = User { name: "jane".into(), groups: vec!["dev".into()], ..User::default() };
        let texts: Vec<String> = expressions.iter().map(|&text| text.to_owned()).collect();
        Conditions::compile(&texts)?.hold(&user, attributes)
    }

    #[test]
    fn a_webhook_is_asked_where_all_conditions_hold() {
        let pods = Attributes::right("list", "", "pods", "kube-system", "");
        let path = Attributes { what: What::Path("/metrics".into()), ..pods.clone() };
        for (expressions, attributes, expected) in [
            (&["has(request.resourceAttributes)"][..], &pods, Ok(true)),
            (&["has(request.resourceAttributes)"], &path, Ok(false)),
            (&["request.resourceAttributes.namespace == 'kube-system'"], &pods, Ok(true)),
            (&["request.resourceAttributes.name == ''"], &pods, Ok(true)),
            (&["'dev' in request.groups", "request.user == 'john'"], &pods, Ok(false)),
            (&["request.nonResourceAttributes.path.startsWith('/m')"], &path, Ok(true)),
            // One that is false decides, whatever is wrong with the others.
            (
                &["request.resourceAttributes.verb == 'get'", "request.user == 'x'"],
                &path,
                Ok(false),
            ),
        ] {
            assert_eq!(check(expressions, attributes), expected, "{expressions:?}");
        }
        let error = check(&["request.resourceAttributes.verb == 'get'"], &path);
        assert!(error.expect_err("no such field").contains("no such key: resourceAttributes"));
    }

    #[test]
    fn what_does_not_compile_is_refused_with_its_place() {
        let pods = Attributes::right("list", "", "pods", "", "");
        for (expressions, fault) in [
            (&[" "][..], "matchConditions[0].expression: Required value"),
            (&["true", "true"], "matchConditions[1].expression: Duplicate value: \"true\""),
            (&["request.user"], "must evaluate to bool but got string"),
            (&["request.nobody == ''"], "compilation failed: ERROR: <input>:1:8: undefined field"),
        ] {
            let error = check(expressions, &pods).expect_err("it is refused");
            assert!(error.contains(fault), "{error}");
        }
        let many: Vec<String> = (0..65).map(|n| format!("{n} == 1")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let error = check(&many, &pods).expect_err("too many");
        assert_eq!(error, "matchConditions: Too many: 65: must have at most 64 items");
    }
}
