//! What is ready, and what is waited for: on a terminal one line that changes until it is done,
//! elsewhere a line for each thing.
use std::io::{IsTerminal, Write};
use std::time::Instant;

pub struct Checklist {
    begun: Instant,
    is_terminal: bool,
}

impl Checklist {
    pub fn start() -> Checklist {
        Checklist { begun: Instant::now(), is_terminal: std::io::stderr().is_terminal() }
    }

    /// Says what comes next; only somebody who looks on wants to know.
    pub fn wait_for(&mut self, what: &str) {
        if self.is_terminal {
            self.say(&format!("\r\x1b[K  … {what}"));
        }
    }

    pub fn done(&mut self, what: &str) {
        let took = self.begun.elapsed().as_millis();
        let (begin, mark) =
            if self.is_terminal { ("\r\x1b[K", "\x1b[32m✓\x1b[0m") } else { ("", "✓") };
        self.say(&format!("{begin}  {mark} {what:<20} {took:>6} ms\n"));
    }

    pub fn end(&mut self) {
        if self.is_terminal {
            self.say("\r\x1b[K");
        }
    }

    fn say(&self, text: &str) {
        // Nobody reads it: that is no reason to stop.
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
}
