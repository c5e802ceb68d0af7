//! What is printed for people, and nobody reads.
use std::process::{Command, Stdio};

#[test]
fn a_reader_that_has_gone_is_no_accident() {
    for command in ["version", "check"] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let ended = Command::new(env!("CARGO_BIN_EXE_skiff"))
            .arg(command)
            .stdout(writer)
            .stderr(Stdio::piped())
            .output()
            .expect("it runs");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!((ended.status.code(), &*said), (Some(1), ""), "{command}");
    }
}
