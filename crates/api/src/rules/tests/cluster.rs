//! What runs a cluster: access, quotas, nodes, priorities, admission, autoscaling.
use super::{Part, check, check_update, said};
use expect_test::expect;

const ROLE: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: a, namespace: default}
rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]";
const BINDING: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: a, namespace: default}
roleRef: {kind: Role, name: r}
subjects: [{kind: User, name: u}]";
const QUOTA: &str = "
apiVersion: v1
kind: ResourceQuota
metadata: {name: a, namespace: default}
spec: {hard: {pods: 1}}";
const LIMITS: &str = "
apiVersion: v1
kind: LimitRange
metadata: {name: a, namespace: default}
spec: {limits: [{type: Container, max: {cpu: 2}}]}";
const NODE: &str = "
apiVersion: v1
kind: Node
metadata: {name: a}
spec: {}";
const NAMESPACE: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: a}
spec: {}";
const BUDGET: &str = "
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: a, namespace: default}
spec: {minAvailable: 1, selector: {matchLabels: {a: b}}}";
const AUTOSCALER: &str = "
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: a, namespace: default}
spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: d}}";
const LEVEL: &str = "
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: PriorityLevelConfiguration
metadata: {name: a}
spec: {type: Limited, limited: {limitResponse: {type: Queue, queuing: {}}}}";
const FLOW: &str = "
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata: {name: a}
spec: {priorityLevelConfiguration: {name: p}}";
const HOOKS: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: a}
webhooks: [{name: a.b.c, clientConfig: {url: 'https://h/p'}, sideEffects: None, admissionReviewVersions: [v1]}]";
const PRIORITY: &str = "
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: a}
value: 10";
const CLAIM: &str = "
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: a, namespace: default}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: c}}]}}";
const SERVICE: &str = "
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.g.b}
spec: {group: g.b, version: v1, groupPriorityMinimum: 1, versionPriority: 1}";
const DEFINITION: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: foos.g.b}
spec: {group: g.b, scope: Namespaced, names: {plural: foos, kind: Foo}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}";

