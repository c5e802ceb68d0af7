//! What tests share: sample objects of every kind, and the programs of others that they run
//! against us. Shipped code never depends on this crate.
pub mod client;
pub mod fuzz;
#[cfg(feature = "hollow")]
pub mod hollow;
pub mod image;
pub mod network;
pub mod sample;
pub mod tools;
