//! Warnings of an answer: headers as RFC 7234 has them, within the bounds that clients know from upstream
//! (`apiserver/pkg/endpoints/filters/warning.go`).
use super::Answer;
use http::{HeaderValue, header};
use std::collections::HashSet;

/// What all of them may say, in characters, before each is cut short.
const MOST: usize = 4096;
/// What is left of each then.
const LEFT: usize = 256;

/// Says each of them once.
pub fn with_warnings(mut answer: Answer, warnings: &[String]) -> Answer {
    for text in bounded(warnings) {
        if let Ok(value) = HeaderValue::from_bytes(format!("299 - {}", quoted(&text)).as_bytes()) {
            answer.headers_mut().append(header::WARNING, value);
        }
    }
    answer
}

/// Those that are said, as far as they are. One with control characters is not, and neither is an empty one.
fn bounded(warnings: &[String]) -> Vec<String> {
    let mut told = HashSet::new();
    let fit = |text: &&str| !text.is_empty() && !text.chars().any(char::is_control);
    let all: Vec<&str> = warnings.iter().map(String::as_str).filter(fit).collect();
    let all: Vec<&str> = all.into_iter().filter(|text| told.insert(*text)).collect();
    let mut length = 0;
    let exceeds = all.iter().position(|text| {
        length += text.chars().count();
        length > MOST
    });
    let Some(exceeds) = exceeds else { return all.into_iter().map(str::to_owned).collect() };
    let mut said = Vec::new();
    let mut length = 0;
    for (index, text) in all.into_iter().enumerate() {
        // Those up to the one that was too much are all said, however short the rest is cut by that.
        if index > exceeds && length >= MOST {
            break;
        }
        let short: String = text.chars().take(LEFT).collect();
        length += short.chars().count();
        said.push(short);
    }
    said
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Warnings by their lengths, each of other characters than the rest → what is said, by length.
    fn check(lengths: &[usize], expected: &[(usize, usize)]) {
        let text = |(at, length): (usize, &usize)| {
            let letter = char::from_u32('À' as u32 + at as u32).expect("a letter");
            letter.to_string().repeat(*length)
        };
        let warnings: Vec<String> = lengths.iter().enumerate().map(text).collect();
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for text in bounded(&warnings) {
            let length = text.chars().count();
            match runs.last_mut() {
                Some((count, of)) if *of == length => *count += 1,
                _ => runs.push((1, length)),
            }
        }
        assert_eq!(runs, expected, "{lengths:?}");
    }

    #[test]
    fn many_long_warnings_are_cut_short() {
        check(&[], &[]);
        check(&[4096], &[(1, 4096)]);
        check(&[0, 0, 5], &[(1, 5)]);
        check(&[4096, 1], &[(1, 256), (1, 1)]);
        check(&[300; 13], &[(13, 300)]);
        check(&[300; 14], &[(14, 256)]);
        check(&[300; 40], &[(16, 256)]);
        // The one that is too much comes after more than what is left for all.
        check(&[100; 41], &[(41, 100)]);
        check(&[100; 45], &[(41, 100)]);
    }

    #[test]
    fn each_is_said_once_and_as_it_is() {
        let told = |texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
            bounded(&texts).iter().map(|text| quoted(text)).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(told(&["a", "b", "a", "", "two\nlines"]), "\"a\" \"b\"");
        assert_eq!(told(&["say \"ü\\\u{301}\""]), "\"say \\\"ü\\\\\u{301}\\\"\"");
    }
}
