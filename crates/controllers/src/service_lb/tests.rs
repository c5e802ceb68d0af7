use super::*;
use crate::testing::after_with;
use crate::{Settings, testing};
use expect_test::{Expect, expect};
use futures_util::FutureExt;
use k8s_openapi::api::core::v1::{Event, LoadBalancerIngress};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// A cloud in memory: its balancers, and what it was asked.
#[derive(Default)]
struct Cloud {
    balancers: Mutex<BTreeMap<String, LoadBalancerStatus>>,
    asked: Mutex<Vec<String>>,
    failure: Option<Failure>,
}

impl Cloud {
    async fn ask(
        &self,
        verb: &str,
        service: &Service,
        nodes: &[Arc<Node>],
    ) -> Result<String, Failure> {
        // Clouds take their time; events of one moment would have one name.
        tokio::time::sleep(Duration::from_millis(1)).await;
        let name = service.metadata.name.clone().unwrap_or_default();
        let names: Vec<_> = nodes.iter().filter_map(|node| node.metadata.name.clone()).collect();
        self.asked.lock().unwrap().push(format!("{verb} {name} {}", names.join(",")));
        match &self.failure {
            Some(failure) => Err(failure.clone()),
            None => Ok(name),
        }
    }
}

impl LoadBalancers for Cloud {
    fn get<'a>(&'a self, service: &'a Service) -> provider::Said<'a, Option<LoadBalancerStatus>> {
        async move {
            let name = self.ask("get", service, &[]).await?;
            Ok(self.balancers.lock().unwrap().get(&name).cloned())
        }
        .boxed()
    }

    fn ensure<'a>(
        &'a self,
        service: &'a Service,
        nodes: &'a [Arc<Node>],
    ) -> provider::Said<'a, LoadBalancerStatus> {
        async move {
            let name = self.ask("ensure", service, nodes).await?;
            let ingress = LoadBalancerIngress {
                ip: Some("192.0.2.1".to_owned()),
                ..LoadBalancerIngress::default()
            };
            let status = LoadBalancerStatus { ingress: Some(vec![ingress]) };
            self.balancers.lock().unwrap().insert(name, status.clone());
            Ok(status)
        }
        .boxed()
    }

    fn update<'a>(
        &'a self,
        service: &'a Service,
        nodes: &'a [Arc<Node>],
    ) -> provider::Said<'a, ()> {
        async move { self.ask("update", service, nodes).await.map(drop) }.boxed()
    }

    fn delete<'a>(&'a self, service: &'a Service) -> provider::Said<'a, ()> {
        async move {
            let name = self.ask("delete", service, &[]).await?;
            self.balancers.lock().unwrap().remove(&name);
            Ok(())
        }
        .boxed()
    }
}

/// Runs the row; `then` changes the world once it rests. What the cloud was asked, what was written and
/// what people were told.
fn check(
    failure: Option<Failure>,
    has: &[&str],
    world: &str,
    then: impl FnOnce(&client::testing::World),
    expect: Expect,
) {
    let cloud = Arc::new(Cloud { failure, ..Cloud::default() });
    for name in has {
        cloud.balancers.lock().unwrap().insert((*name).to_owned(), LoadBalancerStatus::default());
    }
    let settings =
        Settings { load_balancers: Some(Provider(cloud.clone())), ..testing::settings() };
    let mut out = String::new();
    after_with(&CONTROLLER, settings, world, then, |server| {
        let mut lines = cloud.asked.lock().unwrap().clone();
        lines.extend(server.written().into_iter().filter(|line| !line.contains(" events ")));
        let mut told: Vec<_> = server
            .all::<Event>()
            .iter()
            .map(|it| {
                let text = |text: &Option<String>| text.clone().unwrap_or_default();
                format!("{}: {}", text(&it.reason), text(&it.message))
            })
            .collect();
        told.sort();
        lines.extend(told);
        out = lines.iter().map(|line| format!("{}\n", line.trim())).collect();
    });
    expect.assert_eq(&out);
}

const NODES: &str = "node a spec.providerID=a
    node b spec.providerID=b label:node.kubernetes.io/exclude-from-external-load-balancers=
    node c spec.providerID=c deleting finalizers=x";
const SERVICE: &str =
    "service web spec={\"type\":\"LoadBalancer\",\"ports\":[{\"port\":80,\"nodePort\":30080}]}";

#[test]
fn a_service_gets_a_balancer_that_leads_to_the_nodes() {
    check(
        None,
        &[],
        &format!(
            "{NODES}\n{SERVICE}\nservice other spec.type=ClusterIP\nservice theirs spec={{\"type\":\"LoadBalancer\",\"loadBalancerClass\":\"x.io/y\"}}"
        ),
        |_| {},
        expect![[r#"
            ensure web a
            patch services default/web
            patch services/status default/web
            EnsuredLoadBalancer: Ensured load balancer
            EnsuringLoadBalancer: Ensuring load balancer
        "#]],
    );
}

#[test]
fn a_new_node_is_told_to_the_balancer_and_nothing_else_is() {
    check(
        None,
        &[],
        &format!("{NODES}\n{SERVICE}"),
        |server| testing::put(server, "node d spec.providerID=d"),
        expect![[r#"
            ensure web a
            update web a,d
            patch services default/web
            patch services/status default/web
            EnsuredLoadBalancer: Ensured load balancer
            EnsuringLoadBalancer: Ensuring load balancer
            UpdatedLoadBalancer: Updated load balancer with new hosts
        "#]],
    );
}

#[test]
fn a_service_that_goes_is_kept_until_its_balancer_is_gone() {
    check(
        None,
        &["web"],
        &format!("{NODES}\n{SERVICE} deleting finalizers={FINALIZER}"),
        |_| {},
        expect![[r#"
            get web
            delete web
            patch services default/web
            DeletedLoadBalancer: Deleted load balancer
            DeletingLoadBalancer: Deleting load balancer
        "#]],
    );
}

#[test]
fn a_service_of_another_type_loses_its_balancer() {
    check(
        None,
        &["web"],
        &format!(
            "service web spec.type=ClusterIP finalizers={FINALIZER} status.loadBalancer={{\"ingress\":[{{\"ip\":\"192.0.2.1\"}}]}}"
        ),
        |_| {},
        expect![[r#"
            get web
            delete web
            patch services default/web
            patch services/status default/web
            DeletedLoadBalancer: Deleted load balancer
            DeletingLoadBalancer: Deleting load balancer
        "#]],
    );
}

#[test]
fn why_there_is_none_is_told() {
    check(
        Some(Failure::Failed("no quota".to_owned())),
        &[],
        &format!("{NODES}\n{SERVICE}"),
        |_| {},
        expect![[r#"
            ensure web a
            patch services default/web
            EnsuringLoadBalancer: Ensuring load balancer
            SyncLoadBalancerFailed: Error syncing load balancer: failed to ensure load balancer: no quota
        "#]],
    );
    check(
        Some(Failure::Elsewhere),
        &[],
        &format!("{NODES}\n{SERVICE}"),
        |_| {},
        expect![[r#"
            ensure web a
            patch services default/web
            EnsuringLoadBalancer: Ensuring load balancer
        "#]],
    );
}
