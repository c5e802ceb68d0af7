//! kubectl.
#![forbid(unsafe_code)]

pub mod describe;
pub mod template;
pub mod print {
    pub mod kyaml;
}
