//! Gateways and routes as people write them, what they come to, and what is said about them.
use super::*;
use crate::table::{Inside, Site, Taker};
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
    check_with("", yaml, expected);
}

/// With addresses that Gateways get.
fn check_with(pool: &str, yaml: &str, expected: Expect) {
    let world = world(&format!("{COMMON}---\n{yaml}"));
    let places = Places { pool: pool.parse().expect("a pool"), ..places() };
    let plan = plan(&world, &places, NOW);
    expected.assert_eq(&said(&plan));
}

/// Ports and rules, and of statuses every condition as `Accepted` or `!Accepted(Reason)`.
fn said(plan: &Plan) -> String {
    let mut text = String::new();
    let place = |site: &Site| match site.address {
        Some(address) => format!("{address}:{}", site.port),
        None => site.port.to_string(),
    };
    let taken = |taker: &Taker| {
        taker.0.as_ref().map_or_else(|| "nobody".to_owned(), |action| describe_action(action))
    };
    for (site, port) in &plan.table.ports {
        let kind = match (&port.taker, &port.tls) {
            (Some(taker), _) => format!("all to {}", taken(taker)),
            (None, Some(_)) => "TLS".to_owned(),
            (None, None) => "plain".to_owned(),
        };
        let _ = writeln!(text, "{} {kind}", place(site));
        describe_port(&mut text, port);
        let passed = port.tls.iter().filter_map(|tls| Some((tls, tls.taker("a.com")?)));
        for (tls, action) in passed {
            let inside = tls.listener("a.com").map(|listener| listener.inside);
            let how = if inside == Some(Inside::Bytes) { "ended, then " } else { "" };
            let _ = writeln!(text, "  {how}passed to {}", describe_action(action));
        }
    }
    for (site, taker) in &plan.table.datagrams {
        let _ = writeln!(text, "{} datagrams to {}", place(site), taken(taker));
    }
    for Status { kind, key, status } in &plan.statuses {
        if *kind == Kind::GatewayClass {
            continue;
        }
        let _ = write!(text, "{} {key}:", kind.name());
        let _ = writeln!(text, "{}", conditions(status));
        if let Some(sets) = status["attachedListenerSets"].as_u64() {
            let _ = writeln!(text, "  {sets} sets");
        }
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
            8080 TLS
            8445 TLS
              certificate of a.com: default/pair
              certificate of x.a.com: default/pair
              certificate of y.x.a.com: default/pair
              certificate of other: default/pair
            53 datagrams to nobody
            Gateway default/away: Accepted !Programmed(AddressNotUsable)
              http 0 [HTTPRoute GRPCRoute] Accepted Programmed ResolvedRefs
            Gateway default/gate: Accepted(ListenersNotValid) Programmed
              good 0 [HTTPRoute] !Accepted(HostnameConflict) !Programmed(HostnameConflict) !ResolvedRefs(InvalidRouteKinds) Conflicted(HostnameConflict)
              same 0 [HTTPRoute GRPCRoute] !Accepted(HostnameConflict) !Programmed(HostnameConflict) ResolvedRefs Conflicted(HostnameConflict)
              other 0 [HTTPRoute GRPCRoute] !Accepted(ProtocolConflict) !Programmed(ProtocolConflict) ResolvedRefs Conflicted(ProtocolConflict)
              udp 0 [UDPRoute] Accepted Programmed ResolvedRefs
              missing 0 [HTTPRoute GRPCRoute] Accepted !Programmed(Invalid) !ResolvedRefs(InvalidCertificateRef)
              odd 0 [HTTPRoute GRPCRoute] Accepted !Programmed(Invalid) !ResolvedRefs(InvalidCertificateRef)
              ended 0 [TLSRoute] Accepted Programmed ResolvedRefs
            Gateway default/late: Accepted Programmed
              taken 0 [TLSRoute] Accepted Programmed ResolvedRefs
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
    let first = plan(&known, &places(), NOW);
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
    let again = plan(&known, &places(), "2027-01-01T00:00:00Z");
    assert_eq!(again.statuses, []);
    // Another parent says it: what we said goes.
    let route = known.gateway.http_routes.values_mut().next().and_then(Arc::get_mut);
    route.expect("a route").spec.parent_refs.clear();
    let gone = plan(&known, &places(), NOW);
    let of_route = gone.statuses.iter().find(|status| status.kind == Kind::HttpRoute);
    let parents = of_route.map(|status| status.status["parents"].as_array().map(Vec::len));
    assert_eq!(parents, Some(Some(1)));
}

#[test]
fn sets_add_listeners_where_their_gateway_lets_them() {
    check(
        "
kind: Gateway
metadata: {name: gate}
spec:
  gatewayClassName: skiff
  allowedListeners: {namespaces: {from: Selector, selector: {matchLabels: {team: b}}}}
  listeners: [{name: http, port: 80, protocol: HTTP, hostname: own.com}]
---
kind: ListenerSet
metadata: {name: added, namespace: elsewhere}
spec:
  parentRef: {name: gate, namespace: default}
  listeners:
  - {name: http, port: 80, protocol: HTTP, hostname: added.com}
  - {name: lost, port: 80, protocol: HTTP, hostname: own.com}
  - {name: bytes, port: 80, protocol: TCP}
  - {name: secure, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: pair}]}}
  - {name: not-ours, port: 444, protocol: HTTPS, tls: {certificateRefs: [{name: theirs, namespace: default}]}}
