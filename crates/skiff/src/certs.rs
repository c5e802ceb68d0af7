//! `skiff certs`: the certificates of this machine's cluster, when they end, and new ones.
//!
//! They are renewed by themselves while the cluster runs; this is for who wants to look, for a machine
//! that was off for a year, and for keys that somebody may have seen. Servers read new files by
//! themselves.
use crate::up::given;
use ::apiserver::pki::{self, Pki, Shown};
use anyhow::Context as _;
use jiff::Timestamp;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub struct Options {
    /// Where the cluster's state and keys are kept.
    #[arg(long, default_value_os_t = crate::places::data_dir(), global = true)]
    data_dir: PathBuf,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(clap::Subcommand)]
enum Command {
    /// List certificates, and when they end.
    List,
    /// Make certificates and their keys again: those named, or all but the authorities'.
    Renew { names: Vec<String> },
}

pub fn run(options: &Options) -> anyhow::Result<()> {
    let data = &options.data_dir;
    match &options.command {
        None | Some(Command::List) => {
            let found = found(data);
            anyhow::ensure!(
                !found.is_empty(),
                "there are no certificates below {}: `skiff up` makes them",
                data.display()
            );
            print!("{}", page(&found, Timestamp::now()));
        }
        Some(Command::Renew { names }) => {
            let pki = Pki::existing(&data.join("pki")).context(
                "no keys of a cluster are here: certificates of a node renew themselves",
            )?;
            let known = pki.certificates();
            let is_known = |name: &&String| known.iter().any(|one| one.file == **name);
            if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
                anyhow::bail!("there is no certificate {unknown}: `skiff certs list` names them");
            }
            let made = pki.reissue(names, Timestamp::now())?;
            rewrite_kubeconfigs(data, &pki)?;
            println!("made again: {}", made.join(", "));
        }
    }
    Ok(())
}

/// Those of the cluster's own machine, and those of one that has joined.
pub fn found(data: &Path) -> Vec<Shown> {
    let own = Pki::existing(&data.join("pki")).map(|pki| pki.certificates()).unwrap_or_default();
    let joined = ["ca", "kubelet-client", "kubelet", "proxy"]
        .into_iter()
        .filter_map(|name| pki::shown(&data.join(format!("agent/{name}.crt"))));
    own.into_iter().chain(joined).collect()
}

/// Kubeconfigs carry certificates: those that skiff has written get the new ones.
fn rewrite_kubeconfigs(data: &Path, pki: &Pki) -> anyhow::Result<()> {
    let files = [
        ("kubeconfig", "admin"),
        ("controller-manager.conf", "controller-manager"),
        ("scheduler.conf", "scheduler"),
        ("proxy.conf", "proxy"),
        ("kubelet.conf", "kubelet-client"),
    ];
    for (file, client) in files {
        let path = data.join(file);
        if !path.exists() {
            continue;
        }
        let config = client::https::Config::from_kubeconfig(&path, None)?;
        pki.write_kubeconfig(&path, &config.server, client)?;
    }
    given::give_again(data).context("the kubeconfig of who called sudo is the old one")
}

fn page(found: &[Shown], now: Timestamp) -> String {
    let mut page = format!("{:<26}{:<34}{:<28}{:<22}LEFT\n", "CERTIFICATE", "FOR", "BY", "ENDS");
    for one in found {
        let days = (one.ends.as_second() - now.as_second()).div_euclid(24 * 60 * 60);
        let left = match days {
            ..0 => "ended".to_owned(),
            0 => "less than a day".to_owned(),
            1 => "1 day".to_owned(),
            _ => format!("{days} days"),
        };
        page += &format!(
            "{:<26}{:<34}{:<28}{:<22}{left}\n",
            one.file,
            one.name,
            one.issuer,
            api::time::format(one.ends.as_second())
        );
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_listed_with_their_ends_and_made_again() {
        let data = tempfile::tempdir().unwrap();
        let folder = data.path().join("pki");
        let address = "192.0.2.7".parse().unwrap();
        let names = ["api.example.com".to_owned()];
        let pki = Pki::open_for(&folder, &[address]).unwrap().with_names(&names).unwrap();
        let pki = pki.with_node("one").unwrap();
        let kubeconfig = data.path().join("kubeconfig");
        pki.write_kubeconfig(&kubeconfig, "https://192.0.2.7:6443", "admin").unwrap();
        let read = |path: &Path| std::fs::read_to_string(path).unwrap();
        let before =
            (read(&kubeconfig), read(&folder.join("ca.crt")), read(&folder.join("proxy.crt")));

        let listed = page(&found(data.path()), Timestamp::now());
        let line = listed.lines().find(|line| line.starts_with("kubelet-client")).unwrap();
        assert!(
            line.contains("system:node:one")
                && (line.ends_with("364 days") || line.ends_with("365 days")),
            "{line}"
        );

        let renew = |names: &[&str]| {
            let names = names.iter().map(|&name| name.to_owned()).collect();
            run(&Options {
                data_dir: data.path().to_owned(),
                command: Some(Command::Renew { names }),
            })
        };
        assert!(renew(&["nobody"]).unwrap_err().to_string().contains("no certificate nobody"));
        renew(&["admin", "apiserver"]).unwrap();
        assert_ne!(read(&kubeconfig), before.0);
        assert_eq!(read(&folder.join("ca.crt")), before.1);
        assert_eq!(read(&folder.join("proxy.crt")), before.2);
        // A server that is made again is found where it was found before.
        let shown = pki::shown(&folder.join("apiserver.crt")).unwrap();
        assert!(shown.addresses.contains(&address) && shown.names.contains(&names[0]), "{shown:?}");
    }

    #[test]
    fn what_has_ended_is_said_to_have_ended() {
        let at = |text: &str| -> Timestamp { text.parse().unwrap() };
        let one = Shown {
            file: "a".into(),
            name: "b".into(),
            issuer: "c".into(),
            ends: at("2026-01-01T00:00:00Z"),
            addresses: vec![],
            names: vec![],
        };
        let left = |now: &str| {
            page(std::slice::from_ref(&one), at(now)).lines().nth(1).unwrap()[110..].to_owned()
        };
        assert_eq!(left("2026-01-01T00:00:01Z"), "ended");
        assert_eq!(left("2025-12-31T00:00:01Z"), "less than a day");
        assert_eq!(left("2025-12-30T00:00:00Z"), "2 days");
    }
}
