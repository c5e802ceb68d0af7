//! What an attacker tries, as rows: who he is, what he may, what he sends, how slowly, and that he is
//! gone before the answer.
mod broken;
mod clients;
mod depth;
mod fuzz;

use crate::cluster::Cluster as Server;
use std::sync::Arc;
use testkit::client::Endpoint;

/// The administrator, over HTTP/1.1: what is said on the wire is text.
fn admin(server: &Server) -> Arc<Endpoint> {
    Arc::new(Endpoint::read(&server.kubeconfig(), false).expect("a kubeconfig"))
}

fn nobody(server: &Server) -> Arc<Endpoint> {
    Arc::new(Endpoint::nobody(&server.kubeconfig(), false).expect("a kubeconfig"))
}

fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Runtime::new().expect("a runtime").block_on(test);
}
