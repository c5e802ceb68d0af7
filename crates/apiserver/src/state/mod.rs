//! What the server keeps, and how: objects as the store has them, what follows from them, and what only
//! one of them may have.
pub mod allocation;
pub mod another;
pub mod convert;
pub mod corrupt;
pub mod encryption;
pub mod following;
pub mod identity;
pub mod keeping;
pub mod keys;
pub mod metrics;
pub mod objects;
pub mod openapi;
pub mod peculiar;
pub mod scale;
pub mod selection;
pub mod stored;
pub mod unreadable;
