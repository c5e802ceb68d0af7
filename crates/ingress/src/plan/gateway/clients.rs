//! Certificates that are not a listener's: those that its clients have to show (`spec.tls.frontend`), and the one
//! that pods are shown (`spec.tls.backend`).
use super::listeners::Why;
use super::references;
use super::types::{ClientValidation, Custom, GatewaySpec, Reference};
use crate::plan::World;
use crate::table::{Clients, Identity};
use api::names::NamespacedName;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::sync::Arc;

/// What the clients of a listener have to prove.
#[derive(Default)]
pub struct Proved {
    pub clients: Option<Arc<Clients>>,
    /// A reference that does not resolve.
    pub wrong: Option<Why>,
    /// None does: nobody would get in, or everybody.
    pub is_nobody: bool,
}

/// What a Gateway wants of the clients of its HTTPS listeners of this port.
pub fn wanted(
    world: &World,
    gateway: &NamespacedName,
    object: &Custom<GatewaySpec>,
    port: u16,
) -> Proved {
    let Some(frontend) = &object.spec.tls.frontend else { return Proved::default() };
    let of_port = frontend.per_port.iter().find(|one| one.port == port);
    let tls = of_port.map_or(&frontend.default, |one| &one.tls);
    let Some(validation) = &tls.validation else { return Proved::default() };
    let mut proved = Proved::default();
    let mut authorities = String::new();
    for reference in &validation.ca_certificate_refs {
        match authority(world, gateway, reference) {
            Ok(text) => {
                authorities.push_str(text);
                authorities.push('\n');
            }
            Err(why) => drop(proved.wrong.get_or_insert(why)),
        }
    }
    proved.is_nobody = authorities.is_empty();
    if !proved.is_nobody {
        let is_optional = is_optional(validation);
        proved.clients = Some(Arc::new(Clients { authorities, is_optional }));
    }
    proved
}

fn is_optional(validation: &ClientValidation) -> bool {
    validation.mode.as_deref() == Some("AllowInsecureFallback")
}

/// Whether clients get in somewhere whatever they show.
pub fn is_anybody(object: &Custom<GatewaySpec>) -> bool {
    object.spec.tls.frontend.as_ref().is_some_and(|frontend| {
        let all =
            [&frontend.default].into_iter().chain(frontend.per_port.iter().map(|one| &one.tls));
        all.filter_map(|tls| tls.validation.as_ref()).any(is_optional)
    })
}

fn authority<'w>(
    world: &'w World,
    gateway: &NamespacedName,
    reference: &Reference,
) -> Result<&'w str, Why> {
    if !reference.is("", "ConfigMap", "") {
        let kind = reference.kind.as_deref().unwrap_or_default();
        return Err((
            "InvalidCACertificateKind",
            format!("authorities are not read from a {kind}"),
        ));
    }
    let (namespace, map) = (&gateway.namespace, reference.key(&gateway.namespace));
    if !references::may(&world.gateway, "Gateway", namespace, "", "ConfigMap", &map) {
        return Err(("RefNotPermitted", format!("no ReferenceGrant is for configmap {map}")));
    }
    certificates_of(world, &map).ok_or_else(|| {
        let text = format!("configmap {map} has no certificates as ca.crt");
        ("InvalidCACertificateRef", text)
    })
}

/// What a ConfigMap has as `ca.crt`, if that can be read.
pub fn certificates_of<'w>(world: &'w World, map: &NamespacedName) -> Option<&'w str> {
    let found = world.gateway.authorities.get(map).and_then(|one| one.0.as_deref());
    found.filter(|found| {
        let mut all = CertificateDer::pem_slice_iter(found.as_bytes());
        all.next().is_some_and(|first| first.is_ok())
    })
}

/// The certificate that a Gateway shows to pods that ask for one.
pub fn identity(
    world: &World,
    gateway: &NamespacedName,
    object: &Custom<GatewaySpec>,
) -> Result<Option<Identity>, Why> {
    let Some(reference) = &object.spec.tls.backend.client_certificate_ref else { return Ok(None) };
    let wrong = |text: String| Err(("InvalidClientCertificateRef", text));
    if !reference.is("", "Secret", "Secret") {
        return wrong("a certificate is a Secret".to_owned());
    }
    let (namespace, secret) = (&gateway.namespace, reference.key(&gateway.namespace));
    if !references::may(&world.gateway, "Gateway", namespace, "", "Secret", &secret) {
        return Err(("RefNotPermitted", format!("no ReferenceGrant is for secret {secret}")));
    }
    match world.secrets.get(&secret).map(|facts| &facts.0) {
        Some(Ok(key)) => Ok(Some(Identity { secret, key: key.clone() })),
        Some(Err(error)) => wrong(format!("secret {secret}: {error}")),
        None => {
            wrong(format!("secret {secret} is missing, or of another type than kubernetes.io/tls"))
        }
    }
}
