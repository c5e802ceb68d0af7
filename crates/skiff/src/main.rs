//! The binary: picks the components to run, starts them, waits for a signal, drains. It decides
//! nothing else.
#![forbid(unsafe_code)]

mod alone;
mod apiserver;
mod backup;
mod certs;
mod check;
mod cni;
mod configuration;
mod controller_manager;
mod dashboard;
mod dns;
mod etcd;
mod face;
mod flows;
mod install;
mod logging;
mod node;
mod places;
mod proxy;
mod reset;
mod rootless;
mod scheduler;
mod status;
mod token;
mod up;
mod why;

use clap::{CommandFactory, FromArgMatches as _, Parser, Subcommand};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// The system's allocator keeps what a burst of lists took for ever, and costs a tenth of a request;
/// this one gives memory back (its settings are in `.cargo/config.toml`).
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// What this is, of which commit, and which Kubernetes.
fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| {
        let (own, commit) = (env!("CARGO_PKG_VERSION"), env!("SKIFF_COMMIT"));
        format!("{own} ({commit}), Kubernetes {}", api::VERSION)
    });
    &VERSION
}

/// All of Kubernetes in one binary.
#[derive(Parser)]
#[command(version = version())]
struct Cli {
    /// How much to log: 0 what is wrong, 2 what happens, 4 and more why.
    #[arg(short, long = "v", value_name = "LEVEL", default_value_t = 0, global = true)]
    verbosity: u8,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a cluster on this machine.
    #[command(alias = "server", args_override_self = true)]
    Up(Box<up::Options>),
    /// Make this machine a node of a cluster that runs elsewhere.
    #[command(args_override_self = true)]
    Agent(up::agent::Options),
    /// Say who may join the cluster of this machine.
    Token(token::Options),
    /// Say how the cluster on this machine is.
    Status(status::Options),
    /// Say why something is as it is, and what to type next.
    Why(why::Options),
    /// Show the cluster in a browser.
    Dashboard(dashboard::Options),
    /// Say which commit of skiff and which Kubernetes this is.
    Version,
    /// Say whether this machine is fit to be a node, and what to do if it is not.
    Check(check::Options),
    /// List certificates and when they end, or make them again.
    Certs(certs::Options),
    /// Make this machine run skiff after every start, by systemd or OpenRC.
    Install(install::Install),
    /// Take that back.
    Uninstall(install::Uninstall),
    /// Write the cluster of this machine to a file, while it runs or not.
    Backup(backup::Backup),
    /// Make a cluster of such a file.
    Restore(backup::Restore),
    /// Remove everything skiff made on this machine, after listing it.
    Reset(reset::Options),
    /// Run the API server alone, with upstream's flags.
    #[command(name = "apiserver", alias = "kube-apiserver")]
    ApiServer(Box<apiserver::Options>),
    /// Run the embedded store alone, in the place of an etcd of one member.
    Etcd(Box<face::Options>),
    /// Run the control loops alone, with upstream's flags.
    #[command(name = "controller-manager", alias = "kube-controller-manager")]
    ControllerManager(Box<controller_manager::Options>),
    /// Run the scheduler alone, with upstream's flags.
    #[command(alias = "kube-scheduler")]
    Scheduler(scheduler::Options),
    /// Run the rules of services alone, with upstream's flags.
    #[command(alias = "kube-proxy")]
    Proxy(proxy::Options),
    /// Run the cluster's DNS alone.
    Dns(dns::Options),
    /// Tell what NetworkPolicies drop on this node, as it happens.
    Flows(flows::Options),
    /// Talk to a cluster: all that kubectl does.
    #[command(disable_help_flag = true)]
    Kubectl {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Look at a container runtime, ours or another: all that crictl does.
    #[command(disable_help_flag = true)]
    Crictl {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Be a CNI plugin, for other container runtimes: our pod network by another name.
    #[command(alias = "skiff-cni")]
    Cni,
    #[command(flatten)]
    Node(node::Command),
}

/// Whoever reads our output may have gone (`skiff status | head`): then there is nobody to be told, and no more to do.
fn end_with_the_reader() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        // As the standard library has it; its error does not come with it.
        let said = panic.payload_as_str().unwrap_or_default();
        if said.starts_with("failed printing to stdout: Broken pipe") {
            std::process::exit(1);
        }
        usual(panic);
    }));
}

