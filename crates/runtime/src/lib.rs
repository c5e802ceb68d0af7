//! The container runtime: images, and soon what runs from them.
//!
//! **It may not know** what a Pod is, nor who is asking.
pub mod cri;
mod files;
pub mod image;
