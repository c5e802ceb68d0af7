//! Selectors of devices: what claims and device classes may ask of a device.
//!
//! `device` has a driver, attributes and capacities; both are maps by domain, then by name. A domain that
//! the device says nothing of is empty, so that an expression may ask about any device. Upstream's
//! `k8s.io/dynamic-resource-allocation/cel`.
use crate::environment::Environment;
use crate::estimate::Sizes;
use crate::evaluate::{Activation, Program};
use crate::library::semver::Semver;
use crate::provider::Types;
use crate::types::Type;
use crate::value::{Entries, Value};
use crate::work::Error;
use api::quantity::Quantity;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

/// What one evaluation may cost: upstream's `CELSelectorExpressionMaxCost`.
pub const MOST_COST: u64 = 1_000_000;

const DEVICE: &str = "kubernetes.DRADevice";

struct Fields;

impl Types for Fields {
    fn knows(&self, object: &str) -> bool {
        object == DEVICE
    }

    fn field(&self, _: &str, field: &str) -> Option<Type> {
        let by_domain = |value: Type| Type::map(Type::String, Type::map(Type::String, value));
        Some(match field {
            "driver" => Type::String,
            "allowMultipleAllocations" => Type::Bool,
            "attributes" => by_domain(Type::Dyn),
            "capacity" => by_domain(Type::object("kubernetes.Quantity")),
            _ => return None,
        })
    }
}

static ENVIRONMENT: LazyLock<Environment> = LazyLock::new(|| {
    Environment::new().variable("device", Type::object(DEVICE)).types(Arc::new(Fields))
});

/// A compiled expression.
pub struct Selector(Program);

/// What one attribute is.
#[derive(Debug, Clone, PartialEq)]
pub enum Attribute {
    Bool(bool),
    Int(i64),
    String(String),
    Version(String),
}

/// A device as expressions see it. Names without a domain are of the driver's.
pub struct Device<'a> {
    pub driver: &'a str,
    pub allow_multiple_allocations: bool,
    pub attributes: Vec<(&'a str, Attribute)>,
    pub capacity: Vec<(&'a str, Quantity)>,
}

/// Why an expression cannot be stored.
#[derive(Debug, PartialEq)]
pub enum Refused {
    Invalid(String),
    /// At worst it costs more than [`MOST_COST`].
    TooDear,
}

/// How much of everything a device may have: upstream's limits of a ResourceSlice.
struct Limits;

impl Sizes for Limits {
    fn most(&self, path: &[String]) -> Option<u64> {
        const ENTRIES: u64 = 32;
        const DOMAIN: u64 = 63;
        const ID: u64 = 32;
        const VALUE: u64 = 64;
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        Some(match path[..] {
            ["device", "driver"] => DOMAIN,
            ["device", "allowMultipleAllocations"] => 1,
            ["device", "attributes" | "capacity"] => ENTRIES,
            ["device", "attributes" | "capacity", "@keys"] => DOMAIN,
            ["device", "attributes" | "capacity", "@values"] => ENTRIES,
            ["device", "attributes" | "capacity", "@values", "@keys"] => ID,
            ["device", "attributes", "@values", _] => VALUE,
            _ => return None,
        })
    }
}

impl Selector {
    pub fn compile(expression: &str) -> Result<Selector, String> {
        let program = ENVIRONMENT.compile(expression, &[]).map_err(|error| error.to_string())?;
        Selector::of(program)
    }

    /// Whether one that is new may be stored.
    pub fn judge(expression: &str) -> Result<(), Refused> {
        let compiled = ENVIRONMENT.compile_estimated(expression, &[], &Limits);
        let (program, cost) = compiled.map_err(|error| Refused::Invalid(error.to_string()))?;
        Selector::of(program).map_err(Refused::Invalid)?;
        if cost > MOST_COST { Err(Refused::TooDear) } else { Ok(()) }
    }

    fn of(program: Program) -> Result<Selector, String> {
        match program.output() {
            Type::Bool | Type::Dyn => Ok(Selector(program)),
            other => Err(format!(
                "must evaluate to bool or the unknown type, not {}",
                other.runtime_name()
            )),
        }
    }

    pub fn matches(&self, device: &Device<'_>) -> Result<bool, String> {
        let value = device.value()?;
        let found = self.0.evaluate_within(&Only(value), MOST_COST).value;
        match found.map_err(|error| enhanced(&error))? {
            Value::Bool(matches) => Ok(matches),
            other => Err(format!(
                "CEL result of type {} could not be converted to bool: type conversion error from '{}' to 'bool'",
                other.type_name(),
                other.type_name()
            )),
        }
    }
}

/// Who asks for what is not there is told how not to (upstream's `EnhanceRuntimeError`).
fn enhanced(error: &Error) -> String {
    let text = error.to_string();
    match text.contains("no such key:") {
        true => format!(
            "{text}. consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() for optional fields"
        ),
        false => text,
    }
}

struct Only<'a>(Value<'a>);

