//! The binary on a free port, driven by programs that nobody here wrote.
mod access;
mod admission;
mod apiserver;
mod audit;
mod client;
mod cluster;
mod controllers;
mod encryption;
mod fairness;
mod hostile;
mod identity;
mod images;
mod kubectl;
mod python;
mod streams;
mod subresources;
mod workflow;
