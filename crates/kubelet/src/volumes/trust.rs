//! What a `clusterTrustBundle` source shows: the certificates of the bundles it asks for, each once.
use api::pem;
use api::selector::label::Selector;
use k8s_openapi::api::certificates::v1::ClusterTrustBundle;
use k8s_openapi::api::core::v1::ClusterTrustBundleProjection;
use std::collections::BTreeSet;
use std::sync::Arc;

/// One file of PEM. The words of failures are upstream's
/// (`pkg/kubelet/clustertrustbundle/clustertrustbundle_manager.go`).
pub fn anchors(
    bundles: &[Arc<ClusterTrustBundle>],
    asked: &ClusterTrustBundleProjection,
) -> Result<Vec<u8>, String> {
    let chosen = choose(bundles, asked)?;
    let certificates: BTreeSet<Vec<u8>> = chosen
        .iter()
        .flat_map(|bundle| pem::blocks(bundle.spec.trust_bundle.as_bytes()))
        .map(|block| block.bytes)
        .collect();
    let texts = certificates.iter().map(|bytes| pem::encode("CERTIFICATE", bytes));
    Ok(texts.collect::<String>().into_bytes())
}

fn choose<'b>(
    bundles: &'b [Arc<ClusterTrustBundle>],
    asked: &ClusterTrustBundleProjection,
) -> Result<Vec<&'b ClusterTrustBundle>, String> {
    let optional = asked.optional == Some(true);
    let bundles = bundles.iter().map(|bundle| &**bundle);
    if let Some(name) = &asked.name {
        let named: Vec<_> =
            bundles.filter(|bundle| bundle.metadata.name.as_ref() == Some(name)).collect();
        return match named.is_empty() && !optional {
            true => Err(format!(
                "while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io \
                 \"{name}\" not found"
            )),
            false => Ok(named),
        };
    }
    let Some(signer) = &asked.signer_name else {
        return Err(
            "ClusterTrustBundle projection requires either name or signerName to be set".to_owned()
        );
    };
    // No selector asks for nothing, an empty one for everything.
    let selector = Selector::from_label_selector(asked.label_selector.as_ref())
        .map_err(|error| format!("while parsing label selector: {error}"))?;
    let none = std::collections::BTreeMap::new();
    let signed: Vec<_> = bundles
        .filter(|bundle| bundle.spec.signer_name.as_ref() == Some(signer))
        .filter(|bundle| selector.matches(bundle.metadata.labels.as_ref().unwrap_or(&none)))
        .collect();
    match signed.is_empty() && !optional {
        true => Err("combination of signerName and labelSelector matched zero ClusterTrustBundles"
            .to_owned()),
        false => Ok(signed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn bundle(name: &str, signer: &str, label: &str, contents: &[&str]) -> Arc<ClusterTrustBundle> {
        let text: String =
            contents.iter().map(|text| pem::encode("CERTIFICATE", text.as_bytes())).collect();
        let bundle = json!({ "metadata": { "name": name, "labels": { "is": label } },
            "spec": { "signerName": signer, "trustBundle": text } });
        Arc::new(serde_json::from_value(bundle).unwrap())
    }

    fn check(asked: serde_json::Value) -> Result<Vec<String>, String> {
        let bundles = [
            bundle("a", "s", "x", &["1", "2"]),
            bundle("b", "s", "y", &["2", "3"]),
            bundle("c", "t", "x", &["4"]),
        ];
        let asked = serde_json::from_value(asked).unwrap();
        let text = anchors(&bundles, &asked)?;
        Ok(pem::blocks(&text).map(|block| String::from_utf8(block.bytes).unwrap()).collect())
    }

    #[test]
    fn bundles_are_chosen_by_name_or_signer_and_joined() {
        let shown = |asked| check(asked).unwrap().join(" ");
        assert_eq!(shown(json!({ "path": "p", "name": "a" })), "1 2");
        assert_eq!(shown(json!({ "path": "p", "signerName": "s", "labelSelector": {} })), "1 2 3");
        assert_eq!(
            shown(
                json!({ "path": "p", "signerName": "s", "labelSelector": { "matchLabels": { "is": "y" } } })
            ),
            "2 3"
        );
        assert_eq!(shown(json!({ "path": "p", "signerName": "s", "optional": true })), "");
        assert_eq!(shown(json!({ "path": "p", "name": "z", "optional": true })), "");
    }

    #[test]
    fn what_is_not_there_and_has_to_be_is_told() {
        assert_eq!(
            check(json!({ "path": "p", "name": "z" })).unwrap_err(),
            "while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io \"z\" not found"
        );
        assert_eq!(
            check(json!({ "path": "p", "signerName": "s" })).unwrap_err(),
            "combination of signerName and labelSelector matched zero ClusterTrustBundles"
        );
    }
}
