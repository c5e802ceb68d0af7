//! Services, endpoints, ingresses, policies.
use super::check;
use expect_test::expect;

const SERVICE: &str = "
apiVersion: v1
kind: Service
metadata: {name: a, namespace: default}
spec: {selector: {a: b}, ports: [{port: 80}]}";
const SLICE: &str = "
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: a, namespace: default}
addressType: IPv4
endpoints: [{addresses: [1.2.3.4]}]
ports: [{name: a, port: 80}]";
const INGRESS: &str = "
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: a, namespace: default}
spec: {defaultBackend: {service: {name: s, port: {number: 80}}}}";
const POLICY: &str = "
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: a, namespace: default}
spec: {podSelector: {}}";

#[test]
fn services() {
    check(
        SERVICE,
        &[
            "{}",
            "spec: {ports: []}",
            "spec: {ports: [{port: 80}, {port: 80}]}",
            "spec: {ports: [{port: 0, targetPort: Bad_Name, protocol: ICMP}]}",
            "spec: {type: Sometimes}",
            "spec: {type: ExternalName, externalName: ''}",
            "spec: {type: NodePort, clusterIP: None}",
            "spec: {externalIPs: [127.0.0.1, x]}",
            "spec: {loadBalancerSourceRanges: [10.0.0.0/8]}",
            "spec: {type: LoadBalancer, loadBalancerSourceRanges: [10.0.0.1/8], loadBalancerClass: 'a b'}",
            "spec: {sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 0}}}",
            "spec: {externalTrafficPolicy: Local}",
            "spec: {ports: [{port: 80, nodePort: 30000}]}",
            "spec: {ipFamilies: [IPv5], ipFamilyPolicy: Triple}",
            "spec: {internalTrafficPolicy: Far, trafficDistribution: Near}",
        ],
        expect![[r#"
            {}
                fine
            spec: {ports: []}
                spec.ports: Required value
            spec: {ports: [{port: 80}, {port: 80}]}
                spec.ports[0].name: Required value
                spec.ports[1].name: Required value
                spec.ports[1]: Duplicate value: {"Name":"","Protocol":"TCP","AppProtocol":null,"Port":80,"TargetPort":0,"NodePort":0}
            spec: {ports: [{port: 0, targetPort: Bad_Name, protocol: ICMP}]}
                spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive
                spec.ports[0].protocol: Unsupported value: "ICMP": supported values: "SCTP", "TCP", "UDP"
                spec.ports[0].targetPort: Invalid value: "Bad_Name": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)
            spec: {type: Sometimes}
                spec.type: Unsupported value: "Sometimes": supported values: "ClusterIP", "ExternalName", "LoadBalancer", "NodePort"
            spec: {type: ExternalName, externalName: ''}
                spec.externalName: Required value
            spec: {type: NodePort, clusterIP: None}
                spec.clusterIPs[0]: Invalid value: "None": may not be set to 'None' for NodePort services
            spec: {externalIPs: [127.0.0.1, x]}
                spec.externalIPs[0]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)
                spec.externalIPs[1]: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)
                warning: spec.externalIPs is deprecated and may no longer be implemented in some clusters
            spec: {loadBalancerSourceRanges: [10.0.0.0/8]}
                spec.LoadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'
            spec: {type: LoadBalancer, loadBalancerSourceRanges: [10.0.0.1/8], loadBalancerClass: 'a b'}
                spec.LoadBalancerSourceRanges[0]: Invalid value: "10.0.0.1/8": must not have bits set beyond the prefix length
                spec.loadBalancerClass: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
                warning: spec.loadBalancerSourceRanges[0]: CIDR value "10.0.0.1/8" is ambiguous in this context (should be "10.0.0.0/8" or "10.0.0.1/32"?)
            spec: {sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 0}}}
                spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 0: must be greater than 0 and less than 86400
            spec: {externalTrafficPolicy: Local}
                spec.externalTrafficPolicy: Invalid value: "Local": may only be set for externally-accessible services
            spec: {ports: [{port: 80, nodePort: 30000}]}
                spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'
            spec: {ipFamilies: [IPv5], ipFamilyPolicy: Triple}
                spec.ipFamilies[0]: Unsupported value: "IPv5": supported values: "IPv4", "IPv6"
                spec.ipFamilyPolicy: Unsupported value: "Triple": supported values: "PreferDualStack", "RequireDualStack", "SingleStack"
            spec: {internalTrafficPolicy: Far, trafficDistribution: Near}
                spec.internalTrafficPolicy: Unsupported value: "Far": supported values: "Cluster", "Local"
                spec.trafficDistribution: Unsupported value: "Near": supported values: "PreferClose", "PreferSameZone", "PreferSameNode"
        "#]],
    );
}

