//! The OpenAPI documents, v2 and v3, derived from the registry and the schema facts.
//!
//! [`schemas`] turns types into schemas, [`operations`] turns rows of the registry into paths;
//! [`publish`] does the
//! same to what definitions say of theirs; [`v2`] and [`v3`] put both into their dialect's frame, [`proto`] writes v2 in protobuf. The server caches what it serves;
//! nothing is kept here. [`Document`] reads what any server serves.
mod descriptions;
mod operations;
mod parameters;
pub mod proto;
mod publish;
mod resolve;
mod schemas;
pub mod v2;
pub mod v3;

pub use descriptions::Descriptions;
pub use resolve::Document;

use serde_json::{Value, json};

/// The two dialects differ in where schemas live and in what may stand beside a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    V2,
    V3,
}

impl Dialect {
    fn reference(self, name: &str) -> Value {
        match self {
            Dialect::V2 => json!({ "$ref": format!("#/definitions/{name}") }),
            Dialect::V3 => json!({ "$ref": format!("#/components/schemas/{name}") }),
        }
    }
}

fn bearer_token() -> Value {
    json!({
        "BearerToken": {
            "description": "Bearer Token authentication",
            "in": "header",
            "name": "authorization",
            "type": "apiKey",
        }
    })
}
