//! The ways an object is changed by saying only what is to change.
//!
//! Each is a pure function of trees: the object as it is, the patch, and (where lists have an
//! identity) the schema.

pub mod apply;
pub mod golang;
pub mod json_patch;
pub mod merge;
pub mod merge_diff;
pub mod strategic;
pub mod strict;
