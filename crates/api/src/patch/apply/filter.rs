//! Fields that a request never owns, because its endpoint ignores them: `status` on the main
//! resource, everything but `status` on `…/status`.
use super::fieldset::{Node, PathElement, Set};

#[derive(Debug, Clone, PartialEq)]
pub enum Filter {
    /// All but these fields and what is below them.
    Exclude(Set),
    /// Only what lies under one of these paths, in which `None` is any element.
    Include(Vec<Vec<Option<PathElement>>>),
}

impl Filter {
    pub fn exclude(paths: &[&[&str]]) -> Filter {
        Filter::Exclude(Set::of_names(paths))
    }

    /// Paths of field names, with `*` for any element.
    pub fn include(paths: &[&[&str]]) -> Filter {
        let element = |name: &&str| (*name != "*").then(|| PathElement::field(name));
        Filter::Include(paths.iter().map(|path| path.iter().map(element).collect()).collect())
    }

    pub(super) fn apply(&self, set: Set) -> Set {
        match self {
            Filter::Exclude(fields) => set.recursive_difference(fields),
            Filter::Include(paths) => {
                let paths: Vec<&[Option<PathElement>]> = paths.iter().map(Vec::as_slice).collect();
                include(set, &paths)
            }
        }
    }
}

fn include(set: Set, paths: &[&[Option<PathElement>]]) -> Set {
    if paths.iter().any(|path| path.is_empty()) {
        return set;
    }
    let nodes = set.into_nodes().into_iter().filter_map(|node| {
        let deeper: Vec<&[Option<PathElement>]> = paths
            .iter()
            .filter_map(|path| path.split_first())
            .filter(|(first, _)| first.as_ref().is_none_or(|first| *first == node.element))
            .map(|(_, rest)| rest)
            .collect();
        (!deeper.is_empty()).then(|| Node { children: include(node.children, &deeper), ..node })
    });
    Set::from_nodes(nodes.collect())
}
