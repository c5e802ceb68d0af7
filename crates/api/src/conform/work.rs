//! What judging one value may take.
//!
//! A value is as large as a request, its schema as large as a definition, and alternatives inside of a
//! list's items make a product of the two. Upstream judges on while its client is told that it took too
//! long; here there is an end.
use crate::regexp::{Error, Regexp};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// So often a value is held against a schema: some six times what the largest object asks of a schema
/// without alternatives.
const STEPS: u32 = if cfg!(test) { 200_000 } else { 5_000_000 };

pub const TOO_MUCH: &str = "the schema asks more of the value than can be checked";

/// A pattern that was compiled, or why it could not be.
type Compiled = Result<Regexp, Error>;
type Patterns = HashMap<String, Arc<Compiled>>;

pub struct Work {
    left: Cell<u32>,
    patterns: RefCell<Patterns>,
}

impl Default for Work {
    fn default() -> Self {
        Work { left: Cell::new(STEPS), patterns: RefCell::default() }
    }
}

impl Work {
    /// Whether there is a step left to be made.
    pub fn step(&self) -> bool {
        self.left.set(self.left.get().saturating_sub(1));
        !self.is_exhausted()
    }

    pub fn is_exhausted(&self) -> bool {
        self.left.get() == 0
    }

    /// A pattern, compiled at most once for one value, however large it is.
    pub fn pattern(&self, pattern: &str) -> Arc<Compiled> {
        if let Some(known) = self.patterns.borrow().get(pattern) {
            return known.clone();
        }
        let compiled = compiled(pattern);
        self.patterns.borrow_mut().insert(pattern.to_owned(), compiled.clone());
        compiled
    }
}

/// Patterns that were compiled lately, so that the next object of the same kind need not do it again. When
/// there are too many all of them go: whoever is still in use is back at once.
static LATELY: LazyLock<Mutex<Patterns>> = LazyLock::new(Mutex::default);
const MOST_KEPT: usize = 256;
/// What is larger is not kept.
const LARGEST_KEPT: usize = 64 << 10;

fn lately() -> MutexGuard<'static, Patterns> {
    LATELY.lock().unwrap_or_else(PoisonError::into_inner)
}

fn compiled(pattern: &str) -> Arc<Compiled> {
    if let Some(known) = lately().get(pattern) {
        return known.clone();
    }
    let compiled = Arc::new(Regexp::compile(pattern));
    if compiled.as_ref().as_ref().is_ok_and(|regexp| regexp.size() <= LARGEST_KEPT) {
        let mut lately = lately();
        if lately.len() >= MOST_KEPT {
            lately.clear();
        }
        lately.insert(pattern.to_owned(), compiled.clone());
    }
    compiled
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conform::faults;
    use crate::field::Path;
    use serde_json::{Value, json};
    use std::time::Instant;

    #[test]
    fn a_pattern_is_compiled_once_and_kept_unless_it_is_large() {
        let work = Work::default();
        let (small, large) = ("^kept-lately$", r"^[\pL\pN]{150}$");
        for pattern in [small, large] {
            let first = work.pattern(pattern);
            assert!(Arc::ptr_eq(&first, &work.pattern(pattern)), "{pattern}");
            assert!(first.is_ok(), "{pattern}");
        }
        let lately = lately();
        assert!(lately.contains_key(small) && !lately.contains_key(large));
    }

    #[test]
    fn what_is_wrong_everywhere_is_told_soon() {
        let schema = json!({ "type": "array", "items": { "type": "array", "items": {
            "type": "string", "pattern": r"^[\pL\pN]{100}$" } } });
        let value = Value::from(vec![json!(vec!["x"; 100]); 1000]);
        let begun = Instant::now();
        assert_eq!(faults(&value, &schema, &Path::new("spec")).len(), 100_000);
        assert!(begun.elapsed().as_secs() < 60, "{:?}", begun.elapsed());
    }

    #[test]
    fn alternatives_of_alternatives_have_an_end() {
        let many = |schema: Value| json!({ "anyOf": vec![schema; 100] });
        let schema = json!({ "items": many(many(json!({ "type": "integer" }))) });
        let value = json!(vec!["x"; 100_000]);
        let errors = faults(&value, &schema, &Path::new("spec"));
        let told: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(told, [format!("spec: Forbidden: {TOO_MUCH}")]);
    }
}
