//! Files of one volume that would be in each other's place.
use super::super::Field;
use crate::quote::Quoted;
use serde_json::json;

/// A file, and what puts it there if there are several sources.
type Place = (String, String);

pub fn warnings(volume: &Field<'_, '_>) -> Vec<String> {
    let name = Quoted(volume.at("name").text());
    let (map, secret) = (volume.at("configMap"), volume.at("secret"));
    let mut warnings = Vec::new();
    let mut warn = |of: String, places: Vec<Place>| {
        for overlap in overlaps(&places) {
            warnings.push(format!("volume {name} ({of}): overlapping paths: {overlap}"));
        }
    };
    warn(format!("ConfigMap {}", Quoted(map.at("name").text())), files(&map, ""));
    warn(format!("Secret {}", Quoted(secret.at("secretName").text())), files(&secret, ""));
    warn("DownwardAPI".to_owned(), files(&volume.at("downwardAPI"), ""));
    let projected = volume.at("projected.sources");
    warn("Projected".to_owned(), projected.items().flat_map(|each| source(&each)).collect());
    let empty = projected.list().iter().filter(|source| **source == json!({})).count();
    let none = format!("volume {name} (Projected) has no sources provided");
    warnings.extend(std::iter::repeat_n(none, empty));
    warnings
}

/// The files of one source of a projected volume.
fn source(source: &Field<'_, '_>) -> Vec<Place> {
    let (map, secret) = (source.at("configMap"), source.at("secret"));
    let (token, bundle) = (source.at("serviceAccountToken"), source.at("clusterTrustBundle"));
    let certificate = source.at("podCertificate");
    let one = |place: Field<'_, '_>, of: String| vec![(place.text().to_owned(), of)];
    match () {
        () if map.exists() => files(&map, &format!("ConfigMap {}", Quoted(map.at("name").text()))),
        () if secret.exists() => {
            files(&secret, &format!("Secret {}", Quoted(secret.at("name").text())))
        }
        () if source.at("downwardAPI").exists() => files(&source.at("downwardAPI"), "DownwardAPI"),
        () if token.exists() => one(token.at("path"), "ServiceAccountToken".to_owned()),
        () if bundle.exists() => {
            let (name, signer) = (bundle.at("name"), bundle.at("signerName"));
            let of = if name.exists() { name } else { signer };
            one(bundle.at("path"), format!("ClusterTrustBundle {}", Quoted(of.text())))
        }
        () => [
            ("certificateChainPath", "PodCertificate chain"),
            ("keyPath", "PodCertificate key"),
            ("credentialBundlePath", "PodCertificate credential bundle"),
        ]
        .into_iter()
        .map(|(field, of)| (certificate.at(field).text().to_owned(), of.to_owned()))
        .collect(),
    }
}

fn files(source: &Field<'_, '_>, of: &str) -> Vec<Place> {
    let items = source.at("items");
    items.items().map(|item| (item.at("path").text().to_owned(), of.to_owned())).collect()
}

/// Each pair of which one is the other, or inside of it.
fn overlaps(places: &[Place]) -> Vec<String> {
    let path = |place: &Place| place.0.trim_end_matches('/').to_owned();
    let shown = |place: &Place| match place.1.as_str() {
        "" => Quoted(&path(place)).to_string(),
        of => format!("{} ({of})", Quoted(&path(place))),
    };
    let inside = |one: &str, other: &str| format!("{one}/").starts_with(&format!("{other}/"));
    let mut found = Vec::new();
    for (i, place) in places.iter().enumerate() {
        for earlier in &places[..i] {
            let (now, then) = (path(place), path(earlier));
            if !now.is_empty() && !then.is_empty() && (inside(&now, &then) || inside(&then, &now)) {
                found.push(format!("{} with {}", shown(place), shown(earlier)));
            }
        }
    }
    found
}
