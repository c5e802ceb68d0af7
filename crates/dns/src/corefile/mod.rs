//! What people write into CoreDNS's Corefile, as far as it is about names: zones, servers of their own
//! for some domains, names that stand for others, and addresses given by hand.
//!
//! ```text
//!  ZONE[:PORT]… { PLUGIN ARGUMENT… { LINE… } … }
//! ```
//! What is not understood is refused with its line: a name that resolves otherwise than its owner wrote
//! would be worse than the rules from before.
mod template;
mod tokens;

pub use template::{Pattern, Template};

use crate::forward::name_servers;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use tokens::{Directive, Line, Token, Tokens};

/// What is done with names. The zone with the most labels counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    zones: Vec<Zone>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Zone {
    /// Empty: all names.
    pub name: String,
    pub rewrites: Vec<Rewrite>,
    pub templates: Vec<Template>,
    pub hosts: Option<Hosts>,
    /// Names of the cluster are answered here.
    pub kubernetes: Option<Kubernetes>,
    /// Who is asked: the first whose domain the name is below.
    pub forwards: Vec<Forwarding>,
    /// How long others' answers are kept at most; `None`: not at all.
    pub cache: Option<u32>,
    /// Searching clients are told in one round what is outside of the cluster, too.
    pub autopath: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kubernetes {
    pub seconds: u32,
    pub pods: Pods,
}

/// Whether pods' addresses have names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pods {
    Disabled,
    /// Whatever address is asked for.
    Insecure,
    /// If a pod has it.
    Verified,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forwarding {
    /// Names below it; empty: all.
    pub from: String,
    pub except: Vec<String>,
    pub to: Vec<SocketAddr>,
    pub policy: Order,
    pub by_tcp: bool,
}

