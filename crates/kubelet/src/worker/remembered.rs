//! Objects that a pod refers to, and how they were when they were last read: while the API server is
//! away, a container that crashes is started again with what is known.
use super::{Kubelet, Memory};
use api::object::Object;
use api::rules::Form;
use api::status::Status;
use std::any::type_name;
use std::collections::HashMap;
use std::sync::Arc;

/// By kind, namespace and name.
pub type Remembered = HashMap<(&'static str, String, String), Arc<Object>>;

/// Whether it is the server that cannot be asked now; a refusal is an answer.
fn is_away(status: &Status) -> bool {
    status.code >= 500 || status.code == 0 || status.code == 429
}

impl Kubelet {
    /// Nothing, if there is no such object.
    pub(super) async fn look_up<T: Form>(
        &self,
        memory: &Memory,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<Object>>, Status> {
        let key = (type_name::<T>(), namespace.to_owned(), name.to_owned());
        match self.client.get::<T>(namespace, name).await {
            Ok(object) => {
                memory.notes.lock().remembered.insert(key, object.clone());
                Ok(Some(object))
            }
            Err(status) if status.is_not_found() => {
                memory.notes.lock().remembered.remove(&key);
                Ok(None)
            }
            Err(status) if is_away(&status) => {
                let known = memory.notes.lock().remembered.get(&key).cloned();
                known.map(Some).ok_or(status)
            }
            Err(status) => Err(status),
        }
    }
}
