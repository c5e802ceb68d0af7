//! A webhook's answer, read as upstream's client reads it (`client-go/rest`, the codec of
//! `apiserver/pkg/util/webhook/client.go`), in Go's words for what does not fit.
use crate::state::another;
use api::codec::object::TypeMeta;
use api::codec::{DecodeError, json, yaml};
use api::schema::{TypeRef, builtin};
use serde_json::Value;

/// A kind of review, in the version that a webhook is asked in.
#[derive(Clone, Copy)]
pub struct Review<'a> {
    /// Where its types are: `admission`.
    pub package: &'a str,
    pub group: &'a str,
    pub version: &'a str,
    pub kind: &'a str,
}

/// The versions that there are of each kind.
const VERSIONS: [&str; 2] = ["v1", "v1beta1"];
/// What a webhook may answer in place of a review, to be refused.
const STATUS: &str = "Status";

impl Review<'_> {
    /// The review in an answer, in its canonical form.
    pub fn read(&self, answer: &[u8]) -> Result<Value, String> {
        let words = |error: DecodeError| error.to_string();
        // What does not begin as JSON does is taken for YAML.
        let tree = match answer.trim_ascii_start().starts_with(b"{") {
            true => None,
            false => Some(yaml::decode_untyped(answer).map_err(words)?.value),
        };
        let said = match &tree {
            None => TypeMeta::from_json(answer),
            Some(tree) => TypeMeta::from_tree(tree.clone()),
        };
        let said = self.completed(said.map_err(words)?);
        let ty = self.type_of(&said).ok_or_else(|| another::not_of_the_scheme(&said))?;
        let read = match tree {
            None => json::decode(answer, ty),
            Some(tree) => json::canonicalize(tree, ty),
        };
        // It is read as what it says that it is before anybody sees that something else was asked for.
        let read = read.map_err(words)?;
        match self.unlike(&said) {
            Some(fault) => Err(fault),
            None => Ok(read.value),
        }
    }

    /// What an answer does not say of itself is what was asked for.
    fn completed(&self, mut said: TypeMeta) -> TypeMeta {
        let own = self.named(self.version);
        if said.kind.is_empty() {
            said.kind.clone_from(&own.kind);
        }
        if said.api_version.is_empty() {
            said.api_version.clone_from(&own.api_version);
        }
        said
    }

    /// Why an answer cannot be taken for what was asked for: it is a `Status`, or another version of the review.
    fn unlike(&self, said: &TypeMeta) -> Option<String> {
        if *said == self.named(self.version) {
            return None;
        }
        let found = if said.kind == STATUS { "v1" } else { said.group_version().1 };
        let (version, kind) = (self.version, self.kind);
        Some(format!(
            "converting ({found}.{}) to ({version}.{kind}): unknown conversion",
            said.kind
        ))
    }

    fn named(&self, version: &str) -> TypeMeta {
        TypeMeta { api_version: format!("{}/{version}", self.group), kind: self.kind.to_owned() }
    }

    /// The type of what an answer says that it is, if there is one. A `Status` is the same in every group; an older
    /// review that is not among the types has those of the newer one.
    fn type_of(&self, said: &TypeMeta) -> Option<TypeRef<'static>> {
        if said.kind == STATUS {
            return builtin().named("meta/v1.Status");
        }
        let version = VERSIONS.into_iter().find(|version| *said == self.named(version))?;
        let of =
            |version: &str| builtin().named(&format!("{}/{version}.{}", self.package, self.kind));
        of(version).or_else(|| of("v1"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(answer: &str, expected: &str) {
        let (package, group) = ("apiextensions", "apiextensions.k8s.io");
        let review = Review { package, group, version: "v1", kind: "ConversionReview" };
        let found = review.read(answer.as_bytes());
        let found = found.map_or_else(|cause| cause, |review| review["response"].to_string());
        assert_eq!(found, expected, "{answer}");
    }

    #[test]
    fn what_does_not_fit_is_told_in_gos_words() {
        const STRUCT: &str = r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
        for (answer, found) in [("<html>", "string"), ("[]", "array"), ("5", "number")] {
            let words = "couldn't get version/kind; json parse error: json: cannot unmarshal";
            check(answer, &format!("{words} {found} into Go value of type {STRUCT}"));
        }
        check(
            r#"{"response":"x"}"#,
            "json: cannot unmarshal string into Go struct field ConversionReview.response of type v1.ConversionResponse",
        );
        check(
            r#"{"response":{"result":"x"}}"#,
            "json: cannot unmarshal string into Go struct field ConversionResponse.response.result of type v1.Status",
        );
        check(
            r#"{"response":{"convertedObjects":"x"}}"#,
            "json: cannot unmarshal string into Go struct field ConversionResponse.response.convertedObjects of type []runtime.RawExtension",
        );
        check("null", "null");
        check("{}", "null");
    }

    #[test]
    fn an_answer_of_another_kind_is_none() {
        check(
            r#"{"kind":"X"}"#,
            r#"no kind "X" is registered for version "apiextensions.k8s.io/v1" in scheme "pkg/runtime/scheme.go:111""#,
        );
        check(
            r#"{"apiVersion":"apiextensions.k8s.io/v1beta1"}"#,
            "converting (v1beta1.ConversionReview) to (v1.ConversionReview): unknown conversion",
        );
        // What does not fit is told of first.
        check(
            r#"{"apiVersion":"apiextensions.k8s.io/v1beta1","response":5}"#,
            "json: cannot unmarshal number into Go struct field ConversionReview.response of type v1.ConversionResponse",
        );
        check(
            r#"{"kind":"Status","apiVersion":"v1"}"#,
            "converting (v1.Status) to (v1.ConversionReview): unknown conversion",
        );
    }
}
