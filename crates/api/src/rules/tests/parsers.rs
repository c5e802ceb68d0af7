//! What is read with a grammar of its own: patterns, defaults, certificates, URLs, paths, schedules. All
//! of it has been compared with upstream's server.
use super::definitions::DEFINITION;
use super::{POD, check, check_update};
use crate::rules::Part;
use expect_test::expect;

/// The definition with this for the schema of a field.
fn with_field(schema: &str) -> String {
    format!(
        "spec: {{versions: [{{name: v1, served: true, storage: true, schema: {{openAPIV3Schema: {{type: object, properties: {{a: {{{schema}}}}}}}}}}}]}}"
    )
}

fn check_fields(schemas: &[&str], expect: expect_test::Expect) {
    let changes: Vec<String> = schemas.iter().map(|schema| with_field(schema)).collect();
    let changes: Vec<&str> = changes.iter().map(String::as_str).collect();
    check(DEFINITION, &changes, expect);
}

#[test]
fn patterns_are_compiled() {
    check_fields(
        &[
            "type: string, pattern: 'a(b'",
            "type: string, pattern: '[a'",
            "type: string, pattern: '*a'",
            "type: string, pattern: 'a{1001}'",
            "type: string, pattern: '(?=a)'",
            "type: string, pattern: '^[a-z]+$'",
            "type: array, items: {type: string, pattern: ')'}",
            "type: string, allOf: [{pattern: '+'}]",
        ],
        expect![[r#"
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: string, pattern: 'a(b'}}}}}]}
                spec.validation.openAPIV3Schema.properties[a].pattern: Invalid value: "a(b": must be a valid regular expression, but isn't: error parsing regexp: missing closing ): `a(b`
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: string, pattern: '[a'}}}}}]}
                spec.validation.openAPIV3Schema.properties[a].pattern: Invalid value: "[a": must be a valid regular expression, but isn't: error parsing regexp: missing closing ]: `[a`
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: string, pattern: '*a'}}}}}]}
                spec.validation.openAPIV3Schema.properties[a].pattern: Invalid value: "*a": must be a valid regular expression, but isn't: error parsing regexp: missing argument to repetition operator: `*`
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: string, pattern: 'a{1001}'}}}}}]}
                spec.validation.openAPIV3Schema.properties[a].pattern: Invalid value: "a{1001}": must be a valid regular expression, but isn't: error parsing regexp: invalid repeat count: `{1001}`
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: string, pattern: '(?=a)'}}}}}]}
                spec.validation.openAPIV3Schema.properties[a].pattern: Invalid value: "(?=a)": must be a valid regular expression, but isn't: error parsing regexp: invalid or unsupported Perl syntax: `(?=`
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: string, pattern: '^[a-z]+$'}}}}}]}
                fine
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: array, items: {type: string, pattern: ')'}}}}}}]}
                spec.validation.openAPIV3Schema.properties[a].items.pattern: Invalid value: ")": must be a valid regular expression, but isn't: error parsing regexp: unexpected ): `)`
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: string, allOf: [{pattern: '+'}]}}}}}]}
                spec.validation.openAPIV3Schema.properties[a].allOf[0].pattern: Invalid value: "+": must be a valid regular expression, but isn't: error parsing regexp: missing argument to repetition operator: `+`
        "#]],
    );
}

