//! Custom resources that there are, as their definitions say: for the loops that know no kind by name.
use crate::world::World;
use client::ApiResource;
pub use client::definitions::{Defined, collection};

/// Every custom resource that is served.
pub fn resources(world: &World) -> Vec<ApiResource> {
    let definitions = world.keep::<Defined>(collection());
    let read = definitions.read();
    read.iter().filter_map(|(_, defined)| defined.resource.clone()).collect()
}
