//! The control loops against the real server, over HTTPS.
use crate::cluster::Cluster;
use client::Context;
use client::https::{Config, Https};
use std::sync::Arc;

/// A server and all controllers; they stop with it.
pub struct Controlled {
    pub cluster: Cluster,
    context: Context,
}

impl Controlled {
    pub fn start() -> Controlled {
        let cluster = Cluster::start();
        let file = cluster.folder.path().join("kubeconfig");
        let config = Config::from_kubeconfig(&file, None).expect("a kubeconfig");
        let context = Context::new();
        let config = config.for_component("kube-controller-manager");
        let source = Https::new(&context, config).expect("a good config");
        let settings = controllers::Settings {
            root_ca: "the cluster's\n".to_owned(),
            cluster_cidr: "10.244.0.0/16".to_owned(),
            ..controllers::Settings::default()
        };
        let running = controllers::start(
            &context,
            &controllers::Sources::one(Arc::new(source)),
            &[],
            settings,
        );
        tokio::spawn(running.expect("names of controllers"));
        Controlled { cluster, context }
    }

    /// kubectl is waited for on a thread of its own: the controllers go on meanwhile.
    pub fn until(&self, arguments: &str, expected: &str) {
        tokio::task::block_in_place(|| self.cluster.until(arguments, expected));
    }

    pub fn kubectl(&self, arguments: &str) -> String {
        tokio::task::block_in_place(|| self.cluster.kubectl(arguments))
    }

    pub fn create(&self, manifest: &str) {
        let create = || self.cluster.kubectl_with("create -f -", manifest);
        let said = tokio::task::block_in_place(create);
        assert!(said.ends_with(" created"), "{said}");
    }
}

impl Drop for Controlled {
    fn drop(&mut self) {
        self.context.stop();
    }
}

