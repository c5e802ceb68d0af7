//! The binary on a free port, driven by programs that nobody here wrote.
mod access;
mod admission;
mod apiserver;
mod cluster;
mod kubectl;
mod python;
mod streams;
mod workflow;
