//! A pod's container, in CRI's words: pure, except that what it refers to has been fetched before.
pub mod config;
pub mod env;
mod env_file;
pub mod expand;
pub mod resources;
pub mod sandbox;
pub mod security;
