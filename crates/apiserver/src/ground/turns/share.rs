//! Long work that lets others have a turn in between.
use super::TURN;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

/// A turn that goes on for longer is interrupted: about what a small request takes.
const LONG: Duration = Duration::from_micros(50);

/// To be called now and then: ends the turn if it is a long one already.
pub async fn share() {
    if TURN.get().is_none_or(|begun| begun.elapsed() < LONG) {
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
}
