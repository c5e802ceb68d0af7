//! Which requests are approved without anybody looking: those of nodes, if they may.
use super::Asked;
use super::signer::{KUBELET_CLIENT, kubelet_client};
use crate::authn::User;
use crate::authz::{self, Attributes, What};
use crate::resources::ApiServer;
use serde_json::Value;

/// The message of an approval, if there is to be one.
pub async fn approve(api: &ApiServer, spec: &Value, request: &Asked) -> Option<String> {
    let usages: Vec<&str> =
        spec["usages"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if spec["signerName"] != KUBELET_CLIENT || kubelet_client(request, &usages).is_err() {
        return None;
    }
    let user = User {
        name: spec["username"].as_str()?.to_owned(),
        uid: spec["uid"].as_str().unwrap_or_default().to_owned(),
        groups: serde_json::from_value(spec["groups"].clone()).unwrap_or_default(),
        extra: serde_json::from_value(spec["extra"].clone()).unwrap_or_default(),
    };
    let is_own = request.subject.common_name == user.name;
    if is_own && may(api, &user, "selfnodeclient").await {
        let text = "Auto approving self kubelet client certificate after SubjectAccessReview.";
        return Some(text.into());
    }
    let text = "Auto approving kubelet client certificate after SubjectAccessReview.";
    may(api, &user, "nodeclient").await.then(|| text.into())
}

async fn may(api: &ApiServer, user: &User, part: &str) -> bool {
    let resource = "certificatesigningrequests";
    let mut right = Attributes::right("create", "certificates.k8s.io", resource, "", "");
    if let What::Resource { version, subresource, .. } = &mut right.what {
        (*version, *subresource) = ("*".into(), part.into());
    }
    authz::decide(api, user, &right).await.allowed
}
