//! Tokens of an OpenID provider: its published keys say whether a token is its own, its claims who
//! it stands for.
use super::claims::{self, About, Expression, Rule};
use super::jwk::{ALGORITHMS, Token};
use crate::ground::kubeconfig::{self, Client};
use crate::guard::authn::User;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// Keys are asked for again when a token names one that is not known, but not more often.
const REFRESH: Duration = Duration::from_secs(10);

/// What is believed of a provider.
#[derive(Debug, Clone, Default)]
pub struct Provider {
    /// The `iss` of its tokens, and where it is found.
    pub issuer: String,
    /// Where its description is, if not at the issuer's own address.
    pub discovery: Option<String>,
    /// Whom its tokens must be for: one of these.
    pub audiences: Vec<String>,
    pub username: ClaimOrExpression,
    pub groups: Option<ClaimOrExpression>,
    pub uid: Option<ClaimOrExpression>,
    /// What else is known of the user, by what it is called.
    pub extra: Vec<(String, Expression)>,
    /// Claims that must be there with these values.
    pub required: BTreeMap<String, String>,
    /// What must hold of the claims, and of the user they make.
    pub claim_rules: Vec<Rule>,
    pub user_rules: Vec<Rule>,
    pub algorithms: Vec<String>,
    /// The CA of its address, as PEM; the machine's if there is none.
    pub ca: Option<Vec<u8>>,
}

/// Where something about the user comes from.
#[derive(Debug, Clone)]
pub enum ClaimOrExpression {
    /// A claim, and what is put before its value.
    Claim {
        name: String,
        prefix: String,
    },
    Expression(Expression),
}

impl Default for ClaimOrExpression {
    fn default() -> Self {
        ClaimOrExpression::claim("sub", "")
    }
}

impl ClaimOrExpression {
    pub fn claim(name: &str, prefix: &str) -> ClaimOrExpression {
        ClaimOrExpression::Claim { name: name.to_owned(), prefix: prefix.to_owned() }
    }

    /// One text; none if there is no such claim.
    fn text(&self, claims: &Value) -> Result<Option<String>, String> {
        match self {
            ClaimOrExpression::Claim { name, prefix } => {
                Ok(claims[name].as_str().map(|text| format!("{prefix}{text}")))
            }
            ClaimOrExpression::Expression(expression) => expression.text_of(claims).map(Some),
        }
    }

    fn texts(&self, claims: &Value) -> Result<Vec<String>, String> {
        match self {
            ClaimOrExpression::Claim { name, prefix } => {
                let texts = strings(&claims[name]).into_iter();
                Ok(texts.map(|text| format!("{prefix}{text}")).collect())
            }
            ClaimOrExpression::Expression(expression) => expression.texts_of(claims),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("oidc: the issuer {0:?} is not an https address")]
    Issuer(String),
    #[error("oidc: unsupported signing alg: {0:?}")]
    Algorithm(String),
    #[error("oidc: failed to ask {url}: {cause}")]
    Ask { url: String, cause: String },
}

pub struct Oidc {
    provider: Provider,
    /// The keys that are known. Whoever's token they have signed waits for nobody.
    known: RwLock<Arc<Vec<Value>>>,
    /// When the provider was asked last; held while it is asked, which may take long.
    asked: Mutex<Option<Instant>>,
}

impl Oidc {
    pub fn new(provider: Provider) -> Result<Oidc, Error> {
        if !provider.issuer.starts_with("https://") {
            return Err(Error::Issuer(provider.issuer));
        }
        if let Some(unknown) = provider.algorithms.iter().find(|a| !ALGORITHMS.contains(&&***a)) {
            return Err(Error::Algorithm(unknown.clone()));
        }
        Ok(Oidc { provider, known: RwLock::default(), asked: Mutex::default() })
    }

    pub async fn user_of(&self, token: &str, now: Timestamp) -> Option<User> {
        let token = Token::parse(token)?;
        // Another's tokens must not make us ask this provider.
        let ours = token.claims["iss"] == self.provider.issuer
            && self.provider.algorithms.iter().any(|known| known == token.algorithm());
        if !ours {
            return None;
        }
        let is_signed =
            token.is_signed_by(&self.known()) || token.is_signed_by(&self.refreshed().await?);
        if !is_signed {
            return None;
        }
        match self.provider.user(&token.claims, now.as_second()) {
            Ok(user) => Some(user),
            Err(cause) => {
                tracing::debug!(issuer = self.provider.issuer, cause, "a token is refused");
                None
            }
        }
    }

