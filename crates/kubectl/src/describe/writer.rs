//! Where describers write: lines at levels of two spaces, in aligned columns.

use super::tabwriter::TabWriter;

#[derive(Debug, Default)]
pub struct Writer {
    tabs: TabWriter,
    /// Every line is this much deeper than it says.
    nested: usize,
}

/// Writes formatted text at a level: `put!(w, 1, "Name:\t{}\n", name)`.
macro_rules! put {
    ($w:expr, $level:expr, $($format:tt)*) => { $w.write($level, &format!($($format)*)) };
}
pub(super) use put;

impl Writer {
    pub fn write(&mut self, level: usize, text: &str) {
        self.tabs.write(&"  ".repeat(level + self.nested));
        self.plain(text);
    }

    /// Goes on in the line. What is nested is indented even then, as upstream's is.
    pub fn raw(&mut self, text: &str) {
        self.write(0, text);
    }

    fn plain(&mut self, text: &str) {
        // What a terminal would obey is shown instead, as upstream's `printers/terminal.go` does.
        if text.contains(['\x1b', '\r']) {
            self.tabs.write(&text.replace('\x1b', "^[").replace('\r', "\\r"));
        } else {
            self.tabs.write(text);
        }
    }

    pub fn flush(&mut self) {
        self.tabs.flush();
    }

    /// Writes deeper, and not.
    pub fn nest(&mut self, levels: usize, write: impl FnOnce(&mut Writer)) {
        self.nested += levels;
        write(self);
        self.nested -= levels;
    }

    pub fn finish(self) -> String {
        self.tabs.finish()
    }
}
