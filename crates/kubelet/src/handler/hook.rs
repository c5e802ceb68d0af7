//! Hooks: `postStart` and `preStop` (`pkg/kubelet/lifecycle/handlers.go` upstream).
use super::Target;
use super::web::{Place, follow, is_plain};
use crate::pod;
use crate::worker::Kubelet;
use k8s_openapi::api::core::v1::{HTTPGetAction, LifecycleHandler, Pod};
use std::time::Duration;

const AGENT: &str = "kube-lifecycle/1.37";

impl Target {
    /// Why it failed, if it did. How long it may take is its caller's concern.
    pub async fn run_hook(
        &self,
        kubelet: &Kubelet,
        pod: &Pod,
        hook: &LifecycleHandler,
    ) -> Result<(), String> {
        let whose = || {
            format!("for Container {:?} in Pod {:?} failed", self.container.name, pod::shown(pod))
        };
        if let Some(action) = &hook.exec {
            let command = action.command.clone().unwrap_or_default();
            let words = command.join(" ");
            let (error, output) = match self.exec(kubelet, command, Duration::ZERO).await {
                Ok(ended) if ended.exit_code == 0 => return Ok(()),
                Ok(ended) => {
                    let stderr = String::from_utf8_lossy(&ended.stderr).into_owned();
                    let said = String::from_utf8_lossy(&ended.stdout).into_owned() + &stderr;
                    let code = ended.exit_code;
                    (format!("command '{words}' exited with {code}: {stderr}"), said)
                }
                Err(error) => (error.to_string(), String::new()),
            };
            return Err(format!(
                "Exec lifecycle hook ([{words}]) {} - error: {error}, message: {output:?}",
                whose()
            ));
        }
        if let Some(action) = &hook.http_get {
            let path = action.path.as_deref().unwrap_or_default();
            let told = |error| format!("HTTP lifecycle hook ({path}) {} - error: {error}", whose());
            return self.call(kubelet, pod, action).await.map_err(told);
        }
        if let Some(action) = &hook.sleep {
            kubelet.context.sleep(Duration::from_secs(action.seconds.unsigned_abs())).await;
            return Ok(());
        }
        Err("Cannot run handler: invalid handler".to_owned())
    }

    /// That somebody answers is enough, whatever is said.
    async fn call(
        &self,
        kubelet: &Kubelet,
        pod: &Pod,
        action: &HTTPGetAction,
    ) -> Result<(), String> {
        let place = self.place(action)?;
        let headers = action.http_headers.clone().unwrap_or_default();
        let Err(error) = Box::pin(follow(&place, &headers, AGENT)).await else { return Ok(()) };
        if !is_plain(&error) {
            return Err(error);
        }
        // Whoever wrote HTTPS may have meant a server that never spoke it; what is for its eyes only stays away.
        let plain = Place { is_https: false, ..place };
        let headers: Vec<_> = headers
            .into_iter()
            .filter(|header| !header.name.eq_ignore_ascii_case("authorization"))
            .collect();
        if Box::pin(follow(&plain, &headers, AGENT)).await.is_err() {
            return Err(error);
        }
        let note = format!(
            "request to HTTPS lifecycle hook {} got HTTP response, retry with HTTP succeeded",
            plain.authority()
        );
        kubelet.warn(pod, None, "LifecycleHTTPFallback", &note);
        Ok(())
    }
}
