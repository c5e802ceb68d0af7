//! Who pods belong together by: services and controllers that select them.
use crate::pod::PodInfo;
use api::codec::DecodeError;
use api::names::NamespacedName;
use api::object::{Keep, Object};
use api::selector::label::{Requirement, Selector};
use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{ReplicationController, Service};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// What is kept of a service or a controller: whom it selects.
#[derive(Debug, PartialEq)]
pub struct Owner {
    pub kind: &'static str,
    pub key: NamespacedName,
    requirements: Vec<Requirement>,
    /// A service without a selector selects nobody.
    is_selecting: bool,
}

#[derive(Default)]
pub struct Owners {
    services: BTreeMap<NamespacedName, Arc<Owner>>,
    controllers: HashMap<(Box<str>, NamespacedName), Arc<Owner>>,
}

impl Owners {
    pub fn set(&mut self, owner: Arc<Owner>) {
        match owner.kind {
            "Service" => self.services.insert(owner.key.clone(), owner),
            kind => self.controllers.insert((kind.into(), owner.key.clone()), owner),
        };
    }

    pub fn remove(&mut self, owner: &Owner) {
        match owner.kind {
            "Service" => self.services.remove(&owner.key),
            kind => self.controllers.remove(&(kind.into(), owner.key.clone())),
        };
    }

    /// The pods that are spread with this one when it does not say so itself (upstream's
    /// `helper.DefaultSelector`); `None`: it is alone.
    pub fn selector(&self, pod: &PodInfo) -> Option<Selector> {
        let namespace = &pod.key.namespace;
        let first = NamespacedName::new(namespace, "");
        let services = self.services.range(first..).map(|(_, service)| service);
        let services = services.take_while(|service| service.key.namespace == *namespace);
        let selecting = services.filter(|service| {
            service.is_selecting && service.requirements.iter().all(|it| it.matches(&pod.labels))
        });
        let mut all: Vec<Requirement> =
            selecting.flat_map(|service| service.requirements.iter().cloned()).collect();
        if let Some((kind, name)) = &pod.owner {
            let key = (kind.clone(), NamespacedName::new(namespace, name));
            all.extend(self.controllers.get(&key).iter().flat_map(|it| it.requirements.clone()));
        }
        all.dedup();
        (!all.is_empty()).then(|| Selector::new(all))
    }
}

impl Keep for Owner {
    fn keep(object: &Arc<Object>) -> Result<Arc<Owner>, DecodeError> {
        let kind = object.type_meta()?.kind;
        let set = |set: Option<BTreeMap<String, String>>| set.map(|set| Selector::from_set(&set));
        let of = |selector: &_| Selector::from_label_selector(Some(selector)).ok();
        let (kind, selector) = match kind.as_str() {
            "Service" => {
                let service = object.typed::<Service>()?;
                ("Service", set(service.spec.as_ref().and_then(|spec| spec.selector.clone())))
            }
            "ReplicationController" => {
                let controller = object.typed::<ReplicationController>()?;
                let spec = controller.spec.as_ref();
                ("ReplicationController", set(spec.and_then(|spec| spec.selector.clone())))
            }
            "ReplicaSet" => {
                let controller = object.typed::<ReplicaSet>()?;
                ("ReplicaSet", of(&controller.spec.selector))
            }
            _ => {
                let controller = object.typed::<StatefulSet>()?;
                ("StatefulSet", of(&controller.spec.selector))
            }
        };
        let requirements = selector.as_ref().and_then(Selector::requirements);
        Ok(Arc::new(Owner {
            kind,
            key: NamespacedName::of(object),
            requirements: requirements.unwrap_or_default().to_vec(),
            is_selecting: selector.is_some(),
        }))
    }
}
