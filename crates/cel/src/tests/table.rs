//! The table of expressions, of which each row was checked with cel-go.
use super::outcome;

#[test]
fn expressions_come_to_what_cel_go_says() {
    let mut faults = String::new();
    for line in include_str!("table.tsv").lines().filter(|line| !line.starts_with('#')) {
        let mut columns = line.split('\t');
        let mut next = || columns.next().unwrap_or_default();
        let (expression, kind, text, cost) = (next(), next(), next(), next());
        let text = text.replace("⏎", "\n");
        let found = outcome(expression);
        let wanted = (kind, text, cost.parse::<u64>().ok());
        if found != wanted {
            faults += &format!("{expression}\n  wanted {wanted:?}\n  found  {found:?}\n");
        }
    }
    assert!(faults.is_empty(), "{faults}");
}
