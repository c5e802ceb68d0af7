//! The Container Runtime Interface.
#[allow(clippy::all, reason = "generated")]
pub mod v1 {
    tonic::include_proto!("runtime.v1");
}
