//! Upstream's own parts in the place of ours, so that any mixture can be judged.
//!
//! Each stands beside `skiff up --disable`, with the kubeconfig that is then in the data directory. Its
//! kubelet runs on our container runtime (`skiff cri`), with the reference CNI plugins of Debian. Where its
//! API server is among them the cluster is upstream's, and ours are the guests (`stock`).
use super::shell;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One part: upstream's name for it, and ours.
pub struct Part {
    pub name: &'static str,
    pub ours: &'static str,
    pub package: &'static str,
    /// Packages of Debian that it needs on the machine.
    packages: &'static [&'static str],
    arguments: fn(&Place) -> Vec<String>,
}

#[rustfmt::skip]
pub const PARTS: &[Part] = &[
    Part { name: API_SERVER, ours: "apiserver", package: "k8s.io/kubernetes/cmd/kube-apiserver", packages: &[], arguments: api_server },
    Part { name: "kube-controller-manager", ours: "controller-manager", package: "k8s.io/kubernetes/cmd/kube-controller-manager", packages: &[], arguments: controller_manager },
    Part { name: "kube-scheduler", ours: "scheduler", package: "k8s.io/kubernetes/cmd/kube-scheduler", packages: &[], arguments: scheduler },
    Part { name: "kube-proxy", ours: "proxy", package: "k8s.io/kubernetes/cmd/kube-proxy", packages: &["nftables"], arguments: proxy },
    Part { name: "kubelet", ours: "kubelet", package: "k8s.io/kubernetes/cmd/kubelet", packages: &["containernetworking-plugins", "iptables"], arguments: kubelet },
];

pub const API_SERVER: &str = "kube-apiserver";

/// Whether the cluster itself is upstream's.
pub fn is_stock(parts: &[&Part]) -> bool {
    parts.iter().any(|part| part.name == API_SERVER)
}

/// Where a part finds what it needs.
pub struct Place {
    pub folder: PathBuf,
    pub node: String,
    pub address: Ipv4Addr,
    pub state: String,
    pub cgroup_root: String,
    /// Whether the kubelet is upstream's, which has no runtime in its process.
    pub by_socket: bool,
}

const PODS: &str = "10.244.0.0/16";

pub fn find(name: &str) -> Result<&'static Part, String> {
    let names: Vec<&str> = PARTS.iter().map(|part| part.name).collect();
    let found = PARTS.iter().find(|part| part.name == name);
    found.ok_or_else(|| format!("no part {name}; there are {}", names.join(", ")))
}

impl Part {
    pub fn install(&self) -> Result<(), String> {
        let missing = |package: &&&str| {
            let asked = Command::new("dpkg").args(["-s", package]).output();
            !asked.is_ok_and(|answer| answer.status.success())
        };
        let missing: Vec<_> = self.packages.iter().filter(missing).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let mut install = Command::new("apt-get");
        shell::output(install.args(["install", "-y", "--no-install-recommends"]).args(missing))
            .map(drop)
    }

    /// What it is told, after its files are written.
    pub fn arguments(&self, place: &Place) -> Result<Vec<String>, String> {
        if self.ours == "kubelet" {
            shell::write(&place.kubelet_config(), place.kubelet_text())?;
        }
        if self.ours == "kubelet" && place.by_socket {
            shell::write(&place.folder.join("cni/10-ptp.conflist"), CNI)?;
        }
        Ok((self.arguments)(place))
    }
}

impl Place {
    pub fn data(&self, name: &str) -> String {
        self.folder.join("data").join(name).display().to_string()
    }

    fn kubelet_config(&self) -> PathBuf {
        self.folder.join("kubelet-config.yaml")
    }

    pub fn socket(&self) -> String {
        format!("unix://{}/cri.sock", self.state)
    }

    pub fn cni(&self) -> PathBuf {
        self.folder.join("cni")
    }

    /// How full the disk of whoever runs the suite is, is not what is judged.
    fn kubelet_text(&self) -> String {
        let (ca, certificate, key) =
            (self.data("pki/ca.crt"), self.data("pki/kubelet.crt"), self.data("pki/kubelet.key"));
        let runtime = match self.by_socket {
            true => format!("containerRuntimeEndpoint: {}\n", self.socket()),
            false => String::new(),
        };
        format!(
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
             authentication: {{ anonymous: {{ enabled: false }}, webhook: {{ enabled: true }}, \
             x509: {{ clientCAFile: {ca} }} }}\nauthorization: {{ mode: Webhook }}\n\
             tlsCertFile: {certificate}\ntlsPrivateKeyFile: {key}\n\
             clusterDNS: [10.96.0.10]\nclusterDomain: cluster.local\n\
             {runtime}failCgroupV1: false\nfailSwapOn: false\n\
             cgroupDriver: cgroupfs\ncgroupRoot: {}\npodLogsDir: {}\n\
             enforceNodeAllocatable: [none]\n\
             evictionHard: {{ memory.available: 100Mi }}\n\
             imageGCHighThresholdPercent: 100\n",
            self.cgroup_root,
            self.folder.join("logs").display(),
        )
    }
}

