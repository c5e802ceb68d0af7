//! The user's own terminal: raw while a stream has it, and its size.
use rustix::termios::{self, OptionalActions, Termios};
use std::io::stdin;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// Keys go through unchanged until this is dropped.
pub struct Raw {
    before: Termios,
}

impl Raw {
    /// None where standard input is no terminal.
    pub fn take() -> Option<Raw> {
        let before = termios::tcgetattr(stdin()).ok()?;
        let mut raw = before.clone();
        raw.make_raw();
        termios::tcsetattr(stdin(), OptionalActions::Now, &raw).ok()?;
        Some(Raw { before })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // There is nobody left to be told.
        let _ = termios::tcsetattr(stdin(), OptionalActions::Now, &self.before);
    }
}

pub fn is_terminal() -> bool {
    termios::isatty(stdin())
}

/// The terminal's size now, and whenever it changes.
pub fn sizes() -> Option<mpsc::Receiver<(u16, u16)>> {
    let mut changes = signal(SignalKind::window_change()).ok()?;
    let (told, sizes) = mpsc::channel(4);
    let first = size()?;
    tokio::spawn(async move {
        let mut next = Some(first);
        loop {
            if let Some(size) = next
                && told.send(size).await.is_err()
            {
                return;
            }
            if changes.recv().await.is_none() {
                return;
            }
            next = size();
        }
    });
    Some(sizes)
}

fn size() -> Option<(u16, u16)> {
    let size = termios::tcgetwinsize(std::io::stdout()).ok()?;
    Some((size.ws_col, size.ws_row))
}
