//! What `kubectl get -o wide` shows.
use super::check_table;
use expect_test::expect;

#[test]
fn pods() {
    check_table(
        &[
            r#"{apiVersion: v1, kind: Pod, metadata: {name: fresh, creationTimestamp: 2029-12-31T23:59:00Z}, spec: {containers: [{name: c}]}, status: {phase: Pending}}"#,
            r#"{apiVersion: v1, kind: Pod, metadata: {name: init, creationTimestamp: 2029-12-31T23:50:00Z}, spec: {containers: [{name: c}], initContainers: [{name: i}, {name: j}]}, status: {phase: Pending, initContainerStatuses: [{name: i, state: {terminated: {exitCode: 0}}}, {name: j, state: {running: {}}}]}}"#,
            r#"{apiVersion: v1, kind: Pod, metadata: {name: crash, creationTimestamp: 2029-12-01T00:00:00Z}, spec: {nodeName: node, containers: [{name: c}]}, status: {phase: Running, podIPs: [{ip: 10.0.0.1}], containerStatuses: [{name: c, restartCount: 5, lastState: {terminated: {finishedAt: 2029-12-31T23:55:00Z, exitCode: 1}}, state: {waiting: {reason: CrashLoopBackOff}}}]}}"#,
            r#"{apiVersion: v1, kind: Pod, metadata: {name: done}, spec: {containers: [{name: c}]}, status: {phase: Succeeded, containerStatuses: [{name: c, state: {terminated: {exitCode: 0, reason: Completed}}}]}}"#,
            r#"{apiVersion: v1, kind: Pod, metadata: {name: going, deletionTimestamp: 2029-12-31T00:00:00Z}, spec: {containers: [{name: c}], readinessGates: [{conditionType: a}]}, status: {phase: Running, containerStatuses: [{name: c, ready: true, state: {running: {}}}]}}"#,
        ],
        expect![[r#"
            NAME   READY  STATUS            RESTARTS    AGE        IP        NODE    NOMINATED NODE  READINESS GATES
            fresh  0/1    Pending           0           60s        <none>    <none>  <none>          <none>
            init   0/1    Init:1/2          0           10m        <none>    <none>  <none>          <none>
            crash  0/1    CrashLoopBackOff  5 (5m ago)  31d        10.0.0.1  node    <none>          <none>
            done   0/1    Completed         0           <unknown>  <none>    <none>  <none>          <none>
            going  1/1    Terminating       0           <unknown>  <none>    <none>  <none>          0/1
        "#]],
    );
}

#[test]
fn jobs() {
    check_table(
        &[
            r#"{apiVersion: batch/v1, kind: Job, metadata: {name: a}, spec: {completions: 3, template: {spec: {containers: [{name: c, image: x}]}}}, status: {succeeded: 2, startTime: 2029-12-31T23:00:00Z}}"#,
            r#"{apiVersion: batch/v1, kind: Job, metadata: {name: b}, spec: {parallelism: 4}, status: {startTime: 2029-12-31T23:00:00Z, completionTime: 2029-12-31T23:10:00Z, conditions: [{type: Complete, status: "True"}]}}"#,
        ],
        expect![[r#"
            NAME  STATUS    COMPLETIONS  DURATION  AGE        CONTAINERS  IMAGES  SELECTOR
            a     Running   2/3          60m       <unknown>  c           x       <none>
            b     Complete  0/1 of 4     10m       <unknown>                      <none>
        "#]],
    );
}

#[test]
fn nodes() {
    check_table(
        &[
            r#"{apiVersion: v1, kind: Node, metadata: {name: a, labels: {node-role.kubernetes.io/control-plane: "", kubernetes.io/role: worker}}, spec: {unschedulable: true}, status: {conditions: [{type: Ready, status: "True"}], addresses: [{type: InternalIP, address: 1.2.3.4}], nodeInfo: {kubeletVersion: v1, kernelVersion: "6", architecture: amd64}}}"#,
        ],
        expect![[r#"
            NAME  STATUS                    ROLES                 AGE        VERSION  INTERNAL-IP  EXTERNAL-IP  OS-IMAGE   KERNEL-VERSION  CONTAINER-RUNTIME
            a     Ready,SchedulingDisabled  control-plane,worker  <unknown>  v1       1.2.3.4      <none>       <unknown>  6 (amd64)       <unknown>
        "#]],
    );
}

#[test]
fn services() {
    check_table(
        &[
            r#"{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {type: LoadBalancer, clusterIPs: [10.0.0.1], ports: [{port: 80, nodePort: 30000, protocol: TCP}], selector: {a: b}}, status: {loadBalancer: {ingress: [{ip: 1.2.3.4}]}}}"#,
            r#"{apiVersion: v1, kind: Service, metadata: {name: b}, spec: {type: ExternalName, externalName: x.y}}"#,
        ],
        expect![[r#"
            NAME  TYPE          CLUSTER-IP  EXTERNAL-IP  PORT(S)       AGE        SELECTOR
            a     LoadBalancer  10.0.0.1    1.2.3.4      80:30000/TCP  <unknown>  a=b
            b     ExternalName  <none>      x.y          <none>        <unknown>  <none>
        "#]],
    );
}

#[test]
fn autoscalers() {
    check_table(
        &[
            r#"{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: a}, spec: {minReplicas: 1, maxReplicas: 5, scaleTargetRef: {kind: Deployment, name: d}, metrics: [{type: Resource, resource: {name: cpu, target: {averageUtilization: 80}}}, {type: Pods, pods: {metric: {name: m}, target: {averageValue: "5"}}}, {type: External, external: {metric: {name: e}, target: {value: "1"}}}]}, status: {currentReplicas: 2, currentMetrics: [{type: Resource, resource: {name: cpu, current: {averageUtilization: 20}}}]}}"#,
        ],
        expect![[r#"
            NAME  REFERENCE     TARGETS                                MINPODS  MAXPODS  REPLICAS  AGE
            a     Deployment/d  cpu: 20%/80%, <unknown>/5 + 1 more...  1        5        2         <unknown>
        "#]],
    );
}

#[test]
fn events() {
    check_table(
        &[
            r#"{apiVersion: v1, kind: Event, metadata: {name: a}, involvedObject: {kind: Pod, name: p}, reason: R, message: "  text ", type: Normal, lastTimestamp: 2029-12-31T23:59:00Z, firstTimestamp: 2029-12-31T23:00:00Z, count: 4, source: {component: c, host: h}}"#,
        ],
        expect![[r#"
            LAST SEEN  TYPE    REASON  OBJECT  SUBOBJECT  SOURCE  MESSAGE  FIRST SEEN  COUNT  NAME
            60s        Normal  R       pod/p              c, h    text     60m         4      a
        "#]],
    );
}

#[test]
fn volumes() {
    check_table(
        &[
            r#"{apiVersion: v1, kind: PersistentVolume, metadata: {name: a}, spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteMany, ReadWriteOnce], claimRef: {namespace: ns, name: c}, storageClassName: s, volumeMode: Block}, status: {phase: Bound}}"#,
        ],
        expect![[r#"
            NAME  CAPACITY  ACCESS MODES  RECLAIM POLICY  STATUS  CLAIM  STORAGECLASS  VOLUMEATTRIBUTESCLASS  REASON  AGE        VOLUMEMODE
            a     1Gi       RWO,RWX                       Bound   ns/c   s             <unset>                        <unknown>  Block
        "#]],
    );
}
