//! Where events go, and how: at once or in batches.
use super::Error;
use super::buffer::{Buffer, Reader, buffer};
use super::event::{Event, Level};
use super::file::{File, Rotation};
use super::webhook::{self, Webhook};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Handed over; dropped if the buffer is full.
    Batch,
    /// Written before the request goes on.
    Blocking,
    /// The same, and a request that cannot be recorded is refused.
    BlockingStrict,
}

#[derive(Debug, Clone)]
pub struct BatchOptions {
    pub mode: Mode,
    pub buffer_size: usize,
    pub max_size: usize,
    pub max_wait: Duration,
    /// Batches a second, and how many at once after a pause.
    pub throttle: Option<(f32, u32)>,
}

#[derive(Debug, Clone, Copy)]
pub struct Truncate {
    pub max_event_size: usize,
    pub max_batch_size: usize,
}

#[derive(Debug, Clone)]
pub struct LogOptions {
    /// `-` is standard output.
    pub path: PathBuf,
    pub rotation: Rotation,
    /// One line of text for each event in the place of JSON.
    pub legacy: bool,
    pub batch: BatchOptions,
    pub truncate: Option<Truncate>,
}

impl LogOptions {
    /// For a cluster that nobody configured: never in the way, and bounded.
    pub fn unattended(path: PathBuf) -> LogOptions {
        LogOptions {
            path,
            rotation: Rotation { max_size: 20 << 20, max_backups: 5, max_age: 30, compress: true },
            legacy: false,
            batch: BatchOptions {
                mode: Mode::Batch,
                buffer_size: 10_000,
                max_size: 1,
                max_wait: Duration::ZERO,
                throttle: None,
            },
            truncate: None,
        }
    }
}

#[derive(Debug, Clone)]
pub struct WebhookOptions {
    /// A kubeconfig.
    pub config_file: PathBuf,
    pub initial_backoff: Duration,
    pub batch: BatchOptions,
    pub truncate: Option<Truncate>,
}

pub struct Backend {
    pub name: &'static str,
    /// Events that were lost.
    pub errors: AtomicU64,
    legacy: bool,
    truncate: Option<Truncate>,
    delivery: Delivery,
}

enum Delivery {
    FileInBatches(Buffer),
    File { file: Mutex<File>, strict: bool },
    WebhookInBatches(mpsc::Sender<Message>),
    Webhook { webhook: Webhook, strict: bool },
}

pub enum Message {
    Line(Vec<u8>),
    /// To be answered when everything before it is sent.
    Flush(oneshot::Sender<()>),
}

impl Backend {
    pub fn log(options: LogOptions) -> Result<Backend, Error> {
        let path = options.path.clone();
        let failed = |source| Error::Log { file: path.clone(), source };
        let file = File::open(&options.path, options.rotation).map_err(failed)?;
        let delivery = match options.batch.mode {
            Mode::Batch => {
                let (buffer, reader) = buffer(options.batch.buffer_size);
                let thread = std::thread::Builder::new().name("audit".into());
                thread.spawn(move || write_all(file, &reader)).map_err(failed)?;
                Delivery::FileInBatches(buffer)
            }
            mode => Delivery::File { file: Mutex::new(file), strict: mode == Mode::BlockingStrict },
        };
        let (legacy, truncate) = (options.legacy, options.truncate);
        Ok(Backend { name: "log", errors: AtomicU64::new(0), legacy, truncate, delivery })
    }

    pub fn webhook(options: WebhookOptions) -> Result<Backend, Error> {
        let webhook = Webhook::read(&options.config_file, options.initial_backoff)?;
        let delivery = match options.batch.mode {
            Mode::Batch => {
                let (sender, receiver) = mpsc::channel(options.batch.buffer_size);
                let batch_size = options.truncate.map(|truncate| truncate.max_batch_size);
                tokio::spawn(webhook::send_all(webhook, receiver, options.batch, batch_size));
                Delivery::WebhookInBatches(sender)
            }
            mode => Delivery::Webhook { webhook, strict: mode == Mode::BlockingStrict },
        };
        let truncate = options.truncate;
        Ok(Backend {
            name: "webhook",
            errors: AtomicU64::new(0),
            legacy: false,
            truncate,
            delivery,
        })
    }

    /// What is written of an event; nothing if it is too large whatever is left out.
    pub fn line(&self, event: &Event) -> Option<Vec<u8>> {
        let shown = |event: &Event| if self.legacy { event.legacy() } else { event.json() };
        let line = shown(event);
        let Some(limit) = self.truncate.map(|truncate| truncate.max_event_size) else {
            return Some(line);
        };
        if line.len() <= limit {
            return Some(line);
        }
        let mut smaller = event.clone();
        if event.level >= Level::Request {
            smaller.request_object = None;
            smaller.response_object = None;
            smaller.annotations.insert("audit.k8s.io/truncated".into(), "true".into());
        }
        let line = shown(&smaller);
        if line.len() <= limit {
            return Some(line);
        }
        self.lost("event is too large even after truncating");
        None
    }

    /// Says whether the request may go on.
    pub async fn take(&self, line: Vec<u8>) -> bool {
        let (outcome, strict) = match &self.delivery {
            Delivery::FileInBatches(buffer) => {
                (buffer.put(&line).then_some(()).ok_or_else(blocked), false)
            }
            Delivery::WebhookInBatches(sender) => {
                (sender.try_send(Message::Line(line)).map_err(|_| blocked()), false)
            }
            Delivery::File { file, strict } => {
                let mut line = line;
                line.push(b'\n');
                let mut file = file.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                (file.write(&line).map_err(|error| error.to_string()), *strict)
            }
            Delivery::Webhook { webhook, strict } => (webhook.send(&[line]).await, *strict),
        };
        match outcome {
            Ok(()) => true,
            Err(cause) => {
                self.lost(&cause);
                !strict
            }
        }
    }

    fn lost(&self, cause: &str) {
        self.errors.fetch_add(1, Relaxed);
        tracing::error!(
            plugin = self.name,
            cause,
            "error in audit plugin affecting an audit event"
        );
    }

    pub async fn flush(&self) {
        match &self.delivery {
            Delivery::FileInBatches(buffer) => {
                let (done, written) = std::sync::mpsc::channel();
                buffer.flush(done);
                // The writer's end, too, is an answer.
                let wait = move || written.recv_timeout(Duration::from_secs(5));
                let _ = tokio::task::spawn_blocking(wait).await;
            }
            Delivery::WebhookInBatches(sender) => {
                let (done, sent) = oneshot::channel();
                if sender.send(Message::Flush(done)).await.is_ok() {
                    let _ = tokio::time::timeout(Duration::from_secs(5), sent).await;
                }
            }
            Delivery::File { .. } | Delivery::Webhook { .. } => {}
        }
    }
}

fn blocked() -> String {
    "audit buffer queue blocked".into()
}

/// The writer's thread: whatever waits is written at once, and nobody waits for the disk.
fn write_all(mut file: File, lines: &Reader) {
    while let Some((lines, flushes)) = lines.next() {
        if let Err(error) = file.write(&lines) {
            tracing::error!(%error, plugin = "log", "error in audit plugin affecting audit events");
        }
        for done in flushes {
            // Whoever asked may have gone.
            let _ = done.send(());
        }
    }
}
