//! Chores of the repository: `cargo xtask` lists them.
fn main() {}
