//! Groups of Kubernetes' own, and who approved of a definition in one
//! (`apiextensions-apiserver/pkg/apihelpers/helpers.go`).
use crate::quote::Quoted;
use crate::url::Url;

pub const ANNOTATION: &str = "api-approved.kubernetes.io";
const PULL: &str = "see https://github.com/kubernetes/enhancements/pull/1111";

/// Whether definitions in a group need approval.
pub fn is_protected(group: &str) -> bool {
    ["k8s.io", "kubernetes.io"].iter().any(|domain| {
        group.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}

/// What the annotation means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Approval {
    Missing,
    /// It says that there is none, which is enough.
    Bypassed,
    Approved,
    Invalid,
}

impl Approval {
    pub fn of(annotation: &str) -> Approval {
        let is_url = |text: &str| {
            Url::parse(text).is_ok_and(|url| !url.scheme.is_empty() && !url.host.is_empty())
        };
        match annotation {
            "" => Approval::Missing,
            text if text.starts_with("unapproved") => Approval::Bypassed,
            text if is_url(text) => Approval::Approved,
            _ => Approval::Invalid,
        }
    }

    /// What is said of the annotation.
    pub fn said(self, annotation: &str) -> String {
        let must = format!("protected groups must have approval annotation \"{ANNOTATION}\"");
        match self {
            Approval::Missing => format!("{must}, {PULL}"),
            Approval::Bypassed => format!("not approved: {}", Quoted(annotation)),
            Approval::Approved => format!("approved in {annotation}"),
            Approval::Invalid => {
                format!("{must} with either a URL or a reason starting with \"unapproved\", {PULL}")
            }
        }
    }
}
