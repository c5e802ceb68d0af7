//! What a quoted text stands for.

/// A string's or bytes' token without its prefix and quotes, escapes undone. Bytes may be no UTF-8.
pub fn unescape(token: &str, bytes: bool) -> Result<Vec<u8>, &'static str> {
    let token = if bytes { &token[1..] } else { token };
    let raw = token.starts_with(['r', 'R']);
    let token = if raw { &token[1..] } else { token };
    let triple = token.len() >= 6 && (token.starts_with("\"\"\"") || token.starts_with("'''"));
    let quotes = if triple { 3 } else { 1 };
    let inner = &token[quotes..token.len() - quotes];
    // Lines end as in Unix, whatever the author's editor does.
    let inner = inner.replace("\r\n", "\n").replace('\r', "\n");
    if raw || !inner.contains('\\') {
        return Ok(inner.into_bytes());
    }
    let mut out = Vec::with_capacity(inner.len());
    let mut characters = inner.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            push(&mut out, character);
            continue;
        }
        let escape =
            characters.next().ok_or("unable to unescape string, found '\\' as last character")?;
        let simple = match escape {
            'a' => '\x07',
            'b' => '\x08',
            'f' => '\x0c',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\x0b',
            '\\' | '\'' | '"' | '`' | '?' => escape,
            'x' | 'X' => {
                let value = digits(&mut characters, 2, 16)?;
                code(&mut out, value, bytes)?;
                continue;
            }
            'u' | 'U' if bytes => return Err("unable to unescape string"),
            'u' => {
                code(&mut out, digits(&mut characters, 4, 16)?, false)?;
                continue;
            }
            'U' => {
                code(&mut out, digits(&mut characters, 8, 16)?, false)?;
                continue;
            }
            '0'..='3' => {
                let first = escape.to_digit(8).unwrap_or_default();
                let value = first * 64 + digits(&mut characters, 2, 8)?;
                code(&mut out, value, bytes)?;
                continue;
            }
            _ => return Err("unable to unescape string"),
        };
        push(&mut out, simple);
    }
    Ok(out)
}

fn digits(
    characters: &mut std::str::Chars<'_>,
    count: usize,
    radix: u32,
) -> Result<u32, &'static str> {
    let mut value = 0u32;
    for _ in 0..count {
        let digit = characters.next().and_then(|c| c.to_digit(radix));
        value = value.wrapping_mul(radix).wrapping_add(digit.ok_or("unable to unescape string")?);
    }
    Ok(value)
}

fn code(out: &mut Vec<u8>, value: u32, byte: bool) -> Result<(), &'static str> {
    if byte {
        out.push(value as u8);
    } else {
        push(out, char::from_u32(value).ok_or("invalid unicode code point")?);
    }
    Ok(())
}

fn push(out: &mut Vec<u8>, character: char) {
    out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
}
