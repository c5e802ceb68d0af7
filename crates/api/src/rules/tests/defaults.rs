//! Objects as they are stored: with defaults, without what a request cannot set.
use super::check_stored;
use expect_test::expect;

#[test]
fn pods_get_theirs() {
    check_stored(
        "
    apiVersion: v1
    kind: Pod
    metadata: {name: a, namespace: default}
    spec:
      hostNetwork: true
      serviceAccount: sa
      resources: {limits: {memory: 1Gi}}
      containers:
      - {name: a, image: \"x\", ports: [{containerPort: 80}], resources: {limits: {cpu: 1}}}
      - {name: b, image: \"x:1\", livenessProbe: {httpGet: {port: 1}}}
      volumes: [{name: v}, {name: s, secret: {secretName: s}}, {name: p, projected: {sources: [{serviceAccountToken: {path: t}}]}}]",
        expect![[r#"
            {
              "apiVersion": "v1",
              "kind": "Pod",
              "metadata": {
                "generation": 1,
                "name": "a"
              },
              "spec": {
                "containers": [
                  {
                    "image": "x",
                    "imagePullPolicy": "Always",
                    "name": "a",
                    "ports": [
                      {
                        "containerPort": 80,
                        "hostPort": 80,
                        "protocol": "TCP"
                      }
                    ],
                    "resources": {
                      "limits": {
                        "cpu": "1"
                      },
                      "requests": {
                        "cpu": "1"
                      }
                    },
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File"
                  },
                  {
                    "image": "x:1",
                    "imagePullPolicy": "IfNotPresent",
                    "livenessProbe": {
                      "failureThreshold": 3,
                      "httpGet": {
                        "path": "/",
                        "port": 1,
                        "scheme": "HTTP"
                      },
                      "periodSeconds": 10,
                      "successThreshold": 1,
                      "timeoutSeconds": 1
                    },
                    "name": "b",
                    "resources": {},
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File"
                  }
                ],
                "dnsPolicy": "ClusterFirst",
                "enableServiceLinks": true,
                "hostNetwork": true,
                "resources": {
                  "limits": {
                    "memory": "1Gi"
                  },
                  "requests": {
                    "cpu": "1",
                    "memory": "1Gi"
                  }
                },
                "restartPolicy": "Always",
                "schedulerName": "default-scheduler",
                "securityContext": {},
                "serviceAccount": "sa",
                "serviceAccountName": "sa",
                "terminationGracePeriodSeconds": 30,
                "volumes": [
                  {
                    "emptyDir": {},
                    "name": "v"
                  },
                  {
                    "name": "s",
                    "secret": {
                      "defaultMode": 420,
                      "secretName": "s"
                    }
                  },
                  {
                    "name": "p",
                    "projected": {
                      "defaultMode": 420,
                      "sources": [
                        {
                          "serviceAccountToken": {
                            "expirationSeconds": 3600,
                            "path": "t"
                          }
                        }
                      ]
                    }
                  }
                ]
              },
              "status": {
                "phase": "Pending",
                "qosClass": "Burstable"
              }
            }"#]],
    );
}

#[test]
fn deployments_get_theirs() {
    check_stored(
        "
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: a, namespace: default}
    spec:
      selector: {matchLabels: {app: a}}
      template: {metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: x}]}}",
        expect![[r#"
            {
              "apiVersion": "apps/v1",
              "kind": "Deployment",
              "metadata": {
                "generation": 1,
                "name": "a"
              },
              "spec": {
                "progressDeadlineSeconds": 600,
                "replicas": 1,
                "revisionHistoryLimit": 10,
                "selector": {
                  "matchLabels": {
                    "app": "a"
                  }
                },
                "strategy": {
                  "rollingUpdate": {
                    "maxSurge": "25%",
                    "maxUnavailable": "25%"
                  },
                  "type": "RollingUpdate"
                },
                "template": {
                  "metadata": {
                    "labels": {
                      "app": "a"
                    }
                  },
                  "spec": {
                    "containers": [
                      {
                        "image": "x",
                        "imagePullPolicy": "Always",
                        "name": "c",
                        "resources": {},
                        "terminationMessagePath": "/dev/termination-log",
                        "terminationMessagePolicy": "File"
                      }
                    ],
                    "dnsPolicy": "ClusterFirst",
                    "restartPolicy": "Always",
                    "schedulerName": "default-scheduler",
                    "securityContext": {},
                    "terminationGracePeriodSeconds": 30
                  }
                }
              },
              "status": {}
            }"#]],
    );
}

#[test]
fn stateful_sets_get_theirs() {
    check_stored(
        "
    apiVersion: apps/v1
    kind: StatefulSet
    metadata: {name: a, namespace: default}
    spec:
      volumeClaimTemplates: [{metadata: {name: d}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]
      selector: {matchLabels: {app: a}}
      template: {metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: x}]}}",
        expect![[r#"
            {
              "apiVersion": "apps/v1",
              "kind": "StatefulSet",
              "metadata": {
                "generation": 1,
                "name": "a"
              },
              "spec": {
                "persistentVolumeClaimRetentionPolicy": {
                  "whenDeleted": "Retain",
                  "whenScaled": "Retain"
                },
                "podManagementPolicy": "OrderedReady",
                "replicas": 1,
                "revisionHistoryLimit": 10,
                "selector": {
                  "matchLabels": {
                    "app": "a"
                  }
                },
                "serviceName": "",
                "template": {
                  "metadata": {
                    "labels": {
                      "app": "a"
                    }
                  },
                  "spec": {
                    "containers": [
                      {
                        "image": "x",
                        "imagePullPolicy": "Always",
                        "name": "c",
                        "resources": {},
                        "terminationMessagePath": "/dev/termination-log",
                        "terminationMessagePolicy": "File"
                      }
                    ],
                    "dnsPolicy": "ClusterFirst",
                    "restartPolicy": "Always",
                    "schedulerName": "default-scheduler",
                    "securityContext": {},
                    "terminationGracePeriodSeconds": 30
                  }
                },
                "updateStrategy": {
                  "rollingUpdate": {
                    "maxUnavailable": 1,
                    "partition": 0
                  },
                  "type": "RollingUpdate"
                },
                "volumeClaimTemplates": [
                  {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "metadata": {
                      "name": "d"
                    },
                    "spec": {
                      "accessModes": [
                        "ReadWriteOnce"
                      ],
                      "resources": {
                        "requests": {
                          "storage": "1Gi"
                        }
                      },
                      "volumeMode": "Filesystem"
                    },
                    "status": {
                      "phase": "Pending"
                    }
                  }
                ]
              },
              "status": {
                "availableReplicas": 0,
                "replicas": 0
              }
            }"#]],
    );
}

#[test]
fn jobs_get_theirs() {
    check_stored(
        "
    apiVersion: batch/v1
    kind: Job
    metadata: {name: a, namespace: default}
    spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: x}]}}}",
        expect![[r#"
            {
              "apiVersion": "batch/v1",
              "kind": "Job",
              "metadata": {
                "generation": 1,
                "labels": {
                  "batch.kubernetes.io/controller-uid": "u",
                  "batch.kubernetes.io/job-name": "a",
                  "controller-uid": "u",
                  "job-name": "a"
                },
                "name": "a"
              },
              "spec": {
                "backoffLimit": 6,
                "completionMode": "NonIndexed",
                "completions": 1,
                "manualSelector": false,
                "parallelism": 1,
                "podReplacementPolicy": "TerminatingOrFailed",
                "selector": {
                  "matchLabels": {
                    "batch.kubernetes.io/controller-uid": "u"
                  }
                },
                "suspend": false,
                "template": {
                  "metadata": {
                    "labels": {
                      "batch.kubernetes.io/controller-uid": "u",
                      "batch.kubernetes.io/job-name": "a",
                      "controller-uid": "u",
                      "job-name": "a"
                    }
                  },
                  "spec": {
                    "containers": [
                      {
                        "image": "x",
                        "imagePullPolicy": "Always",
                        "name": "c",
                        "resources": {},
                        "terminationMessagePath": "/dev/termination-log",
                        "terminationMessagePolicy": "File"
                      }
                    ],
                    "dnsPolicy": "ClusterFirst",
                    "restartPolicy": "Never",
                    "schedulerName": "default-scheduler",
                    "securityContext": {},
                    "terminationGracePeriodSeconds": 30
                  }
                }
              },
              "status": {}
            }"#]],
    );
}

