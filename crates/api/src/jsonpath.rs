//! Whether a text is a JSONPath in kubectl's dialect, and what upstream's parser
//! (`client-go/util/jsonpath`) says of one that is not.
use crate::quote::Quoted;

/// What is wrong with a template: text with paths in braces.
pub fn check(template: &str) -> Result<(), String> {
    let mut rest = template;
    while let Some((_, inside)) = rest.split_once('{') {
        rest = action(inside)?;
    }
    Ok(())
}

/// Reads what is in braces, and answers what follows the closing one.
fn action(text: &str) -> Result<&str, String> {
    let mut rest = text;
    // Two descents in a row are one too many.
    let mut descends = false;
    loop {
        let descended = std::mem::replace(&mut descends, false);
        if let Some(after) = rest.strip_prefix('}') {
            return Ok(after);
        }
        if let Some(inside) = rest.strip_prefix("[?(") {
            rest = filter(inside)?;
            continue;
        }
        if let Some(after) = rest.strip_prefix("..") {
            if descended {
                return Err("invalid multiple recursive descent".to_owned());
            }
            let named = after.starts_with(is_word);
            descends = !named;
            rest = if named { name(after) } else { after };
            continue;
        }
        let mut chars = rest.chars();
        let first = chars.next();
        let after = chars.as_str();
        rest = match first {
            None | Some('\r' | '\n') => return Err("unclosed action".to_owned()),
            // The object itself, and blanks, change nothing.
            Some(' ' | '@' | '$') => {
                descends = descended;
                after
            }
            Some('[') => array(after)?,
            Some(quote @ ('"' | '\'')) => quoted(rest, quote)?,
            Some('.') => name(after),
            Some(c) if matches!(c, '+' | '-') || c.is_numeric() => number(rest)?,
            Some(c) if is_word(c) => &rest[rest.find(ends_name).unwrap_or(rest.len())..],
            Some(c) => return Err(format!("unrecognized character in action: {}", code_point(c))),
        };
    }
}

/// Whole, so that nothing may follow.
fn whole(text: &str) -> Result<(), String> {
    check(&format!("{{{text}}}"))
}

/// The name of a field up to what ends it; a backslash hides one character.
fn name(text: &str) -> &str {
    let mut chars = text.char_indices();
    while let Some((i, c)) = chars.next() {
        if c == '\\' {
            chars.next();
        } else if ends_name(c) {
            return &text[i..];
        }
    }
    ""
}

fn number(text: &str) -> Result<&str, String> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let rest = digits.trim_start_matches(|c: char| c == '.' || c.is_numeric());
    let number = &text[..text.len() - rest.len()];
    match number.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(rest),
        _ => Err(format!("cannot parse number {number}")),
    }
}

/// `[0]`, `[1:2]`, `[*]`, `['a']`, `[0,1]`: from after the bracket.
fn array(text: &str) -> Result<&str, String> {
    let end = text.find(['\n', ']']).filter(|end| text[*end..].starts_with(']'));
    let (inside, rest) = text.split_at(end.ok_or("unterminated array")?);
    let parts: Vec<&str> = inside.split(',').collect();
    if parts.len() > 1 {
        for part in parts {
            whole(&format!("[{}]", part.trim_matches(' ')))?;
        }
    } else if let Some(key) = inside.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''))
        && !key.contains('\'')
    {
        whole(&format!(".{key}"))?;
    } else if inside != "*" {
        slice(inside)?;
    }
    Ok(&rest[1..])
}

/// Up to three numbers, of which each may be missing.
fn slice(text: &str) -> Result<(), String> {
    let parts: Vec<&str> = text.split(':').collect();
    let digits = |part: &&str| {
        part.strip_prefix('-').unwrap_or(part).bytes().all(|byte| byte.is_ascii_digit())
    };
    if parts.len() > 3 || !parts.iter().all(digits) {
        return Err(format!("invalid array index {text}"));
    }
    match parts.iter().find(|part| !part.is_empty() && part.parse::<i64>().is_err()) {
        Some(part) => Err(format!("array index {part} is not a number")),
        None => Ok(()),
    }
}

/// `[?(@.a == "b")]`: from after the bracket, the question mark and the parenthesis.
fn filter(text: &str) -> Result<&str, String> {
    let end = filter_end(text).ok_or("unterminated filter")?;
    let Some(rest) = text[end + 1..].strip_prefix(']') else {
        return Err("unclosed array expect ]".to_owned());
    };
    let inside = &text[..end];
    let is_operator = |c: char| matches!(c, '!' | '<' | '>' | '=');
    let first = inside.find(is_operator).filter(|first| *first > 0);
    let parts = first.map(|first| {
        let right = inside[first..].trim_start_matches(is_operator);
        // Something has to be compared with, if only the last of the operators.
        let right = if right.is_empty() { &inside[inside.len() - 1..] } else { right };
        (&inside[..first], right, inside.len() - first)
    });
    match parts {
        Some((left, right, length)) if length > 1 && !inside.contains('\n') => {
            whole(left)?;
            whole(right)?;
        }
        _ => whole(inside)?,
    }
    Ok(rest)
}

/// Where the parenthesis is that closes a filter.
pub(crate) fn filter_end(text: &str) -> Option<usize> {
    let (mut open, mut closed) = (None, false);
    let mut before = '\0';
    for (i, c) in text.char_indices() {
        match c {
            '\n' => return None,
            '"' | '\'' if open.is_none() => open = Some(c),
            '"' | '\'' => closed |= open == Some(c) && before != '\\',
            ')' if open.is_some() == closed => return Some(i),
            _ => {}
        }
        before = c;
    }
    None
}

/// A text in quotes, which begins with one.
fn quoted(text: &str, quote: char) -> Result<&str, String> {
    let mut before = quote;
    for (i, c) in text.char_indices().skip(1) {
        match c {
            '\n' => break,
            c if c == quote && before != '\\' => {
                let (whole, inside) = (&text[..=i], &text[1..i]);
                if !is_unquotable(inside, quote) {
                    return Err(format!("unquote string {whole} error invalid syntax"));
                }
                return Ok(&text[i + 1..]);
            }
            _ => before = c,
        }
    }
    Err("unterminated quoted string".to_owned())
}

/// Whether its escapes are Go's.
fn is_unquotable(text: &str, quote: char) -> bool {
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let digits = match c {
            '\\' => match chars.next() {
                Some('a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '\\') => continue,
                Some('x') => 2,
                Some('u') => 4,
                Some('U') => 8,
                Some(c @ '0'..='7') => {
                    let rest: String = chars.by_ref().take(2).collect();
                    let number = u32::from_str_radix(&format!("{c}{rest}"), 8);
                    if rest.len() == 2 && number.is_ok_and(|number| number <= 255) {
                        continue;
                    }
                    return false;
                }
                Some(c) if c == quote => continue,
                _ => return false,
            },
            c if c == quote => return false,
            _ => continue,
        };
        let hex: String = chars.by_ref().take(digits).collect();
        let number = u32::from_str_radix(&hex, 16).ok().filter(|_| hex.len() == digits);
        if !number.is_some_and(|number| digits == 2 || char::from_u32(number).is_some()) {
            return false;
        }
    }
    true
}

pub(crate) fn ends_name(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}

pub(crate) fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// `U+0026 '&'`
fn code_point(c: char) -> String {
    let quoted = Quoted(c.encode_utf8(&mut [0; 4])).to_string();
    let is_printable = !quoted.starts_with("\"\\") || matches!(c, '"' | '\\');
    let number = c as u32;
    if is_printable { format!("U+{number:04X} '{c}'") } else { format!("U+{number:04X}") }
}
