//! Who somebody is: every way to prove it, and what does not.
use crate::access::wait_until;
use crate::apiserver::{Running, free_port, kubectl, server};
use crate::cluster::Cluster;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// A server alone, with a folder for its files.
struct Server {
    folder: TempDir,
    address: String,
    _process: Running,
}

impl Server {
    fn start(flags: impl FnOnce(&Path) -> Vec<String>) -> Server {
        let folder = TempDir::new().expect("a folder");
        let mut flags = flags(folder.path());
        flags.push(format!("--data-dir={}", folder.path().join("data").display()));
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let (process, address) = server(folder.path(), &flags);
        Server { folder, address, _process: process }
    }

    fn admin(&self, arguments: &str) -> String {
        kubectl(self.folder.path(), &self.address, arguments)
    }

    /// The code and the answer of a request; `{}` stands for the folder of certificates.
    fn ask(&self, path: &str, arguments: &[&str]) -> (u16, Value) {
        ask(&self.address, &self.folder.path().join("certs"), path, arguments)
    }

    fn name(&self, arguments: &[&str]) -> Option<String> {
        who(&self.address, &self.folder.path().join("certs"), arguments)
    }
}

fn ask(address: &str, certs: &Path, path: &str, arguments: &[&str]) -> (u16, Value) {
    let shown = certs.display().to_string();
    let arguments = arguments.iter().map(|argument| argument.replace("{}", &shown));
    let output = Command::new(testkit::tools::program("curl", "curl"))
        .args(["--silent", "--show-error", "--write-out", "\n%{http_code}", "--cacert"])
        .arg(certs.join("ca.crt"))
        .args(arguments)
        .arg(format!("{address}{path}"))
        .output()
        .expect("curl runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (body, code) = text.rsplit_once('\n').expect("a code");
    (code.parse().unwrap_or(0), serde_json::from_str(body).unwrap_or_default())
}

/// Who the server takes the sender of a request for; none if it refuses to say.
fn who(address: &str, certs: &Path, arguments: &[&str]) -> Option<String> {
    let review = r#"{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}"#;
    let mut all = vec!["--data", review, "--header", "Content-Type: application/json"];
    all.extend(arguments);
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let (code, answer) = ask(address, certs, path, &all);
    let user = &answer["status"]["userInfo"];
    let groups = user["groups"].as_array().into_iter().flatten();
    let groups: Vec<&str> = groups.filter_map(Value::as_str).collect();
    match code {
        201 => Some(format!("{} {}", user["username"].as_str()?, groups.join(","))),
        _ => None,
    }
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}")
}

#[test]
fn tokens_of_a_file_and_of_secrets() {
    let server = Server::start(|folder| {
        let file = folder.join("tokens.csv");
        std::fs::write(&file, "secret-token,jane,7,\"dev,ops\"\n").expect("written");
        vec![
            format!("--token-auth-file={}", file.display()),
            "--enable-bootstrap-token-auth".into(),
        ]
    });
    let token = |token: &str| server.name(&["--header", &bearer(token)]);
    assert_eq!(token("secret-token").as_deref(), Some("jane dev,ops,system:authenticated"));
    assert_eq!(token("secret-tokem"), None);
    assert_eq!(server.ask("/api", &["--header", &bearer("no")]).0, 401);

    assert_eq!(token("abcdef.0123456789abcdef"), None);
    let made = "create secret generic bootstrap-token-abcdef -n kube-system --type=bootstrap.kubernetes.io/token --from-literal=token-id=abcdef --from-literal=token-secret=0123456789abcdef --from-literal=usage-bootstrap-authentication=true";
    assert_eq!(server.admin(made), "secret/bootstrap-token-abcdef created");
    assert_eq!(
        token("abcdef.0123456789abcdef").as_deref(),
        Some("system:bootstrap:abcdef system:bootstrappers,system:authenticated")
    );
    server.admin("delete secret bootstrap-token-abcdef -n kube-system");
    assert_eq!(token("abcdef.0123456789abcdef"), None);
}