#[test]
fn defaults_conform_to_their_schemas() {
    check_fields(
        &[
            "type: string, maxLength: 1, default: ab",
            "type: string, minLength: 3, default: ab",
            "type: string, pattern: ^a+$, default: b",
            "type: string, enum: [a], default: b",
            "type: string, format: date, default: x",
            "type: integer, minimum: 2, default: 1",
            "type: number, maximum: 1000000, default: 1000000.5",
            "type: integer, exclusiveMaximum: true, maximum: 2, default: 2",
            "type: integer, multipleOf: 2, default: 3",
            "type: integer, format: int32, default: 2147483648",
            "type: array, items: {type: string}, maxItems: 1, minItems: 1, default: [a, 1]",
            "type: object, required: [k], properties: {k: {type: string}}, default: {}",
            "type: object, additionalProperties: {type: object, required: [k]}, default: {x: {}}",
            "type: object, maxProperties: 0, properties: {k: {type: string}}, default: {k: x}",
            "type: integer, anyOf: [{minimum: 5}, {multipleOf: 2}], default: 3",
            "type: integer, oneOf: [{minimum: 5}, {multipleOf: 2}], default: 6",
            "type: integer, allOf: [{minimum: 5}], not: {multipleOf: 3}, default: 3",
            "type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true, default: {apiVersion: a/b/c, kind: a b, metadata: {name: a/b}}",
            "type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true, default: {apiVersion: v1, kind: A, metadata: {labels: 5}}",
            "type: object, x-kubernetes-embedded-resource: true, properties: {metadata: {type: object, properties: {name: {type: string, default: '%'}}}}",
        ],
        expect![[r#"
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: string, maxLength: 1, default: ab}}}}}]}
                spec.validation.openAPIV3Schema.properties[a].default: Too long: may not be more than 1 byte
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: string, minLength: 3, default: ab}}}}}]}
                spec.validation.openAPIV3Schema.properties[a].default: Invalid value: "ab":  in body should be at least 3 chars long
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: string, pattern: ^a+$, default: b}}}}}]}
                spec.validation.openAPIV3Schema.properties[a].default: Invalid value: "b":  in body should match '^a+$'
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: string, enum: [a], default: b}}}}}]}
                spec.validation.openAPIV3Schema.properties[a].default: Unsupported value: "b": supported values: "a"
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: string, format: date, default: x}}}}}]}
                spec.validation.openAPIV3Schema.properties[a].default: Invalid value: "x":  in body must be of type date: "x"
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: integer, minimum: 2, default: 1}}}}}]}
                spec.validation.openAPIV3Schema.properties[a].default: Invalid value: 1:  in body should be greater than or equal to 2
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: number, maximum: 1000000, default: 1000000.5}}}}}]}
                spec.validation.openAPIV3Schema.properties[a].default: Invalid value: 1.0000005e+06:  in body should be less than or equal to 1e+06
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: integer, exclusiveMaximum: true, maximum: 2, default: 2}}}}}]}
                spec.validation.openAPIV3Schema.properties[a].default: Invalid value: 2:  in body should be less than 2
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: integer, multipleOf: 2, default: 3}}}}}]}
                spec.validation.openAPIV3Schema.properties[a].default: Invalid value: 3:  in body should be a multiple of 2
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: integer, format: int32, default: 2147483648}}}}}]}
                spec.validation.openAPIV3Schema.properties[a].default: Invalid value: "": Checked value must be of type integer with format int32 in 
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: array, items: {type: string}, maxItems: 1, minItems: 1, default: [a, 1]}}}}}]}
                spec.validation.openAPIV3Schema.properties[a].default.[1]: Invalid value: "integer": [1] in body must be of type string: "integer"
                spec.validation.openAPIV3Schema.properties[a].default: Too many: 2: must have at most 1 item
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: object, required: [k], properties: {k: {type: string}}, default: {}}}}}}]}
                spec.validation.openAPIV3Schema.properties[a].default.k: Required value
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: object, additionalProperties: {type: object, required: [k]}, default: {x: {}}}}}}}]}
                spec.validation.openAPIV3Schema.properties[a].default.x.k: Required value
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: object, maxProperties: 0, properties: {k: {type: string}}, default: {k: x}}}}}}]}
                spec.validation.openAPIV3Schema.properties[a].default: Too many: 1: must have at most 0 items
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: integer, anyOf: [{minimum: 5}, {multipleOf: 2}], default: 3}}}}}]}
                spec.validation.openAPIV3Schema.properties[a].default: Invalid value: "": "" must validate at least one schema (anyOf)
                spec.validation.openAPIV3Schema.properties[a].default: Invalid value: 3:  in body should be greater than or equal to 5
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: integer, oneOf: [{minimum: 5}, {multipleOf: 2}], default: 6}}}}}]}
                spec.validation.openAPIV3Schema.properties[a].default: Invalid value: "": "" must validate one and only one schema (oneOf). Found 2 valid alternatives
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: integer, allOf: [{minimum: 5}], not: {multipleOf: 3}, default: 3}}}}}]}
                spec.validation.openAPIV3Schema.properties[a].default: Invalid value: 3:  in body should be greater than or equal to 5
                spec.validation.openAPIV3Schema.properties[a].default: Invalid value: "": "" must validate all the schemas (allOf). None validated
                spec.validation.openAPIV3Schema.properties[a].default: Invalid value: "": "" must not validate the schema (not)
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true, default: {apiVersion: a/b/c, kind: a b, metadata: {name: a/b}}}}}}}]}
                spec.validation.openAPIV3Schema.properties[a].default.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c
                spec.validation.openAPIV3Schema.properties[a].default.kind: Invalid value: "a b": may have mixed case, but should otherwise match: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')
                spec.validation.openAPIV3Schema.properties[a].default.metadata.name: Invalid value: "a/b": may not contain '/'
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true, default: {apiVersion: v1, kind: A, metadata: {labels: 5}}}}}}}]}
                spec.validation.openAPIV3Schema.properties[a].default.metadata: Invalid value: {"labels":5}: json: cannot unmarshal number into Go struct field ObjectMeta.labels of type map[string]string
            spec: {versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {type: object, x-kubernetes-embedded-resource: true, properties: {metadata: {type: object, properties: {name: {type: string, default: '%'}}}}}}}}}]}
                spec.validation.openAPIV3Schema.properties[a].properties[metadata].properties[name].default: Invalid value: "%": must result in valid metadata: metadata.name: Invalid value: "%": may not contain '%'
        "#]],
    );
}

