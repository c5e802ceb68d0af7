//! What a container is to be, decided: CRI's configuration, an image's defaults and this machine
//! become the plain data that the shim carries out. Nothing here does anything.
pub mod capability;
pub mod oci;
pub mod signal;
pub mod spec;
pub mod sysctl;
