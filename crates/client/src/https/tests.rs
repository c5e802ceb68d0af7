//! What a server may do to a client, by one that says what the test wants.
use super::*;
use crate::client::Client;
use crate::http::tls::Believed;
use crate::source::{Event, Page};
use expect_test::{Expect, expect};
use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

/// Answers, in their order; `CLOSE` ends the connection after the answer without saying so.
struct Server {
    config: Config,
    /// The request lines and tokens that came, and on which connection.
    heard: Arc<Mutex<Vec<String>>>,
}

const CLOSE: &str = "X-Close: 1\r\n";

async fn serve(answers: Vec<String>) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}/base", listener.local_addr().unwrap());
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let told = heard.clone();
    tokio::spawn(async move {
        let mut answers = answers.into_iter();
        for connection in 1.. {
            let mut stream = BufReader::new(listener.accept().await.unwrap().0);
            loop {
                let mut lines = Vec::new();
                let mut line = String::new();
                while stream.read_line(&mut line).await.unwrap() > 2 {
                    lines.push(std::mem::take(&mut line));
                }
                let Some(first) = lines.first() else { break };
                let header = |name: &str| {
                    let found = lines.iter().find_map(|line| line.strip_prefix(name));
                    found.unwrap_or_default().trim().to_owned()
                };
                let request = first.trim_end().trim_end_matches(" HTTP/1.1");
                told.lock().push(format!("{connection}: {request} {}", header("authorization: ")));
                let answer = answers.next().unwrap_or_else(|| answer("500 Over", "", ""));
                stream.write_all(answer.as_bytes()).await.unwrap();
                if answer.contains(CLOSE) {
                    break;
                }
            }
        }
    });
    let config = Config::new(&server, Believed::System, config::Proof::default());
    Server { config, heard }
}

fn answer(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    )
}

const FOUND: &str =
    r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"c","resourceVersion":"7"}}"#;

impl Server {
    fn source(&self) -> Https {
        Https::new(&Context::new(), self.config.clone()).unwrap()
    }

    /// Gets an object as often as it says: the revisions or failures, and what the server heard.
    async fn check(&self, times: usize, want: Expect) {
        let client = Client::new(Arc::new(self.source()));
        let mut lines = Vec::new();
        for _ in 0..times {
            lines.push(match client.get::<ConfigMap>("n", "c").await {
                Ok(object) => format!("revision {}", object.revision()),
                Err(status) => format!("{} {:?}: {status}", status.code, status.reason),
            });
        }
        lines.extend(self.heard.lock().iter().map(|line| line.trim_end().to_owned()));
        want.assert_eq(&lines.join("\n"));
    }
}

