//! The request of `kubectl create token`.

use serde_json::{Value, json};

use super::put;
use crate::failure::Outcome;
use crate::flags::{Arguments, Flag, each, span, text};

pub static FLAGS: &[Flag] = &[
    each("audience", "Whom the token is for; may be repeated."),
    span(
        "duration",
        "0s",
        "How long the token is to be good; the server decides if it is not given.",
    ),
    text(
        "bound-object-kind",
        "",
        "Kind of the object that the token ends with: Node, Pod or Secret.",
    ),
    text("bound-object-name", "", "Name of that object."),
    text("bound-object-uid", "", "UID of that object."),
];

pub fn request(arguments: &Arguments) -> Outcome<Value> {
    let (kind, name) = (arguments.text("bound-object-kind"), arguments.text("bound-object-name"));
    let uid = arguments.text("bound-object-uid");
    let duration = api::duration::Duration::parse(arguments.text("duration")).unwrap_or_default();
    if duration.nanos < 0 {
        return Err("--duration must be greater than or equal to 0".into());
    }
    if duration.nanos % 1_000_000_000 != 0 {
        return Err("--duration cannot be expressed in units less than seconds".into());
    }
    if arguments.list("audience").iter().any(String::is_empty) {
        return Err("--audience must not be an empty string".into());
    }
    match kind {
        "" if !name.is_empty() => {
            return Err(
                "--bound-object-name can only be set if --bound-object-kind is provided".into()
            );
        }
        "" if !uid.is_empty() => {
            return Err(
                "--bound-object-uid can only be set if --bound-object-kind is provided".into()
            );
        }
        "" => {}
        "Node" | "Pod" | "Secret" if name.is_empty() => {
            return Err("--bound-object-name is required if --bound-object-kind is provided".into());
        }
        "Node" | "Pod" | "Secret" => {}
        _ => return Err("supported --bound-object-kind values are Node, Pod, Secret".into()),
    }
    let mut spec = json!({"audiences": arguments.list("audience")});
    if duration.nanos > 0 {
        spec["expirationSeconds"] = duration.as_secs().into();
    }
    if !kind.is_empty() {
        let mut bound = json!({"kind": kind, "apiVersion": "v1", "name": name});
        put(&mut bound, "uid", uid);
        spec["boundObjectRef"] = bound;
    }
    Ok(
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {}, "spec": spec}),
    )
}
