//! The runtime with real containers, a real registry, hostile images. These tests need root, and
//! leave nothing behind.
mod containers;
mod machine;
