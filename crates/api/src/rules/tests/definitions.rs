//! CustomResourceDefinitions, and the schemas in them.
use super::{check, check_update};
use crate::rules::Part;
use expect_test::expect;

pub const DEFINITION: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: foos.a.b}
spec:
  group: a.b
  scope: Namespaced
  names: {kind: Foo, plural: foos, singular: foo, listKind: FooList}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}";

/// A definition whose one version has this schema.
const SCHEMAS: &[&str] = &[
    "type: object, properties: {a: {}}",
    "type: array",
    "type: object, nullable: true",
    "type: object, additionalProperties: true",
    "type: object, properties: {a: {type: array}}",
    "type: object, properties: {a: {type: fish}}",
    "type: object, properties: {a: {type: string, uniqueItems: true}}",
    "type: object, properties: {a: {type: string, $ref: x}}",
    "type: object, properties: {a: {type: string, id: x}}",
    "type: object, properties: {a: {type: string, x-kubernetes-list-type: map}}",
    "type: object, properties: {a: {type: array, items: {type: string}, x-kubernetes-list-map-keys: [k]}}",
    "type: object, properties: {a: {type: array, items: {type: object, properties: {k: {type: string}}}, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [k]}}",
    "type: object, properties: {a: {type: array, items: {type: object}, x-kubernetes-list-type: set}}",
    "type: object, properties: {a: {type: object, x-kubernetes-map-type: loose}}",
    "type: object, properties: {a: {type: object, allOf: [{properties: {b: {minLength: 1}}}]}}",
    "type: object, properties: {a: {type: object, not: {type: string, description: x}}}",
    "type: object, properties: {a: {x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}]}}",
    "type: object, properties: {a: {x-kubernetes-int-or-string: true, anyOf: [{type: string}, {type: integer}]}}",
    "type: object, properties: {a: {type: string, x-kubernetes-embedded-resource: true}}",
    "type: object, properties: {metadata: {type: object, properties: {name: {type: string}}}}",
    "type: object, properties: {metadata: {type: object, properties: {labels: {type: object}}}}",
    "type: object, properties: {kind: {type: string, default: x}}",
    "type: object, x-kubernetes-preserve-unknown-fields: false",
    "type: object, x-kubernetes-validations: [{rule: ' '}, {rule: 'true', message: ' ', reason: Nope, fieldPath: .x}]",
];

