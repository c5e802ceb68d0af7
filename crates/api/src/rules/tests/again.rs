//! What is asked again on an update, in which order, and how often it is told; what a schema's
//! defaults and formats are told.
use super::{check, check_update};
use crate::rules::Part;
use expect_test::expect;

const SERVICE_API: &str = "
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.a.b}
spec: {group: a.b, version: v1, groupPriorityMinimum: 10, versionPriority: 10, service: {name: s, namespace: ns}}";
const ATTRIBUTES: &str = "
apiVersion: storage.k8s.io/v1
kind: VolumeAttributesClass
metadata: {name: a}
driverName: a.b
parameters: {a: b}";
const ATTACHMENT: &str = "
apiVersion: storage.k8s.io/v1
kind: VolumeAttachment
metadata: {name: a}
spec: {attacher: a.b, nodeName: node, source: {persistentVolumeName: v}}";
const RUNTIME: &str = "
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: a}
handler: h";
const TEMPLATE: &str = "
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: a, namespace: default}
spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: c}}]}}}";
const BINDING: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: a}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: r}";
const BUNDLE: &str = "
apiVersion: certificates.k8s.io/v1
kind: ClusterTrustBundle
metadata: {name: 'a.b:c:x'}
spec: {signerName: a.b/c, trustBundle: none}";
const DEFINITION: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: as.b.c}
spec:
  group: b.c
  scope: Namespaced
  names: {plural: as, kind: A}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]";