/// Which of several servers is asked first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    Random,
    Turns,
    First,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewrite {
    how: How,
    from: String,
    to: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum How {
    Exact,
    Prefix,
    Suffix,
    Substring,
    /// Groups of the pattern take the place of `{1}`.
    Pattern(Pattern),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hosts {
    pub addresses: HashMap<String, Vec<IpAddr>>,
    /// Other names are somebody else's; else there are none.
    pub falls_through: bool,
    pub seconds: u32,
}

/// What a Corefile is read against.
pub struct Given<'a> {
    pub domain: &'a str,
    /// What `/etc/resolv.conf` says.
    pub resolv_conf: &'a str,
    /// What it may import, by name.
    pub files: &'a BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the Corefile: {problem}")]
pub struct CorefileError {
    line: usize,
    problem: String,
}

/// CoreDNS's, where the kubernetes plugin is told nothing.
pub const SECONDS: u32 = 5;
const CACHE: u32 = 3600;
const HOSTS_SECONDS: u32 = 3600;

/// Plugins that are about the server, not about names. Ours does as they say, or has its own way.
const WITHOUT_EFFECT: &[&str] = &[
    "errors",
    "log",
    "health",
    "ready",
    "prometheus",
    "loop",
    "reload",
    "loadbalance",
    "debug",
    "bufsize",
    "pprof",
    "trace",
    "cancel",
    "timeouts",
    "bind",
    "minimal",
    "any",
    "metadata",
];

impl Rules {
    /// Without a Corefile: the cluster's names, and all others elsewhere.
    pub fn usual(seconds: u32, upstreams: Vec<SocketAddr>) -> Rules {
        let forward = Forwarding {
            from: String::new(),
            except: Vec::new(),
            to: upstreams,
            policy: Order::Random,
            by_tcp: false,
        };
        let zone = Zone {
            kubernetes: Some(Kubernetes { seconds, pods: Pods::Insecure }),
            forwards: vec![forward],
            cache: Some(30),
            ..Zone::default()
        };
        Rules { zones: vec![zone] }
    }

    pub fn parse(text: &str, given: &Given<'_>) -> Result<Rules, CorefileError> {
        let mut tokens = Tokens::new(text, given.files)?;
        let mut zones: Vec<Zone> = Vec::new();
        while let Some(first) = tokens.next() {
            let mut names = vec![zone_name(&first)?];
            loop {
                match tokens.next() {
                    Some(token) if token.text == "{" => break,
                    Some(token) if token.is_beside(&first) => names.push(zone_name(&token)?),
                    _ => return Err(first.wrong("a zone is followed by {")),
                }
            }
            let zone = block(&mut tokens, given)?;
            for name in names {
                if zones.iter().any(|other| other.name == name) {
                    return Err(first.wrong("the zone is there twice"));
                }
                zones.push(Zone { name, ..zone.clone() });
            }
        }
        zones.sort_by_key(|zone| std::cmp::Reverse(zone.name.split('.').count() + zone.name.len()));
        Ok(Rules { zones })
    }

    /// `None`: nobody answers for such names.
    pub fn zone(&self, name: &str) -> Option<&Zone> {
        self.zones.iter().find(|zone| is_below(name, &zone.name))
    }

    /// Whether somebody wants to know which pods there are.
    pub fn verify_pods(&self) -> bool {
        let mut all = self.zones.iter().filter_map(|zone| zone.kubernetes.as_ref());
        all.any(|kubernetes| kubernetes.pods == Pods::Verified)
    }

    pub fn servers(&self) -> impl Iterator<Item = SocketAddr> {
        let zones = self.zones.iter();
        zones.flat_map(|zone| zone.forwards.iter().flat_map(|one| one.to.iter().copied()))
    }
}

impl Zone {
    /// Who is asked for a name that is not the cluster's.
    pub fn forwarding(&self, name: &str) -> Option<&Forwarding> {
        self.forwards.iter().find(|one| {
            is_below(name, &one.from) && !one.except.iter().any(|other| is_below(name, other))
        })
    }

    /// What a name is looked up as.
    pub fn rewritten(&self, name: &str) -> Option<String> {
        self.rewrites.iter().find_map(|rewrite| {
            let Rewrite { how, from, to } = rewrite;
            match how {
                How::Exact => (name == from).then(|| to.clone()),
                How::Prefix => name.strip_prefix(from.as_str()).map(|rest| format!("{to}{rest}")),
                How::Suffix => name.strip_suffix(from.as_str()).map(|rest| format!("{rest}{to}")),
                How::Substring => name.contains(from.as_str()).then(|| name.replace(from, to)),
                How::Pattern(pattern) => {
                    let whole = format!("{name}.");
                    let groups = pattern.groups(&whole)?;
                    let filled = (0..groups.group_len()).fold(to.clone(), |to, at| {
                        to.replace(&format!("{{{at}}}"), Pattern::group(&groups, at, &whole))
                    });
                    Some(plain(&filled))
                }
            }
        })
    }
}

/// Whether a name is a domain's, or below it.
fn is_below(name: &str, domain: &str) -> bool {
    let rest = name.strip_suffix(domain);
    domain.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

fn plain(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

fn zone_name(token: &Token) -> Result<String, CorefileError> {
    let text = token.text.strip_prefix("dns://").unwrap_or(&token.text);
    if text.contains("://") {
        return Err(token.wrong("only plain DNS is served"));
    }
    let (name, port) = text.rsplit_once(':').unwrap_or((text, "53"));
    match port {
        // It is the server that listens, on the port that it was told.
        _ if port.parse::<u16>().is_ok() => Ok(plain(name)),
        _ => Err(token.wrong("it is no zone")),
    }
}

/// Everything up to the brace that closes.
fn block(tokens: &mut Tokens, given: &Given<'_>) -> Result<Zone, CorefileError> {
    let mut zone = Zone::default();
    loop {
        let directive = tokens.directive()?;
        let Some(Directive { name, arguments, lines }) = directive else { return Ok(zone) };
        match name.text.as_str() {
            "kubernetes" => {
                zone.kubernetes = Some(kubernetes(&name, &arguments, &lines, given)?);
            }
            "forward" => zone.forwards.push(forward(&name, &arguments, &lines, given)?),
            "cache" => zone.cache = Some(cache(&arguments, &lines)?),
            "hosts" => zone.hosts = Some(hosts(&name, &arguments, &lines)?),
            "rewrite" => zone.rewrites.push(rewrite(&name, &arguments)?),
            "template" => zone.templates.push(Template::read(&name, &arguments, &lines)?),
            "autopath" => zone.autopath = true,
            other if WITHOUT_EFFECT.contains(&other) => {}
            other => return Err(name.wrong(&format!("the plugin {other} is not known here"))),
        }
    }
}

fn kubernetes(
    name: &Token,
    arguments: &[Token],
    lines: &[Line],
    given: &Given<'_>,
) -> Result<Kubernetes, CorefileError> {
    let is_ours = |zone: &Token| plain(&zone.text) == given.domain;
    if !arguments.is_empty() && !arguments.iter().any(is_ours) {
        return Err(name.wrong(&format!("the cluster's domain is {}", given.domain)));
    }
    let mut kubernetes = Kubernetes { seconds: SECONDS, pods: Pods::Disabled };
    for line in lines {
        let (first, value) = (&line[0], line.get(1));
        match (first.text.as_str(), value.map(|value| value.text.as_str())) {
            ("ttl", Some(seconds)) => {
                let seconds: Option<u32> = seconds.parse().ok().filter(|it| *it <= 3600);
                kubernetes.seconds = seconds.ok_or_else(|| first.wrong("ttl is 0 to 3600"))?;
            }
            ("pods", Some("insecure")) => kubernetes.pods = Pods::Insecure,
            ("pods", Some("verified")) => kubernetes.pods = Pods::Verified,
            ("pods", Some("disabled")) => kubernetes.pods = Pods::Disabled,
            ("pods", _) => return Err(first.wrong("pods is insecure, verified or disabled")),
            // Addresses of others are always somebody else's to name, and endpoints by their addresses.
            ("fallthrough" | "noendpoints" | "endpoint" | "kubeconfig" | "multicluster", _) => {}
            (other, _) => return Err(first.wrong(&format!("kubernetes has no {other} here"))),
        }
    }
    Ok(kubernetes)
}

fn forward(
    name: &Token,
    arguments: &[Token],
    lines: &[Line],
    given: &Given<'_>,
) -> Result<Forwarding, CorefileError> {
    let [from, to @ ..] = arguments else { return Err(name.wrong("forward FROM TO…")) };
    let mut servers = Vec::new();
    for one in to {
        match one.text.as_str() {
            path if path.starts_with('/') => servers.extend(name_servers(given.resolv_conf)),
            text => servers.push(server(text).ok_or_else(|| {
                one.wrong("it is no server: an address, or one with a port, by plain DNS")
            })?),
        }
    }
    if to.is_empty() {
        return Err(name.wrong("forward FROM TO…"));
    }
    let mut forwarding = Forwarding {
        from: plain(&from.text),
        except: Vec::new(),
        to: servers,
        policy: Order::Random,
        by_tcp: false,
    };
    for line in lines {
        let (first, rest) = (&line[0], &line[1..]);
        match first.text.as_str() {
            "except" => {
                forwarding.except.extend(rest.iter().map(|one| plain(&one.text)));
            }
            "policy" => {
                forwarding.policy = match rest.first().map(|one| one.text.as_str()) {
                    Some("random") => Order::Random,
                    Some("round_robin") => Order::Turns,
                    Some("sequential") => Order::First,
                    _ => return Err(first.wrong("it is random, round_robin or sequential")),
                }
            }
            "force_tcp" => forwarding.by_tcp = true,
            "prefer_udp"
            | "expire"
            | "max_fails"
            | "health_check"
            | "max_concurrent"
            | "failfast_all_unhealthy_upstreams"
            | "next"
            | "max_idle_conns" => {}
            other => return Err(first.wrong(&format!("forward has no {other} here"))),
        }
    }
    Ok(forwarding)
}

fn server(text: &str) -> Option<SocketAddr> {
    let text = text.strip_prefix("dns://").unwrap_or(text);
    let alone = || text.parse::<IpAddr>().ok().map(|address| SocketAddr::new(address, 53));
    text.parse().ok().or_else(alone)
}

fn cache(arguments: &[Token], lines: &[Line]) -> Result<u32, CorefileError> {
    let number = |token: &Token| token.text.parse::<u32>();
    let mut seconds = CACHE;
    if let Some(first) = arguments.first() {
        // What follows are zones, within which it is to be done.
        seconds = number(first).unwrap_or(CACHE);
    }
    for line in lines {
        match line[0].text.as_str() {
            "success" => {
                if let Some(most) = line.get(2) {
                    seconds = number(most).map_err(|_| most.wrong("it is no number"))?;
                }
            }
            "denial" | "prefetch" | "serve_stale" | "servfail" | "keepttl" | "disable" => {}
            other => return Err(line[0].wrong(&format!("cache has no {other} here"))),
        }
    }
    Ok(seconds)
}

fn hosts(name: &Token, arguments: &[Token], lines: &[Line]) -> Result<Hosts, CorefileError> {
    if arguments.iter().any(|one| one.text.starts_with('/')) {
        return Err(name.wrong("addresses are written here, not in another file"));
    }
    let mut hosts = Hosts { seconds: HOSTS_SECONDS, ..Hosts::default() };
    for line in lines {
        let (first, rest) = (&line[0], &line[1..]);
        match first.text.as_str() {
            "fallthrough" => hosts.falls_through = true,
            "ttl" => {
                let seconds = rest.first().and_then(|one| one.text.parse().ok());
                hosts.seconds = seconds.ok_or_else(|| first.wrong("ttl is a number"))?;
            }
            "no_reverse" | "reload" => {}
            text => {
                let address: IpAddr = text.parse().map_err(|_| first.wrong("it is no address"))?;
                for name in rest {
                    hosts.addresses.entry(plain(&name.text)).or_default().push(address);
                }
            }
        }
    }
    Ok(hosts)
}

fn rewrite(name: &Token, arguments: &[Token]) -> Result<Rewrite, CorefileError> {
    let mut words: Vec<&str> = arguments.iter().map(|one| one.text.as_str()).collect();
    if matches!(words.first(), Some(&("stop" | "continue"))) {
        words.remove(0);
    }
    let usage = "rewrite name [exact|prefix|suffix|substring|regex] FROM TO is all there is here";
    // How the answer's names read is nothing to whoever asked: it gets the name that it asked for.
    if let Some(at) = words.iter().position(|word| *word == "answer") {
        words.truncate(at);
    }
    let (how, from, to) = match words[..] {
        ["name", "exact", from, to] | ["name", from, to] => (How::Exact, from, to),
        ["name", "prefix", from, to] => (How::Prefix, from, to),
        ["name", "suffix", from, to] => (How::Suffix, from, to),
        ["name", "substring", from, to] => (How::Substring, from, to),
        ["name", "regex", from, to] => {
            let token = arguments.iter().find(|one| one.text == from).unwrap_or(name);
            (How::Pattern(Pattern::read(token)?), from, to)
        }
        _ => return Err(name.wrong(usage)),
    };
    let plain = |text: &str| match how {
        // A prefix may end with a dot, which is a part of it.
        How::Prefix | How::Substring | How::Pattern(_) => text.to_ascii_lowercase(),
        How::Exact | How::Suffix => plain(text),
    };
    let (from, to) = (plain(from), plain(to));
    Ok(Rewrite { how, from, to })
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn parse(text: &str) -> Result<Rules, CorefileError> {
        let resolv_conf = "nameserver 192.0.2.53\n";
        let files = [
            ("corp.server", "corp.example.org {\n forward . 10.0.0.9\n}"),
            ("a.override", "rewrite name a.example.org b.example.org"),
        ];
        let files = files.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
        Rules::parse(text, &Given { domain: "cluster.local", resolv_conf, files: &files })
    }

    fn check(text: &str, names: &[&str], expected: Expect) {
        let rules = match parse(text) {
            Ok(rules) => rules,
            Err(error) => return expected.assert_eq(&error.to_string()),
        };
        let mut said = String::new();
        for name in names {
            said += &format!("{name}:");
            let Some(zone) = rules.zone(name) else {
                said += " nobody\n";
                continue;
            };
            said += &format!(" zone {:?}", zone.name);
            if let Some(to) = zone.rewritten(name) {
                said += &format!(" as {to}");
            }
            if let Some(hosts) = &zone.hosts {
                let found = hosts.addresses.get(*name);
                said += &format!(" hosts {found:?} then {}", hosts.falls_through);
            }
            if let Some(Kubernetes { seconds, pods }) = &zone.kubernetes {
                said += &format!(" kubernetes ttl={seconds} pods={pods:?}");
            }
            match zone.forwarding(name) {
                Some(one) => said += &format!(" to {:?} {:?}", one.to, one.policy),
                None => said += " to nobody",
            }
            said += &format!(" cache {:?} autopath {}\n", zone.cache, zone.autopath);
        }
        expected.assert_eq(&said);
    }

    /// As kubeadm writes it, with what people add to it.
    const USUAL: &str = "\
.:53 {
    errors
    health {
       lameduck 5s
    }
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       pods insecure
       fallthrough in-addr.arpa ip6.arpa
       ttl 30
    }
    rewrite name exact old.example.org web.default.svc.cluster.local
    rewrite name suffix .corp.example.org .svc.cluster.local answer auto
    hosts {
       192.0.2.7 printer.example.org Printer
       fallthrough
    }
    prometheus :9153
    forward . /etc/resolv.conf {
       max_concurrent 1000
       except internal.example.org
    }
    cache 30 {
       disable success cluster.local
    }
    loop
    reload
    loadbalance
}
example.org:53 sub.example.net { # two at once
    forward . 10.0.0.1 10.0.0.2:5353 { policy sequential }
    cache
}
";

    #[test]
    fn what_people_write_is_understood() {
        let names = [
            "a.cluster.local",
            "old.example.com",
            "x.example.org",
            "example.org",
            "myexample.org",
            "a.internal.example.net",
            "b.sub.example.net",
        ];
        check(
            USUAL,
            &names,
            expect![[r#"
                a.cluster.local: zone "" hosts None then true kubernetes ttl=30 pods=Insecure to [192.0.2.53:53] Random cache Some(30) autopath false
                old.example.com: zone "" hosts None then true kubernetes ttl=30 pods=Insecure to [192.0.2.53:53] Random cache Some(30) autopath false
                x.example.org: zone "example.org" to [10.0.0.1:53, 10.0.0.2:5353] First cache Some(3600) autopath false
                example.org: zone "example.org" to [10.0.0.1:53, 10.0.0.2:5353] First cache Some(3600) autopath false
                myexample.org: zone "" hosts None then true kubernetes ttl=30 pods=Insecure to [192.0.2.53:53] Random cache Some(30) autopath false
                a.internal.example.net: zone "" hosts None then true kubernetes ttl=30 pods=Insecure to [192.0.2.53:53] Random cache Some(30) autopath false
                b.sub.example.net: zone "sub.example.net" to [10.0.0.1:53, 10.0.0.2:5353] First cache Some(3600) autopath false
            "#]],
        );
        check(
            ". {\n rewrite name suffix .corp .svc.cluster.local\n rewrite name prefix a. b.\n\
             hosts {\n 192.0.2.7 printer\n fd00::7 printer\n }\n autopath @kubernetes\n}",
            &["web.default.corp", "a.x", "printer"],
            expect![[r#"
                web.default.corp: zone "" as web.default.svc.cluster.local hosts None then false to nobody cache None autopath true
                a.x: zone "" as b.x hosts None then false to nobody cache None autopath true
                printer: zone "" hosts Some([192.0.2.7, fd00::7]) then false to nobody cache None autopath true
            "#]],
        );
        check(
            "example.org {\n forward . 10.0.0.1\n}",
            &["example.com"],
            expect!["example.com: nobody\n"],
        );
    }

    #[test]
    fn what_is_imported_stands_where_it_is_imported() {
        check(
            "(stub) {\n forward . {args[0]}\n cache 30\n}\n(both) {\n import stub 10.0.0.1\n}\n\
             a.org {\n import both\n import /etc/coredns/custom/*.override\n}\n\
             b.org {\n import stub 10.0.0.2\n}\nimport custom/*.server\nimport custom/*.nothing\n",
            &["x.a.org", "b.org", "a.corp.example.org", "a.example.org"],
            expect![[r#"
                x.a.org: zone "a.org" to [10.0.0.1:53] Random cache Some(30) autopath false
                b.org: zone "b.org" to [10.0.0.2:53] Random cache Some(30) autopath false
                a.corp.example.org: zone "corp.example.org" to [10.0.0.9:53] Random cache None autopath false
                a.example.org: nobody
            "#]],
        );
        check(
            ". {\n import a.override\n rewrite name regex (.*)\\.old\\.org {1}.new.org answer name (.*) x\n}",
            &["a.example.org", "web.old.org"],
            expect![[r#"
                a.example.org: zone "" as b.example.org to nobody cache None autopath false
                web.old.org: zone "" as web.new.org to nobody cache None autopath false
            "#]],
        );
        check(
            ". {\n import nothing\n}",
            &[],
            expect![
                "line 2 of the Corefile: import: there is neither a snippet nor a file nothing"
            ],
        );
        check(
            "(a) {\n errors\n import a\n}\n. {\n import a\n}",
            &[],
            expect!["line 6 of the Corefile: import: it imports itself"],
        );
    }

    /// What a name and a type are told, in a block with these lines.
    fn templated(lines: &str, asked: &[(&str, crate::Kind)], expected: Expect) {
        let rules = parse(&format!(". {{\n{lines}\n}}"));
        let rules = match rules {
            Ok(rules) => rules,
            Err(error) => return expected.assert_eq(&error.to_string()),
        };
        let mut said = String::new();
        for (name, kind) in asked {
            let zone = rules.zone(name).unwrap();
            let answer = zone.templates.iter().find_map(|one| one.answer(name, *kind));
            said += &match answer {
                Some(answer) => format!("{name}: {:?} {:?}\n", answer.code, answer.records),
                None => format!("{name}: somebody else's\n"),
            };
        }
        expected.assert_eq(&said);
    }

    #[test]
    fn templates_answer_for_whole_domains() {
        use crate::Kind::{A, Aaaa};
        templated(
            "template IN AAAA . {\n rcode NOERROR\n}",
            &[("a.org", Aaaa), ("a.org", A)],
            expect![[r#"
                a.org: NoError []
                a.org: somebody else's
            "#]],
        );
        templated(
            "template IN A example.org {\n match \"^ip-(?P<a>\\d+)-(\\d+)[.]example[.]org[.]$\"\n \
             answer \"{{ .Name }} 60 IN A 10.0.{{ .Group.a }}.{{ index .Match 2 }}\"\n fallthrough\n}",
            &[
                ("ip-1-2.example.org", A),
                ("ip-1-999.example.org", A),
                ("x.example.org", A),
                ("a.org", A),
            ],
            expect![[r#"
                ip-1-2.example.org: NoError [Record { name: None, seconds: 60, data: Address(10.0.1.2) }]
                ip-1-999.example.org: ServerFailure []
                x.example.org: somebody else's
                a.org: somebody else's
            "#]],
        );
        templated(
            "template ANY ANY {\n match ^a\n answer \"{{ .Name }} CNAME b.{{ .Zone }}\"\n}",
            &[("a.org", A), ("b.org", A)],
            expect![[r#"
                a.org: NoError [Record { name: None, seconds: 3600, data: Cname("b") }]
                b.org: NameError []
            "#]],
        );
        templated(
            "template IN A {\n answer \"{{ .Secret }}\"\n}",
            &[],
            expect!["line 3 of the Corefile: {{ .Secret }}: {{ .Secret }} is not known here"],
        );
        templated(
            "template IN A {\n match (\n}",
            &[],
            expect!["line 3 of the Corefile: (: it is no regular expression"],
        );
    }

    #[test]
    fn the_example_in_the_docs_is_understood() {
        let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/network.md"));
        let lines = page.lines().skip_while(|line| !line.starts_with("    .:53 {"));
        let lines = lines.take_while(|line| line.starts_with("    "));
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        let rules = parse(&text).unwrap();
        let stub = rules.zone("a.corp.example.org").unwrap();
        assert_eq!(stub.forwarding("a.corp.example.org").unwrap().to.len(), 1);
        let rest = rules.zone("printer.example.org").unwrap();
        let hosts = rest.hosts.as_ref().unwrap();
        assert!(hosts.falls_through && hosts.addresses.contains_key("printer.example.org"));
        assert_eq!(rest.kubernetes.as_ref().unwrap().seconds, 30);
    }

    #[test]
    fn what_is_not_understood_is_refused_with_its_line() {
        check(
            ". {\n errors\n magic x\n}",
            &[],
            expect!["line 3 of the Corefile: magic: the plugin magic is not known here"],
        );
        check(
            ". {\n forward . tls://9.9.9.9\n}",
            &[],
            expect![
                "line 2 of the Corefile: tls://9.9.9.9: it is no server: an address, or one with a port, by plain DNS"
            ],
        );
        check(
            ". {\n forward .\n}",
            &[],
            expect!["line 2 of the Corefile: forward: forward FROM TO…"],
        );
        check(
            ". {\n kubernetes other.local\n}",
            &[],
            expect!["line 2 of the Corefile: kubernetes: the cluster's domain is cluster.local"],
        );
        check(
            ". {\n kubernetes {\n pods perhaps\n }\n}",
            &[],
            expect!["line 3 of the Corefile: pods: pods is insecure, verified or disabled"],
        );
        check(". {\n errors", &[], expect!["line 2 of the Corefile: a } is missing"]);
        check(".", &[], expect!["line 1 of the Corefile: .: a zone is followed by {"]);
        check(". {\n}\n. {\n}", &[], expect!["line 3 of the Corefile: .: the zone is there twice"]);
        check(
            ". {\n rewrite type ANY HINFO\n}",
            &[],
            expect![
                "line 2 of the Corefile: rewrite: rewrite name [exact|prefix|suffix|substring|regex] FROM TO is all there is here"
            ],
        );
        check(
            "tls://. {\n}",
            &[],
            expect!["line 1 of the Corefile: tls://.: only plain DNS is served"],
        );
        for length in 0..USUAL.len() {
            let _ = parse(&USUAL[..length]);
        }
    }
}
