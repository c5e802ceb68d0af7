//! What a request may leave out: the values that upstream fills in when it decodes.
//!
//! A default belongs to a type: one walk along the schema runs every row of [`TABLE`] whose type it
//! meets, the outer type before the inner one, so that what an outer default adds gets its own
//! defaults. Types below which no row can apply are not entered. What the facts themselves give as
//! a field's default needs no row.
mod cluster;
mod core;
mod disabled;
mod pod;
mod storage;
mod workload;

use crate::quantity::Quantity;
use crate::schema::{Field, Map as MapType, Type, TypeId, TypeRef, builtin};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::LazyLock;

/// Sets the defaults of one type.
pub type Defaulter = fn(&mut Map<String, Value>);

/// Rows by type, as the facts name it.
type Rows = &'static [(&'static str, Defaulter)];

static TABLE: &[Rows] = &[pod::ROWS, core::ROWS, workload::ROWS, storage::ROWS, cluster::ROWS];

/// Sets every default in an object of the type.
pub fn set(object: &mut Value, ty: TypeRef<'_>) {
    walk(object, ty, &PLAN);
}

/// Removes the fields of features that are off. A client that sets one owns it all the same.
pub fn forget_disabled(object: &mut Value, ty: TypeRef<'_>) {
    prune(object, ty, &PLAN);
}

/// Which rows apply to a type, and whether it can hold a type that has any.
#[derive(Default)]
struct Plan {
    rows: HashMap<TypeId, Vec<Defaulter>>,
    disabled: HashMap<TypeId, &'static [&'static str]>,
    worth_entering: HashMap<TypeId, bool>,
    /// The same for fields that are off.
    worth_pruning: HashMap<TypeId, bool>,
}

static PLAN: LazyLock<Plan> = LazyLock::new(|| {
    let mut plan = Plan::default();
    for (name, defaulter) in TABLE.iter().copied().flatten() {
        let ty = builtin().named(name).expect("every row names a type: a test says so");
        plan.rows.entry(ty.id).or_default().push(*defaulter);
    }
    for (name, fields) in disabled::FIELDS {
        let ty = builtin().named(name).expect("every row names a type: a test says so");
        plan.disabled.insert(ty.id, *fields);
    }
    for package in builtin().packages() {
        for (_, ty) in builtin().types_of(&package.name) {
            plan.explore(ty);
            plan.explore_disabled(ty);
        }
    }
    plan
});

impl Plan {
    /// A type that is being explored counts as not worth entering: the answer of a type that
    /// contains itself comes from its other fields.
    fn explore(&mut self, ty: TypeRef<'_>) -> bool {
        if let Some(known) = self.worth_entering.get(&ty.id) {
            return *known;
        }
        self.worth_entering.insert(ty.id, false);
        let mut worth = self.rows.contains_key(&ty.id);
        match ty.get() {
            Type::Struct(s) => {
                for field in &s.fields {
                    worth |= stated_default(field).is_some();
                    worth |= self.explore(ty.at(field.ty));
                }
            }
            Type::List(list) => worth |= self.explore(ty.at(list.element)),
            Type::Map(map) => {
                worth |= is_resource_list(map) | self.explore(ty.at(map.value));
            }
            _ => {}
        }
        self.worth_entering.insert(ty.id, worth);
        worth
    }

    fn explore_disabled(&mut self, ty: TypeRef<'_>) -> bool {
        if let Some(known) = self.worth_pruning.get(&ty.id) {
            return *known;
        }
        self.worth_pruning.insert(ty.id, false);
        let mut worth = self.disabled.contains_key(&ty.id);
        match ty.get() {
            Type::Struct(s) => {
                for field in &s.fields {
                    worth |= self.explore_disabled(ty.at(field.ty));
                }
            }
            Type::List(list) => worth |= self.explore_disabled(ty.at(list.element)),
            Type::Map(map) => worth |= self.explore_disabled(ty.at(map.value)),
            _ => {}
        }
        self.worth_pruning.insert(ty.id, worth);
        worth
    }
}

fn prune(value: &mut Value, ty: TypeRef<'_>, plan: &Plan) {
    if !plan.worth_pruning.get(&ty.id).is_some_and(|worth| *worth) {
        return;
    }
    match (ty.get(), value) {
        (Type::Struct(s), Value::Object(fields)) => {
            for field in plan.disabled.get(&ty.id).into_iter().copied().flatten() {
                fields.remove(*field);
            }
            for (name, value) in fields {
                if let Some(field) = s.field(name) {
                    prune(value, ty.at(field.ty), plan);
                }
            }
        }
        (Type::List(list), Value::Array(items)) => {
            items.iter_mut().for_each(|item| prune(item, ty.at(list.element), plan));
        }
        (Type::Map(map), Value::Object(entries)) => {
            entries.values_mut().for_each(|entry| prune(entry, ty.at(map.value), plan));
        }
        _ => {}
    }
}

