//! Columns of text, aligned as Go's `text/tabwriter` aligns them with kubectl's settings.

/// A column is at least this wide, with the gap.
const LEAST: usize = 6;
/// Between columns.
const GAP: usize = 3;

/// Rows that come bit by bit: what is remembered of the widths keeps later rows below earlier ones.
#[derive(Debug, Default)]
pub struct Tabs {
    widths: Vec<usize>,
}

impl Tabs {
    /// The rows as lines; the last column is not padded.
    pub fn lines(&mut self, rows: &[Vec<String>]) -> String {
        for row in rows {
            for (at, cell) in row.iter().enumerate() {
                let width = (cell.chars().count() + GAP).max(LEAST);
                match self.widths.get_mut(at) {
                    Some(known) => *known = width.max(*known),
                    None => self.widths.push(width),
                }
            }
        }
        let mut out = String::new();
        for row in rows {
            for (at, cell) in row.iter().enumerate() {
                out.push_str(cell);
                if at + 1 < row.len() {
                    let fill = self.widths[at].saturating_sub(cell.chars().count());
                    out.extend(std::iter::repeat_n(' ', fill));
                }
            }
            out.push('\n');
        }
        out
    }
}

/// Rows that are all there.
pub fn aligned(rows: &[Vec<String>]) -> String {
    Tabs::default().lines(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cells: &[&str]) -> Vec<String> {
        cells.iter().map(|cell| (*cell).to_owned()).collect()
    }

    #[test]
    fn columns_line_up_and_stay_where_they_were() {
        let mut tabs = Tabs::default();
        let first = tabs.lines(&[row(&["NAME", "A", "AGE"]), row(&["long-name", "", "1s"])]);
        assert_eq!(first, "NAME        A     AGE\nlong-name         1s\n");
        assert_eq!(tabs.lines(&[row(&["b", "c", "2s"])]), "b           c     2s\n");
    }
}
