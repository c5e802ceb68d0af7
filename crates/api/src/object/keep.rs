//! What somebody keeps of an object.
use super::Object;
use crate::codec::DecodeError;
use crate::rules::Form;
use std::sync::Arc;

/// Made of an object once, and held in its place: nobody has to hold a whole typed pod to know
/// which node it is on. The object itself is one way to keep it, its typed form another; a
/// component that needs little keeps a type of its own.
pub trait Keep: Send + Sync + Sized + 'static {
    fn keep(object: &Arc<Object>) -> Result<Arc<Self>, DecodeError>;
}

impl Keep for Object {
    fn keep(object: &Arc<Object>) -> Result<Arc<Object>, DecodeError> {
        Ok(object.clone())
    }
}

impl<T: Form> Keep for T {
    fn keep(object: &Arc<Object>) -> Result<Arc<T>, DecodeError> {
        object.typed()
    }
}