fn walk(value: &mut Value, ty: TypeRef<'_>, plan: &Plan) {
    if !plan.worth_entering.get(&ty.id).is_some_and(|worth| *worth) {
        return;
    }
    match (ty.get(), value) {
        (Type::Struct(s), Value::Object(fields)) => {
            for defaulter in plan.rows.get(&ty.id).into_iter().flatten() {
                defaulter(fields);
            }
            for field in &s.fields {
                if let Some(default) = stated_default(field) {
                    match field.pointer {
                        true => fields.fill(&field.name, default.clone()),
                        false => fields.fill_zero(&field.name, default.clone()),
                    }
                }
            }
            for (name, value) in fields {
                if let Some(field) = s.field(name) {
                    walk(value, ty.at(field.ty), plan);
                }
            }
        }
        (Type::List(list), Value::Array(items)) => {
            items.iter_mut().for_each(|item| walk(item, ty.at(list.element), plan));
        }
        (Type::Map(map), Value::Object(entries)) if is_resource_list(map) => {
            entries.values_mut().for_each(round_up);
        }
        (Type::Map(map), Value::Object(entries)) => {
            entries.values_mut().for_each(|entry| walk(entry, ty.at(map.value), plan));
        }
        _ => {}
    }
}

/// The facts' own default of a field. A zero is no default where zero and absence are the same.
fn stated_default(field: &Field) -> Option<&Value> {
    let zero = |value: &Value| *value == "" || *value == 0;
    field.default.as_ref().filter(|value| field.pointer || !zero(value))
}

fn is_resource_list(map: &MapType) -> bool {
    map.name.as_deref() == Some("core/v1.ResourceList")
}

/// Amounts of resources are counted in thousandths: what is finer is rounded up.
fn round_up(value: &mut Value) {
    if let Some(mut quantity) = value.as_str().and_then(|text| Quantity::parse(text).ok())
        && !quantity.round_up(-3)
    {
        *value = quantity.to_string().into();
    }
}

/// Filling gaps.
trait Fill {
    /// Sets what is not there.
    fn fill(&mut self, field: &str, value: impl Into<Value>);

    /// Sets what is not there or is zero, in a field where that is the same.
    fn fill_zero(&mut self, field: &str, value: impl Into<Value>);

    /// Sets a map that is not there or has nothing in it.
    fn fill_empty(&mut self, field: &str, value: Value);

    /// Whether a field is not there or is zero.
    fn lacks(&self, field: &str) -> bool;

    /// What is there as text, or nothing.
    fn text(&self, field: &str) -> &str;

    /// A struct inside, made if need be.
    fn inside(&mut self, field: &str) -> &mut Map<String, Value>;

    /// A struct inside, if there is one.
    fn given(&mut self, field: &str) -> Option<&mut Map<String, Value>>;

    /// The structs of a list inside.
    fn each(&mut self, field: &str) -> impl Iterator<Item = &mut Map<String, Value>>;
}

impl Fill for Map<String, Value> {
    fn fill(&mut self, field: &str, value: impl Into<Value>) {
        if self.get(field).is_none_or(Value::is_null) {
            self.insert(field.to_owned(), value.into());
        }
    }

    fn fill_zero(&mut self, field: &str, value: impl Into<Value>) {
        if self.lacks(field) || self.get(field) == Some(&0.into()) {
            self.insert(field.to_owned(), value.into());
        }
    }

    fn fill_empty(&mut self, field: &str, value: Value) {
        if self.get(field).and_then(Value::as_object).is_none_or(Map::is_empty) {
            self.insert(field.to_owned(), value);
        }
    }

    fn lacks(&self, field: &str) -> bool {
        match self.get(field) {
            None | Some(Value::Null) => true,
            Some(Value::String(text)) => text.is_empty(),
            Some(Value::Array(items)) => items.is_empty(),
            _ => false,
        }
    }

    fn text(&self, field: &str) -> &str {
        self.get(field).and_then(Value::as_str).unwrap_or_default()
    }

    fn inside(&mut self, field: &str) -> &mut Map<String, Value> {
        let value = self.entry(field).or_insert_with(|| Map::new().into());
        if !value.is_object() {
            *value = Map::new().into();
        }
        value.as_object_mut().expect("it has just been made one")
    }

    fn given(&mut self, field: &str) -> Option<&mut Map<String, Value>> {
        self.get_mut(field)?.as_object_mut()
    }

    fn each(&mut self, field: &str) -> impl Iterator<Item = &mut Map<String, Value>> {
        let list = self.get_mut(field).and_then(Value::as_array_mut);
        list.into_iter().flatten().filter_map(Value::as_object_mut)
    }
}

/// An empty struct.
fn empty() -> Value {
    Map::new().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_names_a_type_of_the_facts() {
        for (name, _) in TABLE.iter().copied().flatten() {
            assert!(builtin().named(name).is_some(), "{name}");
        }
        for (name, fields) in disabled::FIELDS {
            let ty = builtin().named(name).expect(name);
            fields.iter().for_each(|field| assert!(ty.field(field).is_some(), "{name}.{field}"));
        }
    }
}
