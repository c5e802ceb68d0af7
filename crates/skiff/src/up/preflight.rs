//! What a machine must have, said before anything is touched: a sentence, and the remedy.
use super::Machine;
use crate::check::{self, Facts};
use anyhow::Context as _;

/// A machine that is no node needs nothing.
pub fn check(is_node: bool, machine: &Machine) -> anyhow::Result<()> {
    if !is_node {
        return Ok(());
    }
    if let Some(trouble) = check::trouble(&Facts::read(&machine.data_dir)) {
        anyhow::bail!("{trouble}; `skiff check` says more");
    }
    match machine.encrypt {
        true => encryption(machine),
        false => Ok(()),
    }
}

/// Who asks for encryption has it, or no cluster: nobody is to find out later that it went in the clear.
fn encryption(machine: &Machine) -> anyhow::Result<()> {
    anyhow::ensure!(
        machine.has_own_network(),
        "--encrypt is for the built-in pod network, and CNI plugins or another runtime make their own here: \
         leave it out, or take their configuration away"
    );
    match network::encryption() {
        Err(error) if error.is_unsupported() => anyhow::bail!(
            "--encrypt needs WireGuard, which this kernel does not have: load it with `modprobe wireguard`, \
             or use a kernel with CONFIG_WIREGUARD"
        ),
        tried => tried.context("--encrypt needs WireGuard, which failed when it was tried"),
    }
}
