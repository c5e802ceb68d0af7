//! Templates with what Go says of them. The right column was written by Go's `text/template` itself.

use serde_json::{Value, json};

use super::{Dialect, MissingKeys, Template};

static KUBECTL: Dialect = Dialect { name: "output", functions: &["exists", "base64decode"] };
static CRICTL: Dialect = Dialect { name: "tmpl", functions: &["json", "title", "lower", "upper"] };

fn run(template: &str, object: &Value, missing: MissingKeys) -> String {
    let template = match Template::parse(template, &KUBECTL, missing) {
        Ok(template) => template,
        Err(error) => return format!("parse error: {error}"),
    };
    let (out, result) = template.execute(object);
    let out = String::from_utf8_lossy(&out).into_owned();
    match result {
        Ok(()) => out,
        Err(error) => format!("{out} error: {error}"),
    }
}

fn object() -> Value {
    serde_json::from_str(include_str!("cases/object.json")).expect("the object is JSON")
}

/// Cases are blocks divided by a line of `=`; in a block `---` divides the template from the result.
#[test]
fn templates_do_what_go_makes_of_them() {
    let object = object();
    let mut failures = Vec::new();
    let mut count = 0;
    for case in include_str!("cases/cases.txt").split("\n====\n") {
        let Some((template, want)) = case.split_once("\n---\n") else { continue };
        count += 1;
        let got = run(template, &object, MissingKeys::Allowed);
        if got != want {
            failures.push(format!("{template}\n  want {want}\n  got  {got}"));
        }
    }
    assert!(count > 100, "the table is there");
    assert!(failures.is_empty(), "{} of {count}\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn missing_keys_are_faults_when_they_are_asked_to_be() {
    let object = json!({"a": {"b": 1}});
    for (template, want) in [
        ("{{.a.b}}", "1"),
        (
            "{{.a.c}}",
            " error: template: output:1:4: executing \"output\" at <.a.c>: map has no entry for key \"c\"",
        ),
    ] {
        assert_eq!(run(template, &object, MissingKeys::Faults), want);
    }
}

#[test]
fn what_went_wrong_is_printed_with_the_data() {
    let template = Template::parse("{{.a.b}}", &KUBECTL, MissingKeys::Allowed).unwrap();
    let (out, result) = template.print(&json!({"a": "x<y"}));
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "Error executing template: template: output:1:4: executing \"output\" at <.a.b>: can't evaluate field b in type interface {}. \
         Printing more information for debugging the template:\n\ttemplate was:\n\t\t{{.a.b}}\n\traw data was:\n\t\t{\"a\":\"x\\u003cy\"}\n\
         \tobject given to template engine was:\n\t\tmap[a:x<y]\n\n"
    );
    assert!(
        result
            .unwrap_err()
            .to_string()
            .starts_with("error executing template \"{{.a.b}}\": template: output:1:4:")
    );
}

#[test]
fn nesting_and_endless_templates_are_bounded() {
    let deep = format!("{}x{}", "{{if true}}".repeat(5000), "{{end}}".repeat(5000));
    assert!(run(&deep, &json!({}), MissingKeys::Allowed).contains("max expression depth exceeded"));
    let parens = format!("{{{{print {}1{}}}}}", "(".repeat(5000), ")".repeat(5000));
    assert!(
        run(&parens, &json!({}), MissingKeys::Allowed).contains("max expression depth exceeded")
    );
    let endless = "{{define \"a\"}}{{template \"a\"}}{{end}}{{template \"a\"}}";
    assert!(
        run(endless, &json!({}), MissingKeys::Allowed).contains("exceeded maximum template depth")
    );
    let many = "{{range 1000000000000}}{{end}}";
    assert!(run(many, &json!({}), MissingKeys::Allowed).contains("takes too long"));
}

#[test]
fn a_dialect_has_functions_and_a_name_of_its_own() {
    let object = json!({"a": {"b": [1, "<x>"]}, "n": "one two-three", "i": 5});
    let run = |text: &str| match Template::parse(text, &CRICTL, MissingKeys::Faults) {
        Ok(template) => match template.execute(&object) {
            (out, Ok(())) => String::from_utf8(out).unwrap(),
            (_, Err(error)) => error.to_string(),
        },
        Err(error) => error.to_string(),
    };
    assert_eq!(run("{{json .a}}"), "{\"b\":[1,\"\\u003cx\\u003e\"]}\n");
    assert_eq!(run("{{title .n}} {{upper .n}} {{lower \"ÄB\"}}"), "One Two-Three ONE TWO-THREE äb");
    assert_eq!(run("{{exists .a}}"), "template: tmpl:1: function \"exists\" not defined");
    assert!(run("{{.x}}").starts_with("template: tmpl:1:2: executing \"tmpl\" at <.x>: "));
    assert!(run("{{upper .i}}").contains("wrong type"), "{}", run("{{upper .i}}"));
}
