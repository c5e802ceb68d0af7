//! Requests that others answer, in their client's name: kubelets, pods and services (`proxy`), and servers
//! beside this one with groups of their own (`aggregation`). Kubelets may be behind a way that their nodes have
//! opened (`tunnels`).
pub mod aggregation;
pub mod proxy;
pub mod tunnels;
