//! What is wrong with an expression, in cel-go's words and form.
use std::fmt;

/// One fault at one place.
#[derive(Debug, Clone, PartialEq)]
pub struct Issue {
    /// In characters from the start; none if it is about the whole.
    pub offset: Option<u32>,
    pub message: String,
}

/// All faults of an expression. Displayed as cel-go shows them: message, line, and a mark below the
/// place.
#[derive(Debug, Clone, PartialEq)]
pub struct Issues {
    text: String,
    list: Vec<Issue>,
}

impl Issues {
    /// At most so many are kept.
    const MOST: usize = 100;

    pub fn new(text: &str, mut list: Vec<Issue>) -> Issues {
        list.sort_by_key(|issue| issue.offset.map_or(-1, i64::from));
        list.truncate(Issues::MOST);
        Issues { text: text.to_owned(), list }
    }

    pub fn list(&self) -> &[Issue] {
        &self.list
    }
}

impl std::error::Error for Issues {}

impl fmt::Display for Issues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, issue) in self.list.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            show(&self.text, issue, f)?;
        }
        Ok(())
    }
}

fn show(text: &str, issue: &Issue, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Some(offset) = issue.offset else {
        return write!(f, "ERROR: <input>:-1:0: {}", issue.message);
    };
    if text.is_empty() {
        return write!(f, "ERROR: <input>:1:0: {}", issue.message);
    }
    let (mut line, mut column, mut start) = (1, 0, 0);
    for (at, (byte, character)) in text.char_indices().enumerate() {
        if at as u32 == offset {
            break;
        }
        column += 1;
        if character == '\n' {
            (line, column, start) = (line + 1, 0, byte + 1);
        }
    }
    write!(f, "ERROR: <input>:{line}:{}: {}", column + 1, issue.message)?;
    let shown = text[start..].split('\n').next().unwrap_or_default().replace('\t', " ");
    write!(f, "\n | {shown}\n | ")?;
    for character in shown.chars().take(column) {
        // A wide character has wide dots under it.
        f.write_str(if character.is_ascii() { "." } else { "．" })?;
    }
    let wide = shown.chars().nth(column).is_some_and(|character| !character.is_ascii());
    f.write_str(if wide { "＾" } else { "^" })
}
