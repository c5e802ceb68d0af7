//! Where this crate counts, under upstream's names; who holds the registry is not its business.

/// A component's registry. Labels are in upstream's order.
///
/// | name | kind | labels |
/// | --- | --- | --- |
/// | `rest_client_requests_total` | counter | `code`, `method`, `host` |
/// | `rest_client_request_duration_seconds` | histogram | `verb`, `host` |
/// | `rest_client_request_retries_total` | counter | `code`, `verb`, `host` |
/// | `workqueue_depth` | gauge | `name` |
/// | `workqueue_adds_total`, `workqueue_retries_total` | counter | `name` |
/// | `workqueue_queue_duration_seconds`, `workqueue_work_duration_seconds` | histogram | `name` |
/// | `leader_election_master_status` | gauge | `name` |
/// | `leader_election_slowpath_total` | counter | `name` |
pub trait Metrics: Send + Sync + 'static {
    /// A counter goes up.
    fn count(&self, name: &'static str, labels: &[(&'static str, &str)]);
    /// A gauge is set.
    fn set(&self, name: &'static str, labels: &[(&'static str, &str)], value: f64);
    /// A histogram gets one more.
    fn observe(&self, name: &'static str, labels: &[(&'static str, &str)], value: f64);
}

/// Counts nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoMetrics;

impl Metrics for NoMetrics {
    fn count(&self, _: &'static str, _: &[(&'static str, &str)]) {}
    fn set(&self, _: &'static str, _: &[(&'static str, &str)], _: f64) {}
    fn observe(&self, _: &'static str, _: &[(&'static str, &str)], _: f64) {}
}
