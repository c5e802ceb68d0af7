//! Numbers and quoted text as Go writes them in source.

/// A number in a template. Its spelling says what it is where nothing else does.
#[derive(Debug)]
pub struct Number {
    pub text: String,
    pub int: Option<i64>,
    pub float: Option<f64>,
}

impl Number {
    pub fn parse(text: &str) -> Result<Number, String> {
        let owned = text.to_owned();
        if text.starts_with('\'') {
            let c =
                character(text).ok_or_else(|| format!("malformed character constant: {text}"))?;
            let code = i64::from(u32::from(c));
            let float = Some(code as f64);
            return Ok(Number { text: owned, int: Some(code), float });
        }
        if text.ends_with('i') && !text.starts_with("0x") {
            return Err(format!("complex numbers are not supported: {text}"));
        }
        let wide = integer(text);
        let int = wide.and_then(|wide| i64::try_from(wide).ok());
        let float = match wide {
            Some(wide) => Some(wide as f64),
            None => float(text),
        };
        // A number such as 1e3 may stand where an integer is expected.
        let int = int.or_else(|| {
            float
                .filter(|f| f.fract() == 0.0 && f.abs() < 9.2e18)
                .map(|f| f as i64)
                .filter(|_| wide.is_none())
        });
        if int.is_none() && float.is_none() {
            return Err(format!("illegal number syntax: {}", crate::quote::Quoted(text)));
        }
        Ok(Number { text: owned, int, float })
    }

    /// Whether the spelling makes it a floating point number.
    pub fn looks_like_float(&self) -> bool {
        let text = self.text.as_str();
        let hex = text.len() > 2 && (text.starts_with("0x") || text.starts_with("0X"));
        let hex_int = hex && !text.contains(['p', 'P']);
        self.float.is_some()
            && !hex_int
            && !text.starts_with('\'')
            && text.contains(['.', 'e', 'E', 'p', 'P'])
    }
}

fn integer(text: &str) -> Option<i128> {
    let negative = text.starts_with('-');
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let lower = digits.to_ascii_lowercase();
    let (radix, digits) = match lower.as_str() {
        l if l.starts_with("0x") => (16, &l[2..]),
        l if l.starts_with("0o") => (8, &l[2..]),
        l if l.starts_with("0b") => (2, &l[2..]),
        l if l.len() > 1 && l.starts_with('0') => (8, &l[1..]),
        l => (10, l),
    };
    let digits = digits.replace('_', "");
    let value = i128::from_str_radix(&digits, radix).ok().filter(|v| *v <= i128::from(u64::MAX))?;
    Some(if negative { -value } else { value })
}

fn float(text: &str) -> Option<f64> {
    if text.contains(['x', 'X', 'n', 'N']) {
        return None;
    }
    text.replace('_', "").parse().ok()
}

fn character(text: &str) -> Option<char> {
    let inner = text.strip_prefix('\'')?.strip_suffix('\'')?;
    let bytes = unescape(inner, '\'')?;
    let text = String::from_utf8(bytes).ok()?;
    let mut chars = text.chars();
    chars.next().filter(|_| chars.next().is_none())
}

/// Go's `strconv.Unquote` for text in double quotes or backquotes.
pub fn unquote(text: &str) -> Option<String> {
    if let Some(raw) = text.strip_prefix('`').and_then(|t| t.strip_suffix('`')) {
        return Some(raw.replace('\r', ""));
    }
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    String::from_utf8(unescape(inner, '"')?).ok()
}

fn unescape(text: &str, quote: char) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            let mut buffer = [0; 4];
            out.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes());
            continue;
        }
        let escaped = chars.next()?;
        let mut code = |count: usize, radix: u32, first: Option<char>| -> Option<u32> {
            let mut digits: String = first.into_iter().collect();
            for _ in 0..count {
                digits.push(chars.next()?);
            }
            u32::from_str_radix(&digits, radix).ok()
        };
        let character = match escaped {
            'a' => '\x07',
            'b' => '\x08',
            'f' => '\x0c',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\x0b',
            '\\' => '\\',
            c if c == quote => c,
            'x' => {
                out.push(u8::try_from(code(2, 16, None)?).ok()?);
                continue;
            }
            '0'..='7' => {
                out.push(u8::try_from(code(2, 8, Some(escaped))?).ok()?);
                continue;
            }
            'u' => char::from_u32(code(4, 16, None)?)?,
            'U' => char::from_u32(code(8, 16, None)?)?,
            _ => return None,
        };
        let mut buffer = [0; 4];
        out.extend_from_slice(character.encode_utf8(&mut buffer).as_bytes());
    }
    Some(out)
}
