//! Lines on their way to a writer's thread.
//!
//! Waking a thread costs more than writing a line. So the writer, once woken, waits a moment for
//! more and takes all there is: however many requests there are, it wakes a few times a second, and
//! when there are none it sleeps.
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// How long lines may wait for others.
const GATHER: Duration = Duration::from_millis(50);
/// The writer does not wait for more than this.
const PLENTY: usize = 1 << 20;

#[derive(Default)]
struct State {
    lines: Vec<u8>,
    count: usize,
    /// Who waits until everything before is written.
    flushes: Vec<Sender<()>>,
    /// The writer sleeps, and must be woken.
    idle: bool,
    closed: bool,
}

struct Shared {
    state: Mutex<State>,
    wake: Condvar,
    most: usize,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Where lines are put; the reader ends when this goes.
pub struct Buffer(Arc<Shared>);

pub struct Reader(Arc<Shared>);

/// A buffer of at most so many lines.
pub fn buffer(most: usize) -> (Buffer, Reader) {
    let shared =
        Arc::new(Shared { state: Mutex::default(), wake: Condvar::new(), most: most.max(1) });
    (Buffer(shared.clone()), Reader(shared))
}

impl Buffer {
    /// Whether there was room.
    pub fn put(&self, line: &[u8]) -> bool {
        let mut state = self.0.lock();
        if state.count >= self.0.most {
            return false;
        }
        state.lines.extend_from_slice(line);
        state.lines.push(b'\n');
        state.count += 1;
        if state.idle || state.lines.len() >= PLENTY {
            self.0.wake.notify_one();
        }
        true
    }

    /// `done` is answered when everything before is written.
    pub fn flush(&self, done: Sender<()>) {
        self.0.lock().flushes.push(done);
        self.0.wake.notify_one();
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.wake.notify_one();
    }
}

impl Reader {
    /// What has gathered, and who waits for it to be written; none when nothing can come any more.
    pub fn next(&self) -> Option<(Vec<u8>, Vec<Sender<()>>)> {
        let is_due = |state: &State| state.closed || !state.flushes.is_empty();
        let mut state = self.0.lock();
        while state.count == 0 && !is_due(&state) {
            state.idle = true;
            state = self.0.wake.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        state.idle = false;
        if !is_due(&state) {
            let gathering = |state: &mut State| !is_due(state) && state.lines.len() < PLENTY;
            let waited = self.0.wake.wait_timeout_while(state, GATHER, gathering);
            state = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
        if state.closed && state.count == 0 && state.flushes.is_empty() {
            return None;
        }
        state.count = 0;
        Some((std::mem::take(&mut state.lines), std::mem::take(&mut state.flushes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn lines_gather_and_are_bounded() {
        let (buffer, reader) = buffer(3);
        assert!(buffer.put(b"a") && buffer.put(b"b") && buffer.put(b"c"));
        assert!(!buffer.put(b"d"));
        let (done, written) = channel();
        buffer.flush(done);
        let (lines, flushes) = reader.next().expect("lines");
        assert_eq!((&lines[..], flushes.len()), (&b"a\nb\nc\n"[..], 1));
        assert!(written.try_recv().is_err());
        assert!(buffer.put(b"d"));
        drop(buffer);
        assert_eq!(reader.next().expect("the last").0, b"d\n");
        assert!(reader.next().is_none());
    }
}