#[test]
fn roles_and_bindings() {
    check(
        ROLE,
        &["{}", "rules: [{}]", "rules: [{nonResourceURLs: [/x], verbs: [get], resources: [pods]}]"],
        expect![[r#"
            {}
                fine
            rules: [{}]
                rules[0].apiGroups: Required value: resource rules must supply at least one api group
                rules[0].resources: Required value: resource rules must supply at least one resource
                rules[0].verbs: Required value
            rules: [{nonResourceURLs: [/x], verbs: [get], resources: [pods]}]
                rules[0].nonResourceURLs: Invalid value: ["/x"]: namespaced rules cannot apply to non-resource URLs
                rules[0].nonResourceURLs: Invalid value: ["/x"]: rules cannot apply to both regular resources and non-resource URLs
        "#]],
    );
    check(
        BINDING,
        &[
            "{}",
            "roleRef: {kind: Thing, name: ''}",
            "subjects: [{kind: ServiceAccount, name: s}, {kind: Robot, name: r}]",
        ],
        expect![[r#"
            {}
                fine
            roleRef: {kind: Thing, name: ''}
                roleRef.kind: Unsupported value: "Thing": supported values: "Role", "ClusterRole"
                roleRef.name: Required value
            subjects: [{kind: ServiceAccount, name: s}, {kind: Robot, name: r}]
                subjects[1].kind: Unsupported value: "Robot": supported values: "ServiceAccount", "User", "Group"
        "#]],
    );
}

#[test]
fn quotas_and_limits() {
    check(
        QUOTA,
        &[
            "{}",
            "spec: {hard: {things: 1, pods: 1500m}}",
            "spec: {scopes: [BestEffort, NotBestEffort]}",
            "spec: {hard: {cpu: 1}, scopes: [BestEffort]}",
            "spec: {scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: In}]}}",
        ],
        expect![[r#"
            {}
                fine
            spec: {hard: {things: 1, pods: 1500m}}
                spec.hard[pods]: Invalid value: "1500m": must be an integer
                spec.hard[things]: Invalid value: "things": must be a standard resource type or fully qualified
                spec.hard[things]: Invalid value: "things": must be a standard resource for quota
            spec: {scopes: [BestEffort, NotBestEffort]}
                spec.scopes: Invalid value: ["BestEffort","NotBestEffort"]: conflicting scopes
            spec: {hard: {cpu: 1}, scopes: [BestEffort]}
                spec.scopes: Invalid value: ["BestEffort"]: unsupported scope applied to resource
            spec: {scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: In}]}}
                spec.scopeSelector.matchExpressions.values: Required value: must be at least one value when `operator` is 'In' or 'NotIn' for scope selector
        "#]],
    );
    check(
        LIMITS,
        &[
            "{}",
            "spec: {limits: [{type: Pod, default: {cpu: 1}}, {type: Pod}]}",
            "spec: {limits: [{type: Container, max: {cpu: 1}, min: {cpu: 2}}]}",
            "spec: {limits: [{type: PersistentVolumeClaim, max: {cpu: 1}}]}",
        ],
        expect![[r#"
            {}
                fine
            spec: {limits: [{type: Pod, default: {cpu: 1}}, {type: Pod}]}
                spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod'
                spec.limits[1].type: Duplicate value: "Pod"
            spec: {limits: [{type: Container, max: {cpu: 1}, min: {cpu: 2}}]}
                spec.limits[0].min[cpu]: Invalid value: "2": min value 2 is greater than max value 1
                spec.limits[0].defaultRequest[cpu]: Invalid value: "1": min value 2 is greater than default request value 1
                spec.limits[0].default[cpu]: Invalid value: "2": min value 2 is greater than default value 1
            spec: {limits: [{type: PersistentVolumeClaim, max: {cpu: 1}}]}
                spec.limits[0].limits: Required value: either minimum or maximum storage value is required, but neither was provided
        "#]],
    );
}

#[test]
fn nodes_and_namespaces() {
    check(
        NODE,
        &[
            "{}",
            "spec: {taints: [{key: a}, {key: a, effect: NoSchedule}, {key: a, effect: NoSchedule}]}",
            "spec: {podCIDRs: [10.0.0.0/24, 10.1.0.0/24]}",
            "status: {capacity: {cpu: -1}}",
        ],
        expect![[r#"
            {}
                fine
            spec: {taints: [{key: a}, {key: a, effect: NoSchedule}, {key: a, effect: NoSchedule}]}
                metadata.taints[0].effect: Required value
                metadata.taints[2]: Duplicate value: {"Key":"a","Value":"","Effect":"NoSchedule","TimeAdded":null}: taints must be unique by key and effect pair
            spec: {podCIDRs: [10.0.0.0/24, 10.1.0.0/24]}
                spec.podCIDRs: Invalid value: ["10.0.0.0/24","10.1.0.0/24"]: may specify no more than one CIDR for each IP family
            status: {capacity: {cpu: -1}}
                status.capacity.cpu: Invalid value: "-1": must be greater than or equal to 0
                status.allocatable.cpu: Invalid value: "-1": must be greater than or equal to 0
        "#]],
    );
    check(
        NAMESPACE,
        &["{}", "spec: {finalizers: [mine, a.b/c]}", "metadata: {name: a.b}"],
        expect![[r#"
            {}
                fine
            spec: {finalizers: [mine, a.b/c]}
                spec.finalizers: Invalid value: "mine": name is neither a standard finalizer name nor is it fully qualified
            metadata: {name: a.b}
                metadata.name: Invalid value: "a.b": must not contain dots
        "#]],
    );
}

#[test]
fn budgets_and_autoscalers() {
    check(
        BUDGET,
        &[
            "{}",
            "spec: {maxUnavailable: 1}",
            "spec: {minAvailable: 150%}",
            "spec: {unhealthyPodEvictionPolicy: Never}",
        ],
        expect![[r#"
            {}
                fine
            spec: {maxUnavailable: 1}
                spec: Invalid value: {"MinAvailable":1,"Selector":{"matchLabels":{"a":"b"}},"MaxUnavailable":1,"UnhealthyPodEvictionPolicy":null}: minAvailable and maxUnavailable cannot be both set
            spec: {minAvailable: 150%}
                spec.minAvailable: Invalid value: "150%": must not be greater than 100%
            spec: {unhealthyPodEvictionPolicy: Never}
                spec.unhealthyPodEvictionPolicy: Unsupported value: "Never": supported values: "AlwaysAllow", "IfHealthyBudget"
        "#]],
    );
    check(
        AUTOSCALER,
        &[
            "{}",
            "spec: {minReplicas: 5}",
            "spec: {minReplicas: 0}",
            "spec: {metrics: [{type: Resource}]}",
            "spec: {metrics: [{type: Pods, pods: {metric: {name: m}, target: {type: AverageValue}}}]}",
            "spec: {behavior: {scaleUp: {stabilizationWindowSeconds: 4000, policies: [{type: Pods, value: 0, periodSeconds: 0}]}}}",
            "spec: {scaleTargetRef: {apiVersion: v1}}",
        ],
        expect![[r#"
            {}
                fine
            spec: {minReplicas: 5}
                spec.maxReplicas: Invalid value: 3: must be greater than or equal to `minReplicas`
            spec: {minReplicas: 0}
                spec.metrics: Forbidden: must specify at least one Object or External metric to support scaling to zero replicas
            spec: {metrics: [{type: Resource}]}
                spec.metrics[0].resource: Required value: must populate information for the given metric source
            spec: {metrics: [{type: Pods, pods: {metric: {name: m}, target: {type: AverageValue}}}]}
                spec.metrics[0].pods.target.averageValue: Required value: must specify a positive target averageValue
            spec: {behavior: {scaleUp: {stabilizationWindowSeconds: 4000, policies: [{type: Pods, value: 0, periodSeconds: 0}]}}}
                spec.behavior.scaleUp.stabilizationWindowSeconds: Invalid value: 4000: must be less than or equal to 3600
                spec.behavior.scaleUp.policies[0].value: Invalid value: 0: must be greater than zero
                spec.behavior.scaleUp.policies[0].periodSeconds: Invalid value: 0: must be greater than zero
            spec: {scaleTargetRef: {apiVersion: v1}}
                spec.scaleTargetRef.apiVersion: Invalid value: "v1": apiVersion must specify API group
        "#]],
    );
}

#[test]
fn flows() {
    check(
        LEVEL,
        &[
            "{}",
            "spec: {type: Exempt}",
            "spec: {limited: {limitResponse: {type: Reject}}}",
            "spec: {limited: {limitResponse: {queuing: {handSize: 100}}, lendablePercent: 101}}",
        ],
        expect![[r#"
            {}
                fine
            spec: {type: Exempt}
                spec.type: Invalid value: "Exempt": must be 'Exempt' if and only if `name` is 'exempt'
                spec.limited: Forbidden
            spec: {limited: {limitResponse: {type: Reject}}}
                spec.limited.limitResponse.queuing: Forbidden
            spec: {limited: {limitResponse: {queuing: {handSize: 100}}, lendablePercent: 101}}
                spec.limited.limitResponse.queuing.handSize: Invalid value: 100: should not be greater than queues (64)
                spec.limited.lendablePercent: Invalid value: 101: must be between 0 and 100, inclusive
        "#]],
    );
    check(
        FLOW,
        &[
            "{}",
            "spec: {matchingPrecedence: 1}",
            "spec: {rules: [{}]}",
            "spec: {rules: [{subjects: [{kind: User, group: {name: g}}], nonResourceRules: [{verbs: [dance], nonResourceURLs: [x]}]}]}",
        ],
        expect![[r#"
            {}
                fine
            spec: {matchingPrecedence: 1}
                spec.matchingPrecedence: Invalid value: 1: only the schema named 'exempt' may have matchingPrecedence 1
            spec: {rules: [{}]}
                spec.rules[0].subjects: Required value: subjects must contain at least one value
                spec.rules[0]: Required value: at least one of resourceRules and nonResourceRules has to be non-empty
            spec: {rules: [{subjects: [{kind: User, group: {name: g}}], nonResourceRules: [{verbs: [dance], nonResourceURLs: [x]}]}]}
                spec.rules[0].subjects[0].user: Required value: user is required when subject kind is 'User'
                spec.rules[0].subjects[0].group: Forbidden: group is forbidden when subject kind is not 'Group'
                spec.rules[0].nonResourceRules[0].verbs: Unsupported value: ["dance"]: supported values: "create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"
                spec.rules[0].nonResourceRules[0].nonResourceURLs[0]: Invalid value: "x": must start with slash
        "#]],
    );
}

#[test]
fn webhooks() {
    check(
        HOOKS,
        &[
            "{}",
            "webhooks: [{name: a, clientConfig: {}}]",
            "webhooks: [{name: a.b.c, clientConfig: {url: 'http://u@h?q#f'}, sideEffects: Some, admissionReviewVersions: [v9], timeoutSeconds: 31}]",
            "webhooks: [{name: a.b.c, clientConfig: {service: {name: s, namespace: ns, path: //x}}, sideEffects: None, admissionReviewVersions: [v1], rules: [{operations: ['*', CREATE], apiGroups: [''], apiVersions: [v1], resources: ['*/*', pods]}]}]",
        ],
        expect![[r#"
            {}
                fine
            webhooks: [{name: a, clientConfig: {}}]
                webhooks[0].name: Invalid value: "a": should be a domain with at least three segments separated by dots
                webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun
                webhooks[0].clientConfig: Required value: exactly one of url or service is required
                webhooks[0].admissionReviewVersions: Required value: must specify one of v1, v1beta1
            webhooks: [{name: a.b.c, clientConfig: {url: 'http://u@h?q#f'}, sideEffects: Some, admissionReviewVersions: [v9], timeoutSeconds: 31}]
                webhooks[0].sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"
                webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds
                webhooks[0].clientConfig.url: Invalid value: "http": 'https' is the only allowed URL scheme; desired format: https://host[/path]
                webhooks[0].clientConfig.url: Invalid value: "u": user information is not permitted in the URL
                webhooks[0].clientConfig.url: Invalid value: "f": fragments are not permitted in the URL
                webhooks[0].clientConfig.url: Invalid value: "q": query parameters are not permitted in the URL
                webhooks[0].admissionReviewVersions: Invalid value: ["v9"]: must include at least one of v1, v1beta1
            webhooks: [{name: a.b.c, clientConfig: {service: {name: s, namespace: ns, path: //x}}, sideEffects: None, admissionReviewVersions: [v1], rules: [{operations: ['*', CREATE], apiGroups: [''], apiVersions: [v1], resources: ['*/*', pods]}]}]
                webhooks[0].rules[0].operations: Invalid value: ["*","CREATE"]: if '*' is present, must not specify other operations
                webhooks[0].rules[0].resources: Invalid value: ["*/*","pods"]: if '*/*' is present, must not specify other resources
                webhooks[0].clientConfig.service.path: Invalid value: "//x": segment[0] may not be empty
        "#]],
    );
}

#[test]
fn names_of_manifests_are_for_no_client() {
    let text = "metadata.name: Invalid value: \"a.static.k8s.io\": names ending with \".static.k8s.io\" are reserved for static manifest-based configurations and cannot be managed via the API\n";
    let admission = "apiVersion: admissionregistration.k8s.io/v1\nmetadata: {name: a}";
    for kind in [
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    ] {
        let base = format!("{admission}\nkind: {kind}");
        let said = |change: &str| said(&base, change).contains(text);
        assert!(said("metadata: {name: a.static.k8s.io}"), "{kind}");
        assert!(!said("metadata: {name: a.static.k8s.io.b}"), "{kind}");
    }
}

#[test]
fn rules_about_reviews_are_warned_of() {
    let rule = |groups: &str, resources: &str| {
        let rule = format!(
            "apiGroups: {groups}, apiVersions: [v1], operations: ['*'], resources: {resources}"
        );
        format!(
            "webhooks: [{{name: a.b.c, clientConfig: {{url: 'https://h/p'}}, sideEffects: None, admissionReviewVersions: [v1], rules: [{{{rule}}}]}}]"
        )
    };
    let check = |groups: &str, resources: &str, expected: &[&str]| {
        let told = |name: &&str| {
            format!(
                "warning: webhooks[0].rules[0]: {name} is excluded from admission webhooks; this rule will have no effect\n"
            )
        };
        let texts: String = expected.iter().map(told).collect();
        let texts = if texts.is_empty() { "fine\n".to_owned() } else { texts };
        assert_eq!(said(HOOKS, &rule(groups, resources)), texts, "{groups} {resources}");
    };
    check("['']", "[pods]", &[]);
    check("['*']", "[tokenreviews]", &[]);
    check("[authentication.k8s.io]", "['*']", &[]);
    check(
        "[authentication.k8s.io, authorization.k8s.io]",
        "[tokenreviews, pods, tokenreviews, subjectaccessreviews]",
        &["tokenreviews.authentication.k8s.io", "subjectaccessreviews.authorization.k8s.io"],
    );
    check_update(
        &HOOKS.replace("{name: a}", "{name: a.static.k8s.io}"),
        Part::Main,
        &["metadata: {labels: {a: b}}"],
        expect![[r#"
            metadata: {labels: {a: b}}
                warning: metadata.name: names ending with ".static.k8s.io" are reserved for static manifest-based configurations and cannot be managed via the API
        "#]],
    );
}

#[test]
fn priorities_and_devices() {
    check(
        PRIORITY,
        &["{}", "value: 2000000000", "metadata: {name: system-mine}"],
        expect![[r#"
            {}
                fine
            value: 2000000000
                value: Forbidden: maximum allowed value of a user defined priority is 1000000000
            metadata: {name: system-mine}
                metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: system-mine is not a known system priority class
        "#]],
    );
    check(
        CLAIM,
        &[
            "{}",
            "spec: {devices: {requests: [{name: r}, {name: r, exactly: {}}]}}",
            "spec: {devices: {constraints: [{requests: [x], matchAttribute: plain}]}}",
        ],
        expect![[r#"
            {}
                fine
            spec: {devices: {requests: [{name: r}, {name: r, exactly: {}}]}}
                spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required
                spec.devices.requests[1].exactly.deviceClassName: Required value
                spec.devices.requests[1]: Duplicate value: {"name":"r","exactly":{"deviceClassName":"","allocationMode":"ExactCount","count":1}}
            spec: {devices: {constraints: [{requests: [x], matchAttribute: plain}]}}
                spec.devices.constraints[0].requests[0]: Invalid value: "x": must be the name of a request in the claim or the name of a request and a subrequest separated by '/'
                spec.devices.constraints[0].matchAttribute: Invalid value: "plain": a fully qualified name must be a domain and a name separated by a slash
        "#]],
    );
}

#[test]
fn extensions() {
    check(
        SERVICE,
        &[
            "{}",
            "metadata: {name: b}",
            "spec: {group: '', version: V_1, versionPriority: 0}",
            "spec: {insecureSkipTLSVerify: true}",
            "spec: {service: {}}",
        ],
        expect![[r#"
            {}
                fine
            metadata: {name: b}
                metadata.name: Invalid value: "b": must be `spec.version+"."+spec.group`: "v1.g.b"
            spec: {group: '', version: V_1, versionPriority: 0}
                metadata.name: Invalid value: "v1.g.b": must be `spec.version+"."+spec.group`: "V_1."
                spec.group: Required value: only v1 may have an empty group and it better be legacy kube
                spec.version: Invalid value: "V_1": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')
                spec.versionPriority: Invalid value: 0: must be positive and less than 1000
            spec: {insecureSkipTLSVerify: true}
                spec.insecureSkipTLSVerify: Invalid value: true: local APIServices may not have insecureSkipTLSVerify
            spec: {service: {}}
                spec.service.namespace: Required value
                spec.service.name: Required value
        "#]],
    );
    check(
        DEFINITION,
        &[
            "{}",
            "metadata: {name: b}",
            "spec: {names: {kind: Bad_Kind, listKind: Bad_Kind}}",
            "spec: {versions: [{name: v1, served: true, storage: false}]}",
            "spec: {conversion: {strategy: Webhook}}",
        ],
        expect![[r#"
            {}
                fine
            metadata: {name: b}
                metadata.name: Invalid value: "b": must be spec.names.plural+"."+spec.group
            spec: {names: {kind: Bad_Kind, listKind: Bad_Kind}}
                spec.names.singular: Invalid value: "bad_kind": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')
                spec.names.kind: Invalid value: "Bad_Kind": may have mixed case, but should otherwise match: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')
                spec.names.listKind: Invalid value: "Bad_Kind": may have mixed case, but should otherwise match: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')
                spec.names.listKind: Invalid value: "Bad_Kind": kind and listKind may not be the same
            spec: {versions: [{name: v1, served: true, storage: false}]}
                spec.versions[0].schema.openAPIV3Schema: Required value
                spec.versions: Invalid value: [{"Name":"v1","Served":true,"Storage":false,"Deprecated":false,"DeprecationWarning":null,"Schema":null,"Subresources":null,"AdditionalPrinterColumns":null,"SelectableFields":null}]: must have exactly one version marked as storage version
                status.storedVersions: Invalid value: null: must have at least one stored version
            spec: {conversion: {strategy: Webhook}}
                spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook
                spec.conversion.conversionReviewVersions: Required value
        "#]],
    );
}