fn main() -> anyhow::Result<std::process::ExitCode> {
    // The shim is small: it starts before anything else does.
    if let Some(spec) = node::shim_arguments() {
        runtime::shim::main(&spec)?;
        return Ok(std::process::ExitCode::SUCCESS);
    }
    if std::env::args_os().nth(1).is_some_and(|command| command == "pause") {
        runtime::builtin::pause();
    }
    if std::env::args_os().nth(1).is_some_and(|command| command == rootless::HOLD) {
        rootless::hold()?;
    }
    // Their command lines are their own: flags are read as upstream's are.
    if let Some(arguments) = arguments_of("kubectl", std::env::args_os()) {
        return Ok(kubectl::main(arguments));
    }
    if let Some(arguments) = arguments_of("crictl", std::env::args_os()) {
        return Ok(crictl::main(arguments, &node::own_socket()));
    }
    end_with_the_reader();
    let typed = called_as(&Cli::command(), std::env::args_os().collect());
    let typed = configuration::with_file(&Cli::command(), typed)?;
    let found = Cli::command().get_matches_from(typed);
    alone::flags::remember(&Cli::command(), &found);
    let cli = Cli::from_arg_matches(&found).unwrap_or_else(|error| error.exit());
    let verbosity = logging::start(cli.verbosity);
    if let Some(code) = rootless::elsewhere(&cli.command)? {
        return Ok(code);
    }
    // One provider for everything that speaks TLS: a second one would be a panic at run time. It
    // is an error only if one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let tasks = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = match cli.command {
        Command::Up(options) => {
            raise_open_files();
            tasks.block_on(up::run(*options))
        }
        Command::Agent(options) => {
            raise_open_files();
            tasks.block_on(up::agent::run(options))
        }
        Command::Token(options) => tasks.block_on(token::run(options)),
        Command::Status(options) => tasks.block_on(status::run(options)),
        Command::Why(options) => tasks.block_on(why::run(options)),
        Command::Version => {
            println!("skiff {}", version());
            Ok(())
        }
        Command::Dashboard(options) => tasks.block_on(dashboard::run(options)),
        Command::Check(options) => check::run(&options),
        Command::Certs(options) => certs::run(&options),
        Command::Install(options) => install::install(&options),
        Command::Uninstall(options) => install::uninstall(&options),
        Command::Backup(options) => tasks.block_on(backup::run(options)),
        Command::Restore(options) => backup::restore(&options),
        Command::Reset(options) => reset::run(&options, &tasks),
        Command::ApiServer(options) => {
            raise_open_files();
            tasks.block_on(apiserver::run(*options, verbosity))
        }
        Command::Etcd(options) => tasks.block_on(face::run(*options)),
        Command::ControllerManager(options) => tasks.block_on(controller_manager::run(*options)),
        Command::Scheduler(options) => tasks.block_on(scheduler::run(options)),
        Command::Proxy(options) => tasks.block_on(proxy::run(options)),
        Command::Dns(options) => tasks.block_on(dns::run(options)),
        Command::Flows(options) => tasks.block_on(flows::run(options)),
        Command::Cni => return Ok(cni::run()),
        // Reached only with flags of ours before the command's name.
        Command::Kubectl { arguments } => return Ok(kubectl::main(arguments)),
        Command::Crictl { arguments } => {
            return Ok(crictl::main(arguments, &node::own_socket()));
        }
        Command::Node(command) => tasks.block_on(node::run(command)),
    };
    ended.map(|()| std::process::ExitCode::SUCCESS)
}

