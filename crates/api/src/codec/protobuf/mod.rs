//! `application/vnd.kubernetes.protobuf`: the schema's facts turn a message into the canonical
//! tree and back; no struct of any kind is built on the way.
//!
//! An object travels in an envelope: four magic bytes, then `runtime.Unknown`, which names the
//! kind and holds the object's own message.
mod decode;
mod encode;
mod envelope;
mod transcode;
pub(crate) mod wire;

pub use decode::decode_message;
pub use encode::encode_message;
pub use envelope::{MAGIC, decode, encode, encode_watch_event, is_protobuf, type_meta};
pub use transcode::{ListEncoder, transcode};
