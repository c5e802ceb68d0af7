//! What differs for a reason: the rows of `known.txt`.
use super::compare::Difference;

const KNOWN: &str = include_str!("known.txt");

/// `KIND | PLACE | REASON`: a place covers what begins with it; one that begins with a star, what holds
/// the rest of it. For events the place is what was told.
pub struct Known(Vec<[&'static str; 3]>);

impl Known {
    pub fn read() -> Known {
        let rows = KNOWN.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
        let row = |line: &'static str| {
            let mut cells = line.splitn(3, '|').map(str::trim);
            [(); 3].map(|()| cells.next().expect("a row has three cells"))
        };
        Known(rows.map(row).collect())
    }

    pub fn reason(&self, difference: &Difference) -> Option<&'static str> {
        let is_of = |[kind, place, _]: &&[&str; 3]| {
            let covers = match place.strip_prefix('*') {
                Some(part) => difference.place.contains(part),
                None => difference.place.starts_with(place),
            };
            *kind == difference.kind && covers
        };
        self.0.iter().find(is_of).map(|[_, _, reason]| *reason)
    }
}
