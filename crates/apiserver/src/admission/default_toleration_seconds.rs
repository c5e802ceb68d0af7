//! A pod stays five minutes on a node that is gone, unless it says otherwise.
use super::{Attributes, push};
use api::status::Status;
use serde_json::{Value, json};

/// How long a pod stays on a node that is not ready, or that nobody hears of.
pub struct TolerationSeconds {
    pub not_ready: i64,
    pub unreachable: i64,
}

impl Default for TolerationSeconds {
    fn default() -> Self {
        TolerationSeconds { not_ready: 300, unreachable: 300 }
    }
}

pub async fn admit(attributes: &mut Attributes<'_>) -> Result<(), Status> {
    if !attributes.is("", "Pod") || attributes.is_part() {
        return Ok(());
    }
    let seconds = &attributes.api.admission().settings.toleration_seconds;
    let taints = [
        ("node.kubernetes.io/not-ready", seconds.not_ready),
        ("node.kubernetes.io/unreachable", seconds.unreachable),
    ];
    let Some(pod) = attributes.object.as_deref_mut() else { return Ok(()) };
    for (taint, seconds) in taints {
        let known = pod["spec"]["tolerations"].as_array().map_or(&[][..], Vec::as_slice);
        if known.iter().any(|toleration| tolerates(toleration, taint)) {
            continue;
        }
        let toleration = json!({
            "key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds,
        });
        push(&mut pod["spec"]["tolerations"], toleration);
    }
    Ok(())
}

fn tolerates(toleration: &Value, taint: &str) -> bool {
    let text = |field: &str| toleration[field].as_str().unwrap_or_default();
    let same_key = text("key").is_empty() || text("key") == taint;
    same_key && matches!(text("effect"), "" | "NoExecute")
}

#[cfg(test)]
mod tests {
    use super::tolerates;
    use serde_json::json;

    #[test]
    fn a_toleration_without_key_or_effect_is_wide() {
        let taint = "node.kubernetes.io/not-ready";
        assert!(tolerates(&json!({"operator": "Exists"}), taint));
        assert!(tolerates(&json!({"key": taint}), taint));
        assert!(!tolerates(&json!({"key": taint, "effect": "NoSchedule"}), taint));
        assert!(!tolerates(&json!({"key": "other"}), taint));
    }
}
