//! What is thrown away while pods go on: containers that ended long ago, logs that grew long,
//! images that nobody uses when the disk fills up.
//!
//! ```text
//!  containers  which of those that ended are kept                 (pure decision)
//!  images      which images go when the disk is full              (pure decision)
//!  logs        rotation: rename, reopen, compress, remove
//! ```
mod containers;
mod images;
mod logs;

pub use images::Seen;

use crate::log_links;
use crate::worker::Kubelet;
use std::sync::Arc;
use std::time::Duration;

/// Upstream's periods.
const CONTAINERS: Duration = Duration::from_secs(60);
const IMAGES: Duration = Duration::from_secs(5 * 60);

/// Until the context stops.
pub async fn collect(kubelet: &Arc<Kubelet>) {
    tokio::join!(
        async {
            while kubelet.context.sleep(CONTAINERS).await {
                containers::collect(kubelet, false).await;
                log_links::sweep(&kubelet.config.log_root);
            }
        },
        async {
            while kubelet.context.sleep(IMAGES).await {
                images::collect(kubelet, images::Wanted::Thresholds).await;
            }
        },
        async {
            while kubelet.context.sleep(kubelet.config.log_period).await {
                logs::rotate_all(kubelet).await;
            }
        },
    );
}

/// The disk is full: whatever nobody needs goes now.
pub async fn free_disk(kubelet: &Kubelet) {
    containers::collect(kubelet, true).await;
    images::collect(kubelet, images::Wanted::Everything).await;
}
