//! What may change, by way of which subresource.
use super::{POD, check_update};
use crate::rules::Part;
use expect_test::expect;

const CONFIG_MAP: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: a, namespace: default}
data: {k: v}
immutable: true";
const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: a, namespace: default}
spec:
  selector: {matchLabels: {app: a}}
  template: {metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: x}]}}";
const SERVICE: &str = "
apiVersion: v1
kind: Service
metadata: {name: a, namespace: default}
spec: {selector: {a: b}, clusterIP: 10.0.0.5, clusterIPs: [10.0.0.5], ports: [{port: 80}]}";
const CLAIM: &str = "
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: a, namespace: default}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}";
const CLASS: &str = "
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: a}
provisioner: a.b/c";
const NAMESPACE: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: a}
spec: {}";
const JOB: &str = "
apiVersion: batch/v1
kind: Job
metadata: {name: a, namespace: default}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: x}]}}}";

#[test]
fn pods() {
    check_update(
        POD,
        Part::Main,
        &[
            "{}",
            "spec: {containers: [{name: c, image: 'nginx:2'}]}",
            "spec: {containers: [{name: d, image: x}]}",
            "spec: {containers: []}",
            "spec: {activeDeadlineSeconds: 5}",
            "spec: {tolerations: [{key: a, operator: Exists}]}",
            "spec: {schedulingGates: [{name: a}]}",
            "spec: {nodeName: node}",
            "metadata: {name: b, uid: v}",
        ],
        expect![[r#"
            {}
                fine
            spec: {containers: [{name: c, image: 'nginx:2'}]}
                fine
            spec: {containers: [{name: d, image: x}]}
                spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)
            spec: {containers: []}
                spec.containers: Required value
                spec.containers: Forbidden: pod updates may not add or remove containers
            spec: {activeDeadlineSeconds: 5}
                fine
            spec: {tolerations: [{key: a, operator: Exists}]}
                fine
            spec: {schedulingGates: [{name: a}]}
                spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'a'
            spec: {nodeName: node}
                spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)
            metadata: {name: b, uid: v}
                metadata.name: Invalid value: "b": field is immutable
                metadata.uid: Invalid value: "v": field is immutable
        "#]],
    );
}

