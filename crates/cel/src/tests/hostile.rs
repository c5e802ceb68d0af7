//! Expressions made to hurt: each must end soon, with little memory, on a thread's usual stack.
use super::outcome;

/// The kind of outcome, as evaluated on a thread like those of the server.
fn kind(text: String) -> &'static str {
    let thread = std::thread::Builder::new().stack_size(2 << 20);
    let run = thread.spawn(move || outcome(&text).0).expect("a thread starts");
    run.join().expect("it does not panic")
}

#[test]
fn nesting_is_bounded() {
    let nested =
        |open: &str, close: &str, times| format!("{}1{}", open.repeat(times), close.repeat(times));
    assert_eq!(kind(nested("(", ")", 200)), "value");
    assert_eq!(kind(nested("[", "]", 200)), "value");
    assert_eq!(kind(nested("[dyn(", ")]", 120)), "value");
    for (open, close) in [("(", ")"), ("[", "]"), ("{1:", "}"), ("size(", ")"), ("!(", ")")] {
        assert_eq!(kind(nested(open, close, 5_000)), "issues", "{open}");
    }
    assert_eq!(kind(format!("1{}", "+1".repeat(200))), "value");
    assert_eq!(kind(format!("1{}", "+1".repeat(20_000))), "issues");
    assert_eq!(kind(format!("object{}", ".a".repeat(20_000))), "issues");
    assert_eq!(kind(format!("true{}", " && true".repeat(10_000))), "value");
    assert_eq!(kind("!".repeat(50_000)), "issues");
    assert_eq!(kind(format!("({}", "1+(".repeat(30_000))), "issues");
}

#[test]
fn macros_in_macros_are_bounded() {
    let folds = |times: usize| format!("{}true{}", "[1].all(x, ".repeat(times), ")".repeat(times));
    assert_eq!(kind(folds(60)), "value");
    assert_eq!(kind(folds(2_000)), "issues");
    assert_eq!(kind("l.map(a, l.map(b, l.map(c, l.map(d, l.map(e, l.map(f, l.map(g, l.map(h, l.map(i, l.map(j, l.map(k, 1)))))))))))".to_owned()), "error");
}

#[test]
fn what_doubles_is_bounded() {
    let chain = |start: &str, step: &str, times| format!("{start}{}", step.repeat(times));
    // Texts, lists, types.
    let texts = chain("optional.of('aaaaaaaa')", ".optMap(a, a + a)", 50);
    assert!(matches!(kind(texts), "error" | "issues"));
    let lists = chain("optional.of([1])", ".optMap(a, a + a)", 50);
    assert!(matches!(kind(lists), "error" | "issues"));
    let nested = chain("optional.of([1])", ".optMap(a, [a, a])", 40);
    assert!(matches!(kind(format!("{nested} == {nested}")), "error" | "issues"));
    let types = chain("optional.of(1)", ".optMap(a, {'k': [a], 'l': [a]})", 40);
    assert!(matches!(kind(format!("({types}).hasValue()")), "value" | "issues"));
    assert_eq!(kind("lists.range(1000000).map(x, s).join()".to_owned()), "error");
    assert_eq!(kind("lists.range(100000).map(x, lists.range(100000))".to_owned()), "error");
}

#[test]
fn patterns_are_bounded() {
    assert_eq!(kind("s.matches('((a{100}){100}){10}')".to_owned()), "issues");
    assert_eq!(
        kind("lists.range(100000).exists(i, s.matches('a' + string(i)))".to_owned()),
        "error"
    );
    assert_eq!(kind("s.matches(s + '(((a{30}){30}){30}){30}')".to_owned()), "error");
}

#[test]
fn formats_in_formats_take_no_longer_than_they_are() {
    let times = 60;
    let text = format!("{}1{}", "'%s'.format([".repeat(times), "])".repeat(times));
    assert_eq!(kind(text), "value");
}
