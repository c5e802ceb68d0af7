//! The binary on a free port, driven by programs that nobody here wrote.
mod access;
mod apiserver;
mod cluster;
mod kubectl;
mod python;
mod streams;
mod subresources;
mod workflow;