---
kind: ListenerSet
metadata: {name: younger, namespace: elsewhere, creationTimestamp: '2026-01-01T00:00:00Z'}
spec:
  parentRef: {name: gate, namespace: default}
  listeners: [{name: http, port: 80, protocol: HTTP, hostname: added.com}]
---
kind: ListenerSet
metadata: {name: stranger}
spec:
  parentRef: {name: gate}
  listeners: [{name: http, port: 81, protocol: HTTP}]
---
kind: ListenerSet
metadata: {name: nobody-s}
spec: {parentRef: {name: unknown}, listeners: [{name: http, port: 82, protocol: HTTP}]}
---
kind: Secret
metadata: {name: pair, namespace: elsewhere}
---
kind: Secret
metadata: {name: theirs}
---
# What the Gateway may have, its sets may not.
kind: ReferenceGrant
metadata: {name: grant}
spec:
  from: [{group: gateway.networking.k8s.io, kind: Gateway, namespace: elsewhere}]
  to: [{group: '', kind: Secret}]
---
kind: HTTPRoute
metadata: {name: route, namespace: elsewhere}
spec:
  parentRefs:
  - {name: added, kind: ListenerSet, group: gateway.networking.k8s.io}
  - {name: added, kind: ListenerSet, group: gateway.networking.k8s.io, sectionName: missing}
  - {name: gate, namespace: default, sectionName: secure}
  - {name: stranger, namespace: default, kind: ListenerSet, group: gateway.networking.k8s.io}
  rules: [{backendRefs: [{name: web, port: 80}]}]
---
kind: HTTPRoute
metadata: {name: far}
spec:
  parentRefs: [{name: added, namespace: elsewhere, kind: ListenerSet, group: gateway.networking.k8s.io}]
  rules: [{backendRefs: [{name: web, port: 80}]}]