#[test]
fn schemas() {
    let changes: Vec<String> = SCHEMAS
        .iter()
        .map(|schema| {
            format!("spec: {{versions: [{{name: v1, served: true, storage: true, schema: {{openAPIV3Schema: {{{schema}}}}}}}]}}")
        })
        .collect();
    let changes: Vec<&str> = changes.iter().map(String::as_str).collect();
    check(
        DEFINITION,
        &changes,
        expect![[r#"
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {}}}}}]}
                spec.validation.openAPIV3Schema.properties[a].type: Required value: must not be empty for specified object fields
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: array}}}]}
                spec.validation.openAPIV3Schema.items: Required value: must be specified
                spec.validation.openAPIV3Schema.type: Invalid value: "array": must be object at the root
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, nullable: true}}}]}
                spec.validation.openAPIV3Schema.nullable: Forbidden: nullable cannot be true at the root
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, additionalProperties: true}}}]}
                spec.validation.openAPIV3Schema.additionalProperties: Forbidden: must not be used at the root
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: array}}}}}]}
                spec.validation.openAPIV3Schema.properties[a].items: Required value: must be specified
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: fish}}}}}]}
                spec.validation.openAPIV3Schema.properties[a].type: Unsupported value: "fish": supported values: "array", "boolean", "integer", "number", "object", "string"
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: string, uniqueItems: true}}}}}]}
                spec.validation.openAPIV3Schema.properties[a].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: string, $ref: x}}}}}]}
                spec.validation.openAPIV3Schema.properties[a].$ref: Forbidden: $ref is not supported
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: string, id: x}}}}}]}
                spec.validation.openAPIV3Schema.properties[a].id: Forbidden: id is not supported
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: string, x-kubernetes-list-type: map}}}}}]}
                spec.validation.openAPIV3Schema.properties[a].type: Invalid value: "string": must be array if x-kubernetes-list-type is specified
                spec.validation.openAPIV3Schema.properties[a].x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map
                spec.validation.openAPIV3Schema.properties[a].items: Required value: must have a schema if x-kubernetes-list-type is map
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: array, items: {type: string}, x-kubernetes-list-map-keys: [k]}}}}}]}
                spec.validation.openAPIV3Schema.properties[a].x-kubernetes-list-type: Required value: must be map if x-kubernetes-list-map-keys is non-empty
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: array, items: {type: object, properties: {k: {type: string}}}, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [k]}}}}}]}
                spec.validation.openAPIV3Schema.properties[a].items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: array, items: {type: object}, x-kubernetes-list-type: set}}}}}]}
                spec.validation.openAPIV3Schema.properties[a].items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set
                warning: x-kubernetes-list-type: set for items of type "object" is not supported by server-side apply or CEL validation rules
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: object, x-kubernetes-map-type: loose}}}}}]}
                spec.validation.openAPIV3Schema.properties[a].x-kubernetes-map-type: Unsupported value: "loose": supported values: "atomic", "granular"
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: object, allOf: [{properties: {b: {minLength: 1}}}]}}}}}]}
                fine
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: object, not: {type: string, description: x}}}}}}]}
                spec.validation.openAPIV3Schema.properties[a].not.description: Forbidden: must be empty to be structural
                spec.validation.openAPIV3Schema.properties[a].not.type: Forbidden: must be empty to be structural
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}]}}}}}]}
                fine
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {x-kubernetes-int-or-string: true, anyOf: [{type: string}, {type: integer}]}}}}}]}
                spec.validation.openAPIV3Schema.properties[a].anyOf[0].type: Forbidden: must be empty to be structural
                spec.validation.openAPIV3Schema.properties[a].anyOf[1].type: Forbidden: must be empty to be structural
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: string, x-kubernetes-embedded-resource: true}}}}}]}
                spec.validation.openAPIV3Schema.properties[a].properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields
                spec.validation.openAPIV3Schema.properties[a].type: Invalid value: "string": must be object if x-kubernetes-embedded-resource is true
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {metadata: {type: object, properties: {name: {type: string}}}}}}}]}
                fine
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {metadata: {type: object, properties: {labels: {type: object}}}}}}}]}
                spec.validation.openAPIV3Schema.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {kind: {type: string, default: x}}}}}]}
                spec.validation.openAPIV3Schema.properties[kind].default: Forbidden: must not be set in top-level kind
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: false}}}]}
                spec.validation.openAPIV3Schema.x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-validations: [{rule: ' '}, {rule: 'true', message: ' ', reason: Nope, fieldPath: .x}]}}}]}
                spec.validation.openAPIV3Schema.x-kubernetes-validations[0].rule: Required value: rule is not specified
                spec.validation.openAPIV3Schema.x-kubernetes-validations[1].message: Invalid value: " ": must be non-empty if specified
                spec.validation.openAPIV3Schema.x-kubernetes-validations[1].reason: Unsupported value: "Nope": supported values: "FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"
                spec.validation.openAPIV3Schema.x-kubernetes-validations[1].fieldPath: Invalid value: ".x": must be a valid path
        "#]],
    );
}

