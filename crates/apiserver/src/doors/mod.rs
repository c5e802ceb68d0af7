//! Where requests come in. HTTP is one door (`listen` → `serve` → `request`), and whoever is in this
//! process has another (`within`); both lead through the same stages, and documents that are no
//! objects are answered here.
pub mod debug;
mod delegated;
pub mod documents;
pub mod health;
pub mod listen;
pub mod request;
pub mod serve;
pub mod within;
