//! What Go's compiler says, word by word, and what its matcher finds.
use super::{Regexp, check};

#[test]
fn faults_are_gos() {
    let said = |pattern: &str| check(pattern).err().map(|fault| fault.to_string());
    for (pattern, fault) in [
        ("a(b", "missing closing ): `a(b`"),
        ("a)b", "unexpected ): `a)b`"),
        ("x[a", "missing closing ]: `[a`"),
        ("[z-a]", "invalid character class range: `z-a`"),
        ("[[:foo:]]", "invalid character class range: `[:foo:]`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("a{2}{3}?", "invalid nested repetition operator: `{2}{3}?`"),
        ("*a", "missing argument to repetition operator: `*`"),
        ("(|+?)", "missing argument to repetition operator: `+?`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("a{2,1}b", "invalid repeat count: `{2,1}`"),
        ("(a{10}){101}", "invalid repeat count: `{101}`"),
        ("(?P<n", "invalid named capture: `(?P<n`"),
        ("(?P<>a)", "invalid named capture: `(?P<>`"),
        ("(?x)a", "invalid or unsupported Perl syntax: `(?x`"),
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        ("(?i", "invalid or unsupported Perl syntax: `(?i`"),
        ("a\\", "trailing backslash at end of expression: ``"),
        ("\\q", "invalid escape sequence: `\\q`"),
        ("\\8", "invalid escape sequence: `\\8`"),
        ("\\x{110000}", "invalid escape sequence: `\\x{110000`"),
        ("\\p{Foo}", "invalid character class range: `\\p{Foo}`"),
        // Go looks for it without its underscore.
        ("\\p{Old_Italic}", "invalid character class range: `\\p{Old_Italic}`"),
    ] {
        let fault = format!("error parsing regexp: {fault}");
        assert_eq!(said(pattern), Some(fault), "{pattern}");
    }
    let deep = |depth: usize| format!("{}{}", "(".repeat(depth), ")".repeat(depth));
    assert_eq!(said(&deep(999)), None);
    assert!(said(&deep(100_000)).is_some_and(|fault| fault.contains("nests too deeply")));
}

#[test]
fn patterns_mean_what_they_mean_in_go() {
    for (pattern, matching, other) in [
        (r"^\d+$", "123", "١٢٣"),
        (r"^\w$", "_", "é"),
        (r"^(?i)k$", "\u{212a}", "x"),
        (r"^[^a]$", "\n", "a"),
        (r"^.$", "é", "\n"),
        (r"^\Qa*\E$", "a*", "aa"),
        (r"^a{,5}$", "a{,5}", "aaa"),
        (r"^[a&&b]$", "&", "c"),
        (r"^\p{greek}\x{1F600}?$", "α", "a"),
        (r"^\P{^Lu}$", "A", "a"),
        (r"(?m)^b$", "a\nb", "a b"),
        (r"^[[:^digit:]]$", "x", "1"),
        (r"^a(?i)*$", "aaa", "AAA"),
        (r"^\101$", "A", "B"),
    ] {
        let regexp = Regexp::compile(pattern).expect(pattern);
        assert!(regexp.is_match(matching), "{pattern} {matching}");
        assert!(!regexp.is_match(other), "{pattern} {other}");
    }
}
