//! A whole kubelet whose machine goes down; a bus of our own that says so.
use super::*;
use crate::dbus::{self, Message, REPLY, SIGNAL};
use crate::tests::{Machine, one};
use k8s_openapi::api::core::v1::Node;
use serde_json::json;
use std::io::{BufRead, BufReader, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc;

fn groups(groups: &[(i32, i64)]) -> Vec<Group> {
    groups
        .iter()
        .map(|(priority, seconds)| Group { priority: *priority, seconds: *seconds })
        .collect()
}

fn pod(priority: Option<i32>) -> Arc<Pod> {
    let name = priority.map_or("none".to_owned(), |priority| priority.to_string());
    let pod =
        json!({ "metadata": { "name": name }, "spec": { "containers": [], "priority": priority } });
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn check(settings: &Settings, priorities: &[Option<i32>], expected: &str) {
    let pods = priorities.iter().map(|priority| pod(*priority)).collect();
    let lines = settings.by_group(pods).into_iter().map(|(group, pods)| {
        let names: Vec<&str> = pods.iter().map(|pod| pod::name(pod)).collect();
        format!("{}s: {}", group.seconds, names.join(" "))
    });
    assert_eq!(lines.collect::<Vec<_>>().join(", "), expected);
}

#[test]
fn pods_end_in_the_order_of_their_priorities() {
    let settings = Settings::new(groups(&[(1000, 10), (-5, 30), (0, 20)]), 0, 0).unwrap();
    let all = [None, Some(-100), Some(-5), Some(0), Some(999), Some(1000), Some(i32::MAX)];
    check(&settings, &all, "30s: -100 -5, 20s: none 0 999, 10s: 1000 2147483647");
    assert_eq!(settings.longest(), Duration::from_secs(60));
    let plain = Settings::new(Vec::new(), 30, 10).unwrap();
    check(&plain, &[Some(0), Some(CRITICAL), Some(5)], "20s: 0 5, 10s: 2000000000");
    assert!(Settings::new(Vec::new(), 10, 20).is_err());
    assert!(Settings::new(Vec::new(), 0, 0).unwrap().groups.is_empty());
}

impl Machine {
    fn with_priority(&self, name: &str, priority: i32) {
        let mut spec = one(json!({}));
        spec["nodeName"] = "n1".into();
        spec["priority"] = priority.into();
        spec["terminationGracePeriodSeconds"] = 5.into();
        spec["containers"][0]["name"] = name.into();
        let metadata =
            json!({ "name": name, "namespace": "default", "uid": name, "generation": 1 });
        let pod = json!({ "metadata": metadata, "spec": spec });
        self.world.put::<Pod>(&serde_json::from_value(pod).unwrap());
    }

    fn told(&self, name: &str) -> String {
        let pod = self.world.get::<Pod>("default", name).unwrap();
        let status = pod.status.clone().unwrap_or_default();
        [status.phase, status.reason, status.message]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(" ")
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_seconds_are_for_those_that_matter_most() {
    let machine = Machine::new();
    let settings = Settings::new(groups(&[(0, 3), (CRITICAL, 10)]), 0, 0).unwrap();
    let begin = settings.begin.clone();
    machine.run_kubelet_with(machine.context.clone(), |config| {
        config.shutdown = Settings { bus: None, ..settings };
    });
    machine.with_priority("web", 0);
    machine.with_priority("dns", CRITICAL);
    machine.pass(2).await;
    assert_eq!(
        (machine.told("web").as_str(), machine.told("dns").as_str()),
        ("Running", "Running")
    );
    machine.runtime.calls();
    begin.notify_one();
    machine.pass(2).await;
    // Less than the pod asks for where there is less, and no more than it asks for.
    let stops = machine.runtime.calls();
    let stops: Vec<&str> =
        stops.lines().filter(|line| line.starts_with("stop container")).collect();
    assert_eq!(stops, ["stop container 3s", "stop container 5s"]);
    let ended = format!("Failed Terminated {MESSAGE}");
    assert_eq!((machine.told("web"), machine.told("dns")), (ended.clone(), ended));
    let pod = machine.world.get::<Pod>("default", "web").unwrap();
    let conditions = json!(pod.status.as_ref().unwrap().conditions);
    let mut target = conditions.as_array().unwrap().iter();
    let target = target.find(|one| one["type"] == "DisruptionTarget").unwrap();
    assert_eq!(target["reason"], "TerminationByKubelet");
    // Nobody else begins, and the node says so.
    machine.with_priority("late", 0);
    machine.pass(1).await;
    assert_eq!(
        machine.told("late"),
        "Failed NodeShutdown Pod was rejected: Pod was rejected as the node is shutting down."
    );
    let node = machine.world.get::<Node>("", "n1").unwrap();
    let conditions = node.status.as_ref().unwrap().conditions.as_ref().unwrap();
    let ready = conditions.iter().find(|one| one.type_ == "Ready").unwrap();
    assert_eq!(ready.message.as_deref(), Some("node is shutting down"));
}

/// The bus: it answers everything, gives locks, and tells of shutdowns.
fn bus(socket: &std::path::Path) -> (mpsc::Receiver<String>, mpsc::Sender<bool>) {
    let listener = UnixListener::bind(socket).unwrap();
    let (said, hears) = mpsc::channel();
    let (tells, told) = mpsc::channel::<bool>();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        reader.read_exact(&mut [0]).unwrap();
        for answer in ["OK 1234\r\n", "AGREE_UNIX_FD\r\n", ""] {
            reader.read_line(&mut String::new()).unwrap();
            (&stream).write_all(answer.as_bytes()).unwrap();
        }
        let mut bytes = Vec::new();
        loop {
            let Some(message) = receive(&mut reader, &mut bytes) else { return };
            said.send(message.member.clone()).unwrap();
            let (signature, body, file) = match message.member.as_str() {
                "Get" => {
                    let mut body = vec![1, b't', 0, 0, 0, 0, 0, 0];
                    body.extend(60_000_000u64.to_le_bytes());
                    ("v", body, false)
                }
                "Inhibit" => ("h", vec![0; 4], true),
                _ => ("", Vec::new(), false),
            };
            let bytes = dbus::tests::message(REPLY, message.serial, "", signature, &body, file);
            let lock = file.then(|| {
                // Its other end shows whether it is still held.
                let (ours, theirs) = UnixStream::pair().unwrap();
                let said = said.clone();
                std::thread::spawn(move || {
                    let _ = (&ours).read(&mut [0]);
                    let _ = said.send("let go".to_owned());
                });
                theirs
            });
            send(&stream, &bytes, lock.as_ref());
            if message.member == "AddMatch" {
                break;
            }
        }
        for is_beginning in told {
            let body = u32::from(is_beginning).to_le_bytes();
            let bytes = dbus::tests::message(SIGNAL, 0, "PrepareForShutdown", "b", &body, false);
            send(&stream, &bytes, None);
        }
    });
    (hears, tells)
}

fn receive(reader: &mut impl Read, bytes: &mut Vec<u8>) -> Option<Message> {
    loop {
        if let Some((message, length)) = dbus::tests::decoded(bytes) {
            bytes.drain(..length);
            return Some(message);
        }
        let mut chunk = [0; 512];
        let count = reader.read(&mut chunk).ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&chunk[..count]);
    }
}

fn send(stream: &UnixStream, bytes: &[u8], file: Option<&UnixStream>) {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let files: Vec<_> = file.iter().map(|file| file.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut extra = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        assert!(extra.push(SendAncillaryMessage::ScmRights(&files)));
    }
    sendmsg(stream, &[IoSlice::new(bytes)], &mut extra, SendFlags::empty()).unwrap();
}

#[tokio::test]
async fn logind_is_asked_to_wait_and_let_go_when_pods_have_ended() {
    let machine = Machine::new();
    let socket = machine.folder.path().join("bus");
    let (hears, tells) = bus(&socket);
    let settings = Settings::new(Vec::new(), 30, 10).unwrap();
    machine.run_kubelet_with(machine.context.clone(), |config| {
        config.shutdown = Settings { bus: Some(socket.clone()), ..settings };
    });
    machine.with_priority("web", 0);
    crate::testing::until("it runs", || machine.told("web") == "Running").await;
    let mut calls: Vec<String> = Vec::new();
    crate::testing::until("logind is asked", || {
        hears.try_recv().is_ok_and(|call| call == "AddMatch")
    })
    .await;
    calls.extend(hears.try_iter());
    assert!(!calls.contains(&"let go".to_owned()));
    tells.send(true).unwrap();
    crate::testing::until("the lock is let go", || {
        hears.try_recv().is_ok_and(|call| call == "let go")
    })
    .await;
    assert!(machine.told("web").starts_with("Failed Terminated"), "{}", machine.told("web"));
}
