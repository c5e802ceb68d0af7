//! What an evaluation may use, and how it fails.
//!
//! Costs are upstream's and are what users count with. Some things are nearly free in upstream's
//! model and dear in truth: comparing what was built of the same part again and again, texts and
//! lists that double, patterns that are made while evaluating. [`Work`] counts those steps, and far
//! beyond what an honest expression takes it ends the evaluation as an exceeded cost does.
use crate::value::{Pattern, Text, Value};
use api::regexp::Regexp;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// So many steps one evaluation may take.
const STEPS: u64 = 5_000_000;

/// So many different patterns may be compiled while evaluating, and so large.
const MOST_PATTERNS: usize = 100;
const MOST_PATTERN_BYTES: usize = 2 << 20;

/// So long a text may be that an expression makes.
pub const MOST_TEXT: usize = 16 << 20;

pub struct Work {
    left: u64,
    patterns: HashMap<Arc<str>, Arc<Pattern>>,
}

impl Default for Work {
    fn default() -> Self {
        Work { left: STEPS, patterns: HashMap::new() }
    }
}

impl Work {
    /// Counts steps; false when there are none left.
    pub fn take(&mut self, steps: u64) -> bool {
        self.left = self.left.saturating_sub(steps);
        self.left > 0
    }

    pub fn is_exhausted(&self) -> bool {
        self.left == 0
    }

    /// The compiled form of a pattern.
    pub fn pattern(&mut self, value: &Value<'_>) -> Result<Arc<Pattern>, Error> {
        let text = match value {
            Value::Pattern(pattern) => return Ok(pattern.clone()),
            Value::String(Text::Owned(text)) => text.clone(),
            Value::String(text) => (**text).into(),
            _ => return Err(Error::NoOverload),
        };
        if let Some(known) = self.patterns.get(&text) {
            return Ok(known.clone());
        }
        if self.patterns.len() >= MOST_PATTERNS {
            return Err(Error::Cost);
        }
        let regexp = Regexp::compile_within(&text, MOST_PATTERN_BYTES)
            .map_err(|error| Error::Said(error.to_string()))?;
        let pattern = Arc::new(Pattern { text: text.clone(), regexp });
        self.patterns.insert(text, pattern.clone());
        Ok(pattern)
    }
}

/// Why there is no value.
#[derive(Debug, Clone, PartialEq)]
pub enum Error {
    /// No function of that name takes values of these types.
    NoOverload,
    Said(String),
    /// The limit of the cost was reached: nothing absorbs that.
    Cost,
}

impl Error {
    pub fn said(message: impl Into<String>) -> Error {
        Error::Said(message.into())
    }
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoOverload => f.write_str("no such overload"),
            Error::Said(message) => f.write_str(message),
            Error::Cost => f.write_str("operation cancelled: actual cost limit exceeded"),
        }
    }
}