/// A link to this binary with a component's name is that component: what upstream has as many programs
/// is one here.
fn called_as(cli: &clap::Command, mut typed: Vec<OsString>) -> Vec<OsString> {
    let name = typed.first().and_then(|path| Path::new(path).file_name()).and_then(OsStr::to_str);
    if let Some(command) = name.and_then(|name| cli.find_subcommand(name)) {
        typed.insert(1, command.get_name().into());
    }
    typed
}

/// What a client (`skiff kubectl …`, or a link called `kubectl`) was called with.
fn arguments_of(client: &str, mut typed: impl Iterator<Item = OsString>) -> Option<Vec<OsString>> {
    let is_client = |path: &OsString| Path::new(path).file_name() == Some(OsStr::new(client));
    let by_name = typed.next().is_some_and(|program| is_client(&program));
    if by_name || typed.next().is_some_and(|command| command == client) {
        return Some(typed.collect());
    }
    None
}

/// A server has a file for each connection: as many as the machine lets it have, not the few that
/// programs get which do not ask.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
}

/// How long components have to end.
const DRAIN: Duration = Duration::from_secs(10);

/// Resolves when somebody asks the process to stop.
fn stop_signal() -> anyhow::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::error::ErrorKind;

    #[test]
    fn a_link_with_a_component_s_name_is_that_component() {
        let called = |words: &[&str]| {
            let words = words.iter().map(OsString::from).collect();
            called_as(&Cli::command(), words).join(OsStr::new(" ")).into_string().unwrap()
        };
        assert_eq!(called(&["/usr/bin/skiff", "up"]), "/usr/bin/skiff up");
        assert_eq!(called(&["kube-proxy", "--v=2"]), "kube-proxy proxy --v=2");
        assert_eq!(called(&["/opt/kube-apiserver"]), "/opt/kube-apiserver apiserver");
    }

    #[test]
    fn clients_have_their_own_command_lines() {
        let called = |words: &[&str]| arguments_of("kubectl", words.iter().map(OsString::from));
        let get = || Some(vec![OsString::from("get"), OsString::from("-A")]);
        assert_eq!(called(&["/usr/bin/kubectl", "get", "-A"]), get());
        assert_eq!(called(&["skiff", "kubectl", "get", "-A"]), get());
        assert_eq!(called(&["skiff", "up", "kubectl"]), None);
        assert_eq!(called(&["skiff"]), None);
        let called = |words: &[&str]| arguments_of("crictl", words.iter().map(OsString::from));
        assert_eq!(called(&["/usr/local/bin/crictl", "-D"]), Some(vec!["-D".into()]));
        assert_eq!(called(&["skiff", "crictl"]), Some(Vec::new()));
        assert_eq!(called(&["skiff", "ps"]), None);
    }

    #[test]
    fn a_version_names_the_commit_and_kubernetes() {
        let error = Cli::command().try_get_matches_from(["skiff", "--version"]).unwrap_err();
        let said = error.to_string();
        assert!(said.starts_with("skiff ") && said.trim_end().ends_with(api::VERSION), "{said}");
        assert!(said.contains(env!("SKIFF_COMMIT")), "{said}");
    }

    /// Every `skiff …` that a text of this repository's programs tells people to type.
    fn told(folder: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                told(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).expect("a source file");
                let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
                for line in lines {
                    let commands = line.split('`').skip(1).step_by(2);
                    found.extend(commands.filter(|c| c.starts_with("skiff ")).map(str::to_owned));
                }
            }
        }
    }

    #[test]
    fn what_people_are_told_to_type_is_understood() {
        let mut found = Vec::new();
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for entry in std::fs::read_dir(crates).expect("the crates").flatten() {
            told(&entry.path().join("src"), &mut found);
        }
        assert!(found.iter().any(|command| command == "skiff restore --salvage"), "{found:?}");
        for command in found {
            let parsed = Cli::command().try_get_matches_from(command.split_whitespace());
            // A text may leave out what only its reader knows.
            let wrong = parsed.err().filter(|e| e.kind() != ErrorKind::MissingRequiredArgument);
            assert!(wrong.is_none(), "{command}: {wrong:?}");
        }
    }
}
