//! Go's package `fmt` for the values that templates have: how they print, and printf's verbs.

use serde_json::{Map, Value};

use super::value::{Data, Val};

/// A result of a pipeline as a template writes it.
pub fn print_top(value: &Val<'_>) -> Vec<u8> {
    match value.data {
        Data::Missing => b"<no value>".to_vec(),
        _ => print(value),
    }
}

/// `%v`.
pub fn print(value: &Val<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    Verb::default().write(&mut out, value);
    out
}

/// `fmt.Sprint`: a space between operands neither of which is a string.
pub fn sprint(values: &[Val<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    let is_string = |value: &Val<'_>| matches!(value.data, Data::Str(_));
    for (i, value) in values.iter().enumerate() {
        if i > 0 && !is_string(value) && !is_string(&values[i - 1]) {
            out.push(b' ');
        }
        Verb::default().write(&mut out, value);
    }
    out
}

/// `fmt.Sprintln`: a space between all operands.
pub fn sprintln(values: &[Val<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    for (i, value) in values.iter().enumerate() {
        if i > 0 {
            out.push(b' ');
        }
        Verb::default().write(&mut out, value);
    }
    out.push(b'\n');
    out
}

/// The arguments of `html` and its like as one text.
pub fn sprint_all(values: &[Val<'_>]) -> Vec<u8> {
    match values {
        [value] => print_top(value),
        values => sprint(values),
    }
}

/// `fmt.Sprintf`.
pub fn sprintf(format: &Val<'_>, values: &[Val<'_>]) -> Vec<u8> {
    let Data::Str(format) = &format.data else { return Vec::new() };
    let text = String::from_utf8_lossy(format);
    let mut printer = Printer { format: text.chars().peekable(), values, used: 0, out: Vec::new() };
    printer.run();
    printer.out
}

struct Printer<'f, 'a> {
    format: std::iter::Peekable<std::str::Chars<'f>>,
    values: &'f [Val<'a>],
    used: usize,
    out: Vec<u8>,
}

impl<'a> Printer<'_, 'a> {
    fn run(&mut self) {
        while let Some(c) = self.format.next() {
            match c {
                '%' => self.verb(),
                c => push(&mut self.out, c),
            }
        }
        self.extra();
    }

    fn take(&mut self) -> Option<Val<'a>> {
        let value = self.values.get(self.used).cloned();
        self.used += usize::from(value.is_some());
        value
    }

    fn verb(&mut self) {
        let mut verb = Verb::default();
        while let Some(c) = self.format.peek() {
            match c {
                '+' => verb.plus = true,
                '-' => verb.minus = true,
                '#' => verb.sharp = true,
                ' ' => verb.space = true,
                '0' => verb.zero = true,
                _ => break,
            }
            self.format.next();
        }
        verb.width = match self.number("%!(BADWIDTH)") {
            Some(width) if width < 0 => {
                verb.minus = true;
                usize::try_from(-width).ok()
            }
            width => width.and_then(|width| usize::try_from(width).ok()),
        };
        if self.format.peek() == Some(&'.') {
            self.format.next();
            let precision = self.number("%!(BADPREC)").unwrap_or_default();
            verb.precision = usize::try_from(precision).ok();
        }
        // Nobody wants more; a template must not fill the memory.
        verb.width = verb.width.map(|width| width.min(10_000));
        verb.precision = verb.precision.map(|precision| precision.min(10_000));
        let Some(letter) = self.format.next() else {
            self.out.extend_from_slice(b"%!(NOVERB)");
            return;
        };
        verb.letter = letter;
        if letter == '%' {
            self.out.push(b'%');
            return;
        }
        match self.take() {
            None => {
                self.out.extend_from_slice(format!("%!{letter}(MISSING)").as_bytes());
            }
            Some(value) => verb.write(&mut self.out, &value),
        }
    }

    /// A width or precision: digits, or `*` and an argument.
    fn number(&mut self, bad: &str) -> Option<i64> {
        if self.format.peek() == Some(&'*') {
            self.format.next();
            let number = match self.take().map(|value| value.data) {
                Some(Data::Int(n) | Data::Int64(n)) if n.abs() <= 1_000_000 => Some(n),
                Some(Data::Byte(n)) => Some(i64::from(n)),
                _ => None,
            };
            if number.is_none() {
                self.out.extend_from_slice(bad.as_bytes());
            }
            return number;
        }
        let mut number = None;
        while let Some(digit) = self.format.peek().and_then(|c| c.to_digit(10)) {
            self.format.next();
            number = Some((number.unwrap_or(0i64) * 10 + i64::from(digit)).min(1_000_000));
        }
        number
    }

    fn extra(&mut self) {
        let rest = &self.values[self.used..];
        if rest.is_empty() {
            return;
        }
        self.out.extend_from_slice(b"%!(EXTRA ");
        for (i, value) in rest.iter().enumerate() {
            if i > 0 {
                self.out.extend_from_slice(b", ");
            }
            if value.is_nothing() {
                self.out.extend_from_slice(b"<nil>");
                continue;
            }
            self.out.extend_from_slice(value.type_name().as_bytes());
            self.out.push(b'=');
            Verb::default().write(&mut self.out, value);
        }
        self.out.push(b')');
    }
}

