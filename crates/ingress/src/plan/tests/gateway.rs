//! Gateways and routes as people write them, what they come to, and what is said about them.
use super::*;
use serde_json::Value;

const COMMON: &str = "
kind: GatewayClass
metadata: {name: skiff}
spec: {controllerName: skiff.dev/gateway}
---
kind: GatewayClass
metadata: {name: other}
spec: {controllerName: example.com/other}
---
kind: Namespace
metadata: {name: default, labels: {team: a}}
---
kind: Namespace
metadata: {name: elsewhere, labels: {team: b}}
---
kind: Service
metadata: {name: web}
spec: {ports: [{name: http, port: 80}]}
---
kind: Service
metadata: {name: web, namespace: elsewhere}
spec: {ports: [{name: http, port: 80}]}
---
kind: Node
metadata: {name: one, labels: {skiff.dev/ingress: 'true'}}
status:
  addresses: [{type: InternalIP, address: 192.0.2.1}]
  conditions: [{type: Ready, status: 'True'}]
";

fn check(yaml: &str, expected: Expect) {
    let world = world(&format!("{COMMON}---\n{yaml}"));
    let plan = plan(&world, Ports { http: 80, https: 443 }, NOW);
    expected.assert_eq(&said(&plan));
}

/// Ports and rules, and of statuses every condition as `Accepted` or `!Accepted(Reason)`.
fn said(plan: &Plan) -> String {
    let mut text = String::new();
    for (number, port) in &plan.table.ports {
        let _ = writeln!(text, "{number} {}", if port.tls.is_some() { "TLS" } else { "plain" });
        describe_port(&mut text, port);
        let passed = port.tls.iter().flat_map(|tls| tls.passed.of("a.com"));
        for action in passed {
            let _ = writeln!(text, "  passed to {}", describe_action(action));
        }
    }
    for Status { kind, key, status } in &plan.statuses {
        if *kind == Kind::GatewayClass {
            continue;
        }
        let _ = write!(text, "{} {key}:", kind.name());
        let _ = writeln!(text, "{}", conditions(status));
        for listener in status["listeners"].as_array().into_iter().flatten() {
            let kinds = listener["supportedKinds"].as_array().expect("kinds");
            let kinds: Vec<_> = kinds.iter().filter_map(|kind| kind["kind"].as_str()).collect();
            let _ = writeln!(
                text,
                "  {} {} [{}]{}",
                listener["name"].as_str().expect("a name"),
                listener["attachedRoutes"],
                kinds.join(" "),
                conditions(listener)
            );
        }
        for list in ["parents", "ancestors"] {
            for parent in status[list].as_array().into_iter().flatten() {
                let of =
                    if list == "parents" { &parent["parentRef"] } else { &parent["ancestorRef"] };
                let name = of["name"].as_str().expect("a name");
                let section = of["sectionName"].as_str().map(|name| format!("/{name}"));
                let _ =
                    writeln!(text, "  {name}{}{}", section.unwrap_or_default(), conditions(parent));
            }
        }
    }
    text
}

fn conditions(of: &Value) -> String {
    let mut text = String::new();
    for one in of["conditions"].as_array().into_iter().flatten() {
        let (kind, reason) = (one["type"].as_str().expect("a type"), one["reason"].as_str());
        let reason = reason.expect("a reason");
        let _ = match one["status"].as_str() {
            Some("True") if reason == kind => write!(text, " {kind}"),
            Some("True") => write!(text, " {kind}({reason})"),
            _ if kind == "Conflicted" => Ok(()),
            _ => write!(text, " !{kind}({reason})"),
        };
    }
    text
}

