//! Requests that are a little wrong, as many as one likes, against a server that may be lost.
use std::path::Path;
use std::sync::Arc;
use testkit::client::{Connection, Endpoint};
use testkit::fuzz;

pub fn run(kubeconfig: &Path, count: u64, seed: u64) -> Result<(), String> {
    let count = usize::try_from(count).map_err(|error| error.to_string())?;
    let sending = async {
        let endpoint = Arc::new(Endpoint::read(kubeconfig, false)?);
        fuzz::run(&mut Connection::open(&endpoint).await?, seed, count).await
    };
    let runtime = tokio::runtime::Runtime::new().map_err(|error| error.to_string())?;
    let report = runtime.block_on(sending).map_err(|error| format!("{error:#}"))?;
    println!(
        "{} written, {} refused, {} faults",
        report.written,
        report.refused,
        report.faults.len()
    );
    if report.faults.is_empty() { Ok(()) } else { Err(report.faults.join("\n")) }
}
