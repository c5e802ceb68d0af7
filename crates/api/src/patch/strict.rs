//! What a patch is held against before anybody looks at what it is for, unless its client wants nothing to
//! be validated (`applyJSPatch` in `apiserver/pkg/endpoints/handlers/patch.go`).
use crate::codec::Problem;
use crate::quote::json_type;
use serde_json::Value;

/// A merge patch is an object.
pub fn merge(document: &Value) -> Result<(), String> {
    match document {
        Value::Object(_) | Value::Null => Ok(()),
        other => Err(unfit(other, "value of type map[string]interface {}")),
    }
}

/// A JSON patch is a list of operations, which have four fields; what else they have is told.
pub fn operations(document: &Value) -> Result<Vec<Problem>, String> {
    const TEXTS: [&str; 3] = ["op", "path", "from"];
    let operations = match document {
        Value::Null => return Ok(Vec::new()),
        Value::Array(operations) => operations,
        other => return Err(unfit(other, "value of type []handlers.jsonPatchOp")),
    };
    let mut unknown = Vec::new();
    for (i, operation) in operations.iter().enumerate() {
        let fields = match operation {
            Value::Null => continue,
            Value::Object(fields) => fields,
            other => return Err(unfit(other, "value of type handlers.jsonPatchOp")),
        };
        for (name, value) in fields {
            match name.as_str() {
                "value" => {}
                text if TEXTS.contains(&text) => {
                    if !value.is_string() && !value.is_null() {
                        let field = format!("struct field jsonPatchOp.{text} of type string");
                        return Err(unfit(value, &field));
                    }
                }
                _ => unknown.push(Problem::UnknownField(format!("[{i}].{name}"))),
            }
        }
    }
    Ok(unknown)
}

fn unfit(found: &Value, wanted: &str) -> String {
    format!("error decoding patch: json: cannot unmarshal {} into Go {wanted}", json_type(found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_patch_is_of_its_languages_form() {
        assert_eq!((merge(&json!({})), merge(&Value::Null)), (Ok(()), Ok(())));
        let text = "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}";
        assert_eq!(merge(&json!([])), Err(text.to_owned()));
        for (patch, end) in [
            (json!({}), "object into Go value of type []handlers.jsonPatchOp"),
            (json!([1]), "number into Go value of type handlers.jsonPatchOp"),
            (json!([{ "op": 5 }]), "number into Go struct field jsonPatchOp.op of type string"),
        ] {
            let said = operations(&patch).expect_err("no patch");
            assert!(said.ends_with(end), "{said}");
        }
        let patch = json!([null, { "op": "add", "path": "/a", "value": 1, "foo": 2 }]);
        let unknown = operations(&patch).expect("a patch");
        assert_eq!(unknown, [Problem::UnknownField("[1].foo".into())]);
    }
}
