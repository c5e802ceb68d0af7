//! Whole command lines against a runtime that remembers what it was asked.
use super::*;
use expect_test::{Expect, expect};
use parking_lot::Mutex;
use runtime::cri::v1::*;
use runtime::cri::{Cri, Events};
use std::collections::HashMap;
use std::sync::Arc;
use tonic::Status;

/// A sandbox with a container that runs and one that has ended; everything else is not there.
#[derive(Default)]
struct Fake {
    asked: Mutex<Vec<String>>,
    /// Calls of this name are never answered.
    hangs: &'static str,
    log: String,
}

type Answer<T> = Result<T, Status>;

fn labels() -> HashMap<String, String> {
    let pairs = [("io.kubernetes.pod.name", "web-0"), ("io.kubernetes.pod.namespace", "default")];
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

fn image() -> Image {
    Image {
        id: format!("sha256:{}", "c".repeat(64)),
        repo_tags: vec!["docker.io/library/web:1.0".to_owned()],
        repo_digests: vec![format!("docker.io/library/web@sha256:{}", "d".repeat(64))],
        size: 4_456_789,
        ..Image::default()
    }
}

fn container(id: char, name: &str, state: ContainerState, created_at: i64) -> Container {
    Container {
        id: String::from(id).repeat(64),
        pod_sandbox_id: "f".repeat(64),
        metadata: Some(ContainerMetadata { name: name.to_owned(), attempt: 1 }),
        image: Some(ImageSpec { image: image().id, ..ImageSpec::default() }),
        state: state as i32,
        created_at,
        labels: labels(),
        ..Container::default()
    }
}

fn containers() -> Vec<Container> {
    vec![
        container('a', "web", ContainerState::ContainerRunning, 1_700_000_000_000_000_000),
        container('b', "init\u{1b}[2J", ContainerState::ContainerExited, 1_600_000_000_000_000_000),
    ]
}

impl Fake {
    async fn note(&self, call: &str, what: impl std::fmt::Debug) {
        self.asked.lock().push(format!("{call} {what:?}"));
        if call == self.hangs {
            std::future::pending::<()>().await;
        }
    }

    fn find(id: &str) -> Answer<Container> {
        let found = containers().into_iter().find(|container| container.id.starts_with(id));
        found.ok_or_else(|| Status::not_found(format!("could not find container {id:?}")))
    }
}

/// Calls that no test makes.
macro_rules! absent {
    ($($name:ident: $request:ty => $response:ty,)*) => {
        $(async fn $name(&self, _: $request) -> Answer<$response> {
            Err(Status::unimplemented(concat!("unknown method ", stringify!($name))))
        })*
    };
}

impl Cri for Fake {
    async fn version(&self, request: VersionRequest) -> Answer<VersionResponse> {
        self.note("version", &request.version).await;
        Ok(VersionResponse {
            version: "0.1.0".to_owned(),
            runtime_name: "fake".to_owned(),
            runtime_version: "v9".to_owned(),
            runtime_api_version: "v1".to_owned(),
        })
    }

    async fn list_containers(
        &self,
        request: ListContainersRequest,
    ) -> Answer<ListContainersResponse> {
        let filter = request.filter.unwrap_or_default();
        let state = filter.state.map(|value| value.state);
        self.note("list", (&filter.id, &filter.pod_sandbox_id, state)).await;
        let mut containers = containers();
        containers.retain(|container| state.is_none_or(|state| state == container.state));
        Ok(ListContainersResponse { containers })
    }

    async fn list_pod_sandbox(
        &self,
        request: ListPodSandboxRequest,
    ) -> Answer<ListPodSandboxResponse> {
        self.note("pods", request.filter.unwrap_or_default().id).await;
        let metadata = PodSandboxMetadata {
            name: "web-0".to_owned(),
            namespace: "default".to_owned(),
            uid: "u".to_owned(),
            attempt: 0,
        };
        let pod = PodSandbox {
            id: "f".repeat(64),
            metadata: Some(metadata),
            created_at: 1_700_000_000_000_000_000,
            ..PodSandbox::default()
        };
        Ok(ListPodSandboxResponse { items: vec![pod] })
    }

    async fn container_status(
        &self,
        request: ContainerStatusRequest,
    ) -> Answer<ContainerStatusResponse> {
        self.note("status", (&request.container_id, request.verbose)).await;
        let found = Fake::find(&request.container_id)?;
        let status = ContainerStatus {
            id: found.id,
            metadata: found.metadata,
            state: found.state,
            created_at: found.created_at,
            started_at: found.created_at,
            exit_code: 3,
            log_path: self.log.clone(),
            ..ContainerStatus::default()
        };
        let info = [("info", "{\"pid\":5}"), ("word", "\"x\"")];
        let info = info.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        Ok(ContainerStatusResponse { status: Some(status), info })
    }

    async fn stop_container(&self, request: StopContainerRequest) -> Answer<StopContainerResponse> {
        self.note("stop", (&request.container_id, request.timeout)).await;
        Fake::find(&request.container_id)?;
        Ok(StopContainerResponse {})
    }

    async fn remove_container(
        &self,
        request: RemoveContainerRequest,
    ) -> Answer<RemoveContainerResponse> {
        self.note("remove", &request.container_id).await;
        Ok(RemoveContainerResponse {})
    }

    async fn exec_sync(&self, request: ExecSyncRequest) -> Answer<ExecSyncResponse> {
        self.note("exec", (&request.container_id, &request.cmd, request.timeout)).await;
        let exit_code = i32::from(request.cmd == ["false"]);
        Ok(ExecSyncResponse { stdout: b"out".to_vec(), stderr: b"err".to_vec(), exit_code })
    }

    async fn run_pod_sandbox(
        &self,
        request: RunPodSandboxRequest,
    ) -> Answer<RunPodSandboxResponse> {
        let metadata = request.config.unwrap_or_default().metadata.unwrap_or_default();
        self.note("runp", (&metadata.name, metadata.uid.len(), &request.runtime_handler)).await;
        Ok(RunPodSandboxResponse { pod_sandbox_id: "new".to_owned() })
    }

    async fn update_container_resources(
        &self,
        request: UpdateContainerResourcesRequest,
    ) -> Answer<UpdateContainerResourcesResponse> {
        let linux = request.linux.unwrap_or_default();
        self.note("update", (linux.cpu_shares, linux.memory_limit_in_bytes)).await;
        Ok(UpdateContainerResourcesResponse {})
    }

    async fn list_images(&self, request: ListImagesRequest) -> Answer<ListImagesResponse> {
        let filter = request.filter.unwrap_or_default().image.unwrap_or_default();
        self.note("images", &filter.image).await;
        Ok(ListImagesResponse { images: vec![image()] })
    }

    async fn image_status(&self, request: ImageStatusRequest) -> Answer<ImageStatusResponse> {
        let name = request.image.unwrap_or_default().image;
        let known = image().id.contains(&name) || image().repo_tags.contains(&name);
        Ok(ImageStatusResponse { image: known.then(image), info: HashMap::new() })
    }

    async fn pull_image(&self, request: PullImageRequest) -> Answer<PullImageResponse> {
        let auth = request.auth.unwrap_or_default();
        let name = request.image.unwrap_or_default();
        self.note("pull", (&name.image, auth.username, auth.password, auth.auth)).await;
        Ok(PullImageResponse { image_ref: name.image })
    }

    async fn remove_image(&self, request: RemoveImageRequest) -> Answer<RemoveImageResponse> {
        self.note("rmi", request.image.unwrap_or_default().image).await;
        Ok(RemoveImageResponse {})
    }

    async fn container_events(&self) -> Answer<Events> {
        let event = ContainerEventResponse { container_id: "a".to_owned(), ..Default::default() };
        Ok(Box::pin(futures_util::stream::iter([Ok(event)])))
    }

    absent! {
        stop_pod_sandbox: StopPodSandboxRequest => StopPodSandboxResponse,
        remove_pod_sandbox: RemovePodSandboxRequest => RemovePodSandboxResponse,
        pod_sandbox_status: PodSandboxStatusRequest => PodSandboxStatusResponse,
        create_container: CreateContainerRequest => CreateContainerResponse,
        start_container: StartContainerRequest => StartContainerResponse,
        checkpoint_container: CheckpointContainerRequest => CheckpointContainerResponse,
        reopen_container_log: ReopenContainerLogRequest => ReopenContainerLogResponse,
        exec: ExecRequest => ExecResponse,
        attach: AttachRequest => AttachResponse,
        port_forward: PortForwardRequest => PortForwardResponse,
        container_stats: ContainerStatsRequest => ContainerStatsResponse,
        list_container_stats: ListContainerStatsRequest => ListContainerStatsResponse,
        pod_sandbox_stats: PodSandboxStatsRequest => PodSandboxStatsResponse,
        list_pod_sandbox_stats: ListPodSandboxStatsRequest => ListPodSandboxStatsResponse,
        update_runtime_config: UpdateRuntimeConfigRequest => UpdateRuntimeConfigResponse,
        status: StatusRequest => StatusResponse,
        list_metric_descriptors: ListMetricDescriptorsRequest => ListMetricDescriptorsResponse,
        list_pod_sandbox_metrics: ListPodSandboxMetricsRequest => ListPodSandboxMetricsResponse,
        runtime_config: RuntimeConfigRequest => RuntimeConfigResponse,
        update_pod_sandbox_resources:
            UpdatePodSandboxResourcesRequest => UpdatePodSandboxResourcesResponse,
        image_fs_info: ImageFsInfoRequest => ImageFsInfoResponse,
    }
}

/// Where a test reads what was written.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Heard {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What a command line says, without the moments of its log, and what the runtime was asked.
async fn told(fake: Fake, line: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let (socket, config) = (folder.path().join("s"), folder.path().join("crictl.yaml"));
    std::fs::write(&config, "timeout: 30\n").unwrap();
    let fake = Arc::new(fake);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let (serving, at) = (fake.clone(), socket.clone());
    let server = tokio::spawn(async move {
        let stopped = async { drop(stopped.await) };
        runtime::cri::serve(serving, &at, stopped).await.unwrap();
    });
    while !socket.exists() {
        tokio::task::yield_now().await;
    }
    let heard = Heard::default();
    let endpoint = format!("unix://{}", socket.display());
    let mut session = Session::new(Box::new(heard.clone()), Box::new(heard.clone()), &endpoint);
    let mut words = vec!["--config".to_owned(), config.display().to_string()];
    words.extend(line.split_whitespace().map(|word| word.replace('~', " ")));
    let ended = run(&mut session, &words).await;
    let mut text = String::from_utf8_lossy(&heard.0.lock()).into_owned();
    if let Some(failed) = ended.as_ref().err().and_then(Failure::message) {
        text.push_str(&format!("FAILED {failed}\n"));
    }
    for asked in fake.asked.lock().iter().filter(|asked| !asked.starts_with("version ")) {
        text.push_str(&format!("asked {asked}\n"));
    }
    // A client that was left hanging keeps its connection: the server need not wait for it.
    drop(stop);
    server.abort();
    text.replace(&*folder.path().to_string_lossy(), "FOLDER")
}

async fn check(line: &str, expected: Expect) {
    expected.assert_eq(&told(Fake::default(), line).await);
}

#[tokio::test]
async fn containers_are_listed_in_columns() {
    let years = jiff::Timestamp::now().as_second() - 1_700_000_000;
    let years = human::duration(std::time::Duration::from_secs(years.unsigned_abs()));
    let text = told(Fake::default(), "ps").await.replace(&years, "SPAN");
    expect![[r#"
        CONTAINER           IMAGE               CREATED             STATE               NAME                ATTEMPT             POD ID              POD                 NAMESPACE
        aaaaaaaaaaaaa       ccccccccccccc       SPAN ago         Running             web                 1                   fffffffffffff       web-0               default
        asked list ("", "", Some(1))
    "#]].assert_eq(&text);
    check(
        "ps -aq --no-trunc",
        expect![[r#"
        aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
        bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb
        asked list ("", "", None)
    "#]],
    )
    .await;
    check(
        "ps -a --name ^in -q",
        expect![[r#"
        bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb
        asked list ("", "", None)
    "#]],
    )
    .await;
    check(
        "ps -q --pod p --id i --latest",
        expect![[r#"
        aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
        asked list ("i", "p", None)
    "#]],
    )
    .await;
    // Names are a container's own: they do not reach the terminal's controls.
    let text = told(Fake::default(), "ps -a").await;
    assert!(text.contains("init\\u{1b}[2J") && !text.contains('\u{1b}'), "{text:?}");
}

#[tokio::test]
async fn what_is_wrong_is_told() {
    check("ps --state x", expect![[r#"
        FAILED listing containers: list containers: --state should be one of created, running, exited or unknown
    "#]]).await;
    check("ps --name (", expect![[r#"
        FAILED listing containers: list containers: invalid regular expression "(": error parsing regexp: missing closing ): `(`
    "#]]).await;
    check(
        "ps -o xml",
        expect![[r#"
        FAILED listing containers: unsupported output format "xml"
        asked list ("", "", Some(1))
    "#]],
    )
    .await;
    check(
        "bogus",
        expect![[r#"
        No help topic for 'bogus'
    "#]],
    )
    .await;
    check("inspect -- --id", expect![[r#"
        FAILED get the status of containers: get container status: rpc error: code = NotFound desc = could not find container "--id"
        asked status ("--id", true)
    "#]]).await;
    check(
        "start",
        expect![[r#"
        FAILED ID cannot be empty
    "#]],
    )
    .await;
    check("rm aaaa nope", expect![[r#"
        FAILED container "aaaa" is running, please stop it first
        getting container status "nope": rpc error: code = NotFound desc = could not find container "nope"
        asked status ("aaaa", false)
        asked status ("nope", false)
    "#]]).await;
    check("info", expect![[r#"
        FAILED getting status of runtime: rpc error: code = Unimplemented desc = unknown method status
    "#]]).await;
    check(
        "exec --transport spdy aaaa ls",
        expect![[r#"
        FAILED the transport "spdy" is not spoken here: use websocket
    "#]],
    )
    .await;
    check(
        "-r tcp://1.2.3.4:5 ps",
        expect![[r#"
        FAILED only unix sockets are spoken to, not tcp: tcp://1.2.3.4:5
    "#]],
    )
    .await;
    check("-r unix:///nowhere/s --max-retries 0 ps", expect![[r#"
        FAILED validate service connection: validate CRI v1 runtime API for endpoint "unix:///nowhere/s": rpc error: code = Unavailable desc = connection error: desc = "transport: Error while dialing: dial unix /nowhere/s: connect: no such file or directory"
    "#]]).await;
}

#[tokio::test]
async fn a_runtime_that_hangs_is_waited_for_so_long() {
    for (hangs, line) in [
        ("version", "-t 100ms ps"),
        ("list", "-t 100ms ps"),
        ("status", "-t 100ms logs aaaa"),
        ("stop", "-t 100ms stop aaaa"),
        ("runp", "-t 50ms runp /dev/null"),
    ] {
        let text = told(Fake { hangs, ..Fake::default() }, line).await;
        let is_told = text.contains("DeadlineExceeded desc = context deadline exceeded");
        assert!(is_told || text.contains("metadata is not set"), "{line}: {text}");
    }
}

#[tokio::test]
async fn a_container_is_told_as_json_yaml_and_by_templates() {
    check(
        "inspect -o go-template --template {{.status.state}}/{{.info.pid}}/{{upper~.word}} bbbb",
        expect![[r#"
        CONTAINER_EXITED/5/X
        asked status ("bbbb", true)
    "#]],
    )
    .await;
    check("inspect -q -o go-template --template {{.status.createdAt}}~{{.status.finishedAt}}~{{.status.resources}} aaaa", expect![[r#"
        2023-11-14T22:13:20Z 0001-01-01T00:00:00Z <no value>
        asked status ("aaaa", false)
    "#]]).await;
    let text = told(Fake::default(), "inspect aaaa bbbb").await;
    let (json, _) = text.split_once("asked").unwrap();
    let value: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!(value[1]["status"]["exitCode"], 3);
    assert_eq!(value[0]["info"]["pid"], 5);
    let text = told(Fake::default(), "inspect -o table -q bbbb").await;
    assert!(
        text.contains("State: CONTAINER_EXITED\n") && text.contains("Exit Code: 3\n"),
        "{text}"
    );
}

#[tokio::test]
async fn what_is_typed_is_what_is_asked() {
    check(
        "stop -t 7 aaaa",
        expect![[r#"
        aaaa
        asked stop ("aaaa", 7)
    "#]],
    )
    .await;
    check(
        "rm -f aaaa",
        expect![[r#"
        aaaa
        aaaa
        asked status ("aaaa", false)
        asked stop ("aaaa", 0)
        asked remove "aaaa"
    "#]],
    )
    .await;
    check(
        "exec -s --timeout 5 aaaa ls -l --x",
        expect![[r#"
        out
        err
        asked exec ("aaaa", ["ls", "-l", "--x"], 5)
    "#]],
    )
    .await;
    check(
        "exec -s aaaa false",
        expect![[r#"
        FAILED execing command in container aaaa synchronously: command 'false' exited with 1: err
        asked exec ("aaaa", ["false"], 0)
    "#]],
    )
    .await;
    check(
        "exec --sync --name web -q id",
        expect![[r#"
        out
        err
        asked list ("", "", Some(1))
        asked exec ("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", ["id"], 0)
    "#]],
    )
    .await;
    check(
        "update --cpu-share 5 --memory 7 aaaa",
        expect![[r#"
        aaaa
        asked update (5, 7)
    "#]],
    )
    .await;
    check(
        "pull --creds me:se:cret web",
        expect![[r#"
        Image is up to date for web
        asked pull ("web", "me", "se:cret", "")
    "#]],
    )
    .await;
    check(
        "pull --creds a --auth b web",
        expect![[r#"
        FAILED both `--creds` and `--auth` are specified
    "#]],
    )
    .await;
    check(
        "rmi docker.io/library/web:1.0",
        expect![[r#"
        Deleted: docker.io/library/web:1.0
        asked rmi "docker.io/library/web:1.0"
    "#]],
    )
    .await;
    check("img --digests --pinned", expect![[r#"
        IMAGE                   TAG                 DIGEST              IMAGE ID            SIZE                PINNED
        docker.io/library/web   1.0                 ddddddddddddd       ccccccccccccc       4.46MB              false
        asked images ""
    "#]]).await;
    check(
        "pods -q --id f",
        expect![[r#"
        ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff
        asked pods "f"
    "#]],
    )
    .await;
    check(
        "event -o go-template --template {{.containerId}}/{{.containerEventType}}",
        expect![[r#"
        a/CONTAINER_CREATED_EVENT
    "#]],
    )
    .await;
    check(
        "version",
        expect![[r#"
        Version:  0.1.0
        RuntimeName:  fake
        RuntimeVersion:  v9
        RuntimeApiVersion:  v1
    "#]],
    )
    .await;
}

#[tokio::test]
async fn logs_are_read_where_the_runtime_says() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("0.log");
    std::fs::write(
        &log,
        b"2026-01-01T00:00:01Z stdout F one\n2026-01-01T00:00:02Z stdout F two\xff\x1b[2J",
    )
    .unwrap();
    let fake = || Fake { log: log.display().to_string(), ..Fake::default() };
    let asked = "asked status (\"bbbb\", false)\n";
    assert_eq!(told(fake(), "logs bbbb").await, format!("one\ntwo\u{fffd}\u{1b}[2J{asked}"));
    assert_eq!(told(fake(), "logs --since 2026-01-01T00:00:03 bbbb").await, asked);
    let tail = told(fake(), "logs -ft --tail 1 bbbb").await;
    assert!(tail.starts_with("2026-01-01T00:00:01Z one\n2026-01-01T00:00:02Z two"), "{tail}");
    assert!(
        told(fake(), "logs --tail 1 --stream stdout bbbb").await.contains("mutually exclusive")
    );
    assert!(told(fake(), "logs --since soon bbbb").await.contains("failed to parse value"));
    // A pipe would be waited for.
    let pipe = Fake { log: folder.path().display().to_string(), ..Fake::default() };
    assert!(told(pipe, "logs bbbb").await.contains("it is no file"));
    let none = Fake { log: "/nowhere/0.log".to_owned(), ..Fake::default() };
    assert!(told(none, "logs bbbb").await.contains("failed to open log file"));
}

#[tokio::test]
async fn broken_configs_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pod.yaml");
    for (text, fault) in [
        (&b"{"[..], "load podSandboxConfig: yaml: "),
        (b"\xff\xfe", "load podSandboxConfig: yaml: invalid UTF-8"),
        (b"[1]", "PodSandboxConfig must be an object"),
        (b"metadata: {name: a}", "name or namespace is not in metadata"),
        (b"", "metadata is not set"),
    ] {
        std::fs::write(&path, text).unwrap();
        let told = told(Fake::default(), &format!("runp {}", path.display())).await;
        assert!(told.contains(fault), "{told}");
    }
    std::fs::write(&path, "metadata: {name: a, namespace: b}").unwrap();
    let text = told(Fake::default(), &format!("runp -r kata {}", path.display())).await;
    assert_eq!(text, "new\nasked runp (\"a\", 36, \"kata\")\n");
    assert!(told(Fake::default(), "runp /nowhere").await.contains("config at /nowhere not found"));
}

#[tokio::test]
async fn options_are_set_and_shown() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new/crictl.yaml");
    let at = format!("-c {}", path.display());
    assert_eq!(told(Fake::default(), &format!("{at} config --set timeout=9,debug=true")).await, "");
    assert_eq!(told(Fake::default(), &format!("{at} config --get timeout")).await, "9\n");
    let list = told(Fake::default(), &format!("{at} config --list")).await;
    assert!(list.contains("debug                  true\n"), "{list}");
    let fault = told(Fake::default(), &format!("{at} config --set timeout=x")).await;
    assert_eq!(fault, "FAILED parse timeout value 'x': invalid syntax\n");
    std::fs::write(&path, "bogus: 1").unwrap();
    let fault = told(Fake::default(), &format!("{at} ps")).await;
    assert_eq!(fault, "FAILED get server config: Config option 'bogus' is not valid\n");
}

#[test]
fn every_row_says_what_it_is_for_and_names_each_flag_once() {
    let mut names: Vec<&str> = Vec::new();
    for command in COMMANDS {
        assert!(!command.name.is_empty() && !command.about.is_empty());
        names.extend([command.name].iter().chain(command.aliases));
        let mut flags: Vec<&str> = vec!["help", "h"];
        for flag in command.flags.iter().flat_map(|rows| rows.iter()) {
            for name in [flag.name, flag.alias].iter().filter(|name| !name.is_empty()) {
                assert!(!flags.contains(name), "{} has --{name} twice", command.name);
                flags.push(name);
            }
            assert!(!flag.about.is_empty(), "{} --{}", command.name, flag.name);
        }
    }
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}