const AUTHORITY: &str = "MIIBcTCCARegAwIBAgIUDS8zwYa7OTse0GDXkOZv4A89ND0wCgYIKoZIzj0EAwIwDTELMAkGA1UEAwwCY2EwIBcNMjYxMTE2MDkxMjAzWhgPMjEyNjEwMjMwOTEyMDNaMA0xCzAJBgNVBAMMAmNhMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEiLrxnahNCYPdhiD810lWh+p1zM+DrixNJl0lMPhIVdCk6DkQgNNV0+PBo6MsP4xUU/TYv2iRSa+5klj6rSeeOKNTMFEwHQYDVR0OBBYEFARSxhT8NHNaOqDav8Xd3oQnps0RMB8GA1UdIwQYMBaAFARSxhT8NHNaOqDav8Xd3oQnps0RMA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDSAAwRQIhAIJ8gxAJ2tWLAnPvJnVb23CcUsLzwRc0mrVYKHTLVr6TAiBp3CCUutxGiFVldkldenG9kNRln/RR6gcGR76G1HshYw==";
const LEAF: &str = "MIIBcTCCARigAwIBAgIUQmLk0Rrp+pqMfu+HGlkJJAKrqz4wCgYIKoZIzj0EAwIwDzENMAsGA1UEAwwEbGVhZjAgFw0yNjExMTYwOTEyMDNaGA8yMTI2MTAyMzA5MTIwM1owDzENMAsGA1UEAwwEbGVhZjBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABIi68Z2oTQmD3YYg/NdJVofqdczPg64sTSZdJTD4SFXQpOg5EIDTVdPjwaOjLD+MVFP02L9okUmvuZJY+q0nnjijUDBOMB0GA1UdDgQWBBQEUsYU/DRzWjqg2r/F3d6EJ6bNETAfBgNVHSMEGDAWgBQEUsYU/DRzWjqg2r/F3d6EJ6bNETAMBgNVHRMBAf8EAjAAMAoGCCqGSM49BAMCA0cAMEQCIFEbS0I2dlxkhuUBa55Jux1gxF3CHqRgos4txChkLoO5AiAPnXZkQSoTnZj6HCknIDsYqEPBixry5NzV3NB5LON1bg==";

fn pem(kind: &str, body: &str) -> String {
    format!("-----BEGIN {kind}-----\n{body}\n-----END {kind}-----\n")
}

