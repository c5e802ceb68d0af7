//! What differs for a reason: the rows of `known.txt`.
use super::compare::{Difference, NOTHING};

const KNOWN: &str = include_str!("known.txt");

/// `KIND | PLACE | PART | REASON`: a star is any kind; a place covers what begins with it, one that
/// begins with a star what ends like it; the part is a piece of what they say there and we do not, or
/// after `ours:` of what only we say.
pub struct Known(Vec<[&'static str; 3]>);

impl Known {
    pub fn read() -> Known {
        let rows = KNOWN.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
        let row = |line: &'static str| {
            let mut cells = line.splitn(4, '|').map(str::trim);
            [(); 3].map(|()| cells.next().expect("a row has four cells"))
        };
        Known(rows.map(row).collect())
    }

    /// The differences that no row explains. What only follows from causes is explained with them.
    pub fn unexplained<'d>(&self, kind: &str, found: &'d [Difference]) -> Vec<&'d Difference> {
        let rest = |follows: bool| {
            let of_that_sort = move |difference: &&Difference| difference.follows == follows;
            found.iter().filter(of_that_sort).filter(|difference| !self.covers(kind, difference))
        };
        let mut unexplained: Vec<&Difference> = rest(false).collect();
        if !unexplained.is_empty() {
            unexplained.extend(rest(true));
        }
        unexplained
    }

    fn covers(&self, kind: &str, difference: &Difference) -> bool {
        self.0.iter().any(|[of, place, part]| {
            let placed = match place.strip_prefix('*') {
                Some(end) => difference.place.ends_with(end),
                None => difference.place.starts_with(place),
            };
            // Without a part it is about values, never about what is wrong with them.
            let cause = |text: &str| text.starts_with("FieldValue");
            let value = !cause(&difference.theirs) && !cause(&difference.ours);
            let (ours, theirs) = (&difference.ours, &difference.theirs);
            let said = match part.strip_prefix("ours:").map(str::trim) {
                Some(part) => theirs == NOTHING && ours.contains(part),
                None if part.is_empty() => value,
                None => theirs.contains(part) && !ours.contains(part),
            };
            (*of == "*" || *of == kind) && placed && said
        })
    }
}
