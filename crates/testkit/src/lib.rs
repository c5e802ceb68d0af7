//! What tests share: sample objects of every kind. Shipped code never depends on this crate.
pub mod sample;
