//! What the process logs: a line each, to standard error.
use tracing::level_filters::LevelFilter;
use tracing_subscriber::prelude::*;
use tracing_subscriber::{Registry, fmt, reload};

/// Changes how much is logged.
#[derive(Clone)]
pub struct Verbosity(reload::Handle<LevelFilter, Registry>);

/// Starts logging, as much as `-v` asks for.
pub fn start(verbosity: u8) -> Verbosity {
    let (filter, handle) = reload::Layer::new(level(verbosity));
    let lines = fmt::layer().with_writer(std::io::stderr).with_ansi(false);
    tracing_subscriber::registry().with(filter).with(lines).init();
    Verbosity(handle)
}

impl Verbosity {
    pub fn set(&self, verbosity: u8) {
        // It fails only when nothing logs any more.
        let _ = self.0.reload(level(verbosity));
    }
}

/// Upstream's numbers: users care to 2, debugging begins at 4, everything is from 6 on.
fn level(verbosity: u8) -> LevelFilter {
    match verbosity {
        0 => LevelFilter::WARN,
        1..=3 => LevelFilter::INFO,
        4 | 5 => LevelFilter::DEBUG,
        6.. => LevelFilter::TRACE,
    }
}