impl<'a> Activation<'a> for Only<'a> {
    fn find(&self, name: &str) -> Option<Result<Value<'a>, Error>> {
        (name == "device").then(|| Ok(self.0.clone()))
    }
}

impl<'a> Device<'a> {
    fn value(&self) -> Result<Value<'a>, String> {
        let mut attributes: BTreeMap<&str, Entries<'a>> = BTreeMap::new();
        for (name, attribute) in &self.attributes {
            let value = match attribute {
                Attribute::Bool(value) => Value::Bool(*value),
                Attribute::Int(value) => Value::Int(*value),
                Attribute::String(text) => Value::text(text.as_str()),
                Attribute::Version(text) => {
                    let version = Semver::parse(text).map_err(|error| {
                        format!("attribute {name}: parse semantic version: {error}")
                    })?;
                    Value::Semver(Arc::new(version))
                }
            };
            let (domain, id) = split(name, self.driver);
            attributes.entry(domain).or_default().insert(Value::text(id), value);
        }
        let mut capacity: BTreeMap<&str, Entries<'a>> = BTreeMap::new();
        for (name, quantity) in &self.capacity {
            let (domain, id) = split(name, self.driver);
            let value = Value::Quantity(Arc::new(quantity.clone()));
            capacity.entry(domain).or_default().insert(Value::text(id), value);
        }
        let by_domain = |domains: BTreeMap<&str, Entries<'a>>| {
            let mut all = Entries::default();
            for (domain, entries) in domains {
                all.insert(Value::text(domain), Value::map(entries));
            }
            Value::map(all.otherwise(Value::map(Entries::default())))
        };
        let mut device = Entries::default();
        device.insert(Value::text("driver"), Value::text(self.driver));
        let multiple = Value::Bool(self.allow_multiple_allocations);
        device.insert(Value::text("allowMultipleAllocations"), multiple);
        device.insert(Value::text("attributes"), by_domain(attributes));
        device.insert(Value::text("capacity"), by_domain(capacity));
        Ok(Value::map(device))
    }
}

fn split<'n>(name: &'n str, driver: &'n str) -> (&'n str, &'n str) {
    name.split_once('/').unwrap_or((driver, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expression: &str) -> String {
        let text = |text: &str| Attribute::String(text.to_owned());
        let device = Device {
            driver: "gpu.example.com",
            allow_multiple_allocations: false,
            attributes: vec![
                ("model", text("a100")),
                ("other.io/rack", Attribute::Int(7)),
                ("driverVersion", Attribute::Version("1.2.3".to_owned())),
                ("ecc", Attribute::Bool(true)),
            ],
            capacity: vec![("memory", Quantity::parse("40Gi").expect("a quantity"))],
        };
        let matches = Selector::compile(expression).and_then(|it| it.matches(&device));
        match matches {
            Ok(matches) => matches.to_string(),
            Err(error) => error,
        }
    }

    #[test]
    fn selectors_ask_for_drivers_attributes_and_capacities() {
        for (expression, expected) in [
            (r#"device.driver == "gpu.example.com""#, "true"),
            (r#"device.attributes["gpu.example.com"].model == "a100""#, "true"),
            (r#"device.attributes["other.io"].rack > 6"#, "true"),
            (
                r#"device.attributes["gpu.example.com"].driverVersion.isGreaterThan(semver("1.2.0"))"#,
                "true",
            ),
            (r#"device.attributes["gpu.example.com"].ecc"#, "true"),
            (
                r#"device.capacity["gpu.example.com"].memory.compareTo(quantity("80Gi")) >= 0"#,
                "false",
            ),
            (r#""unknown.io" in device.attributes"#, "false"),
            (r#"has(device.attributes["unknown.io"].x)"#, "false"),
            ("!device.allowMultipleAllocations", "true"),
        ] {
            assert_eq!(check(expression), expected, "{expression}");
        }
    }

    #[test]
    fn what_cannot_be_is_said_in_upstreams_words() {
        assert_eq!(check("device.driver"), "must evaluate to bool or the unknown type, not string");
        assert!(
            check("device.nothing")
                .starts_with("compilation failed: ERROR: <input>:1:7: undefined field 'nothing'")
        );
        assert!(
            check(r#"device.attributes["gpu.example.com"].x == 1"#).starts_with("no such key: x"),
        );
    }
}