",
        expect![[r#"
            80 plain
              added.com / -> elsewhere/web:80
            443 TLS
              certificate of a.com: elsewhere/pair
              certificate of x.a.com: elsewhere/pair
              certificate of y.x.a.com: elsewhere/pair
              certificate of other: elsewhere/pair
              * / -> elsewhere/web:80
            HTTPRoute default/far:
              added !Accepted(NotAllowedByListeners) ResolvedRefs
            HTTPRoute elsewhere/route:
              added Accepted ResolvedRefs
              added/missing !Accepted(NoMatchingParent) ResolvedRefs
              gate/secure !Accepted(NoMatchingParent) ResolvedRefs
              stranger !Accepted(NoMatchingParent) ResolvedRefs
            ListenerSet default/stranger: !Accepted(NotAllowed) !Programmed(NotAllowed)
            ListenerSet elsewhere/added: Accepted(ListenersNotValid) Programmed
              http 1 [HTTPRoute GRPCRoute] Accepted Programmed ResolvedRefs
              lost 1 [HTTPRoute GRPCRoute] !Accepted(HostnameConflict) !Programmed(HostnameConflict) ResolvedRefs Conflicted(HostnameConflict)
              bytes 0 [TCPRoute] !Accepted(ProtocolConflict) !Programmed(ProtocolConflict) ResolvedRefs Conflicted(ProtocolConflict)
              secure 1 [HTTPRoute GRPCRoute] Accepted Programmed ResolvedRefs
              not-ours 1 [HTTPRoute GRPCRoute] Accepted !Programmed(Invalid) !ResolvedRefs(RefNotPermitted)
            ListenerSet elsewhere/younger: !Accepted(ListenersNotValid) !Programmed(ListenersNotValid)
              http 0 [HTTPRoute GRPCRoute] !Accepted(HostnameConflict) !Programmed(HostnameConflict) ResolvedRefs Conflicted(HostnameConflict)
            Gateway default/gate: Accepted Programmed
              1 sets
              http 0 [HTTPRoute GRPCRoute] Accepted Programmed ResolvedRefs
        "#]],
    );
}

