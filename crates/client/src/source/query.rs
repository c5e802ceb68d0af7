//! A request's path and its parameters.
use super::{At, ESCAPED, Page, WatchFrom, Write, escaped};
use crate::resource::ApiResource;
use api::codec::FieldValidation;
use api::selector::{field, label};
use percent_encoding::utf8_percent_encode;

/// Parameters in the order they were added; empty ones are left out.
#[derive(Default)]
pub(super) struct Query(String);

impl Query {
    pub fn add(&mut self, name: &str, value: &str) {
        if !value.is_empty() {
            self.0.push(if self.0.is_empty() { '?' } else { '&' });
            self.0.push_str(name);
            self.0.push('=');
            self.0.extend(utf8_percent_encode(value, ESCAPED));
        }
    }

    pub fn select(&mut self, labels: &label::Selector, fields: &field::Selector) {
        self.add("labelSelector", &labels.to_string());
        self.add("fieldSelector", &fields.to_string());
    }

    pub fn write(&mut self, options: &Write) {
        self.add("dryRun", if options.dry_run { "All" } else { "" });
        self.add("fieldManager", &options.field_manager);
        let validation = options.field_validation.map_or("", FieldValidation::as_str);
        self.add("fieldValidation", validation);
    }

    pub fn page(&mut self, page: &Page) {
        if page.limit > 0 {
            self.add("limit", &page.limit.to_string());
        }
        self.add("continue", &page.continue_token);
        // A token says itself at which revision it goes on.
        if !page.continue_token.is_empty() {
            return;
        }
        let (version, how) = match page.at {
            At::Latest => return,
            At::Any => (0, ""),
            At::NotOlderThan(version) => (version, "NotOlderThan"),
            At::Exactly(version) => (version, "Exact"),
        };
        self.add("resourceVersion", &version.to_string());
        self.add("resourceVersionMatch", how);
    }

    pub fn watch(&mut self, from: &WatchFrom) {
        self.add("watch", "true");
        self.add("allowWatchBookmarks", "true");
        if from.revision > 0 {
            self.add("resourceVersion", &from.revision.to_string());
        }
        if from.initial_events {
            self.add("sendInitialEvents", "true");
            self.add("resourceVersionMatch", "NotOlderThan");
        }
        if let Some(timeout) = from.timeout {
            self.add("timeoutSeconds", &timeout.as_secs().max(1).to_string());
        }
    }
}

pub(super) fn path(
    resource: &ApiResource,
    namespace: &str,
    name: &str,
    subresource: &str,
    query: &Query,
) -> String {
    // Names of some kinds hold colons and the like: `system:node`.
    let mut path = resource.path(&escaped(namespace), &escaped(name), subresource);
    path.push_str(&query.0);
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;
    use std::time::Duration;

    fn check(fill: impl FnOnce(&mut Query), want: &str) {
        let mut query = Query::default();
        fill(&mut query);
        let path = path(&ApiResource::of::<Pod>(), "", "", "", &query);
        assert_eq!(path, format!("/api/v1/pods{want}"));
    }

    #[test]
    fn parameters_are_upstreams() {
        let page = |at| Page { at, limit: 0, continue_token: String::new() };
        check(|query| query.page(&page(At::Latest)), "");
        check(|query| query.page(&page(At::Any)), "?resourceVersion=0");
        check(
            |query| query.page(&page(At::Exactly(7))),
            "?resourceVersion=7&resourceVersionMatch=Exact",
        );
        let next = Page { at: At::Any, limit: 5, continue_token: "a=".into() };
        check(|query| query.page(&next), "?limit=5&continue=a%3D");
        let timeout = Some(Duration::from_secs(9));
        let from = WatchFrom { revision: 3, initial_events: true, timeout };
        check(
            |query| query.watch(&from),
            "?watch=true&allowWatchBookmarks=true&resourceVersion=3&sendInitialEvents=true\
             &resourceVersionMatch=NotOlderThan&timeoutSeconds=9",
        );
        let labels = label::Selector::parse("a in (b,c)").unwrap();
        let fields = field::Selector::equals("spec.nodeName", "n");
        check(
            |query| query.select(&labels, &fields),
            "?labelSelector=a%20in%20%28b%2Cc%29&fieldSelector=spec.nodeName%3Dn",
        );
        let options = Write { dry_run: true, ..Write::managed_by("me") };
        check(|query| query.write(&options), "?dryRun=All&fieldManager=me");
    }
}
