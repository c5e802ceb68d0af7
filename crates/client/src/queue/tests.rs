use super::*;
use jiff::Timestamp;

type Queue = WorkQueue<&'static str>;

fn queue() -> Queue {
    WorkQueue::new(&Context::simulated(Timestamp::UNIX_EPOCH, 1), "test")
}

async fn take(queue: &Queue) -> &'static str {
    queue.take().await.map(|taken| *taken).unwrap_or("closed")
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_added_twice_comes_once() {
    let queue = queue();
    ["a", "b", "a"].into_iter().for_each(|key| queue.add(key));
    assert_eq!(queue.len(), 2);
    assert_eq!([take(&queue).await, take(&queue).await], ["a", "b"]);
    assert!(queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_key_is_never_worked_on_twice_at_once() {
    let queue = queue();
    queue.add("a");
    let first = queue.take().await.unwrap();
    ["a", "b", "a"].into_iter().for_each(|key| queue.add(key));
    // It comes again when the first worker is done, behind what came before.
    let other = queue.take().await.unwrap();
    assert_eq!((*other, queue.len()), ("b", 0));
    drop(first);
    assert_eq!(take(&queue).await, "a");
    assert!(queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn later_is_not_before() {
    let queue = queue();
    let began = Instant::now();
    queue.add_after("slow", Duration::from_secs(60));
    queue.add_after("soon", Duration::from_secs(1));
    // Of two moments for one key the earlier counts.
    queue.add_after("slow", Duration::from_secs(5));
    queue.add_after("slow", Duration::from_secs(90));
    for (key, second) in [("soon", 1), ("slow", 5)] {
        assert_eq!(take(&queue).await, key);
        assert_eq!(began.elapsed().as_secs(), second);
    }
    let more = tokio::time::timeout(Duration::from_secs(600), queue.take()).await;
    assert!(more.is_err(), "a later moment of the same key counts no more");
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_is_woken_for_an_earlier_moment() {
    let queue = queue();
    queue.add_after("slow", Duration::from_secs(60));
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { (take(&queue).await, Instant::now()) }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    let began = Instant::now();
    queue.add_after("soon", Duration::from_secs(1));
    let (key, at) = waiting.await.unwrap();
    assert_eq!((key, at - began), ("soon", Duration::from_secs(1)));
}

#[tokio::test(start_paused = true)]
async fn failures_come_back_later_and_later() {
    let queue = queue();
    let mut waited = Vec::new();
    for _ in 0..20 {
        let began = Instant::now();
        queue.add_rate_limited("a");
        assert_eq!(take(&queue).await, "a");
        waited.push(began.elapsed().as_millis());
    }
    assert_eq!(waited[..5], [5, 10, 20, 40, 80]);
    assert_eq!(waited[17..], [655_360, 1_000_000, 1_000_000]);
    assert_eq!(queue.failures(&"a"), 20);
    queue.forget(&"a");
    let began = Instant::now();
    queue.add_rate_limited("a");
    take(&queue).await;
    assert_eq!(began.elapsed().as_millis(), 5);
}

#[tokio::test(start_paused = true)]
async fn all_keys_together_are_limited() {
    let queue: WorkQueue<u32> = WorkQueue::new(&Context::simulated(Timestamp::UNIX_EPOCH, 1), "t");
    let began = Instant::now();
    (0..150).for_each(|key| queue.add_rate_limited(key));
    for _ in 0..150 {
        queue.take().await;
    }
    // A hundred at once, then ten a second.
    assert_eq!(began.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn many_workers_share_the_work() {
    let queue: WorkQueue<u32> = WorkQueue::new(&Context::simulated(Timestamp::UNIX_EPOCH, 1), "t");
    let workers: Vec<_> = (0..8)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move {
                let mut done = 0;
                while let Some(_key) = queue.take().await {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    done += 1;
                }
                done
            })
        })
        .collect();
    (0..80).for_each(|key| queue.add(key));
    let began = Instant::now();
    queue.drain().await;
    assert_eq!(began.elapsed().as_millis(), 100);
    for worker in workers {
        assert_eq!(worker.await.unwrap(), 10);
    }
}

#[tokio::test(start_paused = true)]
async fn a_closed_queue_gives_what_it_has_and_takes_no_more() {
    let queue = queue();
    queue.add("a");
    queue.add_after("later", Duration::from_secs(1));
    queue.shut_down();
    queue.add("b");
    assert_eq!([take(&queue).await, take(&queue).await], ["a", "closed"]);
    let stopped = Context::simulated(Timestamp::UNIX_EPOCH, 1);
    let queue = Queue::new(&stopped, "test");
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { take(&queue).await }
    });
    stopped.stop();
    assert_eq!(waiting.await.unwrap(), "closed");
}