/// The first node's share of pods' addresses, which upstream's allocator and ours both give it. A veth
/// to each pod and routes on the host: what services rewrite passes the host either way.
const CNI: &str = r#"{ "cniVersion": "0.4.0", "name": "conformance", "plugins": [
  { "type": "ptp", "ipMasq": true, "ipam": { "type": "host-local", "subnet": "10.244.0.0/24",
    "routes": [{ "dst": "0.0.0.0/0" }] } },
  { "type": "portmap", "capabilities": { "portMappings": true } } ] }
"#;

fn with_kubeconfig(place: &Place, ours: &str) -> Vec<String> {
    let file = place.data(&format!("{ours}.conf"));
    ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"]
        .map(|flag| format!("--{flag}={file}"))
        .to_vec()
}

fn api_server(place: &Place) -> Vec<String> {
    let files = [
        ("tls-cert-file", "apiserver.crt"),
        ("tls-private-key-file", "apiserver.key"),
        ("client-ca-file", "ca.crt"),
        ("service-account-key-file", "sa.pub"),
        ("service-account-signing-key-file", "sa.key"),
        // Upstream's has no role for the certificate that ours shows to kubelets.
        ("kubelet-client-certificate", "admin.crt"),
        ("kubelet-client-key", "admin.key"),
        ("kubelet-certificate-authority", "ca.crt"),
        ("requestheader-client-ca-file", "front-proxy-ca.crt"),
        ("proxy-client-cert-file", "front-proxy-client.crt"),
        ("proxy-client-key-file", "front-proxy-client.key"),
    ];
    let files =
        files.map(|(flag, file)| format!("--{flag}={}", place.data(&format!("pki/{file}"))));
    let words = [
        "--secure-port=6443",
        // Nobody resolves the names of nodes here.
        "--kubelet-preferred-address-types=InternalIP",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        "--service-cluster-ip-range=10.96.0.0/12",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--allow-privileged",
    ];
    let mut all = vec![
        format!("--etcd-servers={}", super::stock::ETCD),
        format!("--advertise-address={}", place.address),
    ];
    all.extend(files.into_iter().chain(words.map(str::to_owned)));
    all
}

fn controller_manager(place: &Place) -> Vec<String> {
    let mut all = with_kubeconfig(place, "controller-manager");
    let files = [
        ("service-account-private-key-file", "pki/sa.key"),
        ("root-ca-file", "pki/ca.crt"),
        ("cluster-signing-cert-file", "pki/ca.crt"),
        ("cluster-signing-key-file", "pki/ca.key"),
    ];
    all.extend(files.map(|(flag, file)| format!("--{flag}={}", place.data(file))));
    all.extend([
        "--use-service-account-credentials".to_owned(),
        "--allocate-node-cidrs".to_owned(),
        format!("--cluster-cidr={PODS}"),
        "--leader-elect=false".to_owned(),
    ]);
    all
}

fn scheduler(place: &Place) -> Vec<String> {
    let mut all = with_kubeconfig(place, "scheduler");
    all.push("--leader-elect=false".to_owned());
    all
}

fn proxy(place: &Place) -> Vec<String> {
    vec![
        format!("--kubeconfig={}", place.data("proxy.conf")),
        "--proxy-mode=nftables".to_owned(),
        format!("--cluster-cidr={PODS}"),
        format!("--hostname-override={}", place.node),
        // The connection table is the machine's: a network namespace may not change its size.
        "--conntrack-max-per-core=0".to_owned(),
        "--conntrack-tcp-timeout-established=0s".to_owned(),
        "--conntrack-tcp-timeout-close-wait=0s".to_owned(),
    ]
}

fn kubelet(place: &Place) -> Vec<String> {
    vec![
        format!("--kubeconfig={}", place.data("kubelet.conf")),
        format!("--config={}", place.kubelet_config().display()),
        format!("--root-dir={}", place.folder.join("kubelet").display()),
        format!("--hostname-override={}", place.node),
        format!("--node-ip={}", place.address),
    ]
}

/// Our runtime alone, for upstream's kubelet.
pub fn runtime(place: &Place, registries: &Path) -> Vec<String> {
    vec![
        "cri".to_owned(),
        format!("--listen={}", place.socket()),
        format!("--root={}", place.data("runtime")),
        format!("--state={}", place.state),
        format!("--cgroup-root={}", place.cgroup_root),
        format!("--registries={}", registries.display()),
        format!("--cni-conf-dir={}", place.cni().display()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_known_by_upstreams_names() {
        assert_eq!(find("kubelet").map(|part| part.ours), Ok("kubelet"));
        let problem = find("etcd").err().unwrap_or_default();
        assert!(problem.contains("kube-proxy"), "{problem}");
    }
}
