//! Expressions over a token's claims and over the user they make
//! (`apiserver/pkg/authentication/cel`, `validation.go` of `apis/apiserver`).
//!
//! `claims` are what the token says, `user` is who it was taken for. Everything is compiled when the
//! configuration is read; what cannot be evaluated lets nobody in.
use crate::guard::authn::User;
use cel::{Activation, Declared, Environment, Error, Fields, Program, Type, Value};
use serde_json::{Value as Json, json};
use std::sync::{Arc, LazyLock};

/// An expression over claims.
#[derive(Clone)]
pub struct Expression {
    pub text: String,
    program: Arc<Program>,
}

/// What must hold, and what is said if it does not.
#[derive(Debug, Clone)]
pub struct Rule {
    pub expression: Expression,
    pub message: String,
}

/// What an expression may be about.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum About {
    Claims,
    User,
}

/// What an expression may come to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Output {
    /// Whatever its type, it is looked at when there is a value.
    Any,
    Bool,
}

impl std::fmt::Debug for Expression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

static CLAIMS: LazyLock<Environment> =
    LazyLock::new(|| Environment::new().variable("claims", Type::map(Type::String, Type::Dyn)));

static USER: LazyLock<Environment> = LazyLock::new(|| {
    let types = Arc::new(Declared(fields));
    Environment::new().types(types).variable("user", Type::object("kubernetes.UserInfo"))
});

#[rustfmt::skip]
fn fields(object: &str) -> Option<Fields> {
    (object == "kubernetes.UserInfo").then_some(&[
        ("username", "string"), ("uid", "string"), ("groups", "list(string)"), ("extra", "map(string, list(string))"),
    ])
}

impl Expression {
    pub fn compile(text: &str, about: About, output: Output) -> Result<Expression, String> {
        let environment = match about {
            About::Claims => &CLAIMS,
            About::User => &USER,
        };
        let wanted = match output {
            Output::Bool => &[Type::Bool][..],
            Output::Any => &[],
        };
        let program = environment.compile(text, wanted).map_err(|error| match error {
            // Upstream does not say what it found here.
            cel::CompileError::Output { wanted, .. } => {
                let wanted: Vec<String> = wanted.iter().map(Type::runtime_name).collect();
                format!("must evaluate to {}", wanted.join(" "))
            }
            other => other.to_string(),
        })?;
        Ok(Expression { text: text.to_owned(), program: Arc::new(program) })
    }

    /// Whether it reads this claim, evaluated or not.
    pub fn reads(&self, claim: &str) -> bool {
        self.program.selects("claims", claim)
    }

    fn value<'a>(&self, input: &'a Json, about: About) -> Result<Value<'a>, String> {
        let value = self.program.evaluate(&Input(input, about)).value;
        value.map_err(|error| format!("expression '{}' resulted in error: {error}", self.text))
    }

    /// A text, which is what a name or a uid must be.
    pub fn text_of(&self, claims: &Json) -> Result<String, String> {
        let value = self.value(claims, About::Claims)?;
        let text = value.as_str().map(str::to_owned);
        text.ok_or_else(|| format!("expression '{}' must return a string", self.text))
    }

    /// One text or several; none of them empty.
    pub fn texts_of(&self, claims: &Json) -> Result<Vec<String>, String> {
        let value = self.value(claims, About::Claims)?;
        let refused =
            || format!("expression '{}' must return a string or a list of strings", self.text);
        let found = match (value.to_json(), value.as_list()) {
            (Some(Json::Null), _) => return Ok(Vec::new()),
            (_, Some(list)) => {
                let texts = list.iter().map(|text| text.as_str().map(str::to_owned));
                texts.collect::<Option<Vec<String>>>().ok_or_else(refused)?
            }
            _ => vec![value.as_str().ok_or_else(refused)?.to_owned()],
        };
        Ok(found.into_iter().filter(|text| !text.is_empty()).collect())
    }
}

/// Why the rules refuse this, if one does.
pub fn refusal(rules: &[Rule], about: About, input: &Json) -> Option<String> {
    rules.iter().find_map(|rule| match rule.expression.value(input, about) {
        Ok(value) if value.as_bool() == Some(true) => None,
        Ok(_) => Some(format!(
            "validation expression '{}' failed: {}",
            rule.expression.text, rule.message
        )),
        Err(error) => Some(error),
    })
}

/// The user as expressions see him.
pub fn seen(user: &User) -> Json {
    json!({ "username": user.name, "uid": user.uid, "groups": user.groups, "extra": user.extra })
}

struct Input<'a>(&'a Json, About);

impl<'a> Activation<'a> for Input<'a> {
    fn find(&self, name: &str) -> Option<Result<Value<'a>, Error>> {
        let known = match self.1 {
            About::Claims => "claims",
            About::User => "user",
        };
        (name == known).then(|| Ok(Value::json(self.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(text: &str) -> Result<Expression, String> {
        Expression::compile(text, About::Claims, Output::Any)
    }

    #[test]
    fn expressions_make_names_and_groups_of_claims() {
        let token = json!({ "sub": "jane", "roles": ["dev", "", "ops"], "n": 1, "none": null });
        let texts = |text: &str| claims(text).and_then(|it| it.texts_of(&token));
        let text = |text: &str| claims(text).and_then(|it| it.text_of(&token));
        assert_eq!(text("'id:' + claims.sub").as_deref(), Ok("id:jane"));
        assert_eq!(texts("claims.roles"), Ok(vec!["dev".to_owned(), "ops".to_owned()]));
        assert_eq!(texts("claims.sub"), Ok(vec!["jane".to_owned()]));
        assert_eq!(texts("claims.none"), Ok(vec![]));
        assert_eq!(texts("claims.?missing.orValue([])"), Ok(vec![]));
        for wrong in ["claims.n", "claims.missing", "[1]"] {
            assert!(texts(wrong).is_err(), "{wrong}");
            assert!(text(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_rule_that_does_not_hold_or_cannot_be_evaluated_refuses() {
        let check = |text: &str, about: About, input: Json| {
            let expression = Expression::compile(text, about, Output::Bool)?;
            let rules = [Rule { expression, message: "no".to_owned() }];
            Ok::<_, String>(refusal(&rules, about, &input))
        };
        let jane = User { name: "jane".into(), ..User::default() };
        assert_eq!(check("claims.hd == 'x'", About::Claims, json!({ "hd": "x" })), Ok(None));
        let refused = check("claims.hd == 'x'", About::Claims, json!({ "hd": "y" }));
        assert_eq!(refused, Ok(Some("validation expression 'claims.hd == 'x'' failed: no".into())));
        let missing = check("claims.hd == 'x'", About::Claims, json!({}));
        assert!(missing.is_ok_and(|said| said.is_some_and(|said| said.contains("no such key"))));
        let own = "!user.username.startsWith('system:')";
        assert_eq!(check(own, About::User, seen(&jane)), Ok(None));
        let not_bool = check("claims.hd", About::Claims, json!({}));
        assert_eq!(not_bool, Err("must evaluate to bool".to_owned()));
        assert!(check("user.username == ''", About::Claims, json!({})).is_err());
    }

    #[test]
    fn it_is_known_which_claims_an_expression_reads() {
        for (text, reads) in [
            ("claims.email", true),
            ("claims.?email.orValue('')", true),
            ("has(claims.email) ? 'a' : 'b'", true),
            ("claims.emails", false),
            ("[claims].map(c, c.sub)[0]", false),
        ] {
            assert_eq!(claims(text).expect("it compiles").reads("email"), reads, "{text}");
        }
    }
}
