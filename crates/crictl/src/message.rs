//! CRI's messages as JSON and the other way round, by their declaration ([`DESCRIPTORS`]).
//!
//! Printed are all fields as protobuf's JSON has them (`protojson` with its defaults): names in camel
//! case, numbers of 64 bits as strings, enumerations by name. Read is what people write for upstream's
//! crictl, which reads its Go types: `log_directory` or `logDirectory` in any case, enumerations as
//! numbers, an environment's values as plain text.
use crate::failure::{Failure, Outcome};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use prost::Message;
use prost_reflect::{
    DescriptorPool, DynamicMessage, EnumDescriptor, FieldDescriptor, Kind, MapKey,
    MessageDescriptor, ReflectMessage as _, Value as Field,
};
use runtime::cri::DESCRIPTORS;
use serde_json::{Map, Value};
use std::fmt::Write as _;
use std::sync::OnceLock;

fn declared(name: &str) -> Outcome<MessageDescriptor> {
    static POOL: OnceLock<Option<DescriptorPool>> = OnceLock::new();
    let pool = POOL.get_or_init(|| DescriptorPool::decode(DESCRIPTORS).ok());
    let found =
        pool.as_ref().and_then(|pool| pool.get_message_by_name(&format!("runtime.v1.{name}")));
    found.ok_or_else(|| Failure::Said(format!("CRI declares no message {name}")))
}

fn dynamic(name: &str, message: &impl Message) -> Outcome<DynamicMessage> {
    let bytes = message.encode_to_vec();
    DynamicMessage::decode(declared(name)?, &bytes[..])
        .map_err(|error| Failure::Said(format!("{name} cannot be read: {error}")))
}

/// The message as indented JSON, its fields in the order of their declaration.
pub fn to_text(name: &str, message: &impl Message) -> Outcome<String> {
    let mut out = String::new();
    write_message(&mut out, &dynamic(name, message)?, 0);
    Ok(out)
}

/// The message as a tree.
pub fn to_value(name: &str, message: &impl Message) -> Outcome<Value> {
    serde_json::from_str(&to_text(name, message)?).map_err(|error| Failure::Said(error.to_string()))
}

/// The names of a message's fields, as JSON has them.
pub fn field_names(name: &str) -> Outcome<Vec<String>> {
    Ok(declared(name)?.fields().map(|field| field.json_name().to_owned()).collect())
}

/// The message as Go's `encoding/json` prints its struct: declared names, nothing that is empty.
pub fn to_struct(name: &str, message: &impl Message) -> Outcome<Value> {
    fn of(message: &DynamicMessage) -> Value {
        let set = message.fields().filter(|(field, value)| {
            field.supports_presence() || !value.is_default_for_field(field)
        });
        Value::Object(set.map(|(field, value)| (field.name().to_owned(), plain(value))).collect())
    }
    fn plain(value: &Field) -> Value {
        match value {
            Field::Message(message) => of(message),
            Field::List(items) => items.iter().map(plain).collect(),
            Field::Bool(is) => Value::from(*is),
            Field::I32(number) | Field::EnumNumber(number) => Value::from(*number),
            Field::I64(number) => Value::from(*number),
            Field::U32(number) => Value::from(*number),
            Field::U64(number) => Value::from(*number),
            Field::F32(number) => Value::from(*number),
            Field::F64(number) => Value::from(*number),
            Field::String(text) => Value::from(text.as_str()),
            Field::Bytes(bytes) => Value::from(STANDARD.encode(bytes)),
            Field::Map(map) => {
                map.iter().map(|(key, value)| (key_text(key), plain(value))).collect()
            }
        }
    }
    Ok(of(&dynamic(name, message)?))
}

fn key_text(key: &MapKey) -> String {
    match key {
        MapKey::Bool(key) => key.to_string(),
        MapKey::I32(key) => key.to_string(),
        MapKey::I64(key) => key.to_string(),
        MapKey::U32(key) => key.to_string(),
        MapKey::U64(key) => key.to_string(),
        MapKey::String(key) => key.clone(),
    }
}