#[test]
fn a_front_proxy_speaks_for_others_and_nobody_else_does() {
    let server = Server::start(|folder| {
        // The folder's own PKI has a CA for proxies; it is made before the server starts.
        apiserver::pki::Pki::open(&folder.join("certs")).expect("a PKI");
        let ca = folder.join("certs/front-proxy-ca.crt");
        vec![
            format!("--requestheader-client-ca-file={}", ca.display()),
            "--requestheader-allowed-names=front-proxy-client".into(),
        ]
    });
    let said = ["--header", "X-Remote-User: jane", "--header", "X-Remote-Group: dev"];
    let with = |certificate: &str| {
        let pair = [format!("{{}}/{certificate}.crt"), format!("{{}}/{certificate}.key")];
        let mut all = vec!["--cert", &pair[0], "--key", &pair[1]];
        all.extend(said);
        server.name(&all)
    };
    assert_eq!(with("front-proxy-client").as_deref(), Some("jane dev,system:authenticated"));
    // Another certificate's holder is who the certificate says.
    let admin = with("admin").expect("the administrator");
    assert!(admin.starts_with("kubernetes-admin "), "{admin}");
    // One without is nobody, whatever it says.
    assert_eq!(server.name(&said), None);
    // A proxy's certificate alone is no user's.
    let alone = ["--cert", "{}/front-proxy-client.crt", "--key", "{}/front-proxy-client.key"];
    assert_eq!(server.ask("/api", &alone).0, 401);
}

#[test]
fn certificates_of_another_time_or_place_are_refused() {
    let server = Server::start(|_| Vec::new());
    let certs = server.folder.path().join("certs");
    let key =
        rcgen::KeyPair::from_pem(&std::fs::read_to_string(certs.join("ca.key")).expect("a key"))
            .expect("a key");
    let ca = std::fs::read_to_string(certs.join("ca.crt")).expect("a certificate");
    let issuer = rcgen::Issuer::from_ca_cert_pem(&ca, key).expect("a CA");
    let make = |file: &str, years: (i32, i32), own: bool| {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, "jane");
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        params.not_before = rcgen::date_time_ymd(years.0, 1, 1);
        params.not_after = rcgen::date_time_ymd(years.1, 1, 1);
        let key = rcgen::KeyPair::generate().expect("a key");
        let made = match own {
            true => params.signed_by(&key, &issuer).expect("signed"),
            false => params.self_signed(&key).expect("signed"),
        };
        std::fs::write(certs.join(format!("{file}.crt")), made.pem()).expect("written");
        std::fs::write(certs.join(format!("{file}.key")), key.serialize_pem()).expect("written");
    };
    for (file, years, own, name) in [
        ("good", (2000, 2100), true, Some("jane system:authenticated")),
        ("expired", (2000, 2001), true, None),
        ("early", (2099, 2100), true, None),
        ("foreign", (2000, 2100), false, None),
    ] {
        make(file, years, own);
        let pair = [format!("{{}}/{file}.crt"), format!("{{}}/{file}.key")];
        let shown = ["--cert", &pair[0], "--key", &pair[1]];
        assert_eq!(server.name(&shown).as_deref(), name, "{file}");
        let (code, status) = server.ask("/api", &shown);
        if name.is_none() {
            assert_eq!((code, &status["reason"]), (401, &json!("Unauthorized")), "{file}");
        }
    }
}

#[test]
fn those_who_prove_nothing_are_let_in_where_it_is_said() {
    let server = Server::start(|folder| {
        let file = folder.join("authentication.yaml");
        let config = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n\
            anonymous:\n  enabled: true\n  conditions:\n  - path: /livez\n";
        std::fs::write(&file, config).expect("written");
        vec![format!("--authentication-config={}", file.display())]
    });
    assert_eq!(server.ask("/livez", &[]).0, 200);
    assert_eq!(server.ask("/readyz", &[]).0, 401);
    assert_eq!(server.ask("/livez/ping", &[]).0, 401);
    assert_eq!(server.ask("/livez", &["--header", &bearer("no")]).0, 401);
}