#[test]
fn a_route_is_behind_the_listeners_that_share_a_host_with_it() {
    check(
        "
kind: Gateway
metadata: {name: gate}
spec:
  gatewayClassName: skiff
  listeners:
  - {name: all, port: 80, protocol: HTTP}
  - {name: some, port: 80, protocol: HTTP, hostname: '*.a.com'}
  - {name: secure, port: 443, protocol: HTTPS, hostname: a.com, tls: {certificateRefs: [{name: pair}]}}
---
kind: Secret
metadata: {name: pair}
---
kind: HTTPRoute
metadata: {name: everywhere}
spec:
  parentRefs: [{name: gate}]
  hostnames: [x.a.com, b.com]
  rules:
  - backendRefs: [{name: web, port: 80, weight: 3}, {name: missing, port: 80}]
---
kind: HTTPRoute
metadata: {name: one, labels: {skiff.dev/ingress: 'true'}}
spec:
  parentRefs: [{name: gate, sectionName: secure}, {name: gate, sectionName: other}, {name: gate, port: 80, sectionName: secure}]
  rules:
  - matches:
    - {path: {type: Exact, value: /x}, method: GET}
    - {path: {type: PathPrefix, value: /y}}
    filters: [{type: RequestRedirect, requestRedirect: {scheme: http, statusCode: 301}}]
---
kind: HTTPRoute
metadata: {name: nowhere}
spec: {parentRefs: [{name: gate, sectionName: some}], hostnames: [c.com]}
---
kind: HTTPRoute
metadata: {name: theirs}
spec: {parentRefs: [{name: unknown}]}
",
        expect![[r#"
            80 plain
              x.a.com / -> 3*default/web:80 1*500
              x.a.com / -> 3*default/web:80 1*500
              b.com / -> 3*default/web:80 1*500
            443 TLS
              certificate of a.com: default/pair
              a.com =/x GET -> Redirect(Redirect { scheme: Some("http"), host: None, port: None, path: None, code: 301 })
              a.com /y -> Redirect(Redirect { scheme: Some("http"), host: None, port: None, path: None, code: 301 })
            HTTPRoute default/everywhere:
              gate Accepted !ResolvedRefs(BackendNotFound)
            HTTPRoute default/nowhere:
              gate/some !Accepted(NoMatchingListenerHostname) ResolvedRefs
            HTTPRoute default/one:
              gate/secure Accepted ResolvedRefs
              gate/other !Accepted(NoMatchingParent) ResolvedRefs
              gate/secure !Accepted(NoMatchingParent) ResolvedRefs
            Gateway default/gate: Accepted Programmed
              all 1 [HTTPRoute GRPCRoute] Accepted Programmed ResolvedRefs
              some 1 [HTTPRoute GRPCRoute] Accepted Programmed ResolvedRefs
              secure 1 [HTTPRoute GRPCRoute] Accepted Programmed ResolvedRefs
        "#]],
    );
}

#[test]
fn what_is_in_another_namespace_has_to_be_granted() {
    let route = |extra: &str| {
        format!(
            "
kind: Gateway
metadata: {{name: gate}}
spec:
  gatewayClassName: skiff
  listeners:
  - {{name: secure, port: 443, protocol: HTTPS, tls: {{certificateRefs: [{{name: pair, namespace: elsewhere}}]}}, allowedRoutes: {{namespaces: {{from: Selector, selector: {{matchLabels: {{team: a}}}}}}}}}}
---
kind: Secret
metadata: {{name: pair, namespace: elsewhere}}
---
kind: HTTPRoute
metadata: {{name: near}}
spec:
  parentRefs: [{{name: gate}}]
  rules: [{{backendRefs: [{{name: web, namespace: elsewhere, port: 80}}]}}]
---
kind: HTTPRoute
metadata: {{name: far, namespace: elsewhere}}
spec:
  parentRefs: [{{name: gate, namespace: default}}]
  rules: [{{backendRefs: [{{name: web, port: 80}}]}}]
{extra}"
        )
    };
    check(
        &route(""),
        expect![[r#"
        HTTPRoute default/near:
          gate Accepted !ResolvedRefs(RefNotPermitted)
        HTTPRoute elsewhere/far:
          gate !Accepted(NotAllowedByListeners) ResolvedRefs
        Gateway default/gate: !Accepted(ListenersNotValid) !Programmed(Invalid)
          secure 1 [HTTPRoute GRPCRoute] Accepted !Programmed(Invalid) !ResolvedRefs(RefNotPermitted)
    "#]],
    );
    check(
        &route(
            "---
kind: ReferenceGrant
metadata: {name: grant, namespace: elsewhere}
spec:
  from:
  - {group: gateway.networking.k8s.io, kind: Gateway, namespace: default}
  - {group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: default}
  to: [{group: '', kind: Secret, name: pair}, {group: '', kind: Service}]
",
        ),
        expect![[r#"
            443 TLS
              certificate of a.com: elsewhere/pair
              certificate of x.a.com: elsewhere/pair
              certificate of y.x.a.com: elsewhere/pair
              certificate of other: elsewhere/pair
              * / -> elsewhere/web:80
            HTTPRoute default/near:
              gate Accepted ResolvedRefs
            HTTPRoute elsewhere/far:
              gate !Accepted(NotAllowedByListeners) ResolvedRefs
            Gateway default/gate: Accepted Programmed
              secure 1 [HTTPRoute GRPCRoute] Accepted Programmed ResolvedRefs
        "#]],
    );
    // From the one to the other, and not the other way round.
    check(
        &route(
            "---
kind: ReferenceGrant
metadata: {name: grant, namespace: default}
spec:
  from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: elsewhere}]
  to: [{group: '', kind: Service}]
",
        ),
        expect![[r#"
            HTTPRoute default/near:
              gate Accepted !ResolvedRefs(RefNotPermitted)
            HTTPRoute elsewhere/far:
              gate !Accepted(NotAllowedByListeners) ResolvedRefs
            Gateway default/gate: !Accepted(ListenersNotValid) !Programmed(Invalid)
              secure 1 [HTTPRoute GRPCRoute] Accepted !Programmed(Invalid) !ResolvedRefs(RefNotPermitted)
        "#]],
    );
}

#[test]
fn listeners_that_cannot_be_served_say_why() {
    check(
        "
kind: Gateway
metadata: {name: gate}
spec:
  gatewayClassName: skiff
  listeners:
  - {name: good, port: 8080, protocol: HTTP, allowedRoutes: {kinds: [{kind: HTTPRoute}, {kind: TCPRoute}]}}
  - {name: same, port: 8080, protocol: HTTP}
  - {name: other, port: 8080, protocol: HTTPS, hostname: x, tls: {certificateRefs: [{name: pair}]}}
  - {name: udp, port: 53, protocol: UDP}
  - {name: missing, port: 8443, protocol: HTTPS, tls: {certificateRefs: [{name: absent}]}}
  - {name: odd, port: 8444, protocol: HTTPS, tls: {certificateRefs: [{name: pair, kind: ConfigMap}]}}
  - {name: ended, port: 8445, protocol: TLS, tls: {mode: Terminate, certificateRefs: [{name: pair}]}}
---
kind: Gateway
metadata: {name: late, creationTimestamp: '2026-01-01T00:00:00Z'}
spec:
  gatewayClassName: skiff
  listeners: [{name: taken, port: 8080, protocol: TLS, tls: {mode: Passthrough}}]
---
kind: Gateway
metadata: {name: away}
spec:
  gatewayClassName: skiff
  addresses: [{value: 198.51.100.1}]
  listeners: [{name: http, port: 80, protocol: HTTP}]
---
kind: Gateway
metadata: {name: theirs}
spec: {gatewayClassName: other, listeners: [{name: http, port: 81, protocol: HTTP}]}
---
kind: Secret
metadata: {name: pair}
",
        expect![[r#"
            80 plain
            8080 plain
            Gateway default/away: Accepted !Programmed(AddressNotUsable)
              http 0 [HTTPRoute GRPCRoute] Accepted Programmed ResolvedRefs
            Gateway default/gate: Accepted(ListenersNotValid) Programmed
              good 0 [HTTPRoute] Accepted Programmed !ResolvedRefs(InvalidRouteKinds)
              same 0 [HTTPRoute GRPCRoute] !Accepted(HostnameConflict) !Programmed(Invalid) ResolvedRefs Conflicted(HostnameConflict)
              other 0 [HTTPRoute GRPCRoute] !Accepted(ProtocolConflict) !Programmed(Invalid) ResolvedRefs Conflicted(ProtocolConflict)
              udp 0 [] !Accepted(UnsupportedProtocol) !Programmed(Invalid) ResolvedRefs
              missing 0 [HTTPRoute GRPCRoute] Accepted !Programmed(Invalid) !ResolvedRefs(InvalidCertificateRef)
              odd 0 [HTTPRoute GRPCRoute] Accepted !Programmed(Invalid) !ResolvedRefs(InvalidCertificateRef)
              ended 0 [TLSRoute] !Accepted(UnsupportedValue) !Programmed(Invalid) ResolvedRefs
            Gateway default/late: !Accepted(ListenersNotValid) !Programmed(Invalid)
              taken 0 [TLSRoute] !Accepted(PortUnavailable) !Programmed(Invalid) ResolvedRefs
        "#]],
    );
}

#[test]
fn methods_of_grpc_are_paths_and_tls_is_passed_on() {
    check(
        "
kind: Gateway
metadata: {name: gate}
spec:
  gatewayClassName: skiff
  listeners:
  - {name: http, port: 80, protocol: HTTP}
  - {name: tls, port: 443, protocol: TLS, hostname: '*.com', tls: {mode: Passthrough}}
---
kind: GRPCRoute
metadata: {name: grpc}
spec:
  parentRefs: [{name: gate}]
  rules:
  - matches:
    - {method: {service: a.B, method: C}}
    - {method: {service: a.B}}
    - {method: {method: D}}
    backendRefs: [{name: web, port: 80}]
---
kind: TLSRoute
metadata: {name: tls}
spec:
  parentRefs: [{name: gate}]
  hostnames: [a.com]
  rules: [{backendRefs: [{name: web, port: 80}]}]
",
        expect![[r#"
            80 plain
              * =/a.B/C -> default/web:80 h2
              * /a.B -> default/web:80 h2
              * ~/[^/]+/D -> default/web:80 h2
            443 TLS
              passed to default/web:80 bytes
            GRPCRoute default/grpc:
              gate Accepted ResolvedRefs
            TLSRoute default/tls:
              gate Accepted ResolvedRefs
            Gateway default/gate: Accepted Programmed
              http 1 [HTTPRoute GRPCRoute] Accepted Programmed ResolvedRefs
              tls 1 [TLSRoute] Accepted Programmed ResolvedRefs
        "#]],
    );
}

#[test]
fn what_is_not_understood_is_not_served_as_if_it_were() {
    check(
        "
kind: Gateway
metadata: {name: gate}
spec: {gatewayClassName: skiff, listeners: [{name: http, port: 80, protocol: HTTP}]}
---
kind: HTTPRoute
metadata: {name: all}
spec:
  parentRefs: [{name: gate}]
  rules: [{filters: [{type: ExtensionRef}], backendRefs: [{name: web, port: 80}]}]
---
kind: HTTPRoute
metadata: {name: half}
spec:
  parentRefs: [{name: gate}]
  rules:
  - {filters: [{type: ExtensionRef}], matches: [{path: {value: /odd}}], backendRefs: [{name: web, port: 80}]}
  - {matches: [{path: {value: /good}}], backendRefs: [{name: web, port: 80}, {name: x, kind: Bucket, group: a.io}]}
",
        expect![[r#"
            80 plain
              * /good -> 1*default/web:80 1*500
            HTTPRoute default/all:
              gate !Accepted(UnsupportedValue) ResolvedRefs
            HTTPRoute default/half:
              gate Accepted !ResolvedRefs(InvalidKind) PartiallyInvalid(UnsupportedValue)
            Gateway default/gate: Accepted Programmed
              http 1 [HTTPRoute GRPCRoute] Accepted Programmed ResolvedRefs
        "#]],
    );
}

#[test]
fn pods_prove_who_they_are_where_a_policy_wants_it() {
    check(
        "
kind: Gateway
metadata: {name: gate}
spec: {gatewayClassName: skiff, listeners: [{name: http, port: 80, protocol: HTTP}]}
---
kind: HTTPRoute
metadata: {name: route}
spec:
  parentRefs: [{name: gate}]
  rules: [{backendRefs: [{name: web, port: 80}]}]
---
kind: BackendTLSPolicy
metadata: {name: policy}
spec:
  targetRefs: [{group: '', kind: Service, name: web, sectionName: http}]
  validation: {hostname: web.test, wellKnownCACertificates: System}
---
kind: BackendTLSPolicy
metadata: {name: younger, creationTimestamp: '2026-01-01T00:00:00Z'}
spec:
  targetRefs: [{group: '', kind: Service, name: web, sectionName: http}]
  validation: {hostname: other.test, wellKnownCACertificates: System}
---
kind: BackendTLSPolicy
metadata: {name: broken}
spec:
  targetRefs: [{group: '', kind: Service, name: other}]
  validation: {hostname: web.test, caCertificateRefs: [{group: '', kind: ConfigMap, name: absent}]}
",
        expect![[r#"
            80 plain
              * / -> default/web:80 tls=web.test
            HTTPRoute default/route:
              gate Accepted ResolvedRefs
            BackendTLSPolicy default/broken:
              gate !Accepted(NoValidCACertificate) !ResolvedRefs(InvalidCACertificateRef)
            BackendTLSPolicy default/policy:
              gate Accepted ResolvedRefs
            BackendTLSPolicy default/younger:
              gate !Accepted(Conflicted) ResolvedRefs
            Gateway default/gate: Accepted Programmed
              http 1 [HTTPRoute GRPCRoute] Accepted Programmed ResolvedRefs
        "#]],
    );
}

#[test]
fn what_is_said_is_not_said_again_and_others_keep_their_words() {
    let yaml = "
kind: Gateway
metadata: {name: gate}
spec: {gatewayClassName: skiff, listeners: [{name: http, port: 80, protocol: HTTP}]}
---
kind: HTTPRoute
metadata: {name: route}
spec: {parentRefs: [{name: gate}], rules: [{backendRefs: [{name: web, port: 80}]}]}
status: {parents: [{parentRef: {name: x}, controllerName: example.com/other, conditions: []}]}
";
    let mut known = world(&format!("{COMMON}---\n{yaml}"));
    let first = plan(&known, Ports { http: 80, https: 443 }, NOW);
    assert_eq!(first.statuses.len(), 3);
    for Status { kind, key, status } in first.statuses {
        let objects = &mut known.gateway;
        match kind {
            Kind::GatewayClass => {
                let class = objects.classes.get_mut(&*key.name).and_then(Arc::get_mut);
                class.expect("a class").status = status;
            }
            Kind::Gateway => {
                let gateway = objects.gateways.get_mut(&key).and_then(Arc::get_mut);
                gateway.expect("a gateway").status = status;
            }
            Kind::HttpRoute => {
                assert_eq!(status["parents"][0]["controllerName"], "example.com/other");
                assert_eq!(status["parents"][1]["controllerName"], "skiff.dev/gateway");
                let route = objects.http_routes.get_mut(&key).and_then(Arc::get_mut);
                route.expect("a route").status = status;
            }
            kind => panic!("nothing is said about a {kind:?}"),
        }
    }
    let again = plan(&known, Ports { http: 80, https: 443 }, "2027-01-01T00:00:00Z");
    assert_eq!(again.statuses, []);
    // Another parent says it: what we said goes.
    let route = known.gateway.http_routes.values_mut().next().and_then(Arc::get_mut);
    route.expect("a route").spec.parent_refs.clear();
    let gone = plan(&known, Ports { http: 80, https: 443 }, NOW);
    let of_route = gone.statuses.iter().find(|status| status.kind == Kind::HttpRoute);
    let parents = of_route.map(|status| status.status["parents"].as_array().map(Vec::len));
    assert_eq!(parents, Some(Some(1)));
}
