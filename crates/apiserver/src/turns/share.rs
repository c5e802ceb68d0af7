//! Long work that lets others have a turn in between.
use std::future::poll_fn;
use std::task::Poll;
use std::time::{Duration, Instant};

/// Work that goes on for longer is interrupted: about what a small request takes.
const LONG: Duration = Duration::from_micros(50);

pub struct Turn(Instant);

impl Turn {
    pub fn begin() -> Turn {
        Turn(Instant::now())
    }

    /// To be called now and then: ends the turn if it was long.
    pub async fn share(&mut self) {
        if self.0.elapsed() < LONG {
            return;
        }
        let mut ended = false;
        poll_fn(|context| {
            if ended {
                return Poll::Ready(());
            }
            ended = true;
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
        self.0 = Instant::now();
    }
}