#[test]
fn versions() {
    check(
        DEFINITION,
        &[
            "spec: {versions: [{name: V1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}",
            "spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}, deprecationWarning: x}]}",
            "spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}, additionalPrinterColumns: [{name: A, type: fish, jsonPath: x}]}]}",
            "spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, description: x, allOf: [{required: [a]}]}}, subresources: {status: {}, scale: {specReplicasPath: .x, statusReplicasPath: ''}}}]}",
            "spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object}}}}, selectableFields: [{jsonPath: .spec}, {jsonPath: .status}, {jsonPath: .metadata.name}, {}]}]}",
            "spec: {group: x.k8s.io}\nmetadata: {name: foos.x.k8s.io}",
            "spec: {preserveUnknownFields: true}",
            "spec: {conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1, v1, V2], clientConfig: {}}}}",
        ],
        expect![[r#"
            spec: {versions: [{name: V1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}
                spec.versions[0].name: Invalid value: "V1": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')
                spec.version: Invalid value: "V1": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}, deprecationWarning: x}]}
                spec.versions[0].deprecationWarning: Invalid value: "x": can only be set for deprecated versions
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}, additionalPrinterColumns: [{name: A, type: fish, jsonPath: x}]}]}
                spec.additionalPrinterColumns[0].type: Invalid value: "fish": must be one of boolean,date,integer,number,string
                spec.additionalPrinterColumns[0].JSONPath: Invalid value: "x": must be a simple json path starting with .
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, description: x, allOf: [{required: [a]}]}}, subresources: {status: {}, scale: {specReplicasPath: .x, statusReplicasPath: ''}}}]}
                spec.validation.openAPIV3Schema: Invalid value: {"ID":"","Schema":"","Ref":null,"Description":"x","Type":"object","Nullable":false,"Format":"","Title":"","Default":null,"Maximum":null,"ExclusiveMaximum":false,"Minimum":null,"ExclusiveMinimum":false,"MaxLength":null,"MinLength":null,"Pattern":"","MaxItems":null,"MinItems":null,"UniqueItems":false,"MultipleOf":null,"Enum":null,"MaxProperties":null,"MinProperties":null,"Required":null,"Items":null,"AllOf":[{"ID":"","Schema":"","Ref":null,"Description":"","Type":"","Nullable":false,"Format":"","Title":"","Default":null,"Maximum":null,"ExclusiveMaximum":false,"Minimum":null,"ExclusiveMinimum":false,"MaxLength":null,"MinLength":null,"Pattern":"","MaxItems":null,"MinItems":null,"UniqueItems":false,"MultipleOf":null,"Enum":null,"MaxProperties":null,"MinProperties":null,"Required":["a"],"Items":null,"AllOf":null,"OneOf":null,"AnyOf":null,"Not":null,"Properties":null,"AdditionalProperties":null,"PatternProperties":null,"Dependencies":null,"AdditionalItems":null,"Definitions":null,"ExternalDocs":null,"Example":null,"XPreserveUnknownFields":null,"XEmbeddedResource":false,"XIntOrString":false,"XListMapKeys":null,"XListType":null,"XMapType":null,"XValidations":null}],"OneOf":null,"AnyOf":null,"Not":null,"Properties":null,"AdditionalProperties":null,"PatternProperties":null,"Dependencies":null,"AdditionalItems":null,"Definitions":null,"ExternalDocs":null,"Example":null,"XPreserveUnknownFields":null,"XEmbeddedResource":false,"XIntOrString":false,"XListMapKeys":null,"XListType":null,"XMapType":null,"XValidations":null}: only [Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields XValidations] fields are allowed at the root of the schema if the status subresource is enabled
                spec.subresources.scale.specReplicasPath: Invalid value: ".x": should be a json path under .spec
                spec.subresources.scale.statusReplicasPath: Required value
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object}}}}, selectableFields: [{jsonPath: .spec}, {jsonPath: .status}, {jsonPath: .metadata.name}, {}]}]}
                spec.selectableFields[0].jsonPath: Invalid value: ".spec": must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.
                spec.selectableFields[1].jsonPath: Invalid value: ".status": is an invalid path: does not refer to a valid field
                spec.selectableFields[2].jsonPath: Invalid value: ".metadata.name": is an invalid path: does not refer to a valid field
                spec.selectableFields[3].jsonPath: Required value
            spec: {group: x.k8s.io}
            metadata: {name: foos.x.k8s.io}
                metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval annotation "api-approved.kubernetes.io", see https://github.com/kubernetes/enhancements/pull/1111
            spec: {preserveUnknownFields: true}
                spec.preserveUnknownFields: Invalid value: true: cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead
            spec: {conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1, v1, V2], clientConfig: {}}}}
                spec.conversion.webhookClientConfig: Required value: exactly one of url or service is required
                spec.conversion.conversionReviewVersions[1]: Invalid value: "v1": duplicate version
                spec.conversion.conversionReviewVersions[2]: Invalid value: "V2": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')
        "#]],
    );
}

#[test]
fn updates() {
    check_update(
        DEFINITION,
        Part::Main,
        &["spec: {group: c.d}", "spec: {names: {plural: bars}}", "spec: {names: {kind: Bar}}"],
        expect![[r#"
            spec: {group: c.d}
                spec.group: Invalid value: "c.d": field is immutable
            spec: {names: {plural: bars}}
                spec.names.plural: Invalid value: "bars": field is immutable
            spec: {names: {kind: Bar}}
                fine
        "#]],
    );
}
