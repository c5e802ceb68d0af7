//! What differs for a reason: the rows of `known.txt`.
use super::compare::{Difference, NOTHING};
use serde_json::Value;

const KNOWN: &str = include_str!("known.txt");

/// `KIND | PLACE | PART | REASON`: a star is any kind; a place covers what begins with it, one that
/// begins with a star what ends like it; the part is a piece of what they say there and we do not, or
/// after `ours:` of what only we say. Two parts excuse no request, but only leave something of it out of
/// the comparison: `VALUE`, what two values of the same sort are, and `STRUCT`, how the struct in a
/// cause about the field is shown.
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

    /// The fields of the kind whose causes show structs that are not compared.
    pub fn masked(&self, kind: &str) -> Vec<&'static str> {
        let rows = self.0.iter().filter(|[of, _, part]| *of == kind && *part == "STRUCT");
        rows.map(|[_, field, _]| *field).collect()
    }

    /// Whether only the value differs, where each server has its own.
    pub fn is_own_value(&self, kind: &str, difference: &Difference) -> bool {
        let read = |text: &str| serde_json::from_str::<Value>(text).ok();
        let alike = match (read(&difference.ours), read(&difference.theirs)) {
            (Some(Value::String(a)), Some(Value::String(b))) => {
                [&a, &b].iter().all(|text| !matches!(text.as_str(), "" | "None"))
            }
            (Some(Value::Number(_)), Some(Value::Number(_))) => true,
            _ => false,
        };
        alike
            && self.0.iter().any(|[of, place, part]| {
                *part == "VALUE" && *of == kind && is_placed(place, &difference.place)
            })
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
            let (ours, theirs) = (&difference.ours, &difference.theirs);
            let said = match part.strip_prefix("ours:").map(str::trim) {
                Some(part) => theirs == NOTHING && ours.contains(part),
                // Both say it, at another place.
                None if *place == "order" => theirs.contains(part),
                None => theirs.contains(part) && !ours.contains(part),
            };
            (*of == "*" || *of == kind) && is_placed(place, &difference.place) && said
        })
    }
}

fn is_placed(row: &str, place: &str) -> bool {
    match row.strip_prefix('*') {
        Some(end) => place.ends_with(end),
        None => place.starts_with(row),
    }
}
