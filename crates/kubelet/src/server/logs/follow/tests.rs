use super::*;
use crate::fake::Fake;
use client::Context;
use std::io::Write as _;

fn line(text: &str) -> String {
    format!("2026-01-01T00:00:01Z stdout F {text}\n")
}

fn append(path: &Path, text: &str) {
    let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
    file.expect("a file").write_all(line(text).as_bytes()).expect("written");
}

fn check_tail(text: &str, lines: u64, expected: &str) {
    let mut file = io::Cursor::new(text.as_bytes());
    let start = tail_start(&mut file, lines).expect("a place");
    assert_eq!(&text[usize::try_from(start).unwrap()..], expected);
}

#[test]
fn a_tail_is_counted_from_the_end() {
    check_tail("a\nb\nc\n", 2, "b\nc\n");
    check_tail("a\nb\nc\n", 3, "a\nb\nc\n");
    check_tail("a\nb\nc\n", 9, "a\nb\nc\n");
    check_tail("a\nb\nc", 1, "c");
    check_tail("a\n", 0, "");
    check_tail("", 5, "");
    let long = "x".repeat(PIECE * 2);
    check_tail(&format!("a\n{long}\nc\n"), 2, &format!("{long}\nc\n"));
}

/// A container that runs until the test ends it, and its log.
struct Followed {
    folder: tempfile::TempDir,
    runtime: Fake,
    receiver: mpsc::Receiver<Bytes>,
    following: tokio::task::JoinHandle<io::Result<()>>,
}

impl Followed {
    async fn start() -> Followed {
        let context = Context::new();
        let runtime = Fake::new(&context, &["image"]);
        let container = runtime.run_alone("c").await;
        let folder = tempfile::tempdir().expect("a folder");
        append(&folder.path().join("0.log"), "one");
        let log = Log::open(&folder.path().join("0.log")).expect("a log");
        let (sender, receiver) = mpsc::channel(8);
        let asked = runtime.clone();
        let following = tokio::spawn(async move {
            let options = Options { follow: true, ..Options::default() };
            log.send(&asked, &container, options, sender).await
        });
        Followed { folder, runtime, receiver, following }
    }

    async fn next(&mut self) -> String {
        let piece = tokio::time::timeout(Duration::from_secs(30), self.receiver.recv()).await;
        let piece = piece.expect("in time").unwrap_or_default();
        String::from_utf8(piece.to_vec()).expect("text")
    }
}

#[tokio::test]
async fn what_is_written_is_sent_through_a_rotation_until_the_container_ends() {
    let mut followed = Followed::start().await;
    let path = followed.folder.path().join("0.log");
    assert_eq!(followed.next().await, "one\n");
    append(&path, "two");
    assert_eq!(followed.next().await, "two\n");
    std::fs::rename(&path, followed.folder.path().join("0.log.1")).expect("renamed");
    append(&path, "three");
    assert_eq!(followed.next().await, "three\n");
    followed.runtime.exit("c", 0);
    append(&path, "four");
    assert_eq!(followed.next().await, "four\n");
    assert_eq!(followed.next().await, "");
    followed.following.await.expect("no panic").expect("no fault");
}
