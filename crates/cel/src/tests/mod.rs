//! Expressions as data, and expressions made to hurt.
mod hostile;
mod table;

use crate::{Activation, CompileError, Environment, Error, Type, Value};
use serde_json::{Value as Json, json};

/// The variables that the tests' expressions name.
struct World {
    object: Json,
    numbers: Json,
    texts: Json,
    map: Json,
}

impl World {
    fn new() -> World {
        World {
            object: json!({
                "spec": {"replicas": 3, "items": [{"name": "a", "port": 80}, {"name": "b", "port": 8080}]},
                "metadata": {"name": "web", "labels": {"app": "web", "tier": "x"}, "annotations": {"a/b": "c"}},
                "nul": null, "float": 1.5, "zero": 0, "big": 3_000_000_000_u64, "d": {"x": {"y": 1}},
            }),
            numbers: json!([3, 1, 2]),
            texts: json!(["a", "b"]),
            map: json!({"a": "b"}),
        }
    }

    fn environment() -> Environment {
        Environment::new()
            .variable("object", Type::Dyn)
            .variable("x", Type::Int)
            .variable("s", Type::String)
            .variable("l", Type::list(Type::Int))
            .variable("m", Type::map(Type::String, Type::String))
            .variable("d", Type::Dyn)
            .variable("sl", Type::list(Type::String))
    }
}

struct Values<'a>(&'a World);

impl<'a> Activation<'a> for Values<'a> {
    fn find(&self, name: &str) -> Option<Result<Value<'a>, Error>> {
        let world = self.0;
        Some(Ok(match name {
            "object" => Value::json(&world.object),
            "x" => Value::Int(7),
            "s" => Value::borrowed("hello wörld"),
            "l" => Value::json(&world.numbers),
            "m" => Value::json(&world.map),
            "d" => Value::json(&world.object["d"]),
            "sl" => Value::json(&world.texts),
            _ => return None,
        }))
    }
}

/// What an expression comes to: the kind of outcome, its text, and its cost.
fn outcome(text: &str) -> (&'static str, String, Option<u64>) {
    let world = World::new();
    let program = match World::environment().compile(text, &[]) {
        Err(CompileError::Issues(issues)) => return ("issues", issues.to_string(), None),
        Err(CompileError::Constant(fault)) => return ("program", fault, None),
        Err(other) => return ("program", other.to_string(), None),
        Ok(program) => program,
    };
    let evaluated = program.evaluate(&Values(&world));
    let cost = Some(evaluated.cost);
    match evaluated.value {
        Ok(value) => ("value", format!("{} {}", program.output(), show(&value)), cost),
        Err(error) => ("error", error.to_string(), cost),
    }
}

fn show(value: &Value<'_>) -> String {
    let several = |parts: Vec<String>| parts.join(", ");
    match value {
        Value::Double(double) => format!("{}d", crate::golang::float(*double)),
        Value::Uint(value) => format!("{value}u"),
        Value::Bytes(bytes) => {
            bytes.iter().fold("b".to_owned(), |text, byte| format!("{text}{byte:02x}"))
        }
        Value::Optional(Some(value)) => format!("some({})", show(value)),
        Value::Optional(None) => "none".to_owned(),
        Value::List(list) => {
            format!("[{}]", several(list.iter().map(|item| show(&item)).collect()))
        }
        Value::Map(map) => {
            let entry = |(key, value)| format!("{}: {}", show(&key), show(&value));
            let mut entries: Vec<String> = map.iter().map(entry).collect();
            entries.sort();
            format!("{{{}}}", several(entries))
        }
        Value::Duration(_) | Value::Timestamp(_) => {
            value.to_json().and_then(|json| json.as_str().map(str::to_owned)).unwrap_or_default()
        }
        Value::Type(name) => format!("type {name}"),
        value => match value.to_json() {
            Some(json) if !matches!(value, Value::Quantity(_)) => json.to_string(),
            _ => format!("<{}>", value.type_name()),
        },
    }
}
