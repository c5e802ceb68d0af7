//! Differences of texts in the form of `diff -u -N`.
use crate::failure::Outcome;
use std::fmt::Write as _;
use std::path::Path;

/// Lines around a difference that are shown with it.
const AROUND: usize = 3;

/// The files of two folders, by their names.
pub fn folders(before: &Path, after: &Path) -> Outcome<String> {
    let mut names = std::collections::BTreeSet::new();
    for folder in [before, after] {
        for entry in std::fs::read_dir(folder)?.flatten() {
            names.insert(entry.file_name());
        }
    }
    let mut out = String::new();
    for name in names {
        let read = |folder: &Path| std::fs::read_to_string(folder.join(&name)).unwrap_or_default();
        let text = unified(&read(before), &read(after));
        if !text.is_empty() {
            let (old, new) = (before.join(&name), after.join(&name));
            let _ = writeln!(out, "diff -u -N {} {}", old.display(), new.display());
            let moment = |path: &Path| {
                let time = std::fs::metadata(path).and_then(|file| file.modified()).ok();
                let time =
                    time.and_then(|time| jiff::Timestamp::try_from(time).ok()).unwrap_or_default();
                time.strftime("%Y-%m-%d %H:%M:%S.%9f +0000").to_string()
            };
            let _ = writeln!(out, "--- {}\t{}", old.display(), moment(&old));
            let _ = writeln!(out, "+++ {}\t{}", new.display(), moment(&new));
            out.push_str(&text);
        }
    }
    Ok(out)
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Edit {
    Same(usize, usize),
    Gone(usize),
    New(usize),
}

/// The hunks; empty if the texts are the same.
pub fn unified(before: &str, after: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let edits = edits(&old, &new);
    let mut out = String::new();
    let mut at = 0;
    while let Some(first) = next_change(&edits, at) {
        let begin = first.saturating_sub(AROUND).max(at);
        let mut end = first + 1;
        // Changes that are near each other are one hunk.
        while let Some(next) = next_change(&edits, end) {
            if next - end > 2 * AROUND {
                break;
            }
            end = next + 1;
        }
        let end_shown = (end + AROUND).min(edits.len());
        hunk(&edits, begin, end_shown, &old, &new, &mut out);
        at = end_shown;
    }
    out
}

fn next_change(edits: &[Edit], from: usize) -> Option<usize> {
    (from..edits.len()).find(|at| !matches!(edits[*at], Edit::Same(..)))
}

fn hunk(edits: &[Edit], begin: usize, end: usize, old: &[&str], new: &[&str], out: &mut String) {
    let before = |upto: usize| {
        edits[..upto].iter().fold((0, 0), |(old, new), edit| match edit {
            Edit::Same(..) => (old + 1, new + 1),
            Edit::Gone(_) => (old + 1, new),
            Edit::New(_) => (old, new + 1),
        })
    };
    let ((old_from, new_from), (old_to, new_to)) = (before(begin), before(end));
    let range = |from: usize, to: usize| match to - from {
        0 => format!("{from},0"),
        1 => format!("{}", from + 1),
        count => format!("{},{count}", from + 1),
    };
    let _ = writeln!(out, "@@ -{} +{} @@", range(old_from, old_to), range(new_from, new_to));
    for edit in &edits[begin..end] {
        let _ = match edit {
            Edit::Same(at, _) => writeln!(out, " {}", old[*at]),
            Edit::Gone(at) => writeln!(out, "-{}", old[*at]),
            Edit::New(at) => writeln!(out, "+{}", new[*at]),
        };
    }
}

/// The fewest lines that go and come (Myers' algorithm).
fn edits(old: &[&str], new: &[&str]) -> Vec<Edit> {
    let (n, m) = (old.len() as isize, new.len() as isize);
    let most = n + m;
    let offset = most + 1;
    let mut furthest = vec![0isize; 2 * offset as usize + 1];
    let mut trace: Vec<Vec<isize>> = Vec::new();
    'search: for d in 0..=most {
        trace.push(furthest.clone());
        for k in (-d..=d).step_by(2) {
            let at = (k + offset) as usize;
            let down = k == -d || (k != d && furthest[at - 1] < furthest[at + 1]);
            let mut x = if down { furthest[at + 1] } else { furthest[at - 1] + 1 };
            let mut y = x - k;
            while x < n && y < m && old[x as usize] == new[y as usize] {
                (x, y) = (x + 1, y + 1);
            }
            furthest[at] = x;
            if x >= n && y >= m {
                break 'search;
            }
        }
    }
    let mut found = Vec::new();
    let (mut x, mut y) = (n, m);
    for (d, furthest) in trace.iter().enumerate().rev() {
        let (d, k) = (d as isize, x - y);
        let at = (k + offset) as usize;
        let down = k == -d || (k != d && furthest[at - 1] < furthest[at + 1]);
        let before_k = if down { k + 1 } else { k - 1 };
        let before_x = furthest[(before_k + offset) as usize];
        let before_y = before_x - before_k;
        while x > before_x && y > before_y {
            (x, y) = (x - 1, y - 1);
            found.push(Edit::Same(x as usize, y as usize));
        }
        if d > 0 {
            match down {
                true => found.push(Edit::New(before_y as usize)),
                false => found.push(Edit::Gone(before_x as usize)),
            }
        }
        (x, y) = (before_x, before_y);
    }
    found.reverse();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_have_lines_around_them() {
        assert_eq!(unified("a\nb\n", "a\nb\n"), "");
        assert_eq!(unified("a\nb\nc\n", "a\nx\nc\n"), "@@ -1,3 +1,3 @@\n a\n-b\n+x\n c\n");
        assert_eq!(unified("", "a\nb\n"), "@@ -0,0 +1,2 @@\n+a\n+b\n");
        let old: String = (1..=20).map(|n| format!("{n}\n")).collect();
        let new = old.replace("2\n3\n", "2\n2b\n3\n").replace("19\n", "");
        assert_eq!(
            unified(&old, &new),
            "@@ -1,5 +1,6 @@\n 1\n 2\n+2b\n 3\n 4\n 5\n@@ -16,5 +17,4 @@\n 16\n 17\n 18\n-19\n 20\n"
        );
    }
}