#[test]
fn endpoint_slices() {
    check(
        SLICE,
        &[
            "{}",
            "addressType: null",
            "addressType: IPv6",
            "endpoints: [{addresses: [127.0.0.1]}]",
            "endpoints: [{}]",
            "ports: [{name: A_B, protocol: ICMP}]",
        ],
        expect![[r#"
            {}
                fine
            addressType: null
                addressType: Required value
            addressType: IPv6
                endpoints[0].addresses: Invalid value: "1.2.3.4": must be an IPv6 address
            endpoints: [{addresses: [127.0.0.1]}]
                endpoints[0].addresses[0]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)
            endpoints: [{}]
                endpoints[0].addresses: Required value
            ports: [{name: A_B, protocol: ICMP}]
                ports[0].name: Invalid value: "A_B": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
                ports[0].protocol: Unsupported value: "ICMP": supported values: "SCTP", "TCP", "UDP"
        "#]],
    );
}

#[test]
fn ingresses() {
    check(
        INGRESS,
        &[
            "{}",
            "spec: {defaultBackend: null}",
            "spec: {defaultBackend: {service: {name: s, port: {number: 80, name: a}}}}",
            "spec: {rules: [{host: 1.2.3.4}, {host: '*.*.b'}]}",
            "spec: {rules: [{http: {paths: [{path: x, pathType: Prefix, backend: {}}]}}]}",
            "spec: {rules: [{http: {paths: [{path: //x, pathType: Exact, backend: {resource: {kind: K, name: thing}}}, {backend: {}}]}}]}",
            "spec: {tls: [{hosts: ['a b'], secretName: A_B}]}",
        ],
        expect![[r#"
            {}
                fine
            spec: {defaultBackend: null}
                spec: Invalid value: null: either `defaultBackend` or `rules` must be specified
            spec: {defaultBackend: {service: {name: s, port: {number: 80, name: a}}}}
                spec.defaultBackend: Invalid value: "": cannot set both port name & port number
            spec: {rules: [{host: 1.2.3.4}, {host: '*.*.b'}]}
                spec.rules[0].host: Invalid value: "1.2.3.4": must be a DNS name, not an IP address
                spec.rules[1].host: Invalid value: "*.*.b": a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used for validation is '\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
            spec: {rules: [{http: {paths: [{path: x, pathType: Prefix, backend: {}}]}}]}
                spec.rules[0].http.paths[0].path: Invalid value: "x": must be an absolute path
                spec.rules[0].http.paths[0].backend: Invalid value: "": resource or service backend is required
            spec: {rules: [{http: {paths: [{path: //x, pathType: Exact, backend: {resource: {kind: K, name: thing}}}, {backend: {}}]}}]}
                spec.rules[0].http.paths[0].path: Invalid value: "//x": must not contain '//'
                spec.rules[0].http.paths[1].pathType: Required value: pathType must be specified
            spec: {tls: [{hosts: ['a b'], secretName: A_B}]}
                spec.tls[0].hosts[0]: Invalid value: "a b": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
                spec.tls[0].secretName: Invalid value: "A_B": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
        "#]],
    );
}

#[test]
fn network_policies() {
    check(
        POLICY,
        &[
            "{}",
            "spec: {ingress: [{from: [{}]}]}",
            "spec: {ingress: [{from: [{podSelector: {}, ipBlock: {cidr: 10.0.0.0/8}}]}]}",
            "spec: {egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.0.0.0/8, 11.0.0.0/16]}}]}]}",
            "spec: {ingress: [{ports: [{port: 80, endPort: 70}, {endPort: 5}, {port: Bad_Name}]}]}",
            "spec: {policyTypes: [Sideways]}",
        ],
        expect![[r#"
            {}
                fine
            spec: {ingress: [{from: [{}]}]}
                spec.ingress[0].from[0]: Required value: must specify a peer
            spec: {ingress: [{from: [{podSelector: {}, ipBlock: {cidr: 10.0.0.0/8}}]}]}
                spec.ingress[0].from[0]: Forbidden: may not specify both ipBlock and another peer
            spec: {egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.0.0.0/8, 11.0.0.0/16]}}]}]}
                spec.egress[0].to[0].ipBlock.except[0]: Invalid value: "10.0.0.0/8": must be a strict subset of `cidr`
                spec.egress[0].to[0].ipBlock.except[1]: Invalid value: "11.0.0.0/16": must be a strict subset of `cidr`
            spec: {ingress: [{ports: [{port: 80, endPort: 70}, {endPort: 5}, {port: Bad_Name}]}]}
                spec.ingress[0].ports[0].endPort: Invalid value: 70: must be greater than or equal to `port`
                spec.ingress[0].ports[1].endPort: Invalid value: 5: may not be specified when `port` is not specified
                spec.ingress[0].ports[2].port: Invalid value: "Bad_Name": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)
            spec: {policyTypes: [Sideways]}
                spec.policyTypes[0]: Unsupported value: "Sideways": supported values: "Ingress", "Egress"
        "#]],
    );
}
