//! Devices: slices of them, claims of them, and what became of a claim.
use super::{check, check_update};
use crate::rules::Part;
use expect_test::expect;

const SLICE: &str = "
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: a}
spec:
  driver: a.b
  perDeviceNodeSelection: true
  pool: {name: p, generation: 1, resourceSliceCount: 1}
  devices: [{name: d, nodeName: n1}]";
const CLAIM: &str = "
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: a, namespace: default}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: c}}]}}";

#[test]
fn slices() {
    let device = |rest: &str| format!("spec: {{devices: [{{name: d, nodeName: n1, {rest}}}]}}");
    let changes = [
        device("allNodes: true"),
        "spec: {devices: [{name: d}]}".to_owned(),
        device("consumesCounters: [{counterSet: '', counters: {}}]"),
        device(
            "consumesCounters: [{counterSet: c, counters: {Bad: {value: 1}}}, {counterSet: c, counters: {x: {value: 1}}}]",
        ),
        device("bindingConditions: ['']"),
        device("bindingConditions: [a.b/c], bindingFailureConditions: [a.b/c, a.b/c]"),
        device("attributes: {v: {version: '1'}, w: {string: a, int: 1}, x: {}}"),
        device("taints: [{key: k}]"),
        device("capacity: {m: {value: 4Gi, requestPolicy: {}}}"),
        device(
            "allowMultipleAllocations: true, capacity: {m: {value: 4Gi, requestPolicy: {validRange: {min: 1Gi}}}}",
        ),
        device(
            "allowMultipleAllocations: true, capacity: {m: {value: 4Gi, requestPolicy: {default: 1Gi, validRange: {min: 2Gi, max: 8Gi, step: 1Gi}}}}",
        ),
        device(
            "allowMultipleAllocations: true, capacity: {m: {value: 4Gi, requestPolicy: {default: 1500Mi, validRange: {min: 1Gi, step: 1Gi}}}}",
        ),
        device(
            "allowMultipleAllocations: true, capacity: {m: {value: 4Gi, requestPolicy: {default: 3Gi, validValues: [2Gi, 1Gi, 8Gi]}}}",
        ),
        "spec: {sharedCounters: [{name: cs, counters: {m: {value: 1}}}]}".to_owned(),
        "spec: {devices: null, sharedCounters: [{}]}".to_owned(),
        "spec: {perDeviceNodeSelection: false}".to_owned(),
        "spec: {nodeName: ''}".to_owned(),
    ];
    let changes: Vec<&str> = changes.iter().map(String::as_str).collect();
    check(
        SLICE,
        &changes,
        expect![[r#"
            spec: {devices: [{name: d, nodeName: n1, allNodes: true}]}
                spec.devices[0]: Invalid value: "{`nodeName`, `allNodes`}": exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec
            spec: {devices: [{name: d}]}
                spec.devices[0]: Required value: exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec
            spec: {devices: [{name: d, nodeName: n1, consumesCounters: [{counterSet: '', counters: {}}]}]}
                spec.devices[0].consumesCounters[0].counterSet: Required value
                spec.devices[0].consumesCounters[0].counters: Required value
            spec: {devices: [{name: d, nodeName: n1, consumesCounters: [{counterSet: c, counters: {Bad: {value: 1}}}, {counterSet: c, counters: {x: {value: 1}}}]}]}
                spec.devices[0].consumesCounters[1]: Duplicate value: {"counterSet":"c","counters":{"x":{"value":"1"}}}
                spec.devices[0].consumesCounters[0].counters: Invalid value: "Bad": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
            spec: {devices: [{name: d, nodeName: n1, bindingConditions: ['']}]}
                spec.devices[0].bindingConditions[0]: Invalid value: "": name part must be non-empty
                spec.devices[0].bindingConditions[0]: Invalid value: "": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
                spec.devices[0].bindingFailureConditions: Invalid value: null: bindingFailureConditions are required to use bindingConditions
            spec: {devices: [{name: d, nodeName: n1, bindingConditions: [a.b/c], bindingFailureConditions: [a.b/c, a.b/c]}]}
                spec.devices[0].bindingFailureConditions[0]: Invalid value: "a.b/c": bindingFailureConditions must not overlap with bindingConditions
                spec.devices[0].bindingFailureConditions[1]: Duplicate value: "a.b/c"
                spec.devices[0].bindingFailureConditions[1]: Invalid value: "a.b/c": bindingFailureConditions must not overlap with bindingConditions
            spec: {devices: [{name: d, nodeName: n1, attributes: {v: {version: '1'}, w: {string: a, int: 1}, x: {}}}]}
                spec.devices[0].attributes[v].version: Invalid value: "1": must be a string compatible with semver.org spec 2.0.0
                spec.devices[0].attributes[w]: Invalid value: "{int, string}": must specify exactly one of: `int`, `bool`, `string`, `version`, `ints`, `bools`, `strings`, `versions`
                spec.devices[0].attributes[x]: Invalid value: "": must specify one of: `int`, `bool`, `string`, `version`, `ints`, `bools`, `strings`, `versions`
            spec: {devices: [{name: d, nodeName: n1, taints: [{key: k}]}]}
                spec.devices[0].taints[0].effect: Required value
            spec: {devices: [{name: d, nodeName: n1, capacity: {m: {value: 4Gi, requestPolicy: {}}}}]}
                spec.devices[0].capacity[m].requestPolicy: Forbidden: allowMultipleAllocations must be true
            spec: {devices: [{name: d, nodeName: n1, allowMultipleAllocations: true, capacity: {m: {value: 4Gi, requestPolicy: {validRange: {min: 1Gi}}}}}]}
                spec.devices[0].capacity[m].requestPolicy.default: Required value: required when validRange is defined
            spec: {devices: [{name: d, nodeName: n1, allowMultipleAllocations: true, capacity: {m: {value: 4Gi, requestPolicy: {default: 1Gi, validRange: {min: 2Gi, max: 8Gi, step: 1Gi}}}}}]}
                spec.devices[0].capacity[m].requestPolicy.validRange.default: Invalid value: "1Gi": default is less than min: 2Gi
                spec.devices[0].capacity[m].requestPolicy.validRange.max: Invalid value: "8Gi": max is larger than capacity value: 4Gi
            spec: {devices: [{name: d, nodeName: n1, allowMultipleAllocations: true, capacity: {m: {value: 4Gi, requestPolicy: {default: 1500Mi, validRange: {min: 1Gi, step: 1Gi}}}}}]}
                spec.devices[0].capacity[m].requestPolicy.validRange.step: Invalid value: "1500Mi": value is not a multiple of a given step (1Gi) from (1Gi)
            spec: {devices: [{name: d, nodeName: n1, allowMultipleAllocations: true, capacity: {m: {value: 4Gi, requestPolicy: {default: 3Gi, validValues: [2Gi, 1Gi, 8Gi]}}}}]}
                spec.devices[0].capacity[m].requestPolicy.validValues[1]: Invalid value: "1Gi": values must be sorted in ascending order
                spec.devices[0].capacity[m].requestPolicy.validValues[2]: Invalid value: "8Gi": option is larger than capacity value: 4Gi
                spec.devices[0].capacity[m].requestPolicy.validValues: Invalid value: "3Gi": default value is not valid according to the requestPolicy
            spec: {sharedCounters: [{name: cs, counters: {m: {value: 1}}}]}
                spec: Invalid value: "": only one of `sharedCounters` or `devices` is allowed
            spec: {devices: null, sharedCounters: [{}]}
                spec.sharedCounters[0].name: Required value
                spec.sharedCounters[0].counters: Required value
            spec: {perDeviceNodeSelection: false}
                spec.perDeviceNodeSelection: Invalid value: false: must be either unset or set to true
                spec: Required value: exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required
                spec.devices[0]: Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec
            spec: {nodeName: ''}
                spec.nodeName: Invalid value: "": must be either unset or set to a non-empty string
        "#]],
    );
}

#[test]
fn claims() {
    check(
        CLAIM,
        &[
            "spec: {devices: {requests: [{name: r}]}}",
            "spec: {devices: {requests: [{name: r, exactly: {deviceClassName: ''}}, {name: r, exactly: {deviceClassName: c}}]}}",
            "spec: {devices: {requests: [{name: r, exactly: {deviceClassName: c, allocationMode: Some}}]}}",
            "spec: {devices: {requests: [{name: r, exactly: {deviceClassName: c, tolerations: [{key: 'a b', effect: x}]}}]}}",
            "spec: {devices: {constraints: [{}, {matchAttribute: ''}, {distinctAttribute: a, requests: [x]}]}}",
            "spec: {devices: {config: [{opaque: {driver: '', parameters: null}}]}}",
        ],
        expect![[r#"
            spec: {devices: {requests: [{name: r}]}}
                spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required
            spec: {devices: {requests: [{name: r, exactly: {deviceClassName: ''}}, {name: r, exactly: {deviceClassName: c}}]}}
                spec.devices.requests[0].exactly.deviceClassName: Required value
                spec.devices.requests[1]: Duplicate value: {"name":"r","exactly":{"deviceClassName":"c","allocationMode":"ExactCount","count":1}}
            spec: {devices: {requests: [{name: r, exactly: {deviceClassName: c, allocationMode: Some}}]}}
                spec.devices.requests[0].exactly.allocationMode: Unsupported value: "Some": supported values: "All", "ExactCount"
            spec: {devices: {requests: [{name: r, exactly: {deviceClassName: c, tolerations: [{key: 'a b', effect: x}]}}]}}
                spec.devices.requests[0].exactly.tolerations[0].key: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
                spec.devices.requests[0].exactly.tolerations[0].effect: Unsupported value: "x": supported values: "NoExecute", "NoSchedule", "None"
            spec: {devices: {constraints: [{}, {matchAttribute: ''}, {distinctAttribute: a, requests: [x]}]}}
                spec.devices.constraints[0]: Required value: exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set
                spec.devices.constraints[2].requests[0]: Invalid value: "x": must be the name of a request in the claim or the name of a request and a subrequest separated by '/'
                spec.devices.constraints[1].matchAttribute: Invalid value: "": a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')
                spec.devices.constraints[1].matchAttribute: Invalid value: "": a fully qualified name must be a domain and a name separated by a slash
                spec.devices.constraints[2].distinctAttribute: Invalid value: "a": a fully qualified name must be a domain and a name separated by a slash
            spec: {devices: {config: [{opaque: {driver: '', parameters: null}}]}}
                spec.devices.config[0].opaque.parameters: Required value
                spec.devices.config[0].opaque.driver: Required value
        "#]],
    );
}

#[test]
fn allocations() {
    check_update(
        CLAIM,
        Part::Sub("status"),
        &[
            "status: {reservedFor: [{resource: pods, name: p, uid: u}]}",
            "status: {allocation: {devices: {results: [{request: r, driver: a.b, pool: p, device: d}]}}}",
            "status: {allocation: {devices: {results: [{request: x, driver: '', pool: '', device: D}], config: [{source: Else, requests: [z]}]}}}",
            "status: {devices: [{driver: a.b, pool: p, device: d, shareID: x, networkData: {ips: [1.2.3.4]}}]}",
        ],
        expect![[r#"
            status: {reservedFor: [{resource: pods, name: p, uid: u}]}
                status.reservedFor: Forbidden: may not be specified when `allocated` is not set
            status: {allocation: {devices: {results: [{request: r, driver: a.b, pool: p, device: d}]}}}
                fine
            status: {allocation: {devices: {results: [{request: x, driver: '', pool: '', device: D}], config: [{source: Else, requests: [z]}]}}}
                status.allocation.devices.results[0].request: Invalid value: "x": must be the name of a request in the claim or the name of a request and a subrequest separated by '/'
                status.allocation.devices.results[0].device: Invalid value: "D": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
                status.allocation.devices.config[0].requests[0]: Invalid value: "z": must be the name of a request in the claim or the name of a request and a subrequest separated by '/'
                status.allocation.devices.config[0].opaque: Required value
                status.allocation.devices.results[0].driver: Required value
                status.allocation.devices.results[0].pool: Required value
                status.allocation.devices.config[0].source: Unsupported value: "Else": supported values: "FromClaim", "FromClass"
            status: {devices: [{driver: a.b, pool: p, device: d, shareID: x, networkData: {ips: [1.2.3.4]}}]}
                status.devices[0]: Invalid value: {"Driver":"a.b","Pool":"p","Device":"d","ShareID":"x"}: must be an allocated device in the claim
                status.devices[0].networkData.ips[0]: Invalid value: "1.2.3.4": must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)
                status.devices[0].shareID: Invalid value: "x": must be a lowercase UUID in 8-4-4-4-12 format
        "#]],
    );
}
