//! Upstream's flags about audit.
use ::apiserver::audit::{
    Audit, BatchOptions, LogOptions, Mode, Policy, Rotation, Truncate, WebhookOptions,
};
use anyhow::ensure;
use std::path::PathBuf;
use std::time::Duration;

#[derive(clap::Args)]
#[command(rename_all = "kebab-case")]
#[group(id = "audit")]
pub struct Options {
    /// The file that says what is recorded of which requests; without it nothing is.
    #[arg(long)]
    audit_policy_file: Option<PathBuf>,

    /// The file that events are written to; - is standard output.
    #[arg(long)]
    audit_log_path: Option<PathBuf>,
    /// Days that old logs are kept; 0 is for ever.
    #[arg(long, default_value_t = 366)]
    audit_log_maxage: u64,
    /// How many old logs are kept; 0 is all.
    #[arg(long, default_value_t = 100)]
    audit_log_maxbackup: usize,
    /// Megabytes after which a log is put aside; 0 is never.
    #[arg(long, default_value_t = 100)]
    audit_log_maxsize: u64,
    /// Whether old logs are compressed.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true,
        default_value_t = false, action = clap::ArgAction::Set)]
    audit_log_compress: bool,
    /// One line of text for each event (legacy), or JSON.
    #[arg(long, default_value = "json", value_parser = ["legacy", "json"])]
    audit_log_format: String,
    /// The version of events in the log.
    #[arg(long, default_value = VERSION, value_parser = [VERSION])]
    audit_log_version: String,
    /// Whether requests wait for the log.
    #[arg(long, default_value = "blocking", value_parser = mode)]
    audit_log_mode: Mode,
    /// How many events may wait to be written; those beyond are lost.
    #[arg(long, default_value_t = 10_000)]
    audit_log_batch_buffer_size: usize,
    /// How many events are written at once.
    #[arg(long, default_value_t = 1)]
    audit_log_batch_max_size: usize,
    /// How long a batch may wait to be full.
    #[arg(long, default_value = "0s", value_parser = super::duration)]
    audit_log_batch_max_wait: Duration,
    /// Whether batches are limited in number.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true,
        default_value_t = false, action = clap::ArgAction::Set)]
    audit_log_batch_throttle_enable: bool,
    /// Batches a second.
    #[arg(long, default_value_t = 0.0)]
    audit_log_batch_throttle_qps: f32,
    /// Batches at once after a pause.
    #[arg(long, default_value_t = 0)]
    audit_log_batch_throttle_burst: u32,
    /// Whether events that are too large lose their objects.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true,
        default_value_t = false, action = clap::ArgAction::Set)]
    audit_log_truncate_enabled: bool,
    /// What an event may weigh.
    #[arg(long, default_value_t = 100 << 10)]
    audit_log_truncate_max_event_size: usize,
    /// What a batch may weigh.
    #[arg(long, default_value_t = 10 << 20)]
    audit_log_truncate_max_batch_size: usize,

    /// A kubeconfig of the service that events are sent to.
    #[arg(long)]
    audit_webhook_config_file: Option<PathBuf>,
    /// How long to wait before the first failed call is tried again.
    #[arg(long, alias = "audit-webhook-batch-initial-backoff", default_value = "10s",
        value_parser = super::duration)]
    audit_webhook_initial_backoff: Duration,
    /// The version of events that are sent.
    #[arg(long, default_value = VERSION, value_parser = [VERSION])]
    audit_webhook_version: String,
    /// Whether requests wait for the service.
    #[arg(long, default_value = "batch", value_parser = mode)]
    audit_webhook_mode: Mode,
    /// How many events may wait to be sent; those beyond are lost.
    #[arg(long, default_value_t = 10_000)]
    audit_webhook_batch_buffer_size: usize,
    /// How many events are sent at once.
    #[arg(long, default_value_t = 400)]
    audit_webhook_batch_max_size: usize,
    /// How long a batch may wait to be full.
    #[arg(long, default_value = "30s", value_parser = super::duration)]
    audit_webhook_batch_max_wait: Duration,
    /// Whether batches are limited in number.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true,
        default_value_t = true, action = clap::ArgAction::Set)]
    audit_webhook_batch_throttle_enable: bool,
    /// Batches a second.
    #[arg(long, default_value_t = 10.0)]
    audit_webhook_batch_throttle_qps: f32,
    /// Batches at once after a pause.
    #[arg(long, default_value_t = 15)]
    audit_webhook_batch_throttle_burst: u32,
    /// Whether events that are too large lose their objects.
    #[arg(long, default_missing_value = "true", num_args = 0..=1, require_equals = true,
        default_value_t = false, action = clap::ArgAction::Set)]
    audit_webhook_truncate_enabled: bool,
    /// What an event may weigh.
    #[arg(long, default_value_t = 100 << 10)]
    audit_webhook_truncate_max_event_size: usize,
    /// What a batch may weigh.
    #[arg(long, default_value_t = 10 << 20)]
    audit_webhook_truncate_max_batch_size: usize,
}

