//! Command lines with what upstream's kubectl v1.37 printed for them.

use serde_json::{Value, json};

use super::{Generator, Rim, Source, config, workload};
use crate::flags::Arguments;
use crate::session::tests::{told, world};

#[tokio::test]
async fn flags_make_what_upstream_makes_of_them() {
    let world = world();
    let mut count = 0;
    for case in include_str!("cases/cases.txt").split("$ ").filter(|case| !case.is_empty()) {
        let (line, expected) = case.split_once('\n').unwrap();
        assert_eq!(told(&world, line).await, expected, "{line}");
        count += 1;
    }
    assert!(count > 70, "the cases are there");
}

fn make(generator: &Generator, line: &str, cron_job: Option<&Value>) -> String {
    let read = |path: &str| match path {
        "a.txt" => Ok(Source::File(b"hello\n".to_vec())),
        "b.bin" => Ok(Source::File(vec![0xff, 0xfe])),
        "e.env" => Ok(Source::File(b"\xef\xbb\xbfx=1\n# c\n  y=2 =3\nHOME\n".to_vec())),
        "folder" => Ok(Source::Folder(vec![
            ("one".to_owned(), b"1".to_vec()),
            ("two".to_owned(), vec![0xff]),
        ])),
        _ => Err(std::io::ErrorKind::NotFound.into()),
    };
    let rim = Rim {
        read: &read,
        variable: &|name| format!("of {name}"),
        random: &|length| "x".repeat(length),
        resource: &|_, _| None,
        cron_job,
    };
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let made = Arguments::parse("kubectl create", [&generator.flags], &words)
        .and_then(|arguments| generator.make(&arguments, &rim));
    match made {
        Ok(made) => made.object.to_string(),
        Err(failure) => failure.message(),
    }
}

#[test]
fn files_folders_and_environments_become_keys() {
    let map = |line: &str| make(&config::CONFIG_MAP, line, None);
    assert_eq!(
        map("m --from-file=a.txt --from-file=k=b.bin --from-literal=z=1"),
        r#"{"apiVersion":"v1","binaryData":{"k":"//4="},"data":{"a.txt":"hello\n","z":"1"},"kind":"ConfigMap","metadata":{"name":"m"}}"#
    );
    assert_eq!(
        map("m --from-file=folder"),
        r#"{"apiVersion":"v1","binaryData":{"two":"/w=="},"data":{"one":"1"},"kind":"ConfigMap","metadata":{"name":"m"}}"#
    );
    assert_eq!(
        map("m --from-env-file=e.env"),
        r#"{"apiVersion":"v1","data":{"HOME":"of HOME","x":"1","y":"2 =3"},"kind":"ConfigMap","metadata":{"name":"m"}}"#
    );
    assert_eq!(map("m --from-file=nope"), "error: error reading nope: no such file or directory");
    assert_eq!(map("m --from-file=k=folder"), "error: cannot give a key name for a directory path");
    assert_eq!(map("m --from-env-file=folder"), "error: env config file cannot be a directory");
    let secret = |line: &str| make(&config::SECRET_DOCKER, line, None);
    assert_eq!(
        secret("s --from-file=a.txt"),
        r#"{"apiVersion":"v1","data":{".dockerconfigjson":"aGVsbG8K"},"kind":"Secret","metadata":{"name":"s"},"type":"kubernetes.io/dockerconfigjson"}"#
    );
    assert_eq!(
        make(&config::SECRET_TLS, "s --cert=a.txt --key=a.txt", None),
        "error: tls: failed to find any PEM data in certificate input"
    );
}

#[test]
fn names_of_images_become_names_of_containers() {
    let object: Value = serde_json::from_str(&make(
        &workload::DEPLOYMENT,
        "w --image=r.io:5000/a/b_c.d:1@sha256:0",
        None,
    ))
    .unwrap();
    assert_eq!(object["spec"]["template"]["spec"]["containers"][0]["name"], "b-c-d-xxxxx");
}

#[test]
fn a_job_of_a_cron_job_says_that_somebody_started_it() {
    let cron = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c", "uid": "u"},
        "spec": {"jobTemplate": {"metadata": {"labels": {"a": "b"}, "annotations": {"x": "y"}}, "spec": {"completions": 3}}}});
    let object: Value =
        serde_json::from_str(&make(&workload::JOB, "j --from=cronjob/c", Some(&cron))).unwrap();
    assert_eq!(
        object["metadata"],
        json!({"name": "j", "labels": {"a": "b"},
            "annotations": {"cronjob.kubernetes.io/instantiate": "manual", "x": "y"},
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": "u", "controller": true}]})
    );
    assert_eq!(object["spec"], json!({"completions": 3}));
}
