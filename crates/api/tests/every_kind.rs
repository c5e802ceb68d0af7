//! Every kind, in every encoding, there and back; and no bytes at all make a decoder panic.
use api::codec::object::{self, Encoding, TypeMeta};
use api::codec::{json, protobuf};
use api::kinds::RESOURCES;
use api::schema::{TypeRef, builtin};
use proptest::prelude::*;
use serde_json::{Value, json};
use testkit::sample::{self, Random};

/// Every kind that the facts know, old versions and lists too.
fn kinds() -> Vec<(TypeMeta, TypeRef<'static>)> {
    let schema = builtin();
    let mut kinds = Vec::new();
    for package in schema.packages() {
        let Some(group) = &package.group else { continue };
        let api_version = match &**group {
            "" => package.version().to_owned(),
            group => format!("{group}/{}", package.version()),
        };
        for (kind, ty) in schema.types_of(&package.name) {
            if ty.is_kind() {
                kinds.push((
                    TypeMeta { api_version: api_version.clone(), kind: kind.to_owned() },
                    ty,
                ));
            }
        }
    }
    kinds
}

/// A canonical sample.
fn sample(meta: &TypeMeta, ty: TypeRef<'_>, seed: u64) -> Value {
    let mut value = sample::object(ty, &mut Random::new(seed));
    meta.write_into(&mut value);
    let decoded = json::canonicalize(value, ty).expect("samples are well typed");
    assert_eq!(decoded.problems, [], "a sample has only known fields");
    decoded.value
}

fn check_round_trip(meta: &TypeMeta, ty: TypeRef<'_>, seed: u64) {
    let value = sample(meta, ty, seed);
    for encoding in [Encoding::Json, Encoding::Yaml, Encoding::Protobuf] {
        let bytes = object::encode(&value, encoding, ty);
        assert_eq!(object::type_meta(&bytes, encoding).as_ref(), Ok(meta));
        let decoded = object::decode(&bytes, encoding, ty).unwrap_or_else(|e| {
            panic!("{meta:?} as {encoding:?}: {e}\n{}", String::from_utf8_lossy(&bytes))
        });
        assert_eq!(decoded.problems, []);
        assert_eq!(decoded.value, value, "{meta:?} as {encoding:?}");
    }
}

#[test]
fn there_are_kinds_to_test() {
    assert!(kinds().len() > 300, "{}", kinds().len());
}

#[test]
fn every_kind_survives_every_encoding() {
    for (meta, ty) in kinds() {
        for seed in 1..8 {
            check_round_trip(&meta, ty, seed);
        }
    }
}

/// What is sent from stored bytes says the same as what is made of a tree.
#[test]
fn json_goes_straight_into_protobuf() {
    for (meta, ty) in kinds() {
        for seed in 1..20 {
            let value = sample(&meta, ty, seed);
            let mut direct = Vec::new();
            protobuf::transcode(value.to_string().as_bytes(), &meta, ty, &mut direct)
                .unwrap_or_else(|e| panic!("{meta:?}: {e}\n{value}"));
            let direct = protobuf::decode(&direct, ty).unwrap_or_else(|e| panic!("{meta:?}: {e}"));
            assert_eq!(direct, through_protobuf(&value, ty), "{meta:?}");
        }
    }
}

#[test]
fn a_list_is_made_of_its_items() {
    let (list, item) = (builtin().kind("", "v1", "PodList"), builtin().kind("", "v1", "Pod"));
    let (list, item) = (list.unwrap(), item.unwrap());
    let meta = TypeMeta { api_version: "v1".into(), kind: "Pod".into() };
    let mut whole = json!({ "kind": "PodList", "apiVersion": "v1",
        "metadata": { "resourceVersion": "7", "remainingItemCount": 3 } });
    let head = whole.clone();
    for count in [0, 1, 30] {
        let items: Vec<Value> = (0..count).map(|seed| sample(&meta, item, seed)).collect();
        let encoder = protobuf::ListEncoder::new(list).unwrap();
        let mut bytes = Vec::new();
        for item in &items {
            encoder.item(item.to_string().as_bytes(), &mut bytes).unwrap();
        }
        let (before, after) = encoder.around(&head, bytes.len());
        let bytes = [&before[..], &bytes, after].concat();
        whole["items"] = items.into();
        assert_eq!(protobuf::decode(&bytes, list).unwrap(), through_protobuf(&whole, list));
    }
    assert!(protobuf::ListEncoder::new(item).is_none());
}

#[test]
fn the_typed_form_loses_nothing() {
    for resource in RESOURCES {
        let meta = TypeMeta { api_version: resource.api_version(), kind: resource.kind.to_owned() };
        for seed in 1..30 {
            let value = sample(&meta, resource.ty(), seed);
            let typed = (resource.typed.decode)(value.to_string().as_bytes())
                .unwrap_or_else(|e| panic!("{meta:?}: {e}\n{value}"));
            let back = (resource.typed.encode)(&*typed).unwrap().unwrap();
            let back = json::decode(&back, resource.ty()).unwrap_or_else(|e| {
                panic!("{meta:?}: {e}\n{value}\n{}", String::from_utf8_lossy(&back))
            });
            assert_eq!(back.problems, []);
            assert_eq!(
                through_protobuf(&back.value, resource.ty()),
                through_protobuf(&value, resource.ty()),
                "{meta:?}"
            );
        }
    }
}

/// Through protobuf, which forgets just what the typed form does not keep apart: a required list
/// that is absent or empty, and the `kind` of an object inside another.
fn through_protobuf(value: &Value, ty: TypeRef<'_>) -> Value {
    protobuf::decode(&protobuf::encode(value, ty), ty).expect("what was encoded decodes")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_sample_survives(kind in 0usize..10_000, seed: u64) {
        let kinds = kinds();
        let (meta, ty) = &kinds[kind % kinds.len()];
        check_round_trip(meta, *ty, seed);
    }

    #[test]
    fn mutated_bytes_never_panic(
        kind in 0usize..10_000,
        seed: u64,
        mutations in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3u8), 1..12),
    ) {
        let kinds = kinds();
        let (meta, ty) = &kinds[kind % kinds.len()];
        let value = sample(meta, *ty, seed);
        for encoding in [Encoding::Json, Encoding::Yaml, Encoding::Protobuf] {
            let mut bytes = object::encode(&value, encoding, *ty);
            for (index, byte, how) in &mutations {
                if bytes.is_empty() { break }
                let at = index.index(bytes.len());
                match how {
                    0 => bytes[at] = *byte,
                    1 => bytes.insert(at, *byte),
                    _ => { bytes.remove(at); }
                }
            }
            // What still decodes is canonical: it encodes and decodes to itself.
            if encoding == Encoding::Json {
                let _ = protobuf::transcode(&bytes, meta, *ty, &mut Vec::new());
            }
            if let Ok(decoded) = object::decode(&bytes, encoding, *ty) {
                let again = object::encode(&decoded.value, Encoding::Json, *ty);
                prop_assert_eq!(json::decode(&again, *ty).map(|d| d.value), Ok(decoded.value));
            }
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
        let pod = builtin().kind("", "v1", "Pod").unwrap();
        let _ = protobuf::decode_message(&bytes, pod);
        for encoding in [Encoding::Json, Encoding::Yaml, Encoding::Protobuf] {
            let _ = object::type_meta(&bytes, encoding);
            let _ = object::decode(&bytes, encoding, pod);
        }
        let _ = protobuf::decode(&[&protobuf::MAGIC[..], &bytes].concat(), pod);
    }
}
