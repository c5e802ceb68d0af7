//! What an expression may name.
use crate::check::check;
use crate::estimate::{Sizes, estimate};
use crate::evaluate::Program;
use crate::issue::Issues;
use crate::provider::Types;
use crate::syntax::parse;
use crate::types::Type;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// Variables with their types, and the object types among them. Functions are the same everywhere.
#[derive(Clone, Default)]
pub struct Environment {
    variables: HashMap<Arc<str>, Type>,
    types: Vec<Arc<dyn Types>>,
}

/// Why there is no program.
#[derive(Debug, Clone, PartialEq)]
pub enum CompileError {
    Issues(Issues),
    /// It is well-formed, and is of none of the wanted types.
    Output {
        wanted: Vec<Type>,
        found: Type,
    },
    /// A constant part of it has no value.
    Constant(String),
}

impl std::error::Error for CompileError {}

/// As Kubernetes words it.
impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CompileError::Issues(issues) => write!(f, "compilation failed: {issues}"),
            CompileError::Output { wanted, found } => {
                let names: Vec<String> = wanted.iter().map(Type::runtime_name).collect();
                let found = found.runtime_name();
                match &names[..] {
                    [one] => write!(f, "must evaluate to {one} but got {found}"),
                    several => {
                        let several = several.join(" ");
                        write!(f, "must evaluate to one of [{several}] but got {found}")
                    }
                }
            }
            CompileError::Constant(error) => write!(f, "program instantiation failed: {error}"),
        }
    }
}

impl Environment {
    pub fn new() -> Self {
        Environment::default()
    }

    /// Declares a variable. Its name may have dots: `variables.replicas`.
    pub fn variable(mut self, name: &str, ty: Type) -> Self {
        self.declare(name, ty);
        self
    }

    pub fn declare(&mut self, name: &str, ty: Type) {
        self.variables.insert(name.into(), ty);
    }

    pub fn types(mut self, types: Arc<dyn Types>) -> Self {
        self.types.push(types);
        self
    }

    /// Compiles an expression that must be of one of the wanted types, whatever it is if none is
    /// wanted.
    pub fn compile(&self, text: &str, wanted: &[Type]) -> Result<Program, CompileError> {
        self.compile_within(text, wanted, None).map(|(program, _)| program)
    }

    /// The same, with what evaluating it can cost at worst.
    pub fn compile_estimated(
        &self,
        text: &str,
        wanted: &[Type],
        sizes: &(dyn Sizes + Sync),
    ) -> Result<(Program, u64), CompileError> {
        self.compile_within(text, wanted, Some(sizes))
    }

    fn compile_within(
        &self,
        text: &str,
        wanted: &[Type],
        sizes: Option<&(dyn Sizes + Sync)>,
    ) -> Result<(Program, u64), CompileError> {
        if !is_deep(text) {
            return self.compiled(text, wanted, sizes);
        }
        // Compiling goes as deep as the expression: one that is deep gets a stack of its own.
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("cel".to_owned()).stack_size(DEEP_STACK);
            let run = thread.spawn_scoped(scope, || self.compiled(text, wanted, sizes));
            let refused = || CompileError::Constant("the expression is too deep".to_owned());
            run.map_err(|_| refused())?.join().unwrap_or_else(|_| Err(refused()))
        })
    }

    fn compiled(
        &self,
        text: &str,
        wanted: &[Type],
        sizes: Option<&(dyn Sizes + Sync)>,
    ) -> Result<(Program, u64), CompileError> {
        let parsed = parse(text).map_err(CompileError::Issues)?;
        let sound = check(self, text, &parsed, sizes.is_some())?;
        let cost = sizes.map_or(0, |sizes| estimate(&parsed.root, &sound, sizes));
        let output = sound.output;
        if !wanted.is_empty() && !wanted.contains(&output) {
            return Err(CompileError::Output { wanted: wanted.to_vec(), found: output });
        }
        Ok((Program::new(sound.root, output, sound.variables), cost))
    }

    pub(crate) fn find(&self, name: &str) -> Option<(Arc<str>, Type)> {
        self.variables.get_key_value(name).map(|(name, ty)| (name.clone(), ty.clone()))
    }

    pub(crate) fn knows(&self, object: &str) -> bool {
        self.types.iter().any(|types| types.knows(object))
    }

    pub(crate) fn field(&self, object: &str, field: &str) -> Option<Type> {
        let knows = self.types.iter().find(|types| types.knows(object))?;
        knows.field(object, field)
    }
}

const DEEP_STACK: usize = 16 << 20;

/// Whether the expression may nest deeper than those that people write.
fn is_deep(text: &str) -> bool {
    let (mut depth, mut deepest) = (0_usize, 0);
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' | b'?' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest > 24 || text.len() > 4096
}