fn line(out: &mut String, depth: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n("  ", depth));
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn write_message(out: &mut String, message: &DynamicMessage, depth: usize) {
    out.push('{');
    let mut first = true;
    for field in message.descriptor().fields() {
        // What can be absent is, and everything else has a value.
        if field.supports_presence() && !message.has_field(&field) {
            continue;
        }
        if !std::mem::replace(&mut first, false) {
            out.push(',');
        }
        line(out, depth + 1);
        let _ = write!(out, "{}: ", quoted(field.json_name()));
        write_value(out, &message.get_field(&field), &field.kind(), depth + 1);
    }
    if !first {
        line(out, depth);
    }
    out.push('}');
}

fn write_value(out: &mut String, value: &Field, kind: &Kind, depth: usize) {
    match value {
        Field::Message(message) => write_message(out, message, depth),
        Field::List(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                line(out, depth + 1);
                write_value(out, item, kind, depth + 1);
            }
            if !items.is_empty() {
                line(out, depth);
            }
            out.push(']');
        }
        Field::Map(map) => {
            let Kind::Message(entry) = kind else { return out.push_str("{}") };
            let kind = entry.map_entry_value_field().kind();
            let mut keys: Vec<_> = map.iter().map(|(key, value)| (key_text(key), value)).collect();
            keys.sort_by(|one, other| one.0.cmp(&other.0));
            out.push('{');
            for (at, (key, value)) in keys.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                line(out, depth + 1);
                let _ = write!(out, "{}: ", quoted(key));
                write_value(out, value, &kind, depth + 1);
            }
            if !keys.is_empty() {
                line(out, depth);
            }
            out.push('}');
        }
        Field::EnumNumber(number) => match kind {
            Kind::Enum(values) => match values.get_value(*number) {
                Some(value) => out.push_str(&quoted(plain_name(values, value.name()))),
                None => out.push_str(&number.to_string()),
            },
            _ => out.push_str(&number.to_string()),
        },
        Field::Bool(is) => out.push_str(if *is { "true" } else { "false" }),
        Field::I32(number) => out.push_str(&number.to_string()),
        Field::U32(number) => out.push_str(&number.to_string()),
        Field::I64(number) => out.push_str(&format!("\"{number}\"")),
        Field::U64(number) => out.push_str(&format!("\"{number}\"")),
        Field::F32(number) => out.push_str(&float(f64::from(*number))),
        Field::F64(number) => out.push_str(&float(*number)),
        Field::String(text) => out.push_str(&quoted(text)),
        Field::Bytes(bytes) => out.push_str(&quoted(&STANDARD.encode(bytes))),
    }
}

/// Upstream's signals are `SIGTERM` and the like; our declaration has them with the enumeration's name.
fn plain_name<'n>(values: &EnumDescriptor, name: &'n str) -> &'n str {
    match values.name() {
        "Signal" => name.strip_prefix("SIGNAL_").unwrap_or(name),
        _ => name,
    }
}

fn float(number: f64) -> String {
    match number {
        _ if number.is_nan() => "\"NaN\"".to_owned(),
        _ if number.is_infinite() && number > 0.0 => "\"Infinity\"".to_owned(),
        _ if number.is_infinite() => "\"-Infinity\"".to_owned(),
        _ => number.to_string(),
    }
}

/// A message that a person wrote as JSON or YAML.
pub fn read<T: Message + Default>(name: &str, bytes: &[u8]) -> Outcome<T> {
    let decoded = api::codec::yaml::decode_untyped(bytes).map_err(|error| error.to_string())?;
    let message = match &decoded.value {
        Value::Null => DynamicMessage::new(declared(name)?),
        value => message_of(declared(name)?, value, name)?,
    };
    message.transcode_to().map_err(|error| Failure::Said(format!("{name}: {error}")))
}