    fn known(&self) -> Arc<Vec<Value>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The provider's keys of now, unless it was asked a moment ago.
    async fn refreshed(&self) -> Option<Arc<Vec<Value>>> {
        let mut asked = self.asked.lock().await;
        if asked.is_some_and(|asked| asked.elapsed() < REFRESH) {
            return Some(self.known());
        }
        *asked = Some(Instant::now());
        match self.provider.keys().await {
            Ok(all) => {
                let all = Arc::new(all);
                *self.known.write().unwrap_or_else(PoisonError::into_inner) = all.clone();
                Some(all)
            }
            Err(error) => {
                tracing::warn!(%error, "an OpenID provider does not tell its keys");
                None
            }
        }
    }
}

impl Provider {
    async fn keys(&self) -> Result<Vec<Value>, Error> {
        let issuer = self.issuer.trim_end_matches('/');
        let address = format!("{issuer}/.well-known/openid-configuration");
        let description = self.ask(self.discovery.as_ref().unwrap_or(&address)).await?;
        if description["issuer"] != self.issuer {
            let cause = format!("it is {}, expected {:?}", description["issuer"], self.issuer);
            return Err(Error::Ask { url: address, cause });
        }
        let set = self.ask(description["jwks_uri"].as_str().unwrap_or_default()).await?;
        Ok(set["keys"].as_array().cloned().unwrap_or_default())
    }

    async fn ask(&self, url: &str) -> Result<Value, Error> {
        let failed = |cause: String| Error::Ask { url: url.to_owned(), cause };
        let tls = kubeconfig::trusting(self.ca.as_deref()).map_err(failed)?;
        let client = Client::to(url, tls).map_err(failed)?;
        let answer = client.get().await.map_err(|error| failed(error.to_string()))?;
        if !answer.status().is_success() {
            return Err(failed(answer.status().to_string()));
        }
        serde_json::from_slice(answer.body()).map_err(|error| failed(error.to_string()))
    }

