//! What a component writes with: the verbs over typed objects, by way of any [`Source`].
use crate::resource::ApiResource;
use crate::source::{Ask, Call, Collection, Delete, List, Page, Patch, Said, Source, Write};
use api::names::NamespacedName;
use api::object::Object;
use api::rules::Form;
use api::status::Status;
use serde::Serialize;
use serde_json::Value;
use std::borrow::Cow;
use std::sync::Arc;

/// Cheap to clone. Writes are made in the name of one field manager.
#[derive(Clone)]
pub struct Client {
    source: Arc<dyn Source>,
    field_manager: Arc<str>,
}

impl Client {
    pub fn new(source: Arc<dyn Source>) -> Client {
        Client { source, field_manager: "".into() }
    }

    /// The same, and what it writes belongs to this field manager.
    #[must_use]
    pub fn managed_by(self, field_manager: &str) -> Client {
        Client { field_manager: field_manager.into(), ..self }
    }

    pub fn source(&self) -> &Arc<dyn Source> {
        &self.source
    }

    pub fn write_options(&self) -> Write {
        Write::managed_by(&self.field_manager)
    }

    pub async fn get<T: Form>(&self, namespace: &str, name: &str) -> Result<Arc<Object>, Status> {
        self.get_in(ApiResource::of::<T>(), namespace, name, "").await
    }

    pub async fn get_in(
        &self,
        resource: impl Into<ApiResource>,
        namespace: &str,
        name: &str,
        subresource: &'static str,
    ) -> Result<Arc<Object>, Status> {
        let call = call(resource.into(), namespace, name, subresource, Ask::Get);
        self.object(call).await
    }

    /// All pages of a list.
    pub async fn list(&self, of: Collection) -> Result<List, Status> {
        let mut page = Page { limit: PAGE, ..Page::default() };
        let mut all = self.source.list(of.clone(), page.clone()).await?;
        while !all.continue_token.is_empty() {
            page.continue_token = std::mem::take(&mut all.continue_token);
            let next = self.source.list(of.clone(), page.clone()).await?;
            all.items.extend(next.items);
            (all.continue_token, all.revision) = (next.continue_token, next.revision);
        }
        all.remaining_item_count = None;
        Ok(all)
    }

    /// Creates the object in its own namespace.
    pub async fn create<T: Form>(&self, object: &T) -> Result<Arc<Object>, Status> {
        let namespace = object.metadata().namespace.as_deref().unwrap_or_default();
        self.create_in(ApiResource::of::<T>(), namespace, tree(object)?).await
    }

    pub async fn create_in(
        &self,
        resource: impl Into<ApiResource>,
        namespace: &str,
        object: Value,
    ) -> Result<Arc<Object>, Status> {
        let ask = Ask::Create(object, self.write_options());
        self.object(call(resource.into(), namespace, "", "", ask)).await
    }

    /// Posts to a subresource: `binding`, `eviction`, `token`. What comes back may be no object.
    pub async fn post<T: Form>(
        &self,
        of: &NamespacedName,
        subresource: &'static str,
        body: &impl Serialize,
    ) -> Result<Said, Status> {
        let body = serde_json::to_value(body).map_err(Status::internal_error)?;
        let ask = Ask::Create(body, self.write_options());
        let resource = ApiResource::of::<T>();
        let call = call(resource, &of.namespace, &of.name, subresource, ask);
        Ok(self.source.call(call).await?.object)
    }

    /// Replaces the object; its resource version says which one was read.
    pub async fn update<T: Form>(&self, object: &T) -> Result<Arc<Object>, Status> {
        self.update_part(object, "").await
    }

    pub async fn update_status<T: Form>(&self, object: &T) -> Result<Arc<Object>, Status> {
        self.update_part(object, "status").await
    }

    /// Replaces a subresource whose kind is the object's own: `status`, `approval`, `finalize`.
    pub async fn update_part<T: Form>(
        &self,
        object: &T,
        subresource: &'static str,
    ) -> Result<Arc<Object>, Status> {
        let metadata = object.metadata();
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let name = metadata.name.as_deref().unwrap_or_default();
        let ask = Ask::Update(tree(object)?, self.write_options());
        self.object(call(ApiResource::of::<T>(), namespace, name, subresource, ask)).await
    }

    pub async fn patch<T: Form>(
        &self,
        namespace: &str,
        name: &str,
        patch: Patch,
    ) -> Result<Arc<Object>, Status> {
        self.patch_in(ApiResource::of::<T>(), namespace, name, "", patch).await
    }

    pub async fn patch_status<T: Form>(
        &self,
        namespace: &str,
        name: &str,
        patch: Patch,
    ) -> Result<Arc<Object>, Status> {
        self.patch_in(ApiResource::of::<T>(), namespace, name, "status", patch).await
    }

    pub async fn patch_in(
        &self,
        resource: impl Into<ApiResource>,
        namespace: &str,
        name: &str,
        subresource: &'static str,
        patch: Patch,
    ) -> Result<Arc<Object>, Status> {
        let ask = Ask::Patch(patch, self.write_options());
        self.object(call(resource.into(), namespace, name, subresource, ask)).await
    }

    /// Deletes the object, or begins to: a finalizer or its grace period may keep it.
    pub async fn delete<T: Form>(
        &self,
        namespace: &str,
        name: &str,
        options: Delete,
    ) -> Result<Said, Status> {
        self.delete_in(ApiResource::of::<T>(), namespace, name, options).await
    }

    pub async fn delete_in(
        &self,
        resource: impl Into<ApiResource>,
        namespace: &str,
        name: &str,
        options: Delete,
    ) -> Result<Said, Status> {
        let call = call(resource.into(), namespace, name, "", Ask::Delete(options));
        Ok(self.source.call(call).await?.object)
    }

    pub async fn delete_collection(&self, of: Collection, options: Delete) -> Result<(), Status> {
        let Collection { resource, namespace, labels, fields } = of;
        let ask = Ask::DeleteCollection(options, Box::new((labels, fields)));
        self.source.call(call(resource, &namespace, "", "", ask)).await.map(drop)
    }

    async fn object(&self, call: Call) -> Result<Arc<Object>, Status> {
        let outcome = self.source.call(call).await?;
        for warning in &outcome.warnings {
            tracing::debug!(warning, "the API server warns");
        }
        outcome.object()
    }
}

/// Objects of a list that are asked for at once: upstream's.
const PAGE: u32 = 500;

fn tree<T: Form>(object: &T) -> Result<Value, Status> {
    object.to_tree().map_err(Status::internal_error)
}

fn call(
    resource: ApiResource,
    namespace: &str,
    name: &str,
    subresource: &'static str,
    ask: Ask,
) -> Call {
    let subresource = Cow::Borrowed(subresource);
    Call { resource, namespace: namespace.to_owned(), name: name.to_owned(), subresource, ask }
}
