//! Somebody who wants to be taken for somebody else, or for nobody.
use super::{Who, Wire};
use crate::cluster::Cluster;

#[test]
fn what_cannot_be_read_is_not_what_is_not_there() {
    let cluster = Cluster::start();
    let wire = Wire::new(&cluster);
    for headers in [
        &[&b"Impersonate-User: \xff"[..]][..],
        &[&b"Impersonate-User: jane"[..], b"Impersonate-Group: \xff"],
        &[&b"Impersonate-User: jane"[..], b"Impersonate-Uid: \xff"],
        &[&b"Impersonate-User: jane"[..], b"Impersonate-Extra-Scopes: \xff"],
        &[&b"Impersonate-Group: dev"[..]],
        &[&b"Impersonate-Extra-Scopes: all"[..]],
    ] {
        let (code, user) = wire.whoami(Who::Admin, headers);
        assert_eq!(code, 400, "{headers:?}: {user}");
    }
    let (code, user) = wire.whoami(Who::Admin, &["Impersonate-User: jürgen".as_bytes()]);
    assert_eq!((code, &user["username"]), (201, &"jürgen".into()));
    let (code, _) = wire.whoami(Who::Admin, &[b"Impersonate-User: system:serviceaccount:a:b:c"]);
    assert_eq!(code, 201);

    for headers in [
        &[&b"Authorization: Bearer \xff"[..]][..],
        &["Authorization: Bearer jürgen".as_bytes()],
        &[&b"Authorization: Bearer nonsense"[..]],
        &[
            &b"Upgrade: websocket"[..],
            b"Sec-WebSocket-Protocol: x, base64url.bearer.authorization.k8s.io.bm9uc2Vuc2U",
        ],
        &[
            &b"Upgrade: websocket"[..],
            b"Sec-WebSocket-Protocol: x, base64url.bearer.authorization.k8s.io.!",
        ],
    ] {
        let answer = wire.ask(Who::Nobody, "GET /livez", headers, "");
        assert_eq!(answer.code, 401, "{headers:?}: {}", answer.body);
    }
    assert_eq!(wire.ask(Who::Nobody, "GET /livez", &[], "").code, 200);
    // Nothing that is refused is taken for a page, whatever was asked for.
    for (what, code) in [
        ("GET /api/v1/secrets/%3Cscript%3E", 403),
        ("GET /%3Cscript%3E", 403),
        ("PATCH /api/v1/namespaces/default", 403),
    ] {
        let answer = wire.ask(Who::Nobody, what, &[b"Accept: text/html"], "");
        assert_eq!(answer.code, code, "{what}: {}", answer.body);
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{what}: {}", answer.head);
    }

    // What the server is to kubelets is nothing to itself.
    let code = |what: &str| wire.ask(Who::KubeletClient, what, &[], "").code;
    assert_eq!(code("GET /api/v1/nodes"), 200);
    assert_eq!(code("GET /api/v1/secrets"), 403);
    assert_eq!(code("DELETE /api/v1/nodes/x"), 403);
}
