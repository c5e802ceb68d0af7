//! Kinds that are followed in the store, for an index or a loop that must stay true.
use crate::resources::{ApiServer, range, status_of};
use api::kinds::Resource;
use api::status::Status;
use futures_util::future::select_all;
use std::pin::pin;
use std::time::Duration;
use store::cache::{At, CacheWatch, Item, Selection};

/// What a follower hears.
pub enum Change {
    /// What happened to objects of this kind.
    Item(&'static Resource, Item),
    /// A watch was cut: whatever was known counts no more, and every object comes again.
    Anew,
}

/// How long to wait when the store cannot be read.
const PAUSE: Duration = Duration::from_secs(1);

/// Tells `take` of every object first, then of every change, as long as the server runs.
pub async fn follow<F: Future<Output = ()> + Send>(
    api: &ApiServer,
    kinds: &[&'static Resource],
    mut take: impl FnMut(Change) -> F + Send + 'static,
) -> Result<(), Status> {
    let (api, kinds) = (api.clone(), kinds.to_vec());
    let mut watches = watch(&api, &kinds).await?;
    tokio::spawn(async move {
        loop {
            let next = tokio::select! {
                () = api.stopping() => return,
                next = next(&mut watches, &kinds) => next,
            };
            let change = match next {
                Ok((kind, item)) => Change::Item(kind, item),
                Err(error) => {
                    tracing::warn!(%error, kind = kinds[0].kind, "a watch was cut");
                    watches = loop {
                        match watch(&api, &kinds).await {
                            Ok(again) => break again,
                            Err(_) => tokio::time::sleep(PAUSE).await,
                        }
                    };
                    Change::Anew
                }
            };
            take(change).await;
        }
    });
    Ok(())
}

async fn watch(api: &ApiServer, kinds: &[&'static Resource]) -> Result<Vec<CacheWatch>, Status> {
    let mut watches = Vec::new();
    for kind in kinds {
        let wanted = Selection { range: range(kind, ""), term: None };
        let cache = api.cache(kind).await?;
        let watch = cache.watch_list(wanted, At::Any).await;
        watches.push(watch.map_err(|error| status_of(error, kind))?);
    }
    Ok(watches)
}

/// What happens next to any of them.
async fn next(
    watches: &mut [CacheWatch],
    kinds: &[&'static Resource],
) -> Result<(&'static Resource, Item), store::Error> {
    let next = watches
        .iter_mut()
        .zip(kinds)
        .map(|(watch, kind)| Box::pin(async move { watch.next().await.map(|item| (*kind, item)) }));
    pin!(select_all(next)).await.0
}