fn push(out: &mut Vec<u8>, c: char) {
    let mut buffer = [0; 4];
    out.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes());
}

/// A verb with its flags.
#[derive(Clone, Debug)]
struct Verb {
    letter: char,
    plus: bool,
    minus: bool,
    sharp: bool,
    space: bool,
    zero: bool,
    width: Option<usize>,
    precision: Option<usize>,
}

impl Default for Verb {
    fn default() -> Self {
        Verb {
            letter: 'v',
            plus: false,
            minus: false,
            sharp: false,
            space: false,
            zero: false,
            width: None,
            precision: None,
        }
    }
}

impl Verb {
    fn write(&self, out: &mut Vec<u8>, value: &Val<'_>) {
        match (&value.data, self.letter) {
            (Data::Missing | Data::Nil, 'T' | 'v') => self.pad(out, b"<nil>"),
            (Data::Missing | Data::Nil, letter) => {
                out.extend_from_slice(format!("%!{letter}(<nil>)").as_bytes());
            }
            (_, 'T') => self.pad(out, value.type_name().as_bytes()),
            (Data::Bool(truth), 't' | 'v') => {
                self.pad(out, if *truth { b"true" } else { b"false" })
            }
            (Data::Int(n) | Data::Int64(n), _) => self.integer(out, value, *n),
            (Data::Byte(n), _) => self.integer(out, value, i64::from(*n)),
            (Data::Float(n), _) => self.float(out, value, *n),
            (Data::Str(text), _) => self.string(out, value, text),
            (Data::List(items), _) => self.list(out, items),
            (Data::Map(fields), _) => self.map(out, fields),
            _ => self.bad(out, value),
        }
    }

    fn bad(&self, out: &mut Vec<u8>, value: &Val<'_>) {
        out.extend_from_slice(format!("%!{}({}=", self.letter, value.type_name()).as_bytes());
        let plain = Verb { letter: 'v', width: None, precision: None, ..self.clone() };
        plain.write(out, value);
        out.push(b')');
    }

    /// An element of a list or map, with the verb of the whole.
    fn element(&self, out: &mut Vec<u8>, value: &Value) {
        match value {
            Value::Null => out.extend_from_slice(b"<nil>"),
            value => self.write(out, &Val::of(value)),
        }
    }

    fn list(&self, out: &mut Vec<u8>, items: &[Value]) {
        if self.sharp && self.letter == 'v' {
            out.extend_from_slice(b"[]interface {}{");
            self.joined(out, items.iter().map(|item| (None, item)), b", ");
            out.push(b'}');
            return;
        }
        out.push(b'[');
        self.joined(out, items.iter().map(|item| (None, item)), b" ");
        out.push(b']');
    }

    fn map(&self, out: &mut Vec<u8>, fields: &Map<String, Value>) {
        let mut fields: Vec<(Option<&String>, &Value)> =
            fields.iter().map(|(k, v)| (Some(k), v)).collect();
        fields.sort_by(|a, b| a.0.cmp(&b.0));
        if self.sharp && self.letter == 'v' {
            out.extend_from_slice(b"map[string]interface {}{");
            self.joined(out, fields.into_iter(), b", ");
            out.push(b'}');
            return;
        }
        out.extend_from_slice(b"map[");
        self.joined(out, fields.into_iter(), b" ");
        out.push(b']');
    }