    /// Who the claims of a signed token say it stands for.
    fn user(&self, claims: &Value, now: i64) -> Result<User, String> {
        if claims["exp"].as_i64().is_none_or(|end| now >= end) {
            return Err("token is expired".into());
        }
        if claims["nbf"].as_i64().is_some_and(|start| now < start) {
            return Err("token is not valid yet".into());
        }
        if !strings(&claims["aud"]).iter().any(|meant| self.audiences.contains(meant)) {
            return Err("it is for another audience".into());
        }
        // A mail address that is not verified is anybody's.
        let is_mail =
            matches!(&self.username, ClaimOrExpression::Claim { name, .. } if name == "email");
        if is_mail && claims.get("email_verified").is_some_and(|v| v != true) {
            return Err("email not verified".into());
        }
        let name = self.username.text(claims)?;
        let name = name.ok_or("the claim of the user's name is missing")?;
        if name.is_empty() {
            return Err("the user has no name".into());
        }
        let groups = self.groups.as_ref().map(|from| from.texts(claims)).transpose()?;
        let uid = self.uid.as_ref().map(|from| from.text(claims)).transpose()?.flatten();
        let id = "authentication.kubernetes.io/credential-id".to_owned();
        let jti = claims["jti"].as_str().map(|jti| (id, vec![format!("JTI={jti}")]));
        let mut extra: BTreeMap<String, Vec<String>> = jti.into_iter().collect();
        for (key, expression) in &self.extra {
            let values = expression.texts_of(claims)?;
            if !values.is_empty() {
                extra.insert(key.clone(), values);
            }
        }
        for (name, value) in &self.required {
            if claims[name] != **value {
                return Err("a required claim is missing or has another value".into());
            }
        }
        if let Some(refused) = claims::refusal(&self.claim_rules, About::Claims, claims) {
            return Err(refused);
        }
        let groups = groups.unwrap_or_default();
        let user = User { name, uid: uid.unwrap_or_default(), groups, extra };
        match claims::refusal(&self.user_rules, About::User, &claims::seen(&user)) {
            Some(refused) => Err(refused),
            None => Ok(user),
        }
    }
}

/// One text, or several.
fn strings(value: &Value) -> Vec<String> {
    match value {
        Value::String(one) => vec![one.clone()],
        Value::Array(all) => all.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::claims::Output;
    use super::*;
    use futures_util::FutureExt;
    use serde_json::json;

    fn check(changes: Value) -> Result<User, String> {
        let provider = Provider {
            issuer: "https://id".into(),
            audiences: vec!["skiff".into()],
            username: ClaimOrExpression::claim("email", "oidc:"),
            groups: Some(ClaimOrExpression::claim("groups", "oidc:")),
            required: BTreeMap::from([("team".to_owned(), "a".to_owned())]),
            ..Provider::default()
        };
        let mut claims = json!({ "iss": "https://id", "aud": ["skiff", "other"], "exp": 100,
            "email": "jane@x", "email_verified": true, "groups": ["dev"], "team": "a", "jti": "1" });
        for (name, value) in changes.as_object().expect("claims") {
            claims[name] = value.clone();
        }
        provider.user(&claims, 50)
    }

    #[test]
    fn claims_say_who_it_is() {
        let user = check(json!({})).expect("a user");
        assert_eq!((&*user.name, &user.groups[..]), ("oidc:jane@x", &["oidc:dev".to_owned()][..]));
        assert_eq!(user.extra["authentication.kubernetes.io/credential-id"], ["JTI=1"]);
        assert_eq!(check(json!({ "groups": "ops" })).expect("a user").groups, ["oidc:ops"]);
    }

    #[test]
    fn whatever_is_wrong_with_them_is_a_refusal() {
        for claims in [
            json!({ "exp": 50 }),
            json!({ "exp": null }),
            json!({ "nbf": 51 }),
            json!({ "aud": "other" }),
            json!({ "email_verified": false }),
            json!({ "email": null }),
            json!({ "team": "b" }),
        ] {
            assert!(check(claims.clone()).is_err(), "{claims}");
        }
    }

    #[test]
    fn expressions_say_who_it_is_and_who_is_kept_out() {
        let compile = |text: &str, about: About, output: Output| {
            Expression::compile(text, about, output).expect(text)
        };
        let claims = |text: &str| compile(text, About::Claims, Output::Any);
        let rule = |text: &str, about: About| Rule {
            expression: compile(text, about, Output::Bool),
            message: "no".into(),
        };
        let provider = Provider {
            audiences: vec!["skiff".into()],
            username: ClaimOrExpression::Expression(claims("claims.sub.lowerAscii()")),
            groups: Some(ClaimOrExpression::Expression(claims("claims.roles.split(',')"))),
            uid: Some(ClaimOrExpression::Expression(claims("claims.oid"))),
            extra: vec![("example.org/team".into(), claims("claims.?team.orValue('')"))],
            claim_rules: vec![rule("claims.hd == 'example.org'", About::Claims)],
            user_rules: vec![rule("!user.username.startsWith('system:')", About::User)],
            ..Provider::default()
        };
        let user = |sub: &str, domain: &str| {
            let token = json!({ "aud": "skiff", "exp": 100, "sub": sub, "roles": "dev,ops",
                "oid": "7", "hd": domain, "team": "a" });
            provider.user(&token, 50)
        };
        let jane = user("Jane", "example.org").expect("a user");
        assert_eq!(
            (&*jane.name, &*jane.uid, &jane.groups[..]),
            ("jane", "7", &["dev".to_owned(), "ops".to_owned()][..])
        );
        assert_eq!(jane.extra["example.org/team"], ["a"]);
        for (sub, domain, fault) in [
            ("Jane", "elsewhere", "claims.hd"),
            ("system:admin", "example.org", "user.username"),
            ("", "example.org", "no name"),
        ] {
            let refused = user(sub, domain).expect_err(sub);
            assert!(refused.contains(fault), "{refused}");
        }
    }

    #[tokio::test]
    async fn whoever_is_known_does_not_wait_while_the_provider_is_asked() {
        let folder = tempfile::tempdir().expect("a folder");
        let key =
            crate::ground::pki::Pki::open(folder.path()).expect("a PKI").service_account_key();
        let keys = crate::guard::service_account::Keys::read(&key, &[]).expect("keys");
        let now = Timestamp::now();
        let claims = json!({ "iss": "https://id", "aud": "skiff", "sub": "jane",
            "exp": now.as_second() + 60 });
        let token = keys.sign(&claims).expect("a token");
        let provider = Provider {
            issuer: "https://id".into(),
            audiences: vec!["skiff".into()],
            algorithms: vec!["ES256".into()],
            ..Provider::default()
        };
        let oidc = Oidc::new(provider).expect("a provider");
        let published = keys.jwks()["keys"].as_array().cloned().expect("keys");
        *oidc.known.write().expect("a lock") = Arc::new(published);
        let asking = oidc.asked.lock().await;
        let user = oidc.user_of(&token, now).now_or_never().flatten().expect("at once");
        assert_eq!(user.name, "jane");
        // One with a key that nobody knows waits until the provider has been asked.
        let forged = format!("{}AAAA", &token[..token.len() - 4]);
        assert!(oidc.user_of(&forged, now).now_or_never().is_none());
        drop(asking);
    }
}