#[test]
fn services_get_theirs() {
    check_stored(
        "
    apiVersion: v1
    kind: Service
    metadata: {name: a, namespace: default}
    spec: {type: LoadBalancer, sessionAffinity: ClientIP, selector: {a: b}, ports: [{port: 80}]}",
        expect![[r#"
            {
              "apiVersion": "v1",
              "kind": "Service",
              "metadata": {
                "name": "a"
              },
              "spec": {
                "allocateLoadBalancerNodePorts": true,
                "externalTrafficPolicy": "Cluster",
                "internalTrafficPolicy": "Cluster",
                "ports": [
                  {
                    "port": 80,
                    "protocol": "TCP",
                    "targetPort": 80
                  }
                ],
                "selector": {
                  "a": "b"
                },
                "sessionAffinity": "ClientIP",
                "sessionAffinityConfig": {
                  "clientIP": {
                    "timeoutSeconds": 10800
                  }
                },
                "type": "LoadBalancer"
              },
              "status": {
                "loadBalancer": {}
              }
            }"#]],
    );
}

#[test]
fn namespaces_get_theirs() {
    check_stored(
        "
    apiVersion: v1
    kind: Namespace
    metadata: {name: a}",
        expect![[r#"
            {
              "apiVersion": "v1",
              "kind": "Namespace",
              "metadata": {
                "labels": {
                  "kubernetes.io/metadata.name": "a"
                },
                "name": "a"
              },
              "spec": {
                "finalizers": [
                  "kubernetes"
                ]
              },
              "status": {
                "phase": "Active"
              }
            }"#]],
    );
}

#[test]
fn limit_ranges_get_theirs() {
    check_stored(
        "
    apiVersion: v1
    kind: LimitRange
    metadata: {name: a, namespace: default}
    spec: {limits: [{type: Container, max: {cpu: 2}, min: {cpu: 100m}}]}",
        expect![[r#"
            {
              "apiVersion": "v1",
              "kind": "LimitRange",
              "metadata": {
                "name": "a"
              },
              "spec": {
                "limits": [
                  {
                    "default": {
                      "cpu": "2"
                    },
                    "defaultRequest": {
                      "cpu": "2"
                    },
                    "max": {
                      "cpu": "2"
                    },
                    "min": {
                      "cpu": "100m"
                    },
                    "type": "Container"
                  }
                ]
              }
            }"#]],
    );
}

#[test]
fn webhooks_get_theirs() {
    check_stored(
        "
    apiVersion: admissionregistration.k8s.io/v1
    kind: MutatingWebhookConfiguration
    metadata: {name: a}
    webhooks: [{name: a.b.c, clientConfig: {service: {name: s, namespace: ns}}, rules: [{operations: [CREATE]}]}]",
        expect![[r#"
            {
              "apiVersion": "admissionregistration.k8s.io/v1",
              "kind": "MutatingWebhookConfiguration",
              "metadata": {
                "generation": 1,
                "name": "a"
              },
              "webhooks": [
                {
                  "admissionReviewVersions": null,
                  "clientConfig": {
                    "service": {
                      "name": "s",
                      "namespace": "ns",
                      "port": 443
                    }
                  },
                  "failurePolicy": "Fail",
                  "matchPolicy": "Equivalent",
                  "name": "a.b.c",
                  "namespaceSelector": {},
                  "objectSelector": {},
                  "reinvocationPolicy": "Never",
                  "rules": [
                    {
                      "operations": [
                        "CREATE"
                      ],
                      "scope": "*"
                    }
                  ],
                  "sideEffects": null,
                  "timeoutSeconds": 10
                }
              ]
            }"#]],
    );
}

#[test]
fn autoscalers_get_theirs() {
    check_stored(
        "
    apiVersion: autoscaling/v2
    kind: HorizontalPodAutoscaler
    metadata: {name: a, namespace: default}
    spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: d}, behavior: {}}",
        expect![[r#"
            {
              "apiVersion": "autoscaling/v2",
              "kind": "HorizontalPodAutoscaler",
              "metadata": {
                "generation": 1,
                "name": "a"
              },
              "spec": {
                "behavior": {
                  "scaleDown": {
                    "policies": [
                      {
                        "periodSeconds": 15,
                        "type": "Percent",
                        "value": 100
                      }
                    ],
                    "selectPolicy": "Max"
                  },
                  "scaleUp": {
                    "policies": [
                      {
                        "periodSeconds": 15,
                        "type": "Pods",
                        "value": 4
                      },
                      {
                        "periodSeconds": 15,
                        "type": "Percent",
                        "value": 100
                      }
                    ],
                    "selectPolicy": "Max",
                    "stabilizationWindowSeconds": 0
                  }
                },
                "maxReplicas": 3,
                "metrics": [
                  {
                    "resource": {
                      "name": "cpu",
                      "target": {
                        "averageUtilization": 80,
                        "type": "Utilization"
                      }
                    },
                    "type": "Resource"
                  }
                ],
                "minReplicas": 1,
                "scaleTargetRef": {
                  "apiVersion": "apps/v1",
                  "kind": "Deployment",
                  "name": "d"
                }
              },
              "status": {
                "currentMetrics": null,
                "desiredReplicas": 0
              }
            }"#]],
    );
}

#[test]
fn definitions_get_theirs() {
    check_stored(
        "
    apiVersion: apiextensions.k8s.io/v1
    kind: CustomResourceDefinition
    metadata: {name: foos.g.b}
    spec: {group: g.b, scope: Cluster, names: {plural: foos, kind: Foo}, versions: [{name: v1, served: true, storage: true}]}",
        expect![[r#"
            {
              "apiVersion": "apiextensions.k8s.io/v1",
              "kind": "CustomResourceDefinition",
              "metadata": {
                "generation": 1,
                "name": "foos.g.b"
              },
              "spec": {
                "conversion": {
                  "strategy": "None"
                },
                "group": "g.b",
                "names": {
                  "kind": "Foo",
                  "listKind": "FooList",
                  "plural": "foos",
                  "singular": "foo"
                },
                "scope": "Cluster",
                "versions": [
                  {
                    "name": "v1",
                    "served": true,
                    "storage": true
                  }
                ]
              },
              "status": {
                "acceptedNames": {
                  "kind": "",
                  "plural": ""
                },
                "conditions": null,
                "storedVersions": [
                  "v1"
                ]
              }
            }"#]],
    );
}
