//! Objects and patches that are deeper, larger or longer than anyone means them.
use super::{Server, admin, run};
use bytes::Bytes;
use http::{HeaderValue, Method};
use serde_json::{Value, json};
use testkit::client::{Connection, JSON};

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!({}), |inner, _| json!({ "f:a": inner }))
}

async fn ask(connection: &mut Connection, method: Method, path: &str, body: &Value) -> u16 {
    let content_type = match method {
        Method::PATCH => HeaderValue::from_static("application/json-patch+json"),
        _ => JSON,
    };
    let body = Bytes::from(body.to_string());
    connection.ask(method, path, content_type, body).await.expect("an answer").0
}

/// Whatever a client may write can be read, listed in every form, and deleted; and a server starts
/// with it.
#[test]
fn what_is_accepted_can_be_read_ever_after() {
    let mut server = Server::start();
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    let mut taken = Vec::new();
    run(async {
        let mut connection = Connection::open(&admin(&server)).await.expect("a connection");
        for levels in [10, 100, 125, 150, 190, 196, 197, 198, 199, 200, 250, 1000] {
            let name = format!("deep-{levels}");
            let binding = json!({
                "metadata": { "name": name, "managedFields": [{
                    "manager": "m", "operation": "Update", "fieldsType": "FieldsV1",
                    "apiVersion": "rbac.authorization.k8s.io/v1", "fieldsV1": nested(levels) }] },
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r" },
            });
            match ask(&mut connection, Method::POST, bindings, &binding).await {
                201 => taken.push(name),
                code => assert_eq!(code, 400, "{levels}"),
            }
        }
    });
    assert!(taken.len() > 4, "{taken:?}");
    let check = |server: &Server| {
        for form in ["", "-o json", "-o yaml"] {
            let list = server.kubectl(&format!("get rolebindings {form}"));
            assert!(taken.iter().all(|name| list.contains(name)), "{form}: {list}");
        }
        assert_eq!(server.kubectl("get --raw /healthz"), "ok");
        // Grants are in force as they are changed. (kubectl says no by failing.)
        server.kubectl("create role reader --verb=list --resource=secrets");
        server.kubectl("create rolebinding reader --role=reader --user=jane");
        server.until("auth can-i list secrets --as=jane", "yes");
        server.kubectl("delete rolebinding reader");
        server.until("auth can-i list secrets --as=jane", "error: ");
    };
    check(&server);
    server.crash_and_restart();
    check(&server);
    for name in &taken {
        let said = server.kubectl(&format!("delete rolebinding {name}"));
        assert!(said.contains("deleted"), "{said}");
    }
}

#[test]
fn no_patch_ends_the_server() {
    let server = Server::start();
    server.kubectl("create configmap target");
    let path = "/api/v1/namespaces/default/configmaps/target";
    let mut nesting = Vec::new();
    for _ in 0..3000 {
        nesting.push(json!({ "op": "add", "path": "/b", "value": {} }));
        nesting.push(json!({ "op": "move", "from": "/data", "path": "/b/a" }));
        nesting.push(json!({ "op": "move", "from": "/b", "path": "/data" }));
    }
    nesting.insert(0, json!({ "op": "add", "path": "/data", "value": {} }));
    let items: Vec<u8> = vec![1; 200_000];
    let mut shifting = vec![json!({ "op": "add", "path": "/a", "value": items })];
    shifting.extend((0..9000).map(|_| json!({ "op": "move", "from": "/a/0", "path": "/a/-" })));
    run(async {
        let mut connection = Connection::open(&admin(&server)).await.expect("a connection");
        for patch in [nesting, shifting] {
            for query in ["", "?dryRun=All"] {
                let place = format!("{path}{query}");
                let code = ask(&mut connection, Method::PATCH, &place, &json!(patch)).await;
                assert_eq!(code, 422);
            }
        }
    });
    assert_eq!(server.kubectl("get --raw /readyz"), "ok");
}

/// What takes long is done beside the others, and what could never be stored is not judged.
#[test]
fn a_bystander_does_not_wait_for_a_bulky_object() {
    let server = Server::start();
    let pod = |containers: usize, env: usize| {
        json!({ "metadata": { "name": "bulky" }, "spec": {
            "containers": vec![json!({ "env": vec![json!({}); env] }); containers] } })
    };
    run(async {
        let endpoint = admin(&server);
        let bulky = [pod(250_000, 0), pod(1, 400_000), pod(15_000, 1)];
        let attacks = bulky.map(|pod| {
            let endpoint = endpoint.clone();
            tokio::spawn(async move {
                let mut connection = Connection::open(&endpoint).await.expect("a connection");
                let path = "/api/v1/namespaces/default/pods";
                ask(&mut connection, Method::POST, path, &pod).await
            })
        });
        let mut bystander = Connection::open(&endpoint).await.expect("a connection");
        let mut longest = std::time::Duration::ZERO;
        while !attacks.iter().all(|attack| attack.is_finished()) {
            let begun = std::time::Instant::now();
            let answer =
                bystander.ask(Method::GET, "/api/v1/namespaces/default", JSON, Bytes::new());
            assert_eq!(answer.await.expect("an answer").0, 200);
            longest = longest.max(begun.elapsed());
        }
        for attack in attacks {
            let code = attack.await.expect("it ran");
            assert!(matches!(code, 413 | 422), "{code}");
        }
        // On a machine that is busy otherwise, too.
        assert!(longest.as_secs() < 3, "{longest:?}");
    });
}
