//! What a machine must have, said before anything is touched: a sentence, and the remedy.
use crate::check::{self, Facts};
use std::path::Path;

/// A machine that is no node needs nothing.
pub fn check(is_node: bool, data_dir: &Path) -> anyhow::Result<()> {
    if !is_node {
        return Ok(());
    }
    match check::trouble(&Facts::read(data_dir)) {
        Some(trouble) => anyhow::bail!("{trouble}; `skiff check` says more"),
        None => Ok(()),
    }
}
