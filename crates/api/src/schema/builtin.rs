//! The schema of the built-in kinds.
use super::Schema;
use std::sync::LazyLock;

/// Every type of the published API. Parsed on first use (about a millisecond), then shared.
pub fn builtin() -> &'static Schema {
    static BUILTIN: LazyLock<Schema> = LazyLock::new(|| {
        Schema::parse(include_str!("facts.txt"))
            .expect("the generated table parses: a test says so")
    });
    &BUILTIN
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::ListKind;

    #[test]
    fn the_table_parses_and_knows_pods() {
        let pod = builtin().kind("", "v1", "Pod").unwrap();
        let containers = pod.child("spec").unwrap().child("containers").unwrap();
        assert_eq!(containers.as_list().unwrap().kind, ListKind::Map(vec!["name".into()]));
        let types: usize =
            builtin().packages().iter().map(|p| builtin().types_of(&p.name).len()).sum();
        assert!(types > 1400, "only {types} types");
    }

    #[test]
    fn options_are_kinds_of_every_group() {
        assert!(builtin().kind("apps", "v1", "DeleteOptions").is_some());
        assert!(builtin().kind("apps", "v1", "DeploymentSpec").is_none());
    }
}
