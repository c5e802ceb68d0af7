//! The dashboard: a page that shows a cluster, live, to the person who started it.
//!
//! **It may not know** any component, nor the insides of the API server. It has no rights of its own: what the
//! page asks is asked with the kubeconfig of whoever started it, who may do no more than with kubectl. Nothing
//! of it runs in the cluster, and nothing listens beyond this machine unless somebody says so.
//!
//! ```text
//!  page/    what the browser runs: plain HTML, CSS and modules; every table is the server's own  (no build step)
//!  files    the page, in the binary: nothing is fetched from elsewhere
//!  guard    which requests are let in: by host, origin and key                                   (pure)
//!  serve    HTTP on loopback: a file, or the API server's answer as it comes
//! ```
//! A page of another origin must not reach the cluster through the browser of somebody who has the dashboard
//! open: requests have to name this server as their host (no name that was made to lead here), have to come
//! from its own page, and have to carry the key, which the page is given behind the `#` of its address and
//! which no browser sends along by itself.
#![forbid(unsafe_code)]

mod files;
mod guard;
mod serve;

pub use guard::Door;
pub use serve::run;
