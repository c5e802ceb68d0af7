//! Several kinds, followed in the store for an index that must stay true.
use crate::resources::{ApiServer, range};
use api::kinds::Resource;
use api::status::Status;
use futures_util::future::select_all;
use std::pin::pin;
use store::cache::{CacheWatch, Item, Selection};

pub struct Following {
    kinds: Vec<&'static Resource>,
    watches: Vec<CacheWatch>,
}

impl Following {
    /// From the beginning: every object comes first, then what changes.
    pub async fn start(api: &ApiServer, kinds: &[&'static Resource]) -> Result<Following, Status> {
        let mut following = Following { kinds: kinds.to_vec(), watches: Vec::new() };
        following.restart(api).await?;
        Ok(following)
    }

    /// The same once more, when a watch was cut.
    pub async fn restart(&mut self, api: &ApiServer) -> Result<(), Status> {
        self.watches.clear();
        for kind in &self.kinds {
            let wanted = Selection { range: range(kind, ""), term: None };
            self.watches.push(api.cache(kind).await?.watch_list(wanted));
        }
        Ok(())
    }

    /// What happens next to any of them.
    pub async fn next(&mut self) -> Result<(&'static Resource, Item), store::Error> {
        let watches = self.watches.iter_mut().zip(&self.kinds).map(|(watch, kind)| {
            Box::pin(async move { watch.next().await.map(|item| (*kind, item)) })
        });
        pin!(select_all(watches)).await.0
    }
}
