//! Go's `text/tabwriter` with the settings of kubectl's describers: cells end in tabs, a column is as
//! wide as its widest cell and two spaces, and reaches only over lines that follow each other and all
//! have that column.

/// Between columns.
const PADDING: usize = 2;

/// Collects text; what is aligned is all between two flushes.
#[derive(Debug, Default)]
pub struct TabWriter {
    out: String,
    pending: String,
}

impl TabWriter {
    pub fn write(&mut self, text: &str) {
        self.pending.push_str(text);
    }

    /// Aligns what is there; what follows has columns of its own.
    pub fn flush(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        let lines: Vec<Vec<&str>> =
            pending.split('\n').map(|line| line.split('\t').collect()).collect();
        for (cells, widths) in lines.iter().zip(widths(&lines)) {
            write_line(cells, &widths, &mut self.out);
        }
        // The last line has no newline of its own.
        self.out.pop();
    }

    pub fn finish(mut self) -> String {
        self.flush();
        self.out
    }
}

/// How wide the cells of each line are, but for the last, behind which no tab stands: it belongs to no
/// column.
fn widths(lines: &[Vec<&str>]) -> Vec<Vec<usize>> {
    let mut widths = vec![Vec::new(); lines.len()];
    let mut in_column: Vec<usize> = (0..lines.len()).collect();
    for column in 0.. {
        in_column.retain(|line| lines[*line].len() > column + 1);
        if in_column.is_empty() {
            break;
        }
        for block in in_column.chunk_by(|line, next| line + 1 == *next) {
            let width = |line: &usize| lines[*line][column].chars().count() + PADDING;
            let widest = block.iter().map(width).max().unwrap_or(PADDING);
            block.iter().for_each(|line| widths[*line].push(widest));
        }
    }
    widths
}

fn write_line(cells: &[&str], widths: &[usize], out: &mut String) {
    for (i, cell) in cells.iter().enumerate() {
        out.push_str(cell);
        if let Some(width) = widths.get(i).filter(|_| i + 1 < cells.len()) {
            out.extend(std::iter::repeat_n(' ', width.saturating_sub(cell.chars().count())));
        }
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let mut writer = TabWriter::default();
        writer.write(text);
        assert_eq!(writer.finish(), expected);
    }

    #[test]
    fn columns_are_aligned_over_lines_that_follow_each_other() {
        check("a\tb\nlonger\tc\n", "a       b\nlonger  c\n");
        check("a\tb\nplain\nlonger\tc\n", "a  b\nplain\nlonger  c\n");
        check("a\tb\tc\nlonger\td\nx\tyyyy\tz\n", "a       b  c\nlonger  d\nx       yyyy  z\n");
        check("a\t\nbb\tx\n", "a   \nbb  x\n");
        check("no newline\tx", "no newline  x");
        check("\tindented\nab\tc\n", "    indented\nab  c\n");
    }

    #[test]
    fn lines_may_have_any_number_of_columns() {
        check(&"\t".repeat(100_000), &"  ".repeat(100_000));
    }

    #[test]
    fn a_flush_ends_all_columns() {
        let mut writer = TabWriter::default();
        writer.write("a\tb\n");
        writer.flush();
        writer.write("longer\tc\n");
        assert_eq!(writer.finish(), "a  b\nlonger  c\n");
    }
}
