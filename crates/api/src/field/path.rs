//! The path from an object's root to one of its fields.

use std::fmt;

/// A path such as `spec.containers[0].image`.
///
/// It is a chain of borrowed links on the stack, so walking a valid object costs no allocation;
/// only an error turns it into text.
///
/// ```
/// use api::field::Path;
/// let spec = Path::new("spec");
/// let containers = spec.child("containers");
/// assert_eq!(containers.index(0).child("image").to_string(), "spec.containers[0].image");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    element: Element<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Element<'a> {
    Nil,
    Name(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> Path<'a> {
    /// The absent path. It prints as `<nil>`, and its child is a root: upstream's nil `*Path`.
    pub const NIL: Path<'static> = Path { parent: None, element: Element::Nil };

    /// A root element. A name with dots descends several levels at once.
    pub const fn new(name: &'a str) -> Self {
        Path { parent: None, element: Element::Name(name) }
    }

    /// A field of this one. A name with dots descends several levels at once:
    /// `path.child("strategy.rollingUpdate")`.
    pub const fn child(&'a self, name: &'a str) -> Path<'a> {
        Path { parent: Some(self), element: Element::Name(name) }
    }

    /// An item of this list.
    pub const fn index(&'a self, index: usize) -> Path<'a> {
        Path { parent: Some(self), element: Element::Index(index) }
    }

    /// An entry of this map.
    pub const fn key(&'a self, key: &'a str) -> Path<'a> {
        Path { parent: Some(self), element: Element::Key(key) }
    }

    const fn is_nil(&self) -> bool {
        matches!(self.element, Element::Nil)
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parent = self.parent.filter(|parent| !parent.is_nil());
        if let Some(parent) = parent {
            parent.write(f)?;
        }
        match self.element {
            Element::Nil => f.write_str("<nil>"),
            Element::Name(name) if parent.is_some() => write!(f, ".{name}"),
            Element::Name(name) => f.write_str(name),
            Element::Index(index) => write!(f, "[{index}]"),
            Element::Key(key) => write!(f, "[{key}]"),
        }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_print_names_indices_and_keys() {
        let root = Path::new("spec");
        assert_eq!(root.to_string(), "spec");
        assert_eq!(root.child("a.b").to_string(), "spec.a.b");
        assert_eq!(root.index(3).index(4).child("x").to_string(), "spec[3][4].x");
        assert_eq!(root.key("app.io/name").to_string(), "spec[app.io/name]");
    }

    #[test]
    fn the_absent_path_prints_nil_and_its_child_is_a_root() {
        assert_eq!(Path::NIL.to_string(), "<nil>");
        assert_eq!(Path::NIL.child("key").to_string(), "key");
        assert_eq!(Path::NIL.index(1).to_string(), "[1]");
    }
}
