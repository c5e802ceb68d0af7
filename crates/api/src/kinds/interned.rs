//! Names that a definition gives, kept for as long as the process runs.
//!
//! A built-in row's names are part of the program. So that every row reads alike, a definition's
//! names are made as durable, each once however often it is given: some hundred bytes for each
//! definition that ever was, whatever becomes of it. Everything else of a row goes with it.
use std::collections::HashSet;
use std::sync::{LazyLock, Mutex, PoisonError};

/// The name, kept.
pub fn intern(name: &str) -> &'static str {
    static NAMES: LazyLock<Mutex<HashSet<&'static str>>> = LazyLock::new(Mutex::default);
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(name) {
        return known;
    }
    let kept: &'static str = Box::leak(name.into());
    names.insert(kept);
    kept
}

/// A list of names, kept.
pub fn intern_all<'n>(names: impl IntoIterator<Item = &'n str>) -> &'static [&'static str] {
    static LISTS: LazyLock<Mutex<HashSet<&'static [&'static str]>>> = LazyLock::new(Mutex::default);
    let names: Vec<&'static str> = names.into_iter().map(intern).collect();
    let mut lists = LISTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = lists.get(&names[..]) {
        return known;
    }
    let kept: &'static [&'static str] = Box::leak(names.into_boxed_slice());
    lists.insert(kept);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_kept_once() {
        let name = String::from("widgets");
        assert!(std::ptr::eq(intern(&name), intern("widgets")));
        assert!(std::ptr::eq(intern_all(["a", "b"]), intern_all([&*String::from("a"), "b"])));
        assert!(intern_all([]).is_empty());
    }
}
