//! Types of one schema taken over into another.
use super::{Field, Inline, List, Map, Schema, Struct, Type, TypeId, TypeRef};
use std::collections::HashMap;

impl Schema {
    /// Copies a type and all that it refers to.
    pub(crate) fn import(&mut self, ty: TypeRef<'_>) -> TypeId {
        let mut importer = Importer { into: self, done: HashMap::new() };
        importer.import(ty)
    }
}

struct Importer<'s> {
    into: &'s mut Schema,
    done: HashMap<TypeId, TypeId>,
}

impl Importer<'_> {
    fn import(&mut self, ty: TypeRef<'_>) -> TypeId {
        if let Some(&id) = self.done.get(&ty.id) {
            return id;
        }
        // The place is taken before it is filled: types may refer to themselves.
        let id = self.into.add(Type::Any);
        self.done.insert(ty.id, id);
        let copy = match ty.get() {
            Type::Any => Type::Any,
            Type::Scalar(named) => Type::Scalar(named.clone()),
            Type::Either(which, props) => Type::Either(*which, self.import(ty.at(*props))),
            Type::List(list) => {
                Type::List(List { element: self.import(ty.at(list.element)), ..list.clone() })
            }
            Type::Map(map) => {
                Type::Map(Map { value: self.import(ty.at(map.value)), ..map.clone() })
            }
            Type::Struct(s) => {
                self.into.names.insert(s.name.clone(), id);
                Type::Struct(self.copy_struct(s, ty))
            }
        };
        self.into.types[id.0 as usize] = copy;
        id
    }

    fn copy_struct(&mut self, s: &Struct, ty: TypeRef<'_>) -> Struct {
        let fields = s.fields.iter().map(|f| Field { ty: self.import(ty.at(f.ty)), ..f.clone() });
        let fields = fields.collect();
        let inline = s.inline.iter().map(|i| Inline { ty: self.import(ty.at(i.ty)), ..i.clone() });
        let inline = inline.collect();
        let mut copy = Struct { fields, inline, ..s.clone() };
        copy.seal();
        copy
    }
}
