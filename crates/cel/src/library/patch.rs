//! JSON patches: `jsonpatch.escapeKey`.
use super::{Outcome, Row, row};
use crate::cost;
use crate::value::Value;
use crate::work::{Error, Work};

pub static ROWS: &[Row] =
    &[row("jsonpatch.escapeKey", &["(string) -> string"], escape_key, cost::traversal)];

fn escape_key<'a>(_: &mut Work, args: &[Value<'a>]) -> Outcome<'a> {
    let [key] = args else { return Err(Error::NoOverload) };
    let key = key.as_str().ok_or(Error::NoOverload)?;
    Ok(Value::text(key.replace('~', "~0").replace('/', "~1")))
}
