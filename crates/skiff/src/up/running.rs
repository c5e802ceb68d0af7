//! Which components run on this machine, written down for `skiff status`, which asks those that have a page for
//! it how they are.
use super::components::{COMPONENTS, Cluster};
use client::http::tls::Believed;
use client::https::{Config, Https, Proof};
use client::source::Raw;
use client::{Context, Source as _};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::Duration;

const FILE: &str = "components";
/// One that says nothing for so long is not well.
const PATIENCE: Duration = Duration::from_secs(3);

/// Where a component says how it is: whether over TLS, on loopback alone, and the port.
const PAGES: &[(&str, &str, bool, u16)] = &[
    ("controller-manager", "https", false, 10257),
    ("scheduler", "https", false, 10259),
    ("kubelet", "http", true, 10248),
    ("proxy", "http", false, 10256),
];

pub fn tell(cluster: &Cluster) -> std::io::Result<()> {
    let mut text = format!("{}\n", cluster.node_ip());
    for row in COMPONENTS.iter().filter(|row| cluster.runs(row.name)) {
        text += &format!("{}\n", row.name);
    }
    crate::install::write(&cluster.machine.data_dir.join(FILE), text.as_bytes(), 0o600)
}

/// Those that run here, and what is wrong with any of them.
pub async fn lines(data: &Path) -> Vec<String> {
    let Some((address, names)) = written(data) else { return Vec::new() };
    let mut wrong = Vec::new();
    for name in &names {
        let Some(url) = page(name, address) else { continue };
        if let Err(problem) = ask(&url).await {
            wrong.push((name.clone(), format!("{url}/healthz: {problem}")));
        }
    }
    told(&names, &wrong)
}

fn written(data: &Path) -> Option<(IpAddr, Vec<String>)> {
    let text = std::fs::read_to_string(data.join(FILE)).ok()?;
    let mut lines = text.lines();
    let address = lines.next()?.parse().ok()?;
    Some((address, lines.map(str::to_owned).collect()))
}

fn page(component: &str, address: IpAddr) -> Option<String> {
    let (_, scheme, is_local, port) = PAGES.iter().find(|(name, ..)| *name == component)?;
    let address = if *is_local { Ipv4Addr::LOCALHOST.into() } else { address };
    Some(format!("{scheme}://{}", std::net::SocketAddr::new(address, *port)))
}

async fn ask(url: &str) -> Result<(), String> {
    // It is asked nothing that is secret, and nothing secret is said to it.
    let config = Config::new(url, Believed::Anyone, Proof::default());
    let asked = async {
        let source = Https::new(&Context::new(), config).map_err(|error| error.to_string())?;
        match source.raw(Raw::get("/healthz")).await {
            Ok(answer) if answer.code == 200 => Ok(()),
            Ok(answer) => Err(format!("it says {}", answer.code)),
            Err(status) => Err(status.message),
        }
    };
    tokio::time::timeout(PATIENCE, asked).await.unwrap_or_else(|_| Err("no answer".to_owned()))
}

fn told(names: &[String], wrong: &[(String, String)]) -> Vec<String> {
    let all = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let mut lines = vec![format!("Components  {all}")];
    for (name, problem) in wrong {
        lines.push(format!(
            "            {name} does not answer at {problem}; one that fails is started again, and the \
             log of skiff says why"
        ));
    }
    let left_out: Vec<&str> =
        PAGES.iter().map(|row| row.0).filter(|row| !names.iter().any(|name| name == row)).collect();
    if !left_out.is_empty() {
        lines.push(format!("            left out here: {}", left_out.join(", ")));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_answer_and_what_is_left_out_are_named() {
        let names = ["scheduler", "kubelet", "dns"].map(str::to_owned);
        let wrong =
            [("scheduler".to_owned(), "https://192.0.2.1:10259/healthz: refused".to_owned())];
        assert_eq!(
            told(&names, &wrong),
            [
                "Components  scheduler, kubelet, dns",
                "            scheduler does not answer at https://192.0.2.1:10259/healthz: refused; \
                 one that fails is started again, and the log of skiff says why",
                "            left out here: controller-manager, proxy",
            ]
        );
    }

    #[test]
    fn a_component_is_asked_where_it_is() {
        let address = "fd00::1".parse().expect("an address");
        assert_eq!(page("scheduler", address).as_deref(), Some("https://[fd00::1]:10259"));
        assert_eq!(page("kubelet", address).as_deref(), Some("http://127.0.0.1:10248"));
        assert_eq!(page("dns", address), None);
        // Nothing was written where nothing runs.
        assert_eq!(written(Path::new("/nonexistent")), None);
        for (name, ..) in PAGES {
            assert!(COMPONENTS.iter().any(|row| row.name == *name), "{name}");
        }
    }

    #[tokio::test]
    async fn nobody_there_is_said() {
        // A port that was free a moment ago, on an address that only this test asks.
        let taken = std::net::TcpListener::bind("127.77.0.9:0").expect("a port");
        let url = format!("http://{}", taken.local_addr().expect("an address"));
        drop(taken);
        assert!(ask(&url).await.is_err());
    }
}