#[test]
fn bundles_of_trust_are_certificates_of_authorities() {
    const BUNDLE: &str = "
apiVersion: certificates.k8s.io/v1
kind: ClusterTrustBundle
metadata: {name: x}
spec: {trustBundle: x}";
    let (authority, leaf) = (pem("CERTIFICATE", AUTHORITY), pem("CERTIFICATE", LEAF));
    let headed = pem("CERTIFICATE", &format!("k: v\n\n{AUTHORITY}"));
    for (text, expect) in [
        (
            String::new(),
            expect![[r#"
                spec.trustBundle: Invalid value: "<value omitted>": at least one trust anchor must be provided
        "#]],
        ),
        (
            authority.clone(),
            expect![[r#"
                fine
        "#]],
        ),
        (
            authority.repeat(2),
            expect![[r#"
                spec.trustBundle: Invalid value: "<value omitted>": duplicate trust anchor (indices [0 1])
        "#]],
        ),
        (
            format!("{authority}{leaf}{}{headed}", pem("X", "YQ==")),
            expect![[r#"
                spec.trustBundle: Invalid value: "<value omitted>": entry 1 does not have the CA bit set
                spec.trustBundle: Invalid value: "<value omitted>": entry 2 has bad block type: X
                spec.trustBundle: Invalid value: "<value omitted>": entry 3 has PEM block headers
        "#]],
        ),
        (
            pem("CERTIFICATE", "YQ=="),
            expect![[r#"
                spec.trustBundle: Invalid value: "<value omitted>": entry 0 does not parse as X.509
        "#]],
        ),
    ] {
        let change = serde_json::json!({ "spec": { "trustBundle": text } }).to_string();
        check_short(BUNDLE, &change, expect);
    }
}

/// Without the change, which is long.
fn check_short(base: &str, change: &str, expect: expect_test::Expect) {
    let said = super::said(base, change);
    expect.assert_eq(&said);
}

#[test]
fn requests_for_certificates_are_read_and_their_signatures_checked() {
    const REQUEST: &str = "
apiVersion: certificates.k8s.io/v1
kind: CertificateSigningRequest
metadata: {name: x}
spec: {signerName: a.b/c, usages: [client auth], request: x}";
    use base64::Engine;
    for (der, expect) in [
        (
            "MIHGMG4CAQAwDDEKMAgGA1UEAwwBeDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABIi68Z2oTQmD3YYg/NdJVofqdczPg64sTSZdJTD4SFXQpOg5EIDTVdPjwaOjLD+MVFP02L9okUmvuZJY+q0nnjigADAKBggqhkjOPQQDAgNIADBFAiEAlUR+Y2UgE4rbLvTt+zfnfhr4dNmb7rVcJD31tysr0h8CIAopvRX88mt8h7qR/dN/edbFesdxdp/vb8UT+PiECHNt",
            expect![[r#"
                    fine
            "#]],
        ),
        (
            "MIHGMG4CAQAwDDEKMAgGA1UEAwwBeDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABIi68Z2oTQmD3YYg/NdJVofqdczPg64sTSZdJTD4SFXQpOg5EIDTVdPjwaOjLD+MVFP02L9okUmvuZJY+q0nnjigADAKBggqhkjOPQQDAgNIADBFAiEAlUR+Y2UgE4rbLvTt+zfnfhr4dNmb7rVcJD31tysr0h8CIAopvRX88mt8h7qR/dN/edbFesdxdp/vb8UT+PiECHNs",
            expect![[r#"
                    spec.request: Invalid value: "REQUEST": x509: ECDSA verification failure
            "#]],
        ),
        (
            "",
            expect![[r#"
                spec.request: Invalid value: "REQUEST": asn1: syntax error: sequence truncated
        "#]],
        ),
    ] {
        let text = pem("CERTIFICATE REQUEST", der);
        let text = base64::engine::general_purpose::STANDARD.encode(text);
        let change = serde_json::json!({ "spec": { "request": text } }).to_string();
        let said = super::said(REQUEST, &change);
        let short = said.replace(&text, "REQUEST");
        expect.assert_eq(&short);
    }
    const OF_POD: &str = "
apiVersion: certificates.k8s.io/v1
kind: PodCertificateRequest
metadata: {name: a, namespace: default}
spec: {signerName: a.b/c, podName: p, podUID: u, serviceAccountName: d, serviceAccountUID: v, nodeName: nn, nodeUID: w, maxExpirationSeconds: 3600}";
    for (der, expect) in [
        (
            "MIHGMG4CAQAwDDEKMAgGA1UEAwwBeDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABIi68Z2oTQmD3YYg/NdJVofqdczPg64sTSZdJTD4SFXQpOg5EIDTVdPjwaOjLD+MVFP02L9okUmvuZJY+q0nnjigADAKBggqhkjOPQQDAgNIADBFAiEAlUR+Y2UgE4rbLvTt+zfnfhr4dNmb7rVcJD31tysr0h8CIAopvRX88mt8h7qR/dN/edbFesdxdp/vb8UT+PiECHNt",
            expect![[r#"
                    fine
            "#]],
        ),
        (
            "MIGzMGMCAQAwDDEKMAgGA1UEAwwBeDBOMBAGByqGSM49AgEGBSuBBAAhAzoABLyaLB1r8WyNTovOrznbIUzCU6JqzprHwANhV51iMt1rmaiwh4n5xuCor+9Pb4x8ebZgVhepqY+toAAwCgYIKoZIzj0EAwIDQAAwPQIcQvPZ3JuG1KJ2Jfboiwz7v1NwyOWZK+niOpTaPgIdAODcsU66qCXUFk295Bq2NgiLSCklzkyZ18BDbQs=",
            expect![[r#"
                    spec.stubPKCS10Request: Invalid value: "curve P-224": elliptic public keys must use curve P256, P384, or P521
            "#]],
        ),
        (
            "MIICUTCCATkCAQAwDDEKMAgGA1UEAwwBeDCCASIwDQYJKoZIhvcNAQEBBQADggEPADCCAQoCggEBAL9wE/SwkbmWqjvAmBJP4VIoR3FJuLzfrKgKi2FAKf82Y4XL9mJzzVZBJnMzJnLsC55odzzlrZKUBFFoJMHOSKyhSG4rMWkm+35GFyhRtaalwMzdIjB4GaUS3n7KQtXlZe1lyXtO6OJhzd1KlsbrJ6GsH0C9EGuYaw8Tkdi62Ij384aZRfBxmMiu093JTGw/MKvHwHIJHYuBIon5lIoOso6hP4ikhcEFds29tTqCNRL1jDt/FhgHbcWsJ9o1lyoqUjyTvFiN/EsQ1TMtq9rjdHXvG2YnAM8pKgDwql+QVykdKpHS1mkdEzOSLCNt5rmdI8OdnNunTdQNWJKxwCk2TtsCAwEAAaAAMA0GCSqGSIb3DQEBCwUAA4IBAQAZTvum3jTBAB1sMOTnqXlAHNwg3LxYz1nse2jOSgZb1xmd4A1o6DSlZ6IRFYI5c4jDrqrIG7M/pZQIcH6jAKZOK6//LL3zkl3rH1/SoehD3jDSlyd3YKWf/AVUAh8dG+fBqllh2Q7tBqDiKOFzmKgzRm/PFY5w+aEqjb8P3bUInkYivvjSf01ZhxUGioWQYSZv7Gn8RhPjeEpQ1NmcXHRJeO0V6AReWaP/NYVTCuHSfagiAeH3aa9QhgFCn9jjrMc2ARnF5a3Mn6tvHglNXP0tZbuplDTpi3JiCV+/83BLCY7mqwiZQsrJjXIkEYtwb5ao6wKhUUr91qZl6lJdLTvF",
            expect![[r#"
                    spec.stubPKCS10Request: Invalid value: "2048-bit modulus": RSA keys must have modulus size 3072 or 4096
            "#]],
        ),
        (
            "MIHGMG4CAQAwDDEKMAgGA1UEAwwBeDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABIi68Z2oTQmD3YYg/NdJVofqdczPg64sTSZdJTD4SFXQpOg5EIDTVdPjwaOjLD+MVFP02L9okUmvuZJY+q0nnjigADAKBggqhkjOPQQDAgNIADBFAiEAlUR+Y2UgE4rbLvTt+zfnfhr4dNmb7rVcJD31tysr0h8CIAopvRX88mt8h7qR/dN/edbFesdxdp/vb8UT+PiECHNs",
            expect![[r#"
                    spec.stubPKCS10Request: Invalid value: invalid signature
            "#]],
        ),
        (
            "YQ==",
            expect![[r#"
                spec.stubPKCS10Request: Invalid value: must be a valid PKCS#10 CSR
        "#]],
        ),
    ] {
        let change = serde_json::json!({ "spec": { "stubPKCS10Request": der } }).to_string();
        check_short(OF_POD, &change, expect);
    }
}

#[test]
fn urls_of_webhooks_are_parsed() {
    const HOOKS: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: x}";
    let changes: Vec<String> = [
        "https://a.b/c", "HTTPS://a.b", "https://a b/", "https://a.b:bad/", "https://[::1/x", "https://a.b/%zz",
        ":", "1https://x", "https://u@a.b/?q#f",
    ]
    .iter()
    .map(|url| format!("webhooks: [{{name: a.b.c, sideEffects: None, admissionReviewVersions: [v1], clientConfig: {{url: '{url}'}}}}]"))
    .collect();
    let changes: Vec<&str> = changes.iter().map(String::as_str).collect();
    check(
        HOOKS,
        &changes,
        expect![[r#"
        webhooks: [{name: a.b.c, sideEffects: None, admissionReviewVersions: [v1], clientConfig: {url: 'https://a.b/c'}}]
            fine
        webhooks: [{name: a.b.c, sideEffects: None, admissionReviewVersions: [v1], clientConfig: {url: 'HTTPS://a.b'}}]
            fine
        webhooks: [{name: a.b.c, sideEffects: None, admissionReviewVersions: [v1], clientConfig: {url: 'https://a b/'}}]
            webhooks[0].clientConfig.url: Required value: url must be a valid URL: parse "https://a b/": invalid character " " in host name; desired format: https://host[/path]
        webhooks: [{name: a.b.c, sideEffects: None, admissionReviewVersions: [v1], clientConfig: {url: 'https://a.b:bad/'}}]
            webhooks[0].clientConfig.url: Required value: url must be a valid URL: parse "https://a.b:bad/": invalid port ":bad" after host; desired format: https://host[/path]
        webhooks: [{name: a.b.c, sideEffects: None, admissionReviewVersions: [v1], clientConfig: {url: 'https://[::1/x'}}]
            webhooks[0].clientConfig.url: Required value: url must be a valid URL: parse "https://[::1/x": missing ']' in host; desired format: https://host[/path]
        webhooks: [{name: a.b.c, sideEffects: None, admissionReviewVersions: [v1], clientConfig: {url: 'https://a.b/%zz'}}]
            webhooks[0].clientConfig.url: Required value: url must be a valid URL: parse "https://a.b/%zz": invalid URL escape "%zz"; desired format: https://host[/path]
        webhooks: [{name: a.b.c, sideEffects: None, admissionReviewVersions: [v1], clientConfig: {url: ':'}}]
            webhooks[0].clientConfig.url: Required value: url must be a valid URL: parse ":": missing protocol scheme; desired format: https://host[/path]
        webhooks: [{name: a.b.c, sideEffects: None, admissionReviewVersions: [v1], clientConfig: {url: '1https://x'}}]
            webhooks[0].clientConfig.url: Required value: url must be a valid URL: parse "1https://x": first path segment in URL cannot contain colon; desired format: https://host[/path]
        webhooks: [{name: a.b.c, sideEffects: None, admissionReviewVersions: [v1], clientConfig: {url: 'https://u@a.b/?q#f'}}]
            webhooks[0].clientConfig.url: Invalid value: "u": user information is not permitted in the URL
            webhooks[0].clientConfig.url: Invalid value: "f": fragments are not permitted in the URL
            webhooks[0].clientConfig.url: Invalid value: "q": query parameters are not permitted in the URL
    "#]],
    );
}

#[test]
fn what_warnings_refer_to_is_a_path() {
    const POLICY: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: x}
spec: {validations: [{expression: 'true'}]}";
    let paths = [
        "spec.a[0]",
        "spec.a[x]",
        "spec.a[",
        "a...b",
        "-x",
        "a[?(@.b == \\\"c\\\")]",
        "a[?(@.b",
        "{a",
        "a&",
    ];
    let changes = paths.map(|path| {
        format!("status: {{typeChecking: {{expressionWarnings: [{{fieldRef: \"{path}\", warning: w}}]}}}}")
    });
    check_update(
        POLICY,
        Part::Sub("status"),
        &changes.each_ref().map(String::as_str),
        expect![[r#"
            status: {typeChecking: {expressionWarnings: [{fieldRef: "spec.a[0]", warning: w}]}}
                fine
            status: {typeChecking: {expressionWarnings: [{fieldRef: "spec.a[x]", warning: w}]}}
                status.typeChecking.expressionWarnings[0].fieldRef: Invalid value: "spec.a[x]": invalid JSONPath: invalid array index x
            status: {typeChecking: {expressionWarnings: [{fieldRef: "spec.a[", warning: w}]}}
                status.typeChecking.expressionWarnings[0].fieldRef: Invalid value: "spec.a[": invalid JSONPath: unterminated array
            status: {typeChecking: {expressionWarnings: [{fieldRef: "a...b", warning: w}]}}
                fine
            status: {typeChecking: {expressionWarnings: [{fieldRef: "-x", warning: w}]}}
                status.typeChecking.expressionWarnings[0].fieldRef: Invalid value: "-x": invalid JSONPath: cannot parse number -
            status: {typeChecking: {expressionWarnings: [{fieldRef: "a[?(@.b == \"c\")]", warning: w}]}}
                fine
            status: {typeChecking: {expressionWarnings: [{fieldRef: "a[?(@.b", warning: w}]}}
                status.typeChecking.expressionWarnings[0].fieldRef: Invalid value: "a[?(@.b": invalid JSONPath: unterminated filter
            status: {typeChecking: {expressionWarnings: [{fieldRef: "{a", warning: w}]}}
                status.typeChecking.expressionWarnings[0].fieldRef: Invalid value: "{a": invalid JSONPath: unrecognized character in action: U+007B '{'
            status: {typeChecking: {expressionWarnings: [{fieldRef: "a&", warning: w}]}}
                fine
        "#]],
    );
}

#[test]
fn zones_are_no_part_of_new_schedules() {
    const JOB: &str = "
apiVersion: batch/v1
kind: CronJob
metadata: {name: a, namespace: default}
spec: {schedule: 'TZ=UTC * * * * *', jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}}";
    check(
        JOB,
        &["{}", "spec: {schedule: TZ=UTC}", "spec: {timeZone: UTC}"],
        expect![[r#"
        {}
            spec.schedule: Invalid value: "TZ=UTC * * * * *": cannot use TZ or CRON_TZ in schedule, use timeZone field instead
            warning: spec.schedule: CRON_TZ or TZ used in schedule is not officially supported, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/#unsupported-timezone-specification for more details
        spec: {schedule: TZ=UTC}
            spec.schedule: Invalid value: "TZ=UTC": invalid schedule format: runtime error: slice bounds out of range [:-1]
            spec.schedule: Invalid value: "TZ=UTC": cannot use TZ or CRON_TZ in schedule, use timeZone field instead
            warning: spec.schedule: CRON_TZ or TZ used in schedule is not officially supported, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/#unsupported-timezone-specification for more details
        spec: {timeZone: UTC}
            spec.schedule: Invalid value: "TZ=UTC * * * * *": cannot use TZ or CRON_TZ in schedule, use timeZone field instead
            warning: spec.schedule: CRON_TZ or TZ used in schedule is not officially supported, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/#unsupported-timezone-specification for more details
    "#]],
    );
    check_update(
        JOB,
        Part::Main,
        &["{}", "spec: {timeZone: UTC}"],
        expect![[r#"
        {}
            warning: spec.schedule: CRON_TZ or TZ used in schedule is not officially supported, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/#unsupported-timezone-specification for more details
        spec: {timeZone: UTC}
            spec.schedule: Invalid value: "TZ=UTC * * * * *": cannot use both timeZone field and TZ or CRON_TZ in schedule
            warning: spec.schedule: CRON_TZ or TZ used in schedule is not officially supported, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/#unsupported-timezone-specification for more details
    "#]],
    );
}

#[test]
fn files_of_a_volume_overlap() {
    check(
        POD,
        &[
            "spec: {volumes: [{name: v, configMap: {name: m, items: [{key: a, path: a}, {key: b, path: a/b}, {key: c, path: ab}]}}]}",
            "spec: {volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: a}}, {secret: {name: s, items: [{key: k, path: a/}]}}, {}]}}]}",
        ],
        expect![[r#"
            spec: {volumes: [{name: v, configMap: {name: m, items: [{key: a, path: a}, {key: b, path: a/b}, {key: c, path: ab}]}}]}
                warning: volume "v" (ConfigMap "m"): overlapping paths: "a/b" with "a"
            spec: {volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: a}}, {secret: {name: s, items: [{key: k, path: a/}]}}, {}]}}]}
                spec.volumes[0].projected.sources[0].serviceAccountToken: Forbidden: must not be specified when serviceAccountName is not set
                warning: volume "v" (Projected): overlapping paths: "a" (Secret "s") with "a" (ServiceAccountToken)
                warning: volume "v" (Projected) has no sources provided
        "#]],
    );
}

#[test]
fn smaller_findings() {
    check(
        POD,
        &[
            "spec: {containers: [{name: c, image: i, env: [{name: A, valueFrom: {fieldRef: {fieldPath: \"metadata.foo['x']\"}}}]}]}",
            "spec: {containers: [{name: c, image: i, securityContext: {allowPrivilegeEscalation: false, capabilities: {add: [SYS_ADMIN]}}}]}",
            "metadata: {annotations: {container.seccomp.security.alpha.kubernetes.io/c: localhost/../x}}",
            "spec: {volumes: [{name: v, projected: {sources: [{podCertificate: {signerName: a.b/c, keyType: ED25519, credentialBundlePath: a, userAnnotations: {a b/c: x}}}]}}]}",
        ],
        expect![[r#"
            spec: {containers: [{name: c, image: i, env: [{name: A, valueFrom: {fieldRef: {fieldPath: "metadata.foo['x']"}}}]}]}
                spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid value: "metadata.foo['x']": error converting fieldPath: field label does not support subscript: metadata.foo['x']
            spec: {containers: [{name: c, image: i, securityContext: {allowPrivilegeEscalation: false, capabilities: {add: [SYS_ADMIN]}}}]}
                fine
            metadata: {annotations: {container.seccomp.security.alpha.kubernetes.io/c: localhost/../x}}
                metadata.annotations.container.seccomp.security.alpha.kubernetes.io/c: Invalid value: "../x": must not contain '..'
                warning: metadata.annotations[container.seccomp.security.alpha.kubernetes.io/c]: non-functional in v1.27+; use the "seccompProfile" field instead
            spec: {volumes: [{name: v, projected: {sources: [{podCertificate: {signerName: a.b/c, keyType: ED25519, credentialBundlePath: a, userAnnotations: {a b/c: x}}}]}}]}
                spec.volumes[0].projected.sources[0].podCertificate.userAnnotations: Invalid value: "a b/c": prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
        "#]],
    );
    const SLICE: &str = "
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: a, namespace: default}
addressType: FQDN
endpoints: [{addresses: [a.b]}]";
    check(
        SLICE,
        &["{}", "{addressType: IPv6, endpoints: [{addresses: ['2001:DB8::1']}]}"],
        expect![[r#"
            {}
                warning: spec.addressType: FQDN endpoints are deprecated
            {addressType: IPv6, endpoints: [{addresses: ['2001:DB8::1']}]}
                endpoints[0].addresses[0]: Invalid value: "2001:DB8::1": must be in canonical form ("2001:db8::1")
                warning: endpoints[0].addresses[0]: IPv6 address "2001:DB8::1" should be in RFC 5952 canonical format ("2001:db8::1")
        "#]],
    );
    const NODE: &str = "
apiVersion: v1
kind: Node
metadata: {name: a}";
    check(
        NODE,
        &["metadata: {annotations: {scheduler.alpha.kubernetes.io/preferAvoidPods: x}}"],
        expect![[r#"
            metadata: {annotations: {scheduler.alpha.kubernetes.io/preferAvoidPods: x}}
                metadata.annotations.AvoidPods: Invalid value: "scheduler.alpha.kubernetes.io/preferAvoidPods": invalid character 'x' looking for beginning of value
        "#]],
    );
}
