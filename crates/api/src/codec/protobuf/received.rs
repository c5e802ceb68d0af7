//! What a client receives: lists item by item, and events of a watch, without one large tree.
use super::super::{DecodeError, json};
use super::decode::decode_message;
use super::envelope::raw;
use super::wire::{Reader, Wire};
use crate::schema::TypeRef;
use serde_json::Value;

/// Decodes a list in its envelope and hands out one item after the other; returns the list's
/// metadata. Items have no `apiVersion` and `kind`: all are of the list's.
pub fn decode_list(
    bytes: &[u8],
    list: TypeRef<'_>,
    mut take: impl FnMut(Value),
) -> Result<Value, DecodeError> {
    let no_list = || DecodeError::Type("the type is no list's".to_owned());
    let items = list.field("items").ok_or_else(no_list)?;
    let element = list.at(items.ty).as_list().map(|items| list.at(items.element));
    let element = element.ok_or_else(no_list)?;
    let metadata = list.field("metadata").ok_or_else(no_list)?;
    let mut found = Value::Null;
    let mut reader = Reader::new(raw(bytes)?);
    while let Some(tag) = reader.next("List")? {
        if tag.number == items.number {
            tag.expect(Wire::Bytes, || "Items".to_owned())?;
            take(decode_message(reader.bytes()?, element)?);
        } else if tag.number == metadata.number {
            tag.expect(Wire::Bytes, || "ListMeta".to_owned())?;
            found = decode_message(reader.bytes()?, list.at(metadata.ty))?;
        } else {
            reader.skip(tag)?;
        }
    }
    Ok(found)
}

/// A `WatchEvent`'s type, and its object in the envelope that it has.
pub fn decode_watch_event(bytes: &[u8]) -> Result<(String, &[u8]), DecodeError> {
    let (mut event, mut object): (String, &[u8]) = (String::new(), &[]);
    let mut reader = Reader::new(bytes);
    while let Some(tag) = reader.next("WatchEvent")? {
        match tag.number {
            1 => {
                tag.expect(Wire::Bytes, || "Type".to_owned())?;
                event = json::repair(reader.bytes()?);
            }
            2 => {
                tag.expect(Wire::Bytes, || "Object".to_owned())?;
                let mut extension = Reader::new(reader.bytes()?);
                while let Some(tag) = extension.next("RawExtension")? {
                    match tag.number {
                        1 => {
                            tag.expect(Wire::Bytes, || "Raw".to_owned())?;
                            object = extension.bytes()?;
                        }
                        _ => extension.skip(tag)?,
                    }
                }
            }
            _ => reader.skip(tag)?,
        }
    }
    Ok((event, object))
}

#[cfg(test)]
mod tests {
    use super::super::{encode, encode_watch_event};
    use super::*;
    use crate::kinds::find_kind;
    use serde_json::json;

    #[test]
    fn a_list_comes_item_by_item() {
        let row = find_kind("v1", "ConfigMap").unwrap();
        let list = json!({ "apiVersion": "v1", "kind": "ConfigMapList",
            "metadata": { "resourceVersion": "7", "continue": "c" },
            "items": [{ "metadata": { "name": "a" }, "data": { "k": "v" } }, { "metadata": { "name": "b" } }] });
        let bytes = encode(&list, row.list_ty().unwrap());
        let mut items = Vec::new();
        let metadata =
            decode_list(&bytes, row.list_ty().unwrap(), |item| items.push(item)).unwrap();
        assert_eq!(metadata, list["metadata"]);
        assert_eq!(Value::Array(items), list["items"]);
        assert!(decode_list(b"k8s\0nonsense", row.list_ty().unwrap(), drop).is_err());
        assert!(decode_list(&bytes, row.ty(), drop).is_err());
    }

    #[test]
    fn an_event_is_its_type_and_its_object() {
        let event = encode_watch_event("ADDED", b"object");
        assert_eq!(decode_watch_event(&event).unwrap(), ("ADDED".to_owned(), &b"object"[..]));
        assert!(decode_watch_event(&event[..event.len() - 1]).is_err());
    }
}
