//! The `authorizer` of an expression. Who answers is the caller's.

/// Answers what an expression asks. It is asked while evaluating, and must not wait for long.
pub trait Authorizer: Send + Sync {
    /// Whether the user of the request, or the service account `(namespace, name)`, may.
    fn decide(&self, service_account: Option<(&str, &str)>, check: &Check) -> Decision;
}

/// One question.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Check {
    /// A path that is no resource; then only the verb counts beside it.
    pub path: Option<String>,
    pub verb: String,
    pub group: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    pub field_selector: Option<String>,
    pub label_selector: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Decision {
    pub allowed: bool,
    pub reason: String,
    pub error: Option<String>,
}

/// Who is asked, and about whom.
#[derive(Clone)]
pub struct Asked<'a> {
    pub authorizer: &'a dyn Authorizer,
    pub service_account: Option<(String, String)>,
}

impl Asked<'_> {
    pub fn decide(&self, check: Check) -> Decision {
        let account = self.service_account.as_ref();
        let account = account.map(|(namespace, name)| (namespace.as_str(), name.as_str()));
        self.authorizer.decide(account, &check)
    }
}

/// The steps from the authorizer to a decision.
pub enum Authorization<'a> {
    Authorizer(Asked<'a>),
    Path(Asked<'a>, String),
    Group(Asked<'a>, String),
    Resource(Asked<'a>, Check),
    Decision(Decision),
}

impl<'a> Authorization<'a> {
    pub fn new(authorizer: &'a dyn Authorizer) -> Self {
        Authorization::Authorizer(Asked { authorizer, service_account: None })
    }

    /// The authorizer that a request names: it asks about one resource already.
    pub fn of_resource(authorizer: &'a dyn Authorizer, check: Check) -> Self {
        Authorization::Resource(Asked { authorizer, service_account: None }, check)
    }

    pub fn type_name(&self) -> &'static str {
        match self {
            Authorization::Authorizer(_) => "kubernetes.authorization.Authorizer",
            Authorization::Path(..) => "kubernetes.authorization.PathCheck",
            Authorization::Group(..) => "kubernetes.authorization.GroupCheck",
            Authorization::Resource(..) => "kubernetes.authorization.ResourceCheck",
            Authorization::Decision(_) => "kubernetes.authorization.Decision",
        }
    }

    pub fn equals(&self, other: &Authorization<'_>) -> bool {
        match (self, other) {
            (Authorization::Authorizer(a), Authorization::Authorizer(b)) => {
                a.service_account == b.service_account
            }
            (Authorization::Path(_, a), Authorization::Path(_, b))
            | (Authorization::Group(_, a), Authorization::Group(_, b)) => a == b,
            (Authorization::Resource(_, a), Authorization::Resource(_, b)) => a == b,
            (Authorization::Decision(a), Authorization::Decision(b)) => a == b,
            _ => false,
        }
    }
}
