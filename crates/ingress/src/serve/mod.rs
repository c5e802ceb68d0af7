//! Does what the table says: sockets, TLS, HTTP, and connections to pods.
//!
//! ```text
//!  listen      ports that are open, while the table has them
//!  connection  one client: TLS or not, HTTP/1.1 or HTTP/2, for so long as it asks
//!  tls         certificates by the name that a client looks for; connections that are passed on unread
//!  exchange    one request: its rule, its filters, its pod, its answer
//!  headers     what of a message is for the next one alone, and what is said about the client
//!  upstream    a service's pods: who is asked next
//!  endpoint    one pod: connections that are kept, and new ones
//!  body        what flows through, never held as a whole
//! ```
mod body;
mod connection;
mod endpoint;
mod exchange;
mod headers;
mod listen;
#[cfg(test)]
pub mod tests;
mod tls;
mod upstream;

pub use listen::Listeners;

use crate::table::{Destination, Table};
use client::Context;
use parking_lot::RwLock;
use rustls::sign::CertifiedKey;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::Semaphore;
use upstream::Upstream;

/// Clients at once; more wait in the kernel's queue.
const MOST_CLIENTS: usize = 16_384;

/// What all connections share.
pub struct Proxy {
    pub(crate) context: Context,
    table: RwLock<Arc<Table>>,
    upstreams: RwLock<HashMap<Arc<Destination>, Arc<Upstream>>>,
    /// For names that nobody has a certificate for.
    unnamed: Arc<CertifiedKey>,
    clients: Arc<Semaphore>,
}

impl Proxy {
    pub fn new(context: &Context) -> Result<Arc<Proxy>, rcgen::Error> {
        Ok(Arc::new(Proxy {
            context: context.clone(),
            table: RwLock::default(),
            upstreams: RwLock::default(),
            unnamed: tls::self_signed()?,
            clients: Arc::new(Semaphore::new(MOST_CLIENTS)),
        }))
    }

    pub fn table(&self) -> Arc<Table> {
        self.table.read().clone()
    }

    /// Requests from now on are answered by this table. Connections to services that it knows not are
    /// let go.
    pub fn set_table(&self, table: Table) {
        let known = table.destinations();
        {
            let mut upstreams = self.upstreams.write();
            upstreams.retain(|destination, _| known.contains(destination));
            for destination in known {
                let upstream = || Arc::new(Upstream::new(destination.clone()));
                upstreams.entry(destination.clone()).or_insert_with(upstream);
            }
        }
        *self.table.write() = Arc::new(table);
    }

    /// Where the pods of a service are now.
    pub fn set_addresses(&self, of: impl Fn(&Destination) -> Option<Vec<SocketAddr>>) {
        for (destination, upstream) in self.upstreams.read().iter() {
            if let Some(addresses) = of(destination) {
                upstream.set(&addresses);
            }
        }
    }

    /// Lets go of connections that nobody has used for a while.
    pub fn sweep(&self) {
        let all: Vec<Arc<Upstream>> = self.upstreams.read().values().cloned().collect();
        all.iter().for_each(|upstream| upstream.sweep());
    }

    fn upstream(&self, destination: &Arc<Destination>) -> Option<Arc<Upstream>> {
        self.upstreams.read().get(destination).cloned()
    }
}
