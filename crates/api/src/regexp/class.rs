//! Classes of characters: `[a-z]`, `\d`, `[[:alpha:]]`, `\p{Greek}`.
use super::escape;
use super::{Error, Fault};
use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, HirKind};

const PERL: &[(char, &[(char, char)])] = &[
    ('d', &[('0', '9')]),
    ('s', &[('\t', '\n'), ('\x0c', '\r'), (' ', ' ')]),
    ('w', &[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')]),
];

const POSIX: &[(&str, &[(char, char)])] = &[
    ("alnum", &[('0', '9'), ('A', 'Z'), ('a', 'z')]),
    ("alpha", &[('A', 'Z'), ('a', 'z')]),
    ("ascii", &[('\0', '\x7f')]),
    ("blank", &[('\t', '\t'), (' ', ' ')]),
    ("cntrl", &[('\0', '\x1f'), ('\x7f', '\x7f')]),
    ("digit", &[('0', '9')]),
    ("graph", &[('!', '~')]),
    ("lower", &[('a', 'z')]),
    ("print", &[(' ', '~')]),
    ("punct", &[('!', '/'), (':', '@'), ('[', '`'), ('{', '~')]),
    ("space", &[('\t', '\r'), (' ', ' ')]),
    ("upper", &[('A', 'Z')]),
    ("word", &[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')]),
    ("xdigit", &[('0', '9'), ('A', 'F'), ('a', 'f')]),
];

/// Unicode's categories under the names that Go looks for: a capital, then small letters.
const CATEGORIES: &str = " C Cc Cf Cn Co Cs L Lc Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf \
    Pi Po Ps S Sc Sk Sm So Z Zl Zp Zs Casedletter Closepunctuation Combiningmark \
    Connectorpunctuation Control Currencysymbol Dashpunctuation Decimalnumber Enclosingmark \
    Finalpunctuation Format Initialpunctuation Letter Letternumber Lineseparator Lowercaseletter \
    Mark Mathsymbol Modifierletter Modifiersymbol Nonspacingmark Number Openpunctuation Other \
    Otherletter Othernumber Otherpunctuation Othersymbol Paragraphseparator Privateuse Punctuation \
    Separator Spaceseparator Spacingmark Surrogate Symbol Titlecaseletter Unassigned \
    Uppercaseletter Cntrl Digit Punct ";

/// Scripts. Go loses those that have an underscore in their names before it looks for them.
const SCRIPTS: &str = " Adlam Ahom Arabic Armenian Avestan Balinese Bamum Batak Bengali Bhaiksuki \
    Bopomofo Brahmi Braille Buginese Buhid Carian Chakma Cham Cherokee Chorasmian Common Coptic \
    Cuneiform Cypriot Cyrillic Deseret Devanagari Dogra Duployan Elbasan Elymaic Ethiopic Georgian \
    Glagolitic Gothic Grantha Greek Gujarati Gurmukhi Han Hangul Hanunoo Hatran Hebrew Hiragana \
    Inherited Javanese Kaithi Kannada Katakana Kawi Kharoshthi Khmer Khojki Khudawadi Lao Latin \
    Lepcha Limbu Lisu Lycian Lydian Mahajani Makasar Malayalam Mandaic Manichaean Marchen \
    Medefaidrin Miao Modi Mongolian Mro Multani Myanmar Nabataean Nandinagari Newa Nko Nushu Ogham \
    Oriya Osage Osmanya Palmyrene Phoenician Rejang Runic Samaritan Saurashtra Sharada Shavian \
    Siddham Sinhala Sogdian Soyombo Sundanese Syriac Tagalog Tagbanwa Takri Tamil Tangsa Tangut \
    Telugu Thaana Thai Tibetan Tifinagh Tirhuta Toto Ugaritic Vai Vithkuqi Wancho Yezidi Yi ";

/// The class in brackets that the text begins with, and what follows.
pub fn bracketed(text: &str, fold: bool) -> Result<(ClassUnicode, &str), Error> {
    let mut class = ClassUnicode::empty();
    let inside = &text[1..];
    let (negated, mut rest) = inside.strip_prefix('^').map_or((false, inside), |rest| (true, rest));
    let mut first = true;
    // A bracket that comes first is a character.
    while first || !rest.starts_with(']') {
        first = false;
        if let Some((named, after)) = posix(rest, fold)? {
            class.union(&named);
            rest = after;
        } else if let Some((named, after)) = escaped(rest, fold)? {
            class.union(&named);
            rest = after;
        } else {
            let start = rest;
            let (low, after) = one(rest, text)?;
            rest = after;
            let mut high = low;
            // A dash that comes last is a character too.
            let range = rest.strip_prefix('-');
            if let Some(after) = range.filter(|after| !after.is_empty() && !after.starts_with(']'))
            {
                (high, rest) = one(after, text)?;
            }
            if high < low {
                return Err(Fault::CharRange.of(&start[..start.len() - rest.len()]));
            }
            class.union(&folded(range_of(low, high), fold));
        }
    }
    if negated {
        class.negate();
    }
    Ok((class, &rest[1..]))
}

/// `\d`, `\PL`: a class by an escape, if the text begins with one.
pub fn escaped(text: &str, fold: bool) -> Result<Option<(ClassUnicode, &str)>, Error> {
    let Some(letter) = text.strip_prefix('\\').and_then(|rest| rest.chars().next()) else {
        return Ok(None);
    };
    if matches!(letter, 'p' | 'P') {
        return unicode(text, fold, letter == 'P').map(Some);
    }
    let known = PERL.iter().find(|(name, _)| *name == letter.to_ascii_lowercase());
    Ok(known.map(|(_, ranges)| {
        (signed(folded(of_ranges(ranges), fold), letter.is_ascii_uppercase()), &text[2..])
    }))
}

/// One character, escaped or not. `whole` is the class from its beginning.
fn one<'t>(text: &'t str, whole: &str) -> Result<(u32, &'t str), Error> {
    let mut rest = text.chars();
    match rest.next() {
        None => Err(Fault::MissingBracket.of(whole)),
        Some('\\') => escape::character(text),
        Some(c) => Ok((c.into(), rest.as_str())),
    }
}

/// `[:alpha:]` and `[:^alpha:]`.
fn posix(text: &str, fold: bool) -> Result<Option<(ClassUnicode, &str)>, Error> {
    let Some((name, rest)) = text.strip_prefix("[:").and_then(|text| text.split_once(":]")) else {
        return Ok(None);
    };
    let (plain, negated) = name.strip_prefix('^').map_or((name, false), |name| (name, true));
    let Some((_, ranges)) = POSIX.iter().find(|(known, _)| *known == plain) else {
        return Err(Fault::CharRange.of(&text[..text.len() - rest.len()]));
    };
    Ok(Some((signed(folded(of_ranges(ranges), fold), negated), rest)))
}

/// `\pL`, `\p{Greek}`, `\P{^Greek}`.
fn unicode(text: &str, fold: bool, negated: bool) -> Result<(ClassUnicode, &str), Error> {
    let after = &text[2..];
    let (name, rest) = match after.strip_prefix('{') {
        Some(inside) => inside.split_once('}').ok_or_else(|| Fault::CharRange.of(text))?,
        None => after.split_at(after.chars().next().map_or(0, char::len_utf8)),
    };
    let (name, negated) = name.strip_prefix('^').map_or((name, negated), |name| (name, !negated));
    let class = table(&canonical(name))
        .ok_or_else(|| Fault::CharRange.of(&text[..text.len() - rest.len()]))?;
    Ok((signed(folded(class, fold), negated), rest))
}

/// Names are compared without underscores, dashes and spaces, and their case matters not.
fn canonical(name: &str) -> String {
    let mut letters = name.chars().filter(|c| !matches!(c, '_' | '-' | ' '));
    let first = letters.next().map(|c| c.to_ascii_uppercase());
    first.into_iter().chain(letters.map(|c| c.to_ascii_lowercase())).collect()
}

fn table(name: &str) -> Option<ClassUnicode> {
    let listed = |names: &str| !name.is_empty() && names.contains(&format!(" {name} "));
    let property = match name {
        "Any" => return Some(range_of(0, char::MAX.into())),
        "Ascii" => return Some(range_of(0, 0x7f)),
        // The halves of pairs in UTF-16 occur in no text.
        "Cs" | "Surrogate" => return Some(ClassUnicode::empty()),
        "Assigned" => "Assigned".to_owned(),
        "Spacingmark" => "gc=Mc".to_owned(),
        name if listed(CATEGORIES) => format!("gc={name}"),
        name if listed(SCRIPTS) => format!("sc={name}"),
        _ => return None,
    };
    let hir = regex_syntax::parse(&format!("\\p{{{property}}}")).ok()?;
    match hir.into_kind() {
        HirKind::Class(Class::Unicode(class)) => Some(class),
        _ => None,
    }
}

fn of_ranges(ranges: &[(char, char)]) -> ClassUnicode {
    ClassUnicode::new(ranges.iter().map(|(low, high)| ClassUnicodeRange::new(*low, *high)))
}

/// The characters between two numbers; some numbers are of no character.
pub fn range_of(low: u32, high: u32) -> ClassUnicode {
    let parts = [(low, high.min(0xd7ff)), (low.max(0xe000), high)];
    let part = |(low, high): (u32, u32)| {
        let (low, high) = (char::from_u32(low)?, char::from_u32(high)?);
        (low <= high).then(|| ClassUnicodeRange::new(low, high))
    };
    ClassUnicode::new(parts.into_iter().filter_map(part))
}

pub fn folded(mut class: ClassUnicode, fold: bool) -> ClassUnicode {
    if fold {
        class.case_fold_simple();
    }
    class
}

fn signed(mut class: ClassUnicode, negated: bool) -> ClassUnicode {
    if negated {
        class.negate();
    }
    class
}
