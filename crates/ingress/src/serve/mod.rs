//! Does what the table says: sockets, TLS, HTTP, and connections to pods.
//!
//! ```text
//!  listen      ports that are open, while the table has them
//!  connection  one client: TLS or not, HTTP/1.1 or HTTP/2, for so long as it asks
//!  tls         certificates by the name that a client looks for, and those that it has to show
//!  passing     connections that are passed on unread
//!  datagrams   UDP: sessions of clients with pods
//!  exchange    one request: its rule, its filters, its pod, its answer
//!  headers     what of a message is for the next one alone, and what is said about the client
//!  upstream    a service's pods: who is asked next
//!  endpoint    one pod: connections that are kept, and new ones
//!  body        what flows through, never held as a whole
//! ```
mod body;
mod connection;
mod datagrams;
mod endpoint;
mod exchange;
mod headers;
mod listen;
mod passing;
#[cfg(test)]
pub mod tests;
mod tls;
mod upstream;

pub use listen::{Listeners, Wanted};

use crate::table::{Destination, Table};
use client::Context;
use datagrams::{Bounds, Sessions};
use parking_lot::{Mutex, RwLock};
use rustls::ServerConfig;
use rustls::sign::CertifiedKey;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use tls::Terms;
use tokio::sync::Semaphore;
use upstream::Upstream;

/// Clients at once; more wait in the kernel's queue.
const MOST_CLIENTS: usize = 16_384;
/// As many of them may have connections that are passed on, which end when it pleases them.
const MOST_PASSED: usize = MOST_CLIENTS / 2;

/// What all connections share.
pub struct Proxy {
    pub(crate) context: Context,
    table: RwLock<Arc<Table>>,
    upstreams: RwLock<HashMap<Arc<Destination>, Arc<Upstream>>>,
    /// For names that nobody has a certificate for.
    unnamed: Arc<CertifiedKey>,
    clients: Arc<Semaphore>,
    passed: Arc<Semaphore>,
    sessions: Sessions,
    configs: Mutex<HashMap<Terms, Arc<ServerConfig>>>,
}

impl Proxy {
    pub fn new(context: &Context) -> Result<Arc<Proxy>, rcgen::Error> {
        Proxy::bounded(context, Bounds::default())
    }

    fn bounded(context: &Context, bounds: Bounds) -> Result<Arc<Proxy>, rcgen::Error> {
        Ok(Arc::new(Proxy {
            context: context.clone(),
            table: RwLock::default(),
            upstreams: RwLock::default(),
            unnamed: tls::self_signed()?,
            clients: Arc::new(Semaphore::new(MOST_CLIENTS)),
            passed: Arc::new(Semaphore::new(MOST_PASSED)),
            sessions: Sessions::new(bounds),
            configs: Mutex::default(),
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
        self.configs.lock().retain(|terms, _| terms.are_of(&table));
        *self.table.write() = Arc::new(table);
    }

    /// TLS on these terms. Sessions are taken up again on the same terms alone: who has shown no certificate
    /// elsewhere shows one here.
    fn config(self: &Arc<Self>, terms: Terms) -> Result<Arc<ServerConfig>, tls::TermsError> {
        if let Some(known) = self.configs.lock().get(&terms) {
            return Ok(known.clone());
        }
        let config = tls::server(self, &terms)?;
        // What the table of the moment does not have is not kept: it might never be thrown away.
        if terms.are_of(&self.table()) {
            self.configs.lock().insert(terms, config.clone());
        }
        Ok(config)
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