fn message_of(declared: MessageDescriptor, value: &Value, at: &str) -> Outcome<DynamicMessage> {
    let fields = object(value, at)?;
    let mut message = DynamicMessage::new(declared.clone());
    for (name, value) in fields {
        let bare = |name: &str| name.replace('_', "").to_lowercase();
        let Some(field) = declared.fields().find(|field| bare(field.name()) == bare(name)) else {
            // Upstream's reader passes over what it does not know.
            continue;
        };
        if value.is_null() {
            continue;
        }
        let at = format!("{at}.{}", field.name());
        let value = field_of(&field, value, &at)?;
        message
            .try_set_field(&field, value)
            .map_err(|error| Failure::Said(format!("{at}: {error}")))?;
    }
    Ok(message)
}

fn object<'v>(value: &'v Value, at: &str) -> Outcome<&'v Map<String, Value>> {
    value.as_object().ok_or_else(|| unfit(at, "an object", value))
}

fn unfit(at: &str, wanted: &str, value: &Value) -> Failure {
    Failure::Said(format!("{at} must be {wanted}, not a {}", api::quote::json_type(value)))
}

fn field_of(field: &FieldDescriptor, value: &Value, at: &str) -> Outcome<Field> {
    if field.is_map() {
        let Kind::Message(entry) = field.kind() else { return Err(unfit(at, "a map", value)) };
        let of_entry = entry.map_entry_value_field();
        let entries = object(value, at)?.iter().map(|(key, value)| {
            let at = format!("{at}.{key}");
            Ok((MapKey::String(key.clone()), scalar(&of_entry, &of_entry.kind(), value, &at)?))
        });
        return Ok(Field::Map(entries.collect::<Outcome<_>>()?));
    }
    if field.is_list() {
        let items = value.as_array().ok_or_else(|| unfit(at, "a list", value))?;
        let items = items
            .iter()
            .enumerate()
            .map(|(index, item)| scalar(field, &field.kind(), item, &format!("{at}[{index}]")));
        return Ok(Field::List(items.collect::<Outcome<_>>()?));
    }
    scalar(field, &field.kind(), value, at)
}

