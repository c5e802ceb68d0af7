//! Filters of routes as the proxy has them.
use super::types::{FilterSpec, HeaderFilter, PathModifier, Reference};
use crate::filters::{Cors, Filter, HeaderChange, PathChange, Redirect};
use crate::table::To;
use http::{HeaderName, HeaderValue, StatusCode};

/// All of them, or what is not understood. `to` finds whom a reference means.
pub fn read(
    specs: &[FilterSpec],
    to: &mut dyn FnMut(&Reference) -> To,
) -> Result<Vec<Filter>, String> {
    specs.iter().map(|spec| one(spec, to)).collect()
}

fn one(spec: &FilterSpec, to: &mut dyn FnMut(&Reference) -> To) -> Result<Filter, String> {
    let unknown = || format!("filter {} is not understood", spec.r#type);
    let filter = match spec.r#type.as_str() {
        "RequestHeaderModifier" => {
            spec.request_header_modifier.as_ref().and_then(headers).map(Filter::RequestHeaders)
        }
        "ResponseHeaderModifier" => {
            spec.response_header_modifier.as_ref().and_then(headers).map(Filter::ResponseHeaders)
        }
        "RequestRedirect" => spec.request_redirect.as_ref().and_then(|redirect| {
            Some(Filter::Redirect(Redirect {
                scheme: redirect.scheme.clone(),
                host: redirect.hostname.clone(),
                port: redirect.port,
                path: path(redirect.path.as_ref())?,
                code: StatusCode::from_u16(redirect.status_code.unwrap_or(302)).ok()?,
            }))
        }),
        "URLRewrite" => spec.url_rewrite.as_ref().and_then(|rewrite| {
            let host = rewrite.hostname.as_deref().map(HeaderValue::from_str);
            Some(Filter::Rewrite {
                host: host.transpose().ok()?,
                path: path(rewrite.path.as_ref())?,
            })
        }),
        "RequestMirror" => spec.request_mirror.as_ref().map(|mirror| {
            let (numerator, denominator) = match (&mirror.fraction, mirror.percent) {
                (Some(fraction), _) => (fraction.numerator, fraction.denominator.unwrap_or(100)),
                (None, Some(percent)) => (percent, 100),
                (None, None) => (1, 1),
            };
            Filter::Mirror { to: to(&mirror.backend_ref), numerator, denominator }
        }),
        "CORS" => spec.cors.as_ref().map(|cors| {
            Filter::Cors(Cors {
                origins: cors.allow_origins.clone(),
                credentials: cors.allow_credentials.unwrap_or(false),
                methods: cors.allow_methods.clone(),
                headers: cors.allow_headers.clone(),
                exposed: cors.expose_headers.clone(),
                max_age: cors.max_age,
            })
        }),
        _ => None,
    };
    filter.ok_or_else(unknown)
}

fn headers(filter: &HeaderFilter) -> Option<HeaderChange> {
    let pairs = |all: &[super::types::NamedMatch]| -> Option<Vec<(HeaderName, HeaderValue)>> {
        all.iter()
            .map(|one| Some((one.name.parse().ok()?, HeaderValue::from_str(&one.value).ok()?)))
            .collect()
    };
    Some(HeaderChange {
        set: pairs(&filter.set)?,
        add: pairs(&filter.add)?,
        remove: filter.remove.iter().map(|name| name.parse().ok()).collect::<Option<_>>()?,
    })
}

/// `None`: it is not understood; within: none is wanted.
fn path(modifier: Option<&PathModifier>) -> Option<Option<PathChange>> {
    let Some(modifier) = modifier else { return Some(None) };
    let change = match modifier.r#type.as_str() {
        "ReplaceFullPath" => PathChange::Whole(modifier.replace_full_path.clone()?),
        "ReplacePrefixMatch" => PathChange::Prefix(modifier.replace_prefix_match.clone()?),
        _ => return None,
    };
    Some(Some(change))
}
