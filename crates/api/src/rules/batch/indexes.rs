//! Sets of completion indexes: `0,3-5`.

/// How many indexes the text names, all below `completions`; or what is wrong with it.
pub fn count(text: &str, completions: i64) -> Result<i64, String> {
    let mut total = 0;
    let mut last: Option<i64> = None;
    if text.is_empty() {
        return Ok(0);
    }
    for part in text.split(',') {
        let limits: Vec<&str> = part.split('-').collect();
        if limits.len() > 2 {
            return Err(format!(
                "the fragment {part:?} violates the requirement that an index interval can have at most two parts separated by '-'"
            ));
        }
        let parse = |word: &str, which: &str| {
            word.parse::<i64>()
                .map_err(|_| format!("cannot convert string to integer for {which}: {word:?}"))
        };
        let first = parse(limits[0], "index")?;
        if first >= completions {
            return Err(format!("too large index: {:?}", limits[0]));
        }
        if last.is_some_and(|last| first <= last) {
            return Err(format!(
                "non-increasing order, previous: {}, current: {first}",
                last.unwrap_or(0)
            ));
        }
        let end = match limits.get(1) {
            None => first,
            Some(word) => {
                let end = parse(word, "index")?;
                if end >= completions {
                    return Err(format!("too large index: {word:?}"));
                }
                if first >= end {
                    return Err(format!("non-increasing order, previous: {first}, current: {end}"));
                }
                end
            }
        };
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}

/// The indexes of a sound text, as intervals.
pub fn intervals(text: &str) -> Vec<(i64, i64)> {
    let interval = |part: &str| {
        let (first, end) = part.split_once('-').unwrap_or((part, part));
        Some((first.parse().ok()?, end.parse().ok()?))
    };
    text.split(',').filter_map(interval).collect()
}