fn scalar(field: &FieldDescriptor, kind: &Kind, value: &Value, at: &str) -> Outcome<Field> {
    let whole = || match value {
        Value::String(text) => text.parse::<i128>().ok(),
        other => other.as_i64().map(i128::from).or_else(|| other.as_u64().map(i128::from)),
    };
    let number = || whole().ok_or_else(|| unfit(at, "a whole number", value));
    let outside = |_| Failure::Said(format!("{at} is out of range"));
    let text = || value.as_str().ok_or_else(|| unfit(at, "a text", value));
    Ok(match kind {
        Kind::Message(message) => Field::Message(message_of(message.clone(), value, at)?),
        Kind::Bool => {
            Field::Bool(value.as_bool().ok_or_else(|| unfit(at, "true or false", value))?)
        }
        Kind::String => Field::String(text()?.to_owned()),
        // An environment is text; whatever else has bytes has them in base64.
        Kind::Bytes if field.parent_message().name() == "KeyValue" => {
            Field::Bytes(text()?.as_bytes().to_vec().into())
        }
        Kind::Bytes => Field::Bytes(
            STANDARD
                .decode(text()?)
                .map_err(|error| Failure::Said(format!("{at}: {error}")))?
                .into(),
        ),
        Kind::Enum(values) => match value {
            Value::String(name) => {
                let mut all = values.values();
                let found = all.find(|value| plain_name(values, value.name()) == name.as_str());
                let found = found.map(|value| value.number());
                let unknown = || Failure::Said(format!("{at} has no value {name:?}"));
                Field::EnumNumber(found.ok_or_else(unknown)?)
            }
            _ => Field::EnumNumber(i32::try_from(number()?).map_err(outside)?),
        },
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => {
            Field::I32(i32::try_from(number()?).map_err(outside)?)
        }
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => {
            Field::I64(i64::try_from(number()?).map_err(outside)?)
        }
        Kind::Uint32 | Kind::Fixed32 => Field::U32(u32::try_from(number()?).map_err(outside)?),
        Kind::Uint64 | Kind::Fixed64 => Field::U64(u64::try_from(number()?).map_err(outside)?),
        Kind::Double => Field::F64(value.as_f64().ok_or_else(|| unfit(at, "a number", value))?),
        Kind::Float => {
            Field::F32(value.as_f64().ok_or_else(|| unfit(at, "a number", value))? as f32)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use runtime::cri::v1::*;

    #[test]
    fn messages_print_as_protobuf_s_json() {
        let message = Container {
            id: "a".to_owned(),
            metadata: Some(ContainerMetadata { name: "<n>".to_owned(), attempt: 2 }),
            state: ContainerState::ContainerRunning as i32,
            created_at: 5,
            labels: [("b", "1"), ("a", "2")].map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
            ..Container::default()
        };
        expect![[r#"
            {
              "id": "a",
              "podSandboxId": "",
              "metadata": {
                "name": "<n>",
                "attempt": 2
              },
              "imageRef": "",
              "state": "CONTAINER_RUNNING",
              "createdAt": "5",
              "labels": {
                "a": "2",
                "b": "1"
              },
              "annotations": {},
              "imageId": ""
            }"#]]
        .assert_eq(&to_text("Container", &message).unwrap());
    }

    #[test]
    fn what_people_write_is_read() {
        let config: ContainerConfig = read(
            "ContainerConfig",
            b"metadata: {name: main}\nenvs: [{key: A, value: 'b c'}]\nlog_path: x\nTTY: true\nimage: {Image: busybox}
linux: {resources: {cpuQuota: 100, memory_limit_in_bytes: '7'}, security_context: {namespace_options: {network: 2, pid: CONTAINER}}}
bogus: 1\nannotations: {a: b}\nstdin: null\n",
        )
        .unwrap();
        assert_eq!(config.metadata.unwrap().name, "main");
        assert_eq!(
            (&*config.envs[0].value, &*config.log_path, config.tty),
            (&b"b c"[..], "x", true)
        );
        let linux = config.linux.unwrap();
        let resources = linux.resources.unwrap();
        assert_eq!((resources.cpu_quota, resources.memory_limit_in_bytes), (100, 7));
        let namespaces = linux.security_context.unwrap().namespace_options.unwrap();
        assert_eq!(
            (namespaces.network(), namespaces.pid()),
            (NamespaceMode::Node, NamespaceMode::Container)
        );
    }

    #[test]
    fn signals_have_upstream_s_names() {
        let status = ContainerStatus { stop_signal: Signal::Sigterm as i32, ..Default::default() };
        assert_eq!(to_value("ContainerStatus", &status).unwrap()["stopSignal"], "SIGTERM");
        let config: ContainerConfig = read("ContainerConfig", b"stop_signal: SIGTERM").unwrap();
        assert_eq!(config.stop_signal(), Signal::Sigterm);
    }

    #[test]
    fn what_nobody_can_read_is_told() {
        let fault = |text: &str| {
            let read: Outcome<PodSandboxConfig> = read("PodSandboxConfig", text.as_bytes());
            read.unwrap_err().message().unwrap()
        };
        for (text, wanted) in [
            ("metadata: 5", "PodSandboxConfig.metadata must be an object, not a number"),
            ("[]", "PodSandboxConfig must be an object, not a array"),
            ("metadata: {attempt: -1}", "PodSandboxConfig.metadata.attempt is out of range"),
            ("hostname: {}", "PodSandboxConfig.hostname must be a text, not a object"),
            ("labels: {a: 1}", "PodSandboxConfig.labels.a must be a text, not a number"),
            ("port_mappings: {}", "PodSandboxConfig.port_mappings must be a list, not a object"),
            (
                "port_mappings: [{protocol: ICMP}]",
                "PodSandboxConfig.port_mappings[0].protocol has no value \"ICMP\"",
            ),
        ] {
            assert_eq!(fault(text), wanted, "{text}");
        }
        assert!(fault("{").starts_with("yaml: "), "{}", fault("{"));
        let deep = "{a: ".repeat(100_000);
        assert!(!fault(&deep).is_empty());
    }
}
