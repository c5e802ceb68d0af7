//! The schema of the built-in kinds.
use super::Schema;
use std::sync::LazyLock;

/// Every type of the published API. Parsed on first use (about a millisecond), then shared.
pub fn builtin() -> &'static Schema {
    static BUILTIN: LazyLock<Schema> = LazyLock::new(|| {
        Schema::parse(include_str!("facts.txt"))
            .expect("the generated table parses: a test says so")
    });
    &BUILTIN
}
