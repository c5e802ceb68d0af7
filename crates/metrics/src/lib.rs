//! What nodes and pods use, as `metrics.k8s.io` tells it: for `kubectl top` and for autoscaling.
//!
//! **It may not know** how a kubelet measures, nor the API server's insides: it reads kubelets' pages
//! and answers an aggregating API server, as anybody's metrics server would.
//!
//! ```text
//!  scrape   each node's /metrics/resource, every fifteen seconds
//!  sample   the page's text → one point of the node and of each container          (pure)
//!  usage    the last two points → what was used between them                       (pure)
//!  answer   a path and what is kept → discovery, nodes, pods                       (pure)
//!  serve    HTTPS for whoever shows the certificate of the API server's proxy
//! ```
//! Of each node two pages' worth of numbers is kept, and nothing of the past.
#![forbid(unsafe_code)]

mod answer;
mod sample;
mod scrape;
mod serve;
mod usage;
mod world;

pub use scrape::{Kubelets, WayTo};
pub use serve::{Serving, run};
