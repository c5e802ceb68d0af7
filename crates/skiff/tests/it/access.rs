//! Who may do what: identities, roles, tokens.
use crate::cluster::Cluster;
use serde_json::{Value, json};

#[test]
fn a_user_may_do_what_a_role_gives() {
    let cluster = Cluster::start();
    let jane = |arguments: &str| cluster.kubectl(&format!("{arguments} --as=jane"));
    let refused = jane("get configmaps -n default");
    assert_eq!(
        refused,
        "error: Error from server (Forbidden): configmaps is forbidden: User \"jane\" cannot list resource \"configmaps\" in API group \"\" in the namespace \"default\""
    );
    cluster.kubectl("create role reader -n default --verb=get,list --resource=configmaps");
    cluster.kubectl("create rolebinding jane -n default --role=reader --user=jane");
    wait_until(|| jane("get configmaps -n default -o name").is_empty());
    assert!(jane("get configmaps -n kube-system").contains("Forbidden"));
    assert!(jane("create configmap c -n default").contains("forbidden"));
    assert_eq!(jane("auth can-i list configmaps -n default"), "yes");
    assert_ne!(jane("auth can-i delete configmaps -n default"), "yes");
    cluster.kubectl("delete rolebinding jane -n default");
    wait_until(|| jane("get configmaps -n default").contains("Forbidden"));
}

#[test]
fn nobody_gives_away_what_he_does_not_have() {
    let cluster = Cluster::start();
    cluster.kubectl(
        "create role maker -n default --verb=get,create,update --resource=roles,rolebindings",
    );
    cluster.kubectl("create rolebinding maker -n default --role=maker --user=jane");
    let make = "create role big -n default --verb=get --resource=secrets --as=jane";
    wait_until(|| {
        cluster.kubectl(make).contains("is attempting to grant RBAC permissions not currently held")
    });
    let bind =
        "create rolebinding big -n default --clusterrole=cluster-admin --user=jane --as=jane";
    assert!(cluster.kubectl(bind).contains("not currently held"));
}

#[test]
fn a_token_is_worth_what_its_account_is() {
    let cluster = Cluster::start();
    cluster.kubectl("create serviceaccount robot -n default");
    let token = cluster.kubectl("create token robot -n default");
    let whoami = |token: &str| {
        let review = cluster.kubectl_args(&["auth", "whoami", "-o", "json", "--token", token]);
        serde_json::from_str::<Value>(&review).unwrap_or(Value::String(review))
    };
    // kubectl keeps the administrator's certificate beside the token; a raw request does not.
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
    let answer: Value =
        serde_json::from_str(&cluster.kubectl_with("create -o json -f -", &review.to_string()))
            .expect("a review");
    assert_eq!(answer["status"]["authenticated"], true, "{answer}");
    assert_eq!(answer["status"]["user"]["username"], "system:serviceaccount:default:robot");
    assert_eq!(whoami(&token)["status"]["userInfo"]["username"], "kubernetes-admin");
    cluster.kubectl("delete serviceaccount robot -n default");
    let answer: Value =
        serde_json::from_str(&cluster.kubectl_with("create -o json -f -", &review.to_string()))
            .expect("a review");
    assert_ne!(answer["status"]["authenticated"], true, "a token dies with its account");
}

#[test]
fn nobody_sees_only_that_the_server_is_there() {
    let cluster = Cluster::start();
    let anonymous =
        |path: &str| cluster.kubectl(&format!("get --raw {path} --as=system:anonymous"));
    assert_eq!(anonymous("/healthz"), "ok");
    assert!(anonymous("/version").contains("v1.37"));
    for path in ["/metrics", "/api", "/api/v1/namespaces", "/openapi/v2"] {
        assert!(anonymous(path).contains("Forbidden"), "{path}");
    }
}

/// Roles take effect a moment after they are written.
pub fn wait_until(condition: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !condition() {
        assert!(begun.elapsed().as_secs() < 30, "it never happened");
    }
}