#[test]
fn extensions_repeat_themselves() {
    check(
        SERVICE_API,
        &["metadata: {generateName: x}", "metadata: {finalizers: [x!, x!]}"],
        expect![[r#"
            metadata: {generateName: x}
                metadata.generateName: Invalid value: "x": must be `spec.version+"."+spec.group`: "v1.a.b"
            metadata: {finalizers: [x!, x!]}
                metadata.finalizers: Invalid value: "x!": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
        "#]],
    );
    check_update(
        SERVICE_API,
        Part::Main,
        &["metadata: {labels: {a: '!'}}", "metadata: {finalizers: ['']}"],
        expect![[r#"
            metadata: {labels: {a: '!'}}
                metadata.labels: Invalid value: "!": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')
                metadata.labels: Invalid value: "!": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')
                metadata.labels: Invalid value: "!": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')
                metadata.labels: Invalid value: "!": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')
            metadata: {finalizers: ['']}
                metadata.finalizers: Invalid value: "": name part must be non-empty
                metadata.finalizers: Invalid value: "": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
                metadata.finalizers: Invalid value: "": name part must be non-empty
                metadata.finalizers: Invalid value: "": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
        "#]],
    );
    check_update(
        DEFINITION,
        Part::Main,
        &["metadata: {labels: {a: '!'}}"],
        expect![[r#"
        metadata: {labels: {a: '!'}}
            metadata.labels: Invalid value: "!": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')
            metadata.labels: Invalid value: "!": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')
            metadata.labels: Invalid value: "!": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')
    "#]],
    );
}

#[test]
fn kinds_with_an_order_of_their_own() {
    check_update(
        ATTRIBUTES,
        Part::Main,
        &["driverName: ''", "{parameters: {a: c}, metadata: {generateName: x!}}"],
        expect![[r#"
            driverName: ''
                driverName: Forbidden: updates to driverName are forbidden.
                driverName: Required value
            {parameters: {a: c}, metadata: {generateName: x!}}
                parameters: Forbidden: updates to parameters are forbidden.
                metadata.generateName: Invalid value: "x!": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
        "#]],
    );
    check(
        ATTACHMENT,
        &["spec: {attacher: x!, nodeName: '', source: null}"],
        expect![[r#"
        spec: {attacher: x!, nodeName: '', source: null}
            spec.source: Required value: must specify exactly one of inlineVolumeSpec and persistentVolumeName
            spec.nodeName: Invalid value: "": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
            spec.attacher: Invalid value: "x!": an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'Example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
    "#]],
    );
    check_update(
        ATTACHMENT,
        Part::Main,
        &["spec: {attacher: x!}"],
        expect![[r#"
        spec: {attacher: x!}
            spec.attacher: Invalid value: "x!": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
            spec: Invalid value: null: field is immutable
    "#]],
    );
    check_update(
        RUNTIME,
        Part::Main,
        &["handler: ''", "handler: x!"],
        expect![[r#"
        handler: ''
            handler: Invalid value: null: field is immutable
            handler: Required value
        handler: x!
            handler: Invalid value: "x!": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
            handler: Invalid value: null: field is immutable
    "#]],
    );
    check_update(
        BINDING,
        Part::Main,
        &["roleRef: {name: ''}"],
        expect![[r#"
        roleRef: {name: ''}
            roleRef.name: Required value
            roleRef: Invalid value: {"APIGroup":"rbac.authorization.k8s.io","Kind":"ClusterRole","Name":""}: field is immutable
    "#]],
    );
    check(
        BUNDLE,
        &["metadata: {name: x, labels: {a: '!'}}"],
        expect![[r#"
            metadata: {name: x, labels: {a: '!'}}
                metadata.name: Invalid value: "x": ClusterTrustBundle for signerName a.b/c must be named with prefix a.b:c:
                metadata.labels: Invalid value: "!": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')
                spec.trustBundle: Invalid value: "<value omitted>": at least one trust anchor must be provided
        "#]],
    );
}

#[test]
fn a_template_of_a_claim_is_asked_all_again() {
    check_update(
        TEMPLATE,
        Part::Main,
        &[
            "spec: {metadata: {labels: {a: b}, uid: u, name: nm}}",
            "spec: {spec: {devices: {requests: [{name: '!', exactly: {deviceClassName: c}}]}}}",
        ],
        expect![[r#"
            spec: {metadata: {labels: {a: b}, uid: u, name: nm}}
                spec.metadata.name: Forbidden: cannot be set
                spec.metadata.uID: Forbidden: cannot be set
                spec: Invalid value: {"name":"nm","uid":"u","labels":{"a":"b"},"Spec":{"Devices":{"Requests":[{"Name":"r","Exactly":{"DeviceClassName":"c","Selectors":null,"AllocationMode":"ExactCount","Count":1,"AdminAccess":null,"Tolerations":null,"Capacity":null,"DerivedAttributes":null},"FirstAvailable":null}],"Constraints":null,"Config":null}}}: field is immutable
            spec: {spec: {devices: {requests: [{name: '!', exactly: {deviceClassName: c}}]}}}
                spec.spec.devices.requests[0].name: Invalid value: "!": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
                spec: Invalid value: {"Spec":{"Devices":{"Requests":[{"Name":"!","Exactly":{"DeviceClassName":"c","Selectors":null,"AllocationMode":"ExactCount","Count":1,"AdminAccess":null,"Tolerations":null,"Capacity":null,"DerivedAttributes":null},"FirstAvailable":null}],"Constraints":null,"Config":null}}}: field is immutable
        "#]],
    );
}

#[test]
fn defaults_fit_their_schemas() {
    let schema = |schema: &str| {
        format!(
            "spec: {{versions: [{{name: v1, served: true, storage: true, schema: {{openAPIV3Schema: {schema}}}}}]}}"
        )
    };
    let changes = [
        "{type: object, default: 1}",
        "{type: object, default: {a: b}}",
        "{type: object, properties: {a: {type: string, default: 1}}}",
        "{type: object, properties: {a: {type: object, default: {b: c}}}}",
        "{type: object, properties: {a: {type: array, items: {type: integer}, default: [1, x]}}}",
        "{type: object, properties: {e: {type: object, x-kubernetes-embedded-resource: true, properties: {apiVersion: {type: string, default: 1}}}}}",
        "{type: object, properties: {a: {type: string, default: x, format: odd}, b: {type: integer, format: int32}, c: {type: boolean, format: date}}}",
        "{type: object, properties: {a: {type: array, x-kubernetes-list-type: set, items: {type: object, x-kubernetes-map-type: atomic}}, b: {type: array, x-kubernetes-list-type: set, items: {type: string}}}}",
    ]
    .map(schema);
    check(
        DEFINITION,
        &changes.each_ref().map(String::as_str),
        expect![[r#"
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, default: 1}}}]}
                spec.validation.openAPIV3Schema.default: Invalid value: "integer":  in body must be of type object: "integer"
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, default: {a: b}}}}]}
                spec.validation.openAPIV3Schema.default: Invalid value: {"a":"b"}: must not have unknown fields
                spec.validation.openAPIV3Schema.default.apiVersion: Required value
                spec.validation.openAPIV3Schema.default.kind: Required value
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: string, default: 1}}}}}]}
                spec.validation.openAPIV3Schema.properties[a].default: Invalid value: "integer":  in body must be of type string: "integer"
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: object, default: {b: c}}}}}}]}
                spec.validation.openAPIV3Schema.properties[a].default: Invalid value: {"b":"c"}: must not have unknown fields
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: array, items: {type: integer}, default: [1, x]}}}}}]}
                spec.validation.openAPIV3Schema.properties[a].default.[1]: Invalid value: "string": [1] in body must be of type integer: "string"
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {e: {type: object, x-kubernetes-embedded-resource: true, properties: {apiVersion: {type: string, default: 1}}}}}}}]}
                spec.validation.openAPIV3Schema.properties[e].properties[apiVersion].default: Invalid value: 1: must result in valid metadata: apiVersion: Invalid value: 1: must be a string
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: string, default: x, format: odd}, b: {type: integer, format: int32}, c: {type: boolean, format: date}}}}}]}
                warning: unrecognized format "odd"
                warning: unrecognized format "date"
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: array, x-kubernetes-list-type: set, items: {type: object, x-kubernetes-map-type: atomic}}, b: {type: array, x-kubernetes-list-type: set, items: {type: string}}}}}}]}
                warning: x-kubernetes-list-type: set for items of type "object" is not supported by server-side apply or CEL validation rules
        "#]],
    );
}