fn count(resource: &str, more: &str) -> String {
    format!("get {resource} {more} -o jsonpath={{range.items[*]}}x{{end}}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_deployment_has_its_pods_and_takes_them_with_it() {
    let controlled = Controlled::start();
    controlled.until("get serviceaccount default -o jsonpath={.metadata.name}", "default");
    controlled
        .until("get configmap kube-root-ca.crt -o jsonpath={.data.ca\\.crt}", "the cluster's");
    controlled.kubectl("create deployment web --image=nginx --replicas=3");
    controlled.until(&count("pods", "-l app=web"), "xxx");
    controlled.until("get rs -o jsonpath={.items[*].status.replicas}", "3");
    controlled.until("get deployment web -o jsonpath={.status.replicas}", "3");
    controlled.until(
        "get deployment web -o jsonpath={.metadata.annotations.deployment\\.kubernetes\\.io/revision}",
        "1",
    );
    controlled.until(
        "get deployment web -o jsonpath={.status.conditions[*].reason}",
        "MinimumReplicasUnavailable ReplicaSetUpdated",
    );

    controlled.kubectl("scale deployment web --replicas=5");
    controlled.until(&count("pods", "-l app=web"), "xxxxx");
    controlled.kubectl("scale deployment web --replicas=1");
    controlled.until(&count("pods", "-l app=web"), "x");

    // A new template is rolled out beside the old one, as no old pod may be missing.
    controlled.kubectl("set image deployment web nginx=nginx:2");
    controlled.until(&count("rs", ""), "xx");
    controlled.until(&count("pods", "-l app=web"), "xx");

    controlled.kubectl("delete deployment web --wait=false");
    controlled.until(&count("rs", ""), "");
    controlled.until(&count("pods", ""), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn orphans_stay_and_the_foreground_waits() {
    let controlled = Controlled::start();
    controlled.until("get serviceaccount default -o jsonpath={.metadata.name}", "default");
    controlled.kubectl("create deployment web --image=nginx --replicas=2");
    controlled.until(&count("pods", "-l app=web"), "xx");
    controlled.kubectl("delete deployment web --cascade=orphan");
    controlled.until(&count("deployments", ""), "");
    controlled.until("get rs -o jsonpath={.items[*].metadata.ownerReferences}", "");
    assert_eq!(controlled.kubectl(&count("pods", "-l app=web")), "xx");
    // Its set is adopted by the next of the same template, which then takes it along.
    controlled.kubectl("create deployment web --image=nginx --replicas=2");
    controlled
        .until("get rs -o jsonpath={.items[*].metadata.ownerReferences[*].kind}", "Deployment");
    controlled.kubectl("delete deployment web --cascade=foreground");
    controlled.until(&count("rs,pods,deployments", ""), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_namespace_goes_with_all_that_is_in_it() {
    let controlled = Controlled::start();
    controlled.kubectl("create namespace a");
    controlled.until("get serviceaccount default -n a -o jsonpath={.metadata.name}", "default");
    controlled.kubectl("create deployment web -n a --image=nginx --replicas=2");
    controlled.kubectl("create configmap c -n a --from-literal=k=v");
    controlled.until(&count("pods", "-n a"), "xx");
    // Its pod has a finalizer, which goes with the job.
    controlled.kubectl("create job j -n a --image=busybox");
    controlled.until(&count("pods", "-n a"), "xxx");
    controlled.kubectl("expose deployment web -n a --port=80");
    controlled.until(&count("endpointslices", "-n a"), "x");
    controlled.kubectl("delete namespace a --wait=false");
    controlled.until("get namespace a --ignore-not-found -o name", "");
    let left = controlled.kubectl(&count("pods,rs,deployments,configmaps,jobs,services", "-n a"));
    assert_eq!(left, "");
}

const VOLUME: &str = "
apiVersion: v1
kind: PersistentVolume
metadata: { name: disk }
spec:
  accessModes: [ReadWriteOnce]
  capacity: { storage: 2Gi }
  hostPath: { path: /tmp/disk }
  persistentVolumeReclaimPolicy: Retain
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: { name: data }
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: ''
  resources: { requests: { storage: 1Gi } }
";

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_claim_gets_its_volume_and_gives_it_back() {
    let controlled = Controlled::start();
    controlled.create(VOLUME);
    controlled.until("get pvc data -o jsonpath={.status.phase}/{.spec.volumeName}", "Bound/disk");
    controlled.until("get pvc data -o jsonpath={.status.capacity.storage}", "2Gi");
    controlled.until("get pv disk -o jsonpath={.status.phase}/{.spec.claimRef.name}", "Bound/data");
    // What is bound is not lost, though somebody wants it gone.
    controlled.kubectl("delete pv disk --wait=false");
    controlled.until(
        "get pv disk -o jsonpath={.metadata.finalizers}",
        "[\"kubernetes.io/pv-protection\"]",
    );
    controlled.kubectl("delete pvc data --wait=false");
    controlled.until("get pvc,pv --ignore-not-found -o name", "");
}

const WORK: &str = "
apiVersion: batch/v1
kind: CronJob
metadata: { name: tick }
spec:
  schedule: '@every 1s'
  concurrencyPolicy: Forbid
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          containers: [{ name: c, image: busybox }]
---
apiVersion: v1
kind: ReplicationController
metadata: { name: web }
spec:
  replicas: 2
  selector: { app: web }
  template:
    metadata: { labels: { app: web } }
    spec:
      containers: [{ name: c, image: nginx }]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: { name: web }
spec:
  maxUnavailable: 1
  selector: { matchLabels: { app: web } }
";

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_schedule_makes_jobs_and_a_budget_counts_pods() {
    let controlled = Controlled::start();
    controlled.until("get serviceaccount default -o jsonpath={.metadata.name}", "default");
    controlled.create(WORK);
    controlled.until("get jobs -o jsonpath={.items[*].metadata.ownerReferences[*].name}", "tick");
    controlled.until("get jobs -o jsonpath={.items[*].status.active}", "1");
    controlled.until("get cronjob tick -o jsonpath={.status.active[*].kind}", "Job");
    controlled.until("get rc web -o jsonpath={.status.replicas}", "2");
    let pods = "get pods -l app=web -o jsonpath={.items[*].metadata.name}";
    let budget = "get pdb web -o jsonpath={.status.currentHealthy}/{.status.desiredHealthy}/{.status.expectedPods}/{.status.disruptionsAllowed}";
    controlled.until(budget, "0/1/2/0");
    for pod in controlled.kubectl(pods).split(' ') {
        controlled.kubectl(&format!(
            "patch pod {pod} --subresource=status -p {{\"status\":{{\"phase\":\"Running\",\"conditions\":[{{\"type\":\"Ready\",\"status\":\"True\"}}]}}}}"
        ));
    }
    controlled.until(budget, "2/1/2/1");
    controlled.until("get pdb web -o jsonpath={.status.conditions[*].reason}", "SufficientPods");
}

pub fn autoscaler(name: &str, target: &str) -> String {
    format!(
        "apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {{ name: {name}, namespace: default }}
spec:
  maxReplicas: 2
  scaleTargetRef: {target}
  metrics: [{{ type: Resource, resource: {{ name: cpu, target: {{ type: Utilization, averageUtilization: 50 }} }} }}]
"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn autoscalers_scale_and_say_what_they_miss() {
    let it = Controlled::start();
    it.kubectl("create deployment web --image=web --replicas=3");
    let target = "{ apiVersion: apps/v1, kind: Deployment, name: web }";
    it.create(&autoscaler("web", target));
    it.until("get deployment web -o jsonpath={.spec.replicas}", "2");
    let reason = "get hpa web -o jsonpath={.status.conditions[?(@.type=='ScalingActive')].reason}";
    it.until(reason, "FailedGetResourceMetric");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ranges_of_services_are_ready_and_devices_are_claimed() {
    let it = Controlled::start();
    it.until("get servicecidr kubernetes -o jsonpath={.status.conditions[0].status}", "True");
    it.kubectl("get namespace default");
    it.until("get serviceaccount default -o name", "serviceaccount/default");
    it.create(
        "apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: { name: t, namespace: default }
spec: { spec: { devices: { requests: [{ name: r, exactly: { deviceClassName: gpu } }] } } }
",
    );
    it.create(
        "apiVersion: v1
kind: Pod
metadata: { name: p, namespace: default }
spec:
  containers: [{ name: c, image: i }]
  resourceClaims: [{ name: gpu, resourceClaimTemplateName: t }]
",
    );
    it.until("get pod p -o jsonpath={.status.resourceClaimStatuses[0].name}", "gpu");
    it.kubectl("delete pod p --force --grace-period=0");
    it.until(&count("resourceclaims", ""), "");
}
