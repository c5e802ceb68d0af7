//! Who is asking, whether he may, when it is his turn, and what is written down of it.
pub mod audit;
pub mod authn;
pub mod authz;
pub mod fairness;
pub mod in_flight;
pub mod service_account;