#[test]
fn connections_and_datagrams_go_to_the_oldest_route_whole() {
    check(
        "
kind: Service
metadata: {name: both}
spec: {ports: [{name: tcp, port: 53}, {name: udp, port: 53, protocol: UDP}, {name: web, port: 80}]}
---
kind: Gateway
metadata: {name: gate}
spec:
  gatewayClassName: skiff
  listeners:
  - {name: tcp, port: 53, protocol: TCP}
  - {name: udp, port: 53, protocol: UDP}
  - {name: empty, port: 54, protocol: TCP}
  - {name: http, port: 80, protocol: HTTP}
---
kind: Gateway
metadata: {name: late, creationTimestamp: '2026-01-01T00:00:00Z'}
spec:
  gatewayClassName: skiff
  listeners:
  - {name: tcp, port: 53, protocol: TCP}
  - {name: udp, port: 53, protocol: UDP}
  - {name: http, port: 54, protocol: HTTP}
  - {name: over-http, port: 80, protocol: TCP}
---
kind: TCPRoute
metadata: {name: younger, creationTimestamp: '2026-01-01T00:00:00Z'}
spec: {parentRefs: [{name: gate, sectionName: tcp}], rules: [{backendRefs: [{name: web, port: 80}]}]}
---
kind: TCPRoute
metadata: {name: zz-oldest}
spec:
  parentRefs: [{name: gate, port: 53}, {name: gate, sectionName: http}]
  rules: [{backendRefs: [{name: both, port: 53, weight: 9}, {name: web, namespace: elsewhere, port: 80}]}]
---
kind: UDPRoute
metadata: {name: udp}
spec: {parentRefs: [{name: gate}], rules: [{backendRefs: [{name: both, port: 53}]}]}
---
kind: UDPRoute
metadata: {name: wrong, creationTimestamp: '2026-01-01T00:00:00Z'}
spec: {parentRefs: [{name: gate}], rules: [{backendRefs: [{name: both, port: 80}]}]}
",
        expect![[r#"
            53 all to 9*default/both:53 bytes 1*500
            54 all to nobody
            80 plain
            53 datagrams to default/both:53 datagrams
            UDPRoute default/udp:
              gate Accepted ResolvedRefs
            TCPRoute default/zz-oldest:
              gate Accepted !ResolvedRefs(RefNotPermitted)
              gate/http !Accepted(NotAllowedByListeners) !ResolvedRefs(RefNotPermitted)
            UDPRoute default/wrong:
              gate Accepted !ResolvedRefs(BackendNotFound)
            TCPRoute default/younger:
              gate/tcp Accepted ResolvedRefs
            Gateway default/gate: Accepted Programmed
              tcp 2 [TCPRoute] Accepted Programmed ResolvedRefs
              udp 2 [UDPRoute] Accepted Programmed ResolvedRefs
              empty 0 [TCPRoute] Accepted Programmed ResolvedRefs
              http 0 [HTTPRoute GRPCRoute] Accepted Programmed ResolvedRefs
            Gateway default/late: !Accepted(ListenersNotValid) !Programmed(Invalid)
              tcp 0 [TCPRoute] !Accepted(PortUnavailable) !Programmed(PortUnavailable) ResolvedRefs
              udp 0 [UDPRoute] !Accepted(PortUnavailable) !Programmed(PortUnavailable) ResolvedRefs
              http 0 [HTTPRoute GRPCRoute] !Accepted(PortUnavailable) !Programmed(PortUnavailable) ResolvedRefs
              over-http 0 [TCPRoute] !Accepted(PortUnavailable) !Programmed(PortUnavailable) ResolvedRefs
        "#]],
    );
}

#[test]
fn with_a_pool_gateways_are_strangers_to_each_other() {
    check_with(
        "198.51.100.1-198.51.100.2",
        "
kind: Gateway
metadata: {name: a}
spec: {gatewayClassName: skiff, listeners: [{name: http, port: 80, protocol: HTTP}]}
---
kind: Gateway
metadata: {name: b}
spec: {gatewayClassName: skiff, listeners: [{name: tcp, port: 80, protocol: TCP}]}
---
kind: Gateway
metadata: {name: c}
spec: {gatewayClassName: skiff, listeners: [{name: http, port: 80, protocol: HTTP}]}
---
kind: Gateway
metadata: {name: odd}
spec:
  gatewayClassName: skiff
  addresses: [{type: Hostname, value: a.test}]
  listeners: [{name: http, port: 81, protocol: HTTP}]
---
kind: HTTPRoute
metadata: {name: route}
spec: {parentRefs: [{name: a}], rules: [{backendRefs: [{name: web, port: 80}]}]}
",
        expect![[r#"
            198.51.100.1:80 plain
              * / -> default/web:80
            198.51.100.2:80 all to nobody
            HTTPRoute default/route:
              a Accepted ResolvedRefs
            Gateway default/a: Accepted Programmed
              http 1 [HTTPRoute GRPCRoute] Accepted Programmed ResolvedRefs
            Gateway default/b: Accepted Programmed
              tcp 0 [TCPRoute] Accepted Programmed ResolvedRefs
            Gateway default/c: Accepted !Programmed(AddressNotAssigned)
              http 0 [HTTPRoute GRPCRoute] Accepted !Programmed(Invalid) ResolvedRefs
            Gateway default/odd: !Accepted(UnsupportedAddress) !Programmed(Invalid)
              http 0 [HTTPRoute GRPCRoute] Accepted !Programmed(Invalid) ResolvedRefs
        "#]],
    );
}

#[test]
fn tls_that_ends_here_is_passed_on_as_what_is_inside() {
    check(
        "
kind: Gateway
metadata: {name: gate}
spec:
  gatewayClassName: skiff
  listeners:
  - {name: ended, port: 443, protocol: TLS, hostname: a.com, tls: {mode: Terminate, certificateRefs: [{name: pair}]}}
  - {name: passed, port: 443, protocol: TLS, hostname: '*.a.com', tls: {mode: Passthrough}}
  - {name: keyless, port: 444, protocol: TLS, tls: {mode: Terminate, certificateRefs: [{name: absent}]}}
---
kind: Secret
metadata: {name: pair}
---
kind: TLSRoute
metadata: {name: route}
spec: {parentRefs: [{name: gate}], hostnames: [a.com, x.a.com], rules: [{backendRefs: [{name: web, port: 80}]}]}
---
kind: BackendTLSPolicy
metadata: {name: policy}
spec:
  targetRefs: [{group: '', kind: Service, name: web}]
  validation: {hostname: web.test, wellKnownCACertificates: System}
",
        expect![[r#"
            443 TLS
              certificate of a.com: default/pair
              ended, then passed to default/web:80 bytes tls=web.test
            TLSRoute default/route:
              gate Accepted ResolvedRefs
            BackendTLSPolicy default/policy:
              gate Accepted ResolvedRefs
            Gateway default/gate: Accepted(ListenersNotValid) Programmed
              ended 1 [TLSRoute] Accepted Programmed ResolvedRefs
              passed 1 [TLSRoute] Accepted Programmed ResolvedRefs
              keyless 1 [TLSRoute] Accepted !Programmed(Invalid) !ResolvedRefs(InvalidCertificateRef)
        "#]],
    );
}

/// A ConfigMap with an authority.
fn authority(name: &str, namespace: &str) -> String {
    let made = rcgen::generate_simple_self_signed(["ca.test".to_owned()]).expect("a certificate");
    let text = made.cert.pem().replace('\n', "\\n");
    format!(
        "---\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: {namespace}}}\n\
         data: {{ca.crt: \"{text}\"}}\n"
    )
}

#[test]
fn clients_prove_who_they_are_where_a_gateway_wants_it() {
    let yaml = "
kind: Gateway
metadata: {name: gate}
spec:
  gatewayClassName: skiff
  tls:
    frontend:
      default: {validation: {caCertificateRefs: [{group: '', kind: ConfigMap, name: good}]}}
      perPort:
      - {port: 444, tls: {validation: {mode: AllowInsecureFallback, caCertificateRefs: [{group: '', kind: ConfigMap, name: good}]}}}
      - {port: 445, tls: {validation: {caCertificateRefs: [{group: '', kind: ConfigMap, name: absent}]}}}
      - {port: 446, tls: {validation: {caCertificateRefs: [{group: '', kind: Service, name: web}]}}}
      - {port: 447, tls: {validation: {caCertificateRefs: [{group: '', kind: ConfigMap, name: far, namespace: elsewhere}]}}}
      - {port: 448, tls: {validation: {caCertificateRefs: [{group: '', kind: ConfigMap, name: absent}, {group: '', kind: ConfigMap, name: good}]}}}
      - {port: 449, tls: {}}
  listeners:
  - {name: http, port: 80, protocol: HTTP}
  - {name: usual, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: pair}]}}
  - {name: fallback, port: 444, protocol: HTTPS, tls: {certificateRefs: [{name: pair}]}}
  - {name: absent, port: 445, protocol: HTTPS, tls: {certificateRefs: [{name: pair}]}}
  - {name: kind, port: 446, protocol: HTTPS, tls: {certificateRefs: [{name: pair}]}}
  - {name: far, port: 447, protocol: HTTPS, tls: {certificateRefs: [{name: pair}]}}
  - {name: half, port: 448, protocol: HTTPS, tls: {certificateRefs: [{name: pair}]}}
  - {name: none, port: 449, protocol: HTTPS, tls: {certificateRefs: [{name: pair}]}}
---
kind: Gateway
metadata: {name: lax, creationTimestamp: '2026-01-01T00:00:00Z'}
spec:
  gatewayClassName: skiff
  listeners:
  - {name: same, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: pair}]}}
  - {name: other, port: 443, protocol: HTTPS, hostname: other.com, tls: {certificateRefs: [{name: pair}]}}
---
kind: Secret
metadata: {name: pair}
---
kind: HTTPRoute
metadata: {name: route}
spec: {parentRefs: [{name: gate}], hostnames: [a.com], rules: [{backendRefs: [{name: web, port: 80}]}]}
";
    let all = format!("{yaml}{}{}", authority("good", "default"), authority("far", "elsewhere"));
    check(
        &all,
        expect![[r#"
        80 plain
          a.com / -> default/web:80
        443 TLS
          certificate of a.com: default/pair
          certificate of x.a.com: default/pair
          certificate of y.x.a.com: default/pair
          certificate of other: default/pair
          a.com / (clients prove) -> default/web:80
        444 TLS
          certificate of a.com: default/pair
          certificate of x.a.com: default/pair
          certificate of y.x.a.com: default/pair
          certificate of other: default/pair
          a.com / (clients may prove) -> default/web:80
        448 TLS
          certificate of a.com: default/pair
          certificate of x.a.com: default/pair
          certificate of y.x.a.com: default/pair
          certificate of other: default/pair
          a.com / (clients prove) -> default/web:80
        449 TLS
          certificate of a.com: default/pair
          certificate of x.a.com: default/pair
          certificate of y.x.a.com: default/pair
          certificate of other: default/pair
          a.com / -> default/web:80
        HTTPRoute default/route:
          gate Accepted ResolvedRefs
        Gateway default/gate: Accepted(ListenersNotValid) Programmed InsecureFrontendValidationMode(ConfigurationChanged)
          http 1 [HTTPRoute GRPCRoute] Accepted Programmed ResolvedRefs
          usual 1 [HTTPRoute GRPCRoute] Accepted Programmed ResolvedRefs
          fallback 1 [HTTPRoute GRPCRoute] Accepted Programmed ResolvedRefs
          absent 1 [HTTPRoute GRPCRoute] !Accepted(NoValidCACertificate) !Programmed(Invalid) !ResolvedRefs(InvalidCACertificateRef)
          kind 1 [HTTPRoute GRPCRoute] !Accepted(NoValidCACertificate) !Programmed(Invalid) !ResolvedRefs(InvalidCACertificateKind)
          far 1 [HTTPRoute GRPCRoute] !Accepted(NoValidCACertificate) !Programmed(Invalid) !ResolvedRefs(RefNotPermitted)
          half 1 [HTTPRoute GRPCRoute] Accepted Programmed !ResolvedRefs(InvalidCACertificateRef)
          none 1 [HTTPRoute GRPCRoute] Accepted Programmed ResolvedRefs
        Gateway default/lax: Accepted(ListenersNotValid) Programmed
          same 0 [HTTPRoute GRPCRoute] !Accepted(PortUnavailable) !Programmed(PortUnavailable) ResolvedRefs
          other 0 [HTTPRoute GRPCRoute] Accepted Programmed ResolvedRefs
    "#]],
    );
}

#[test]
fn a_gateway_shows_pods_a_certificate_where_it_has_one() {
    let yaml = |reference: &str| {
        format!(
            "
kind: Gateway
metadata: {{name: gate}}
spec:
  gatewayClassName: skiff
  tls: {{backend: {{clientCertificateRef: {reference}}}}}
  listeners: [{{name: http, port: 80, protocol: HTTP}}]
---
kind: Gateway
metadata: {{name: plain}}
spec: {{gatewayClassName: skiff, listeners: [{{name: http, port: 81, protocol: HTTP}}]}}
---
kind: Secret
metadata: {{name: pair}}
---
kind: Secret
metadata: {{name: broken}}
type: broken
---
kind: HTTPRoute
metadata: {{name: route}}
spec: {{parentRefs: [{{name: gate}}, {{name: plain}}], rules: [{{backendRefs: [{{name: web, port: 80}}]}}]}}
---
kind: BackendTLSPolicy
metadata: {{name: policy}}
spec:
  targetRefs: [{{group: '', kind: Service, name: web}}]
  validation: {{hostname: web.test, wellKnownCACertificates: System}}
"
        )
    };
    check(
        &yaml("{name: pair}"),
        expect![[r#"
        80 plain
          * / -> default/web:80 tls=web.test as default/pair
        81 plain
          * / -> default/web:80 tls=web.test
        HTTPRoute default/route:
          gate Accepted ResolvedRefs
          plain Accepted ResolvedRefs
        BackendTLSPolicy default/policy:
          gate Accepted ResolvedRefs
          plain Accepted ResolvedRefs
        Gateway default/gate: Accepted Programmed ResolvedRefs
          http 1 [HTTPRoute GRPCRoute] Accepted Programmed ResolvedRefs
        Gateway default/plain: Accepted Programmed
          http 1 [HTTPRoute GRPCRoute] Accepted Programmed ResolvedRefs
    "#]],
    );
    for (reference, reason) in [
        ("{name: absent}", "InvalidClientCertificateRef"),
        ("{name: broken}", "InvalidClientCertificateRef"),
        ("{name: pair, kind: ConfigMap}", "InvalidClientCertificateRef"),
        ("{name: pair, namespace: elsewhere}", "RefNotPermitted"),
    ] {
        let world = world(&format!("{COMMON}---\n{}", yaml(reference)));
        let said = said(&plan(&world, &places(), NOW));
        let expected = format!("Gateway default/gate: Accepted Programmed !ResolvedRefs({reason})");
        assert!(said.contains(&expected), "{said}");
        assert!(said.contains("* / -> default/web:80 tls=web.test\n"), "{said}");
    }
}