#[test]
fn another_clusters_tokens_are_believed_as_an_openid_providers() {
    let port = free_port();
    let issuer = format!("https://127.0.0.1:{port}");
    let provider = Server::start(|_| {
        vec![format!("--secure-port={port}"), format!("--service-account-issuer={issuer}")]
    });
    provider.admin("create clusterrolebinding keys --clusterrole=system:service-account-issuer-discovery --group=system:unauthenticated");
    provider.admin("create serviceaccount robot -n default");
    let server = Server::start(|_| {
        let ca = provider.folder.path().join("certs/ca.crt");
        vec![
            format!("--oidc-issuer-url={issuer}"),
            format!("--oidc-ca-file={}", ca.display()),
            "--oidc-client-id=skiff".into(),
            "--oidc-username-prefix=other:".into(),
            "--oidc-signing-algs=ES256".into(),
        ]
    });
    let token = |audience: &str| {
        provider.admin(&format!("create token robot -n default --audience={audience}"))
    };
    let good = token("skiff");
    wait_until(|| server.name(&["--header", &bearer(&good)]).is_some());
    assert_eq!(
        server.name(&["--header", &bearer(&good)]).as_deref(),
        Some("other:system:serviceaccount:default:robot system:authenticated")
    );
    assert_eq!(server.name(&["--header", &bearer(&token("else"))]), None);
    let (signed, _) = good.rsplit_once('.').expect("a signature");
    assert_eq!(server.name(&["--header", &bearer(&format!("{signed}.AAAA"))]), None);
}

/// A service that answers reviews, until the test ends; returns its address.
fn reviewer(answer: fn(&Value) -> Value) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut reader = BufReader::new(stream.try_clone().expect("a stream"));
            let (mut line, mut length) = (String::new(), 0);
            while reader.read_line(&mut line).is_ok_and(|n| n > 2) {
                let lower = line.to_ascii_lowercase();
                if let Some(value) = lower.strip_prefix("content-length:") {
                    length = value.trim().parse().expect("a length");
                }
                line.clear();
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).expect("a body");
            let mut review: Value = serde_json::from_slice(&body).expect("a review");
            review["status"] = answer(&review);
            let text = review.to_string();
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json";
            let _ = write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{text}", text.len());
        }
    });
    address
}

fn kubeconfig(folder: &Path, name: &str, address: &str) -> String {
    let config = json!({ "apiVersion": "v1", "kind": "Config", "current-context": "hook",
        "clusters": [{ "name": "hook", "cluster": { "server": address } }],
        "contexts": [{ "name": "hook", "context": { "cluster": "hook" } }] });
    let path = folder.join(name);
    std::fs::write(&path, config.to_string()).expect("written");
    path.display().to_string()
}

#[test]
fn services_are_asked_about_tokens_and_rights() {
    let server = Server::start(|folder| {
        let tokens = reviewer(|review| match review["spec"]["token"].as_str() {
            Some("hooked") => json!({ "authenticated": true, "user": { "username": "jane" } }),
            _ => json!({ "authenticated": false }),
        });
        let rights = reviewer(|review| {
            let wanted = &review["spec"]["resourceAttributes"];
            json!({ "allowed": wanted["resource"] == "configmaps" && wanted["verb"] == "list",
                "denied": wanted["resource"] == "secrets", "reason": "the service says so" })
        });
        vec![
            format!(
                "--authentication-token-webhook-config-file={}",
                kubeconfig(folder, "a", &tokens)
            ),
            "--authorization-mode=Webhook,RBAC".into(),
            format!("--authorization-webhook-config-file={}", kubeconfig(folder, "b", &rights)),
        ]
    });
    let jane = bearer("hooked");
    assert_eq!(server.name(&["--header", &jane]).as_deref(), Some("jane system:authenticated"));
    assert_eq!(server.name(&["--header", &bearer("other")]), None);
    assert_eq!(server.ask("/api/v1/configmaps", &["--header", &jane]).0, 200);
    let (code, status) = server.ask("/api/v1/secrets", &["--header", &jane]);
    assert_eq!(code, 403);
    assert_eq!(
        status["message"],
        "secrets is forbidden: User \"jane\" cannot list resource \"secrets\" in API group \"\" at the cluster scope: the service says so"
    );
}

