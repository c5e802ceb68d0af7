//! Reviews: questions that are answered and forgotten.
use super::check;
use expect_test::expect;

const ACCESS: &str = "
apiVersion: authorization.k8s.io/v1
kind: SubjectAccessReview
spec: {user: u, resourceAttributes: {verb: get, resource: pods}}";
const LOCAL: &str = "
apiVersion: authorization.k8s.io/v1
kind: LocalSubjectAccessReview
metadata: {namespace: default}
spec: {user: u, resourceAttributes: {namespace: default, verb: get, resource: pods}}";

#[test]
fn access() {
    check(
        ACCESS,
        &[
            "spec: {user: null}",
            "spec: {resourceAttributes: null, user: null}",
            "spec: {nonResourceAttributes: {path: /x}}",
            "spec: {resourceAttributes: {fieldSelector: {}, labelSelector: {rawSelector: x, requirements: [{key: '', operator: In}]}}}",
            "spec: {resourceAttributes: {fieldSelector: {requirements: [{operator: Exists, values: [a]}]}}}",
        ],
        expect![[r#"
            spec: {user: null}
                spec.user: Invalid value: "": at least one of user or group must be specified
            spec: {resourceAttributes: null, user: null}
                spec: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified
                spec.user: Invalid value: "": at least one of user or group must be specified
            spec: {nonResourceAttributes: {path: /x}}
                spec: Invalid value: {"Path":"/x","Verb":""}: exactly one of nonResourceAttributes or resourceAttributes must be specified
            spec: {resourceAttributes: {fieldSelector: {}, labelSelector: {rawSelector: x, requirements: [{key: '', operator: In}]}}}
                spec.resourceAttributes.fieldSelector.requirements: Required value: when spec.resourceAttributes.fieldSelector is specified, requirements or rawSelector is required
                spec.resourceAttributes.labelSelector.rawSelector: Invalid value: "x": may not specified at the same time as requirements
                spec.resourceAttributes.labelSelector.requirements[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'
                spec.resourceAttributes.labelSelector.requirements[0].key: Invalid value: "": name part must be non-empty
                spec.resourceAttributes.labelSelector.requirements[0].key: Invalid value: "": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
            spec: {resourceAttributes: {fieldSelector: {requirements: [{operator: Exists, values: [a]}]}}}
                spec.resourceAttributes.fieldSelector.requirements[0].key: Required value: must be specified
                spec.resourceAttributes.fieldSelector.requirements[0].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'
        "#]],
    );
    check(
        LOCAL,
        &["spec: {resourceAttributes: {namespace: x}}", "spec: {nonResourceAttributes: {}}"],
        expect![[r#"
            spec: {resourceAttributes: {namespace: x}}
                spec.resourceAttributes.namespace: Invalid value: "x": must match metadata.namespace
            spec: {nonResourceAttributes: {}}
                spec: Invalid value: {"Path":"","Verb":""}: exactly one of nonResourceAttributes or resourceAttributes must be specified
                spec.nonResourceAttributes: Invalid value: {"Path":"","Verb":""}: disallowed on this kind of request
        "#]],
    );
}