#[test]
fn pod_statuses() {
    check_update(
        POD,
        Part::Sub("status"),
        &[
            "status: {phase: Running}",
            "{spec: {nodeName: node}, status: {podIPs: [{ip: x}]}}",
            "status: {qosClass: Guaranteed}",
            "status: {hostIP: 1.2.3.4, hostIPs: [{ip: 1.2.3.5}]}",
        ],
        expect![[r#"
            status: {phase: Running}
                fine
            {spec: {nodeName: node}, status: {podIPs: [{ip: x}]}}
                status.podIPs[0]: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)
            status: {qosClass: Guaranteed}
                status.qosClass: Invalid value: "Guaranteed": field is immutable
            status: {hostIP: 1.2.3.4, hostIPs: [{ip: 1.2.3.5}]}
                status.hostIPs[0].ip: Invalid value: "1.2.3.5": must be equal to `hostIP`
        "#]],
    );
}

#[test]
fn pod_resizes_and_debugging() {
    check_update(
        POD,
        Part::Sub("resize"),
        &[
            "spec: {containers: [{name: c, image: 'nginx:1', resources: {requests: {cpu: 1}}}]}",
            "spec: {containers: [{name: d, image: x}]}",
        ],
        expect![[r#"
            spec: {containers: [{name: c, image: 'nginx:1', resources: {requests: {cpu: 1}}}]}
                spec: Invalid value: "BestEffort": Pod QOS Class may not change as a result of resizing
            spec: {containers: [{name: d, image: x}]}
                spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize
        "#]],
    );
    check_update(
        POD,
        Part::Sub("ephemeralcontainers"),
        &[
            "spec: {ephemeralContainers: [{name: e, image: x}]}",
            "spec: {ephemeralContainers: [{name: c, image: x}], nodeName: ignored}",
        ],
        expect![[r#"
            spec: {ephemeralContainers: [{name: e, image: x}]}
                fine
            spec: {ephemeralContainers: [{name: c, image: x}], nodeName: ignored}
                spec.ephemeralContainers[0].name: Duplicate value: "c"
        "#]],
    );
}

#[test]
fn what_is_immutable() {
    check_update(
        CONFIG_MAP,
        Part::Main,
        &["{}", "data: {k: w}", "immutable: null"],
        expect![[r#"
        {}
            fine
        data: {k: w}
            data: Forbidden: field is immutable when `immutable` is set
        immutable: null
            immutable: Forbidden: field is immutable when `immutable` is set
    "#]],
    );
    check_update(
        DEPLOYMENT,
        Part::Main,
        &[
            "spec: {replicas: 5}",
            "spec: {selector: {matchLabels: {app: b}}, template: {metadata: {labels: {app: b}}}}",
        ],
        expect![[r#"
            spec: {replicas: 5}
                fine
            spec: {selector: {matchLabels: {app: b}}, template: {metadata: {labels: {app: b}}}}
                spec.selector: Invalid value: {"matchLabels":{"app":"b"}}: field is immutable
        "#]],
    );
    check_update(
        SERVICE,
        Part::Main,
        &[
            "spec: {ports: [{port: 81}]}",
            "spec: {clusterIP: 10.0.0.6, clusterIPs: [10.0.0.6]}",
            "spec: {clusterIP: null, clusterIPs: null}",
        ],
        expect![[r#"
            spec: {ports: [{port: 81}]}
                fine
            spec: {clusterIP: 10.0.0.6, clusterIPs: [10.0.0.6]}
                spec.clusterIPs[0]: Invalid value: ["10.0.0.6"]: may not change once set
            spec: {clusterIP: null, clusterIPs: null}
                fine
        "#]],
    );
    check_update(
        CLAIM,
        Part::Main,
        &[
            "spec: {volumeName: v}",
            "spec: {accessModes: [ReadOnlyMany]}",
            "spec: {resources: {requests: {storage: 1Mi}}}",
        ],
        expect![[r#"
            spec: {volumeName: v}
                fine
            spec: {accessModes: [ReadOnlyMany]}
                spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims
            spec: {resources: {requests: {storage: 1Mi}}}
                spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims
        "#]],
    );
    check_update(
        CLASS,
        Part::Main,
        &["allowVolumeExpansion: true", "provisioner: d.e/f"],
        expect![[r#"
            allowVolumeExpansion: true
                fine
            provisioner: d.e/f
                provisioner: Invalid value: null: field is immutable
        "#]],
    );
    check_update(
        JOB,
        Part::Main,
        &[
            "spec: {parallelism: 2}",
            "spec: {completions: 5}",
            "spec: {template: {spec: {restartPolicy: OnFailure}}}",
        ],
        expect![[r#"
            spec: {parallelism: 2}
                fine
            spec: {completions: 5}
                spec.completions: Invalid value: 5: field is immutable
            spec: {template: {spec: {restartPolicy: OnFailure}}}
                spec.template: Invalid value: {"metadata":{"labels":{"batch.kubernetes.io/controller-uid":"u","batch.kubernetes.io/job-name":"a","controller-uid":"u","job-name":"a"}},"spec":{"containers":[{"image":"x","imagePullPolicy":"Always","name":"c","resources":{},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File"}],"dnsPolicy":"ClusterFirst","restartPolicy":"OnFailure","schedulerName":"default-scheduler","securityContext":{},"terminationGracePeriodSeconds":30}}: field is immutable
        "#]],
    );
}

#[test]
fn namespaces_by_subresource() {
    check_update(
        NAMESPACE,
        Part::Main,
        &["{spec: {finalizers: []}, status: {phase: Terminating}}"],
        expect![[r#"
            {spec: {finalizers: []}, status: {phase: Terminating}}
                fine
        "#]],
    );
    check_update(
        NAMESPACE,
        Part::Sub("finalize"),
        &["spec: {finalizers: [mine]}"],
        expect![[r#"
            spec: {finalizers: [mine]}
                spec.finalizers[0]: Invalid value: "mine": name is neither a standard finalizer name nor is it fully qualified
        "#]],
    );
    check_update(
        NAMESPACE,
        Part::Sub("status"),
        &["status: {phase: Terminating}"],
        expect![[r#"
        status: {phase: Terminating}
            status.Phase: Invalid value: "Terminating": may only be 'Active' if `deletionTimestamp` is empty
    "#]],
    );
}

const RESIZED: &str = "
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: default}
spec:
  containers: [{name: c, image: x, resources: {requests: {cpu: 100m, memory: 1Gi}}}]
  initContainers: [{name: i, image: x}]";

#[test]
fn resizes() {
    check_update(
        RESIZED,
        Part::Sub("resize"),
        &[
            "spec: {containers: [{name: c, image: x, resources: {requests: {cpu: 200m, memory: 1Gi}}}]}",
            "spec: {containers: [{name: c, image: x, resources: {requests: {cpu: 200m}}}]}",
            "spec: {containers: [{name: c, image: x, resources: {requests: {cpu: 100m, memory: 1Gi, ephemeral-storage: 1}}}]}",
            "spec: {containers: [{name: d, image: x}]}",
            "spec: {containers: [{name: c, image: x}, {name: d, image: x}]}",
        ],
        expect![[r#"
            spec: {containers: [{name: c, image: x, resources: {requests: {cpu: 200m, memory: 1Gi}}}]}
                fine
            spec: {containers: [{name: c, image: x, resources: {requests: {cpu: 200m}}}]}
                spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed
            spec: {containers: [{name: c, image: x, resources: {requests: {cpu: 100m, memory: 1Gi, ephemeral-storage: 1}}}]}
                spec: Forbidden: only cpu and memory resources are mutable
            spec: {containers: [{name: d, image: x}]}
                spec: Invalid value: "Burstable": Pod QOS Class may not change as a result of resizing
                spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize
            spec: {containers: [{name: c, image: x}, {name: d, image: x}]}
                spec: Invalid value: "Burstable": Pod QOS Class may not change as a result of resizing
                spec.containers: Forbidden: containers may not be added or removed on resize
        "#]],
    );
}

const EVENT: &str = "
apiVersion: events.k8s.io/v1
kind: Event
metadata: {name: a, namespace: default}
eventTime: '2020-01-01T00:00:00.000000Z'
reportingController: a.b/c
reportingInstance: i
action: A
reason: R
type: Normal
regarding: {kind: Pod, name: p, namespace: default}";

#[test]
fn events() {
    check_update(
        EVENT,
        Part::Main,
        &[
            "note: x",
            "regarding: {name: q}",
            "deprecatedSource: {component: x}",
            "series: {count: 1}",
            "reportingController: ''",
        ],
        expect![[r#"
            note: x
                message: Invalid value: "x": field is immutable
            regarding: {name: q}
                involvedObject: Invalid value: {"Kind":"Pod","Namespace":"default","Name":"q","UID":"","APIVersion":"","ResourceVersion":"","FieldPath":""}: field is immutable
            deprecatedSource: {component: x}
                source: Invalid value: {"Component":"x","Host":""}: field is immutable
            series: {count: 1}
                series.count: Invalid value: "": should be at least 2
                series.lastObservedTime: Required value
            reportingController: ''
                reportingController: Required value
                reportingController: Invalid value: "": name part must be non-empty
                reportingController: Invalid value: "": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
                reportingController: Invalid value: "": field is immutable
        "#]],
    );
}

const CERTIFICATE: &str = "
apiVersion: certificates.k8s.io/v1
kind: PodCertificateRequest
metadata: {name: a, namespace: default}
spec: {signerName: a.b/c, podName: p, podUID: u, serviceAccountName: s, serviceAccountUID: v, nodeName: n1, nodeUID: w, maxExpirationSeconds: 3600, stubPKCS10Request: MAA=}";

#[test]
fn certificate_requests() {
    check_update(
        CERTIFICATE,
        Part::Sub("status"),
        &[
            "status: {conditions: [{type: Denied, status: 'True', reason: R, message: m, lastTransitionTime: '2020-01-01T00:00:00Z'}]}",
            "status: {conditions: [{type: Else, status: 'False', reason: 'R!'}]}",
        ],
        expect![[r#"
            status: {conditions: [{type: Denied, status: 'True', reason: R, message: m, lastTransitionTime: '2020-01-01T00:00:00Z'}]}
                fine
            status: {conditions: [{type: Else, status: 'False', reason: 'R!'}]}
                status.conditions.[0].type: Unsupported value: "Else": supported values: "Issued", "Denied", "Failed"
                status.conditions[0].lastTransitionTime: Required value
                status.conditions[0].reason: Invalid value: "R!": a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')
        "#]],
    );
    check_update(
        CERTIFICATE,
        Part::Main,
        &["spec: {podName: q}"],
        expect![[r#"
        spec: {podName: q}
            spec: Invalid value: {"SignerName":"a.b/c","PodName":"q","PodUID":"u","ServiceAccountName":"s","ServiceAccountUID":"v","NodeName":"n1","NodeUID":"w","MaxExpirationSeconds":3600,"PKIXPublicKey":null,"ProofOfPossession":null,"StubPKCS10Request":"MAA=","UnverifiedUserAnnotations":null}: field is immutable
    "#]],
    );
}

#[test]
fn job_status() {
    check_update(
        JOB,
        Part::Sub("status"),
        &[
            "status: {active: -1, ready: 1}",
            "status: {completionTime: '2020-01-01T00:00:00Z'}",
            "status: {conditions: [{type: Failed, status: 'True'}]}",
        ],
        expect![[r#"
            status: {active: -1, ready: 1}
                status.active: Invalid value: -1: must be greater than or equal to 0
                status.ready: Invalid value: 1: cannot set more ready pods than active
            status: {completionTime: '2020-01-01T00:00:00Z'}
                status.completionTime: Invalid value: "2020-01-01T00:00:00Z": cannot set completionTime when there is no Complete=True condition
            status: {conditions: [{type: Failed, status: 'True'}]}
                status.conditions: Invalid value: cannot set Failed=True condition without the FailureTarget=true condition
                status.startTime: Required value: startTime is required for finished job
        "#]],
    );
}

/// A mirror stands for a pod that its kubelet runs whatever the API says: which pods are mirrors is
/// not for anybody to change, by no way.
#[test]
fn a_mirror_stays_one_through_every_part_of_a_pod() {
    const MIRROR: &str = "
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: default, annotations: {kubernetes.io/config.mirror: x}}
spec: {nodeName: node-1, containers: [{name: c, image: 'nginx:1'}]}";
    let changes = [
        "metadata: {annotations: {kubernetes.io/config.mirror: null}}",
        "metadata: {annotations: {kubernetes.io/config.mirror: 'y'}}",
    ];
    check_update(
        MIRROR,
        Part::Main,
        &changes,
        expect![[r#"
            metadata: {annotations: {kubernetes.io/config.mirror: null}}
                metadata.annotations[kubernetes.io/config.mirror]: Forbidden: may not remove or update mirror pod annotation
            metadata: {annotations: {kubernetes.io/config.mirror: 'y'}}
                metadata.annotations[kubernetes.io/config.mirror]: Forbidden: may not remove or update mirror pod annotation
        "#]],
    );
    check_update(
        MIRROR,
        Part::Sub("status"),
        &changes,
        expect![[r#"
            metadata: {annotations: {kubernetes.io/config.mirror: null}}
                metadata.annotations[kubernetes.io/config.mirror]: Forbidden: may not remove or update mirror pod annotation
            metadata: {annotations: {kubernetes.io/config.mirror: 'y'}}
                metadata.annotations[kubernetes.io/config.mirror]: Forbidden: may not remove or update mirror pod annotation
        "#]],
    );
    check_update(
        MIRROR,
        Part::Sub("ephemeralcontainers"),
        &changes[..1],
        expect![[r#"
            metadata: {annotations: {kubernetes.io/config.mirror: null}}
                <nil>: Forbidden: static pods do not support ephemeral containers
        "#]],
    );
    check_update(
        MIRROR,
        Part::Sub("resize"),
        &changes[..1],
        expect![[r#"
            metadata: {annotations: {kubernetes.io/config.mirror: null}}
                <nil>: Forbidden: static pods cannot be resized
        "#]],
    );
    check_update(
        POD,
        Part::Sub("status"),
        &["metadata: {annotations: {kubernetes.io/config.mirror: x}}"],
        expect![[r#"
            metadata: {annotations: {kubernetes.io/config.mirror: x}}
                metadata.annotations[kubernetes.io/config.mirror]: Forbidden: may not add mirror pod annotation
                metadata.annotations[kubernetes.io/config.mirror]: Invalid value: "x": must set spec.nodeName if mirror pod annotation is set
        "#]],
    );
}
