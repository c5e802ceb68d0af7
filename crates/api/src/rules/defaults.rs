//! What a request may leave out: the values that upstream fills in when it decodes.
//!
//! A default belongs to a type: one walk along the schema runs every row of [`TABLE`] whose type it
//! meets, the outer type before the inner one, so that what an outer default adds gets its own
//! defaults. Types below which no row can apply are not entered.
use crate::schema::{Type, TypeId, TypeRef, builtin};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::LazyLock;

/// Sets the defaults of one type.
pub type Defaulter = fn(&mut Map<String, Value>);

/// By type, as the facts name it.
static TABLE: &[(&str, Defaulter)] = &[];

/// Sets every default in an object of the type.
pub fn set(object: &mut Value, ty: TypeRef<'_>) {
    walk(object, ty, &PLAN);
}

/// Which rows apply to a type, and whether it can hold a type that has any.
#[derive(Default)]
struct Plan {
    rows: HashMap<TypeId, Vec<Defaulter>>,
    worth_entering: HashMap<TypeId, bool>,
}

static PLAN: LazyLock<Plan> = LazyLock::new(|| {
    let mut plan = Plan::default();
    for (name, defaulter) in TABLE {
        let ty = builtin().named(name).expect("every row names a type: a test says so");
        plan.rows.entry(ty.id).or_default().push(*defaulter);
    }
    for package in builtin().packages() {
        for (_, ty) in builtin().types_of(&package.name) {
            plan.explore(ty);
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
                    worth |= self.explore(ty.at(field.ty));
                }
            }
            Type::List(list) => worth |= self.explore(ty.at(list.element)),
            Type::Map(map) => worth |= self.explore(ty.at(map.value)),
            _ => {}
        }
        self.worth_entering.insert(ty.id, worth);
        worth
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
            for (name, value) in fields {
                if let Some(field) = s.field(name) {
                    walk(value, ty.at(field.ty), plan);
                }
            }
        }
        (Type::List(list), Value::Array(items)) => {
            items.iter_mut().for_each(|item| walk(item, ty.at(list.element), plan));
        }
        (Type::Map(map), Value::Object(entries)) => {
            entries.values_mut().for_each(|entry| walk(entry, ty.at(map.value), plan));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_names_a_type_of_the_facts() {
        for (name, _) in TABLE {
            assert!(builtin().named(name).is_some(), "{name}");
        }
    }
}