#[tokio::test]
async fn who_asks_for_patience_is_asked_again() {
    let busy = |code| answer(code, "Retry-After: 0\r\n", "");
    let answers = vec![busy("429 Slow"), busy("503 Later"), answer("200 OK", "", FOUND)];
    serve(answers)
        .await
        .check(
            1,
            expect![[r#"
                revision 7
                1: GET /base/api/v1/namespaces/n/configmaps/c
                2: GET /base/api/v1/namespaces/n/configmaps/c
                3: GET /base/api/v1/namespaces/n/configmaps/c"#]],
        )
        .await;
    // But not for ever.
    let server = serve(vec![busy("429 Slow"); 20]).await;
    let status =
        Client::new(Arc::new(server.source())).get::<ConfigMap>("n", "c").await.unwrap_err();
    assert_eq!((status.code, server.heard.lock().len()), (429, RETRIES as usize + 1));
}

#[tokio::test]
async fn a_connection_that_was_closed_while_idle_is_no_failure() {
    let answers = vec![answer("200 OK", CLOSE, FOUND), answer("200 OK", "", FOUND)];
    serve(answers)
        .await
        .check(
            2,
            expect![[r#"
                revision 7
                revision 7
                1: GET /base/api/v1/namespaces/n/configmaps/c
                2: GET /base/api/v1/namespaces/n/configmaps/c"#]],
        )
        .await;
}

#[tokio::test]
async fn failures_are_statuses_whoever_says_so() {
    let status = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":"Forbidden","code":403}"#;
    let answers = vec![
        answer("403 Forbidden", "", status),
        answer("404 Not Found", "", "404 page not found"),
        answer("502 Bad Gateway", "", "<html>"),
        answer("200 OK", "", "<html>"),
    ];
    serve(answers).await.check(4, expect![[r#"
        403 Forbidden: no
        404 NotFound: the server could not find the requested resource (get configmaps c)
        502 InternalError: an error on the server ("<html>") has prevented the request from succeeding (get configmaps c)
        500 InternalError: Internal error occurred: unable to decode an answer: couldn't get version/kind; json parse error: invalid character '<' looking for beginning of value
        1: GET /base/api/v1/namespaces/n/configmaps/c
        1: GET /base/api/v1/namespaces/n/configmaps/c
        1: GET /base/api/v1/namespaces/n/configmaps/c
        1: GET /base/api/v1/namespaces/n/configmaps/c"#]]).await;
}

#[tokio::test]
async fn a_token_is_read_again_when_it_is_not_believed() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "old").unwrap();
    let answers =
        vec![answer("200 OK", "", FOUND), answer("401 Who", "", ""), answer("200 OK", "", FOUND)];
    let mut server = serve(answers).await;
    server.config.proof.token = Some(config::Token::File(file.path().to_owned()));
    let client = Client::new(Arc::new(server.source()));
    client.get::<ConfigMap>("n", "c").await.unwrap();
    std::fs::write(file.path(), "new\n").unwrap();
    client.get::<ConfigMap>("n", "c").await.unwrap();
    let heard = server.heard.lock();
    let tokens: Vec<_> = heard.iter().map(|line| line.rsplit(' ').next().unwrap()).collect();
    assert_eq!(tokens, ["old", "old", "new"]);
}

#[tokio::test]
async fn a_program_says_who_we_are() {
    let said = r#"{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"t"}}"#;
    let run = |script: &str, version: &str| api::kubeconfig::Exec {
        api_version: version.to_owned(),
        command: "sh".to_owned(),
        args: Some(vec!["-c".to_owned(), script.to_owned()]),
        ..api::kubeconfig::Exec::default()
    };
    let ask = async |exec| {
        let mut server = serve(vec![answer("200 OK", "", FOUND)]).await;
        server.config.proof.exec = Some(exec);
        let got = Client::new(Arc::new(server.source())).get::<ConfigMap>("n", "c").await;
        let heard = server.heard.lock().join("");
        got.map_or_else(|status| status.message, |_| heard.rsplit("c ").next().unwrap().to_owned())
    };
    let version = "client.authentication.k8s.io/v1";
    let print = format!("echo '{said}'");
    assert_eq!(ask(run(&print, version)).await, "Bearer t");
    let wrong = "client.authentication.k8s.io/v2";
    assert!(ask(run(&print, wrong)).await.contains("plugin returned version"));
    assert_eq!(
        ask(run("exit 3", version)).await,
        "getting credentials: exec: executable sh failed with exit code 3"
    );
}

/// A server that nobody can reach but the proxy, which is the one that listens.
async fn behind_proxy(scheme: &str, answers: Vec<String>) -> Server {
    use crate::http::proxy::{Proxy, Url};
    let mut server = serve(answers).await;
    let at = server.config.server.replace("http://", "http://u:p@");
    server.config.proxy = Proxy::Url(Url::parse(&at).unwrap());
    server.config.server = format!("{scheme}://api.invalid/base");
    server
}

#[tokio::test]
async fn a_proxy_sends_on_what_is_not_safe_and_connects_what_is() {
    behind_proxy("http", vec![answer("200 OK", "", FOUND)])
        .await
        .check(
            1,
            expect![[r#"
                revision 7
                1: GET http://api.invalid/base/api/v1/namespaces/n/configmaps/c"#]],
        )
        .await;
    behind_proxy("https", vec!["HTTP/1.1 403 Not from here\r\n\r\n".to_owned()])
        .await
        .check(
            1,
            expect![[r#"
                503 ServiceUnavailable: failed to connect to api.invalid:443: Not from here
                1: CONNECT api.invalid:443"#]],
        )
        .await;
}

#[tokio::test]
async fn streams_go_through_a_proxy() {
    let answers =
        vec!["HTTP/1.1 200 Connected\r\n\r\n".to_owned(), answer("400 No stream", "", "")];
    let server = behind_proxy("http", answers).await;
    let answer = server.source().upgrade("/exec", HeaderMap::new()).await.unwrap();
    assert_eq!(answer.status(), 400);
    assert_eq!(
        *server.heard.lock(),
        ["1: CONNECT api.invalid:80 ", "1: GET /base/exec "],
        "on the connection that the proxy made"
    );
}

#[tokio::test]
async fn a_watch_is_read_line_by_line_however_it_comes() {
    let events = [
        r#"{"type":"ADDED","object":{"kind":"ConfigMap","metadata":{"name":"a","resourceVersion":"1"}}}"#,
        r#"{"type":"BOOKMARK","object":{"kind":"ConfigMap","metadata":{"resourceVersion":"2","annotations":{"k8s.io/initial-events-end":"true"}}}}"#,
        r#"{"type":"DELETED","object":{"kind":"ConfigMap","metadata":{"name":"a","resourceVersion":"3"}}}"#,
        r#"{"type":"ERROR","object":{"kind":"Status","reason":"Expired","message":"too old","code":410}}"#,
    ];
    let body = events.join("\n") + "\n";
    let chunks: String = body
        .as_bytes()
        .chunks(7)
        .map(|c| format!("{:x}\r\n{}\r\n", c.len(), str::from_utf8(c).unwrap()))
        .collect();
    let head =
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    let server = serve(vec![format!("{head}{chunks}0\r\n\r\n")]).await;
    let from = WatchFrom { revision: 0, initial_events: true, timeout: None };
    let of = Collection::all(ApiResource::of::<ConfigMap>());
    let watch = server.source().watch(of, from).await.unwrap();
    let told: Vec<String> = watch
        .map(|event| match event {
            Ok(Event::Added(object)) => format!("added {}", object.name()),
            Ok(Event::Modified(object)) => format!("modified {}", object.name()),
            Ok(Event::Deleted(object)) => {
                format!("deleted {} at {}", object.name(), object.revision())
            }
            Ok(Event::Bookmark { revision, initial_events_end }) => {
                format!("bookmark {revision} {initial_events_end}")
            }
            Err(status) => format!("{} {}", status.is_expired(), status.message),
        })
        .collect()
        .await;
    assert_eq!(told, ["added a", "bookmark 2 true", "deleted a at 3", "true too old"]);
}

#[tokio::test]
async fn items_of_a_list_get_the_kind_that_the_list_has() {
    let list = r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"9","continue":"more"},"items":[{"metadata":{"name":"a"}}]}"#;
    let server = serve(vec![answer("200 OK", "", list)]).await;
    let of = Collection::all(ApiResource::of::<ConfigMap>());
    let list = server.source().list(of, Page::default()).await.unwrap();
    assert_eq!((list.revision, &*list.continue_token), (9, "more"));
    let meta = list.items[0].type_meta().unwrap();
    assert_eq!((&*meta.kind, &*meta.api_version), ("ConfigMap", "v1"));
}

#[tokio::test]
async fn where_one_server_is_gone_another_is_asked() {
    let mut server = serve(vec![answer("200 OK", "", FOUND)]).await;
    let address = server.config.server.trim_start_matches("http://").trim_end_matches("/base");
    let (gone, there) = ("127.0.0.1:1".parse().unwrap(), address.parse().unwrap());
    server.config.server = "http://127.0.0.1:1/base".to_owned();
    let addresses = Arc::new(move || vec![gone, there]);
    server.config.others =
        Some(crate::http::Others { addresses, server_name: "kubernetes".to_owned() });
    server
        .check(
            1,
            expect![[r#"
                revision 7
                1: GET /base/api/v1/namespaces/n/configmaps/c"#]],
        )
        .await;
}
