//! Who starts services on this machine, and what they are told of ours.
use super::steps::{Step, below};
use std::path::Path;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Manager {
    Systemd,
    OpenRc,
}

const UNIT: &str = "/etc/systemd/system/skiff.service";
const SCRIPT: &str = "/etc/init.d/skiff";
/// Where there is no journal.
const LOG: &str = "/var/log/skiff.log";

impl Manager {
    pub fn of(root: &Path) -> Option<Manager> {
        let has = |path: &str| below(root, Path::new(path)).exists();
        // An image that is being made has its files, and nothing running.
        if has("/run/systemd/system")
            || has("/lib/systemd/systemd")
            || has("/usr/lib/systemd/systemd")
        {
            return Some(Manager::Systemd);
        }
        (has("/sbin/openrc-run") || has("/etc/init.d")).then_some(Manager::OpenRc)
    }

    pub fn is_installed(self, root: &Path) -> bool {
        let path = match self {
            Manager::Systemd => UNIT,
            Manager::OpenRc => SCRIPT,
        };
        below(root, Path::new(path)).exists()
    }

    pub fn installation(self, binary: &str, role: &str, start: bool) -> Vec<Step> {
        let (path, text, mode) = match self {
            Manager::Systemd => (UNIT, systemd(binary, role), 0o644),
            Manager::OpenRc => (SCRIPT, open_rc(binary, role), 0o755),
        };
        let mut steps = vec![Step::Write { path: path.into(), text, mode }];
        let commands: &[&[&str]] = match self {
            Manager::Systemd => &[
                &["systemctl", "daemon-reload"],
                &["systemctl", "enable", "skiff"],
                &["systemctl", "restart", "skiff"],
            ],
            Manager::OpenRc => {
                &[&["rc-update", "add", "skiff", "default"], &["rc-service", "skiff", "restart"]]
            }
        };
        if start {
            steps.extend(commands.iter().map(|words| Step::command(words)));
        }
        steps
    }

    pub fn removal(self, root: &Path) -> Vec<Step> {
        let (path, commands): (_, &[&[&str]]) = match self {
            Manager::Systemd => (UNIT, &[&["systemctl", "disable", "--now", "skiff"]]),
            Manager::OpenRc => (
                SCRIPT,
                &[&["rc-service", "skiff", "stop"], &["rc-update", "del", "skiff", "default"]],
            ),
        };
        let is_running = root == Path::new("/") && Path::new(path).exists();
        let mut steps: Vec<Step> = match is_running {
            true => commands.iter().map(|words| Step::command(words)).collect(),
            false => Vec::new(),
        };
        steps.push(Step::Remove(path.into()));
        match self {
            Manager::Systemd if is_running => {
                steps.push(Step::command(&["systemctl", "daemon-reload"]));
            }
            Manager::Systemd => {}
            Manager::OpenRc => steps.push(Step::Remove(LOG.into())),
        }
        steps
    }
}

/// Pods outlive the daemon: only the process itself is stopped, and nobody limits what it delegates.
fn systemd(binary: &str, role: &str) -> String {
    format!(
        "[Unit]\nDescription=Kubernetes by skiff\n\
         Wants=network-online.target\nAfter=network-online.target\n\n\
         [Service]\nExecStart={binary} {role}\nRestart=always\nRestartSec=2\nKillMode=process\n\
         Delegate=yes\nLimitNOFILE=1048576\nLimitNPROC=infinity\nLimitCORE=infinity\nTasksMax=infinity\n\
         TimeoutStartSec=0\nOOMScoreAdjust=-999\n\n[Install]\nWantedBy=multi-user.target\n"
    )
}

fn open_rc(binary: &str, role: &str) -> String {
    format!(
        "#!/sbin/openrc-run\nname=skiff\ndescription=\"Kubernetes by skiff\"\n\
         supervisor=supervise-daemon\ncommand={binary}\ncommand_args={role}\n\
         output_log={LOG}\nerror_log={LOG}\nrespawn_delay=2\n\
         rc_ulimit=\"-n 1048576\"\n\ndepend() {{\n\tneed net\n\tafter firewall\n}}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stopping_the_service_leaves_pods_running() {
        let unit = systemd("/usr/local/bin/skiff", "up");
        for line in [
            "ExecStart=/usr/local/bin/skiff up",
            "KillMode=process",
            "Delegate=yes",
            "Restart=always",
        ] {
            assert!(unit.lines().any(|found| found == line), "{line}");
        }
    }

    #[test]
    fn an_installed_service_is_started_and_a_removed_one_stopped() {
        let shown = |steps: Vec<Step>| steps.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(
            shown(Manager::Systemd.installation("/b", "up", true)),
            [
                "write   /etc/systemd/system/skiff.service",
                "run     systemctl daemon-reload",
                "run     systemctl enable skiff",
                "run     systemctl restart skiff"
            ]
        );
        assert_eq!(
            shown(Manager::OpenRc.installation("/b", "up", false)),
            ["write   /etc/init.d/skiff"]
        );
    }
}