    fn joined<'v>(
        &self,
        out: &mut Vec<u8>,
        items: impl Iterator<Item = (Option<&'v String>, &'v Value)>,
        separator: &[u8],
    ) {
        for (i, (key, item)) in items.enumerate() {
            if i > 0 {
                out.extend_from_slice(separator);
            }
            if let Some(key) = key {
                self.write(out, &Val::borrowed(key));
                out.push(b':');
            }
            self.element(out, item);
        }
    }

    fn pad(&self, out: &mut Vec<u8>, text: &[u8]) {
        let width = String::from_utf8_lossy(text).chars().count();
        let missing = self.width.unwrap_or_default().saturating_sub(width);
        if self.minus {
            out.extend_from_slice(text);
            out.extend(std::iter::repeat_n(b' ', missing));
            return;
        }
        out.extend(std::iter::repeat_n(if self.zero { b'0' } else { b' ' }, missing));
        out.extend_from_slice(text);
    }

    fn string(&self, out: &mut Vec<u8>, value: &Val<'_>, text: &[u8]) {
        let cut = |limit: Option<usize>| -> Vec<u8> {
            match limit {
                Some(limit) => {
                    String::from_utf8_lossy(text).chars().take(limit).collect::<String>().into()
                }
                None => text.to_vec(),
            }
        };
        match self.letter {
            'v' if self.sharp => self.pad(out, quoted(text).as_bytes()),
            's' | 'v' => self.pad(out, &cut(self.precision)),
            'q' => {
                let text = cut(self.precision);
                let raw = String::from_utf8_lossy(&text);
                let plain = self.sharp
                    && !raw.contains(['`', '\u{feff}'])
                    && !raw.contains(|c: char| c.is_control() && c != '\t');
                let shown = match (plain, self.plus) {
                    (true, _) => format!("`{raw}`"),
                    (false, true) => ascii(&quoted(&text)),
                    (false, false) => quoted(&text),
                };
                self.pad(out, shown.as_bytes());
            }
            'x' | 'X' => {
                let text = &text[..self.precision.unwrap_or(text.len()).min(text.len())];
                let mut shown = String::new();
                for (i, byte) in text.iter().enumerate() {
                    if self.space && i > 0 {
                        shown.push(' ');
                    }
                    if self.sharp && (i == 0 || self.space) {
                        shown.push_str(if self.letter == 'x' { "0x" } else { "0X" });
                    }
                    shown.push_str(&match self.letter {
                        'x' => format!("{byte:02x}"),
                        _ => format!("{byte:02X}"),
                    });
                }
                self.pad(out, shown.as_bytes());
            }
            _ => self.bad(out, value),
        }
    }

    fn integer(&self, out: &mut Vec<u8>, value: &Val<'_>, n: i64) {
        let magnitude = n.unsigned_abs();
        let digits = match self.letter {
            'v' | 'd' => magnitude.to_string(),
            'b' => format!("{}{magnitude:b}", if self.sharp { "0b" } else { "" }),
            'o' => format!("{}{magnitude:o}", if self.sharp { "0" } else { "" }),
            'O' => format!("0o{magnitude:o}"),
            'x' => format!("{}{magnitude:x}", if self.sharp { "0x" } else { "" }),
            'X' => format!("{}{magnitude:X}", if self.sharp { "0X" } else { "" }),
            'c' => {
                let c = u32::try_from(n).ok().and_then(char::from_u32).unwrap_or('\u{fffd}');
                return self.pad(out, c.to_string().as_bytes());
            }
            'q' => {
                let c = u32::try_from(n).ok().and_then(char::from_u32).unwrap_or('\u{fffd}');
                let shown = quoted(c.to_string().as_bytes());
                let inner = shown.trim_matches('"').replace('\'', "\\'").replace("\\\"", "\"");
                return self.pad(out, format!("'{inner}'").as_bytes());
            }
            'U' => {
                let c = u32::try_from(n).ok().and_then(char::from_u32);
                let shown = match c.filter(|c| self.sharp && !c.is_control()) {
                    Some(c) => format!("U+{magnitude:04X} '{c}'"),
                    None => format!("U+{magnitude:04X}"),
                };
                return self.pad(out, shown.as_bytes());
            }
            _ => return self.bad(out, value),
        };
        if self.precision == Some(0) && n == 0 {
            return self.pad(out, b"");
        }
        let sign = self.sign(n < 0);
        let wanted = match (self.precision, self.width) {
            (Some(precision), _) => precision,
            // Zeros take the place of spaces, after the sign.
            (None, Some(width)) if self.zero && !self.minus => width.saturating_sub(sign.len()),
            _ => 0,
        };
        let zeros = "0".repeat(wanted.saturating_sub(digits.len()));
        let spaces = Verb { zero: false, ..self.clone() };
        spaces.pad(out, format!("{sign}{zeros}{digits}").as_bytes());
    }

    fn sign(&self, negative: bool) -> &'static str {
        match (negative, self.plus, self.space) {
            (true, ..) => "-",
            (false, true, _) => "+",
            (false, false, true) => " ",
            _ => "",
        }
    }

    fn float(&self, out: &mut Vec<u8>, value: &Val<'_>, n: f64) {
        let magnitude = n.abs();
        let digits = match self.letter {
            'v' | 'g' => shortest(magnitude, self.precision),
            'G' => shortest(magnitude, self.precision).to_uppercase(),
            'f' | 'F' => format!("{magnitude:.*}", self.precision.unwrap_or(6)),
            'e' => exponent(&format!("{magnitude:.*e}", self.precision.unwrap_or(6))),
            'E' => {
                exponent(&format!("{magnitude:.*e}", self.precision.unwrap_or(6))).to_uppercase()
            }
            _ => return self.bad(out, value),
        };
        let sign = self.sign(n.is_sign_negative());
        let zeros = match self.width {
            Some(width) if self.zero && !self.minus => {
                "0".repeat(width.saturating_sub(sign.len() + digits.len()))
            }
            _ => String::new(),
        };
        let spaces = Verb { zero: false, ..self.clone() };
        spaces.pad(out, format!("{sign}{zeros}{digits}").as_bytes());
    }
}