/// The control loops that approve and sign, beside a cluster without any.
struct Loops(std::process::Child);

impl Loops {
    fn start(folder: &std::path::Path) -> Loops {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_skiff"));
        command.args(["controller-manager", "--leader-elect=false", "--controllers"]);
        let kind = "certificatesigningrequest";
        command.arg(format!("{kind}-approving-controller,{kind}-signing-controller"));
        command.arg("--kubeconfig").arg(folder.join("kubeconfig"));
        command.arg("--cluster-signing-cert-file").arg(folder.join("pki/ca.crt"));
        command.arg("--cluster-signing-key-file").arg(folder.join("pki/ca.key"));
        Loops(command.spawn().expect("skiff runs"))
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_node_introduces_itself_and_gets_a_certificate_of_its_own() {
    let cluster = Cluster::start().with_default_account();
    let folder = cluster.folder.path();
    let certs = folder.join("pki");
    let _loops = Loops::start(folder);
    let secret = "create secret generic bootstrap-token-abcdef -n kube-system --type=bootstrap.kubernetes.io/token --from-literal=token-id=abcdef --from-literal=token-secret=0123456789abcdef --from-literal=usage-bootstrap-authentication=true";
    cluster.kubectl(secret);
    for (name, role, group) in [
        ("bootstrap", "system:node-bootstrapper", "system:bootstrappers"),
        (
            "approve",
            "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
            "system:bootstrappers",
        ),
    ] {
        cluster.kubectl(&format!(
            "create clusterrolebinding {name} --clusterrole={role} --group={group}"
        ));
    }
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(rcgen::DnType::CommonName, "system:node:n1");
    let request = params.serialize_request(&key).expect("a request").pem().expect("PEM");
    let address = cluster.kubectl("config view --minify -o jsonpath={.clusters[0].cluster.server}");
    let body = json!({ "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": { "name": "n1" }, "spec": { "request": STANDARD.encode(request),
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["digital signature", "client auth"] } });
    let token = bearer("abcdef.0123456789abcdef");
    let body = body.to_string();
    let post = ["--data", &body, "--header", "Content-Type: application/json", "--header", &token];
    let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    wait_until(|| matches!(ask(&address, &certs, requests, &post).0, 201 | 409));
    let signed = "get csr n1 -o jsonpath={.status.certificate}";
    wait_until(|| !cluster.kubectl(signed).is_empty());
    let conditions = cluster.json("get csr n1");
    assert_eq!(conditions["status"]["conditions"][0]["reason"], "AutoApproved");
    let decoded = cluster.kubectl("get csr n1 -o go-template={{.status.certificate|base64decode}}");
    std::fs::write(certs.join("n1.crt"), decoded).expect("written");
    std::fs::write(certs.join("n1.key"), key.serialize_pem()).expect("written");

    let node = |path: &str, more: &[&str]| {
        let mut all = vec!["--cert", "{}/n1.crt", "--key", "{}/n1.key"];
        all.extend(more);
        ask(&address, &certs, path, &all)
    };
    // The node makes itself, and nobody else.
    let make = |name: &str| {
        let body = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name } });
        node(
            "/api/v1/nodes",
            &["--data", &body.to_string(), "--header", "Content-Type: application/json"],
        )
    };
    assert_eq!(make("n1").0, 201);
    let (code, status) = make("n2");
    assert_eq!(code, 403);
    assert_eq!(
        status["message"],
        "nodes \"n2\" is forbidden: node \"n1\" is not allowed to modify node \"n2\""
    );
    assert_eq!(node("/api/v1/nodes/n1", &[]).0, 200);
    let (_, status) = node("/api/v1/nodes", &[]);
    assert!(
        status["message"].as_str().is_some_and(|text| text.ends_with(
            "at the cluster scope: node 'n1' cannot read all nodes, only its own Node object"
        )),
        "{status}"
    );
    // A secret opens when a pod on the node needs it, and closes when that goes.
    cluster.kubectl("create secret generic password -n default --from-literal=a=b");
    let secret = "/api/v1/namespaces/default/secrets/password";
    assert_eq!(node(secret, &[]).0, 403);
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "web", "namespace": "default" },
        "spec": { "nodeName": "n1", "containers": [{ "name": "web", "image": "web:1",
            "envFrom": [{ "secretRef": { "name": "password" } }] }] } });
    cluster.kubectl_with("create -f -", &pod.to_string());
    wait_until(|| node(secret, &[]).0 == 200);
    cluster.kubectl("delete pod web -n default --force --grace-period=0");
    wait_until(|| node(secret, &[]).0 == 403);
}