const VERSION: &str = "audit.k8s.io/v1";

fn mode(text: &str) -> Result<Mode, String> {
    match text {
        "batch" => Ok(Mode::Batch),
        "blocking" => Ok(Mode::Blocking),
        "blocking-strict" => Ok(Mode::BlockingStrict),
        _ => Err("allowed modes are \"batch,blocking,blocking-strict\"".into()),
    }
}

impl Options {
    pub fn audit(self) -> anyhow::Result<Audit> {
        let log = self.audit_log_path.map(|path| LogOptions {
            path,
            rotation: Rotation {
                max_size: self.audit_log_maxsize << 20,
                max_backups: self.audit_log_maxbackup,
                max_age: self.audit_log_maxage,
                compress: self.audit_log_compress,
            },
            legacy: self.audit_log_format == "legacy",
            batch: BatchOptions {
                mode: self.audit_log_mode,
                buffer_size: self.audit_log_batch_buffer_size,
                max_size: self.audit_log_batch_max_size,
                max_wait: self.audit_log_batch_max_wait,
                throttle: self.audit_log_batch_throttle_enable.then_some((
                    self.audit_log_batch_throttle_qps,
                    self.audit_log_batch_throttle_burst,
                )),
            },
            truncate: self.audit_log_truncate_enabled.then_some(Truncate {
                max_event_size: self.audit_log_truncate_max_event_size,
                max_batch_size: self.audit_log_truncate_max_batch_size,
            }),
        });
        let webhook = self.audit_webhook_config_file.map(|config_file| WebhookOptions {
            config_file,
            initial_backoff: self.audit_webhook_initial_backoff,
            batch: BatchOptions {
                mode: self.audit_webhook_mode,
                buffer_size: self.audit_webhook_batch_buffer_size,
                max_size: self.audit_webhook_batch_max_size,
                max_wait: self.audit_webhook_batch_max_wait,
                throttle: self.audit_webhook_batch_throttle_enable.then_some((
                    self.audit_webhook_batch_throttle_qps,
                    self.audit_webhook_batch_throttle_burst,
                )),
            },
            truncate: self.audit_webhook_truncate_enabled.then_some(Truncate {
                max_event_size: self.audit_webhook_truncate_max_event_size,
                max_batch_size: self.audit_webhook_truncate_max_batch_size,
            }),
        });
        let batches = [
            ("log", log.as_ref().map(|log| &log.batch)),
            ("webhook", webhook.as_ref().map(|w| &w.batch)),
        ];
        for (plugin, batch) in batches {
            if let Some(batch) = batch.filter(|batch| batch.mode == Mode::Batch) {
                validate(plugin, batch)?;
            }
        }
        let policy = self.audit_policy_file.as_deref().map(Policy::read).transpose()?;
        Ok(Audit::new(policy, log, webhook)?)
    }
}

fn validate(plugin: &str, batch: &BatchOptions) -> anyhow::Result<()> {
    let BatchOptions { buffer_size, max_size, throttle, .. } = batch;
    let positive = "must be a positive number";
    ensure!(*buffer_size > 0, "invalid audit batch {plugin} buffer size {buffer_size}, {positive}");
    ensure!(*max_size > 0, "invalid audit batch {plugin} max batch size {max_size}, {positive}");
    if let Some((qps, burst)) = throttle {
        ensure!(*qps > 0.0, "invalid audit batch {plugin} throttle QPS {qps}, {positive}");
        ensure!(*burst > 0, "invalid audit batch {plugin} throttle burst {burst}, {positive}");
    }
    Ok(())
}