/// `%g`: the shortest digits that say the number, with an exponent if it is very large or small.
fn shortest(n: f64, precision: Option<usize>) -> String {
    if !n.is_finite() {
        return if n.is_nan() { "NaN".to_owned() } else { "+Inf".to_owned() };
    }
    let scientific = match precision {
        Some(precision) => format!("{n:.*e}", precision.max(1) - 1),
        None => format!("{n:e}"),
    };
    let (mantissa, power) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let power: i32 = power.parse().unwrap_or_default();
    let digits = mantissa.trim_end_matches('0').trim_end_matches('.');
    let mantissa = if mantissa.contains('.') { digits } else { mantissa };
    let limit = match precision {
        Some(precision) => i32::try_from(precision.max(1)).unwrap_or(i32::MAX),
        None => 6,
    };
    if power < -4 || power >= limit {
        return exponent(&format!("{mantissa}e{power}"));
    }
    let count = mantissa.chars().filter(char::is_ascii_digit).count();
    let decimals = i32::try_from(count).unwrap_or_default() - 1 - power;
    format!("{n:.*}", usize::try_from(decimals).unwrap_or_default())
}

/// Go writes at least two digits of an exponent, and its sign.
fn exponent(text: &str) -> String {
    let (mantissa, power) = text.split_once('e').unwrap_or((text, "0"));
    let (sign, digits) = match power.strip_prefix('-') {
        Some(digits) => ('-', digits),
        None => ('+', power),
    };
    format!("{mantissa}e{sign}{digits:0>2}")
}

/// `%+q`: letters beyond ASCII are escaped, too.
fn ascii(quoted: &str) -> String {
    let escaped = |c: char| match u32::from(c) {
        0..0x80 => c.to_string(),
        code @ 0..0x10000 => format!("\\u{code:04x}"),
        code => format!("\\U{code:08x}"),
    };
    quoted.chars().map(escaped).collect()
}

/// `%q`, for bytes that need not be text.
fn quoted(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => crate::quote::Quoted(text).to_string(),
        Err(_) => {
            let mut out = String::from("\"");
            for chunk in bytes.utf8_chunks() {
                let text = crate::quote::Quoted(chunk.valid()).to_string();
                out.push_str(&text[1..text.len() - 1]);
                chunk.invalid().iter().for_each(|byte| out.push_str(&format!("\\x{byte:02x}")));
            }
            out.push('"');
            out
        }
    }
}