/// The codes of many requests by somebody with a token, in one go.
fn codes(server: &Server, requests: &[(&str, String)], token: &str) -> Vec<u16> {
    let certs = server.folder.path().join("certs");
    let mut config = String::new();
    for (method, path) in requests {
        let parts = [
            format!("url = \"{}{path}\"", server.address),
            format!("request = {method}"),
            format!("cacert = \"{}\"", certs.join("ca.crt").display()),
            format!("header = \"{}\"", bearer(token)),
            "silent\npath-as-is\ngloboff\noutput = /dev/null\nwrite-out = \"%{http_code}\\n\"\nnext\n".into(),
        ];
        config.push_str(&parts.join("\n"));
    }
    let file = server.folder.path().join("requests");
    std::fs::write(&file, config).expect("written");
    let output = Command::new(testkit::tools::program("curl", "curl"))
        .arg("--config")
        .arg(&file)
        .output()
        .expect("curl runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let codes: Vec<u16> = text.lines().map(|code| code.parse().unwrap_or(0)).collect();
    assert_eq!(codes.len(), requests.len(), "{}", String::from_utf8_lossy(&output.stderr));
    codes
}

fn server_with_nobody() -> Server {
    Server::start(|folder| {
        let file = folder.join("tokens.csv");
        std::fs::write(&file, "nobody-token,nobody,1\n").expect("written");
        vec![format!("--token-auth-file={}", file.display())]
    })
}

#[test]
fn whoever_has_no_rights_is_refused_at_every_path() {
    let server = server_with_nobody();
    let methods = ["GET", "POST", "PUT", "PATCH", "DELETE"];
    let mut requests = Vec::new();
    for resource in api::kinds::RESOURCES {
        let group = match resource.group {
            "" => format!("/api/{}", resource.version),
            group => format!("/apis/{group}/{}", resource.version),
        };
        let place = if resource.is_namespaced() { "/namespaces/default" } else { "" };
        let all = format!("{group}{place}/{}", resource.plural);
        // What everybody may ask about himself.
        if resource.plural.starts_with("selfsubject") {
            continue;
        }
        let parts = resource.subresources.iter().map(|part| format!("{all}/x/{}", part.name));
        for path in
            [all.clone(), format!("{all}/x"), format!("{all}?watch=1")].into_iter().chain(parts)
        {
            requests.extend(methods.map(|method| (method, path.clone())));
        }
    }
    assert!(requests.len() > 1000, "{}", requests.len());
    let codes = codes(&server, &requests, "nobody-token");
    for (code, request) in codes.iter().zip(&requests) {
        // 405: there is no such verb, whoever asks.
        assert!(matches!(code, 403 | 405), "{request:?}: {code}");
    }
    let refused = codes.iter().filter(|code| **code == 403).count();
    assert!(refused > 800, "{refused} of {}", codes.len());
}

#[test]
fn no_spelling_of_a_path_leads_around_authorization() {
    let server = server_with_nobody();
    let paths = [
        "//api/v1/secrets",
        "/api//v1/secrets",
        "/api/v1//secrets",
        "/api/v1/secrets/",
        "/healthz/../api/v1/secrets",
        "/api/v1/namespaces/default/../../secrets",
        "/api/v1/namespaces/default%2fsecrets",
        "/api/v1/namespaces/default/pods/%2e%2e/secrets/x",
        "/api/v1/namespaces/default/pods/..%2f..%2fsecrets",
        "/api/v1/%73ecrets",
        "/%61pi/v1/secrets",
        "/api/v1/secrets;x=y",
        "/api/v1/secrets%00",
        "/api/v1/namespaces/kube-system/secrets/x%2Fstatus",
        "/healthz%2f..%2fapi%2fv1%2fsecrets",
    ];
    let requests: Vec<_> = paths.iter().map(|path| ("GET", (*path).to_owned())).collect();
    for (code, request) in codes(&server, &requests, "nobody-token").iter().zip(&requests) {
        assert!(matches!(code, 400 | 401 | 403 | 404), "{request:?}: {code}");
    }
    // A head beyond all measure is not read to its end.
    let huge = format!("X-Huge: {}", "x".repeat(2 << 20));
    let file = server.folder.path().join("huge");
    std::fs::write(&file, huge).expect("written");
    let (code, _) = server.ask("/healthz", &["--header", &format!("@{}", file.display())]);
    assert!(matches!(code, 0 | 400 | 431), "{code}");
    assert_eq!(server.ask("/healthz", &["--header", &bearer("nobody-token")]).0, 200);
}

#[test]
fn a_serving_certificate_is_replaced_while_the_server_runs() {
    let server = Server::start(|_| Vec::new());
    let certs = server.folder.path().join("certs");
    let served = || {
        let output = Command::new(testkit::tools::program("curl", "curl"))
            .args(["--silent", "--output", "/dev/null", "--write-out", "%{certs}", "--cacert"])
            .arg(certs.join("ca.crt"))
            .arg(format!("{}/healthz", server.address))
            .output()
            .expect("curl runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let before = served();
    assert!(before.contains("kube-apiserver"), "{before}");
    std::fs::remove_file(certs.join("apiserver.crt")).expect("removed");
    apiserver::pki::Pki::open(&certs).expect("renewed");
    wait_until(|| {
        let now = served();
        now.contains("kube-apiserver") && now != before
    });
}

#[test]
fn a_token_of_old_is_good_as_long_as_its_secret_holds_it() {
    let cluster = Cluster::start();
    cluster.kubectl("create serviceaccount robot -n default");
    let uid = cluster.kubectl("get serviceaccount robot -n default -o jsonpath={.metadata.uid}");
    let key = cluster.folder.path().join("pki/sa.key");
    let keys = apiserver::service_account::Keys::read(&key, &[]).expect("keys");
    let token = keys
        .sign(&json!({ "iss": "kubernetes/serviceaccount", "sub": "system:serviceaccount:default:robot",
            "kubernetes.io/serviceaccount/namespace": "default",
            "kubernetes.io/serviceaccount/secret.name": "robot-token",
            "kubernetes.io/serviceaccount/service-account.name": "robot",
            "kubernetes.io/serviceaccount/service-account.uid": uid }))
        .expect("a token");
    let address = cluster.kubectl("config view --minify -o jsonpath={.clusters[0].cluster.server}");
    let certs = cluster.folder.path().join("pki");
    let name = || who(&address, &certs, &["--header", &bearer(&token)]);
    assert_eq!(name(), None);
    cluster.kubectl(&format!(
        "create secret generic robot-token -n default --from-literal=token={token}"
    ));
    assert_eq!(
        name().as_deref(),
        Some(
            "system:serviceaccount:default:robot system:serviceaccounts,system:serviceaccounts:default,system:authenticated"
        )
    );
    let labels =
        cluster.kubectl("get secret robot-token -n default -o jsonpath={.metadata.labels}");
    assert!(labels.contains("kubernetes.io/legacy-token-last-used"), "{labels}");
    cluster.kubectl("delete secret robot-token -n default");
    assert_eq!(name(), None);
}
