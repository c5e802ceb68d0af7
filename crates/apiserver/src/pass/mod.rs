//! Requests that others answer, in their client's name: kubelets, pods and services (`proxy`), and servers
//! beside this one with groups of their own (`aggregation`).
pub mod aggregation;
pub mod proxy;
