//! A request of another server's groups takes a seat and its time like any other, although its work is
//! elsewhere: this server waits for the answer and passes it on
//! (`apiserver/pkg/server/filters/priority-and-fairness.go`, `timeout.go`).
use crate::answer::{Answer, holding};
use crate::doors::serve;
use crate::guard::authn::User;
use crate::guard::authz::{Attributes, What};
use crate::guard::fairness::Class;
use crate::pass::aggregation::{self, Remote};
use crate::server::ApiServer;
use api::kinds::Verb;
use api::status::Status;
use http::{Request, StatusCode};
use hyper::body::Incoming;
use tokio::time::Instant;

/// How long a request may take, by what it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lasts {
    /// As long as any.
    Briefly,
    /// For as long as its client likes; its turn is over when it has been passed on.
    AsWatch,
    /// For as long as its client likes, and out of turn.
    AsStream,
}

impl Lasts {
    fn of(wanted: &Attributes) -> Lasts {
        let What::Resource { subresource, .. } = &wanted.what else { return Lasts::Briefly };
        match (&*wanted.verb, &**subresource) {
            ("watch", _) => Lasts::AsWatch,
            ("proxy", _) | (_, "attach" | "exec" | "proxy" | "log" | "portforward") => {
                Lasts::AsStream
            }
            _ => Lasts::Briefly,
        }
    }
}

pub async fn pass(
    api: &ApiServer,
    remote: &Remote,
    user: &User,
    wanted: &Attributes,
    request: Request<Incoming>,
    class: &mut Option<Class>,
) -> Result<Answer, Status> {
    let lasts = Lasts::of(wanted);
    let passing = aggregation::pass(api, remote, user, request);
    if lasts == Lasts::AsStream {
        return passing.await;
    }
    let seat = serve::wait_for_seat(api, user, wanted, None, class).await?;
    if lasts == Lasts::AsWatch {
        drop(seat);
        return passing.await;
    }
    let counted = match api.fairness() {
        Some(_) => None,
        None => Some(api.in_flight().seat(limited_as(wanted))?),
    };
    let until = Instant::now() + api.request_timeout();
    let passed = tokio::time::timeout_at(until, passing).await;
    let answer = passed.unwrap_or_else(|_| Err(serve::too_late()))?;
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        return Ok(answer);
    }
    let left = until.saturating_duration_since(Instant::now());
    Ok(holding::until_sent_within(answer, (seat, counted), left))
}

/// Which of the limits counts it, where there are no turns.
fn limited_as(wanted: &Attributes) -> Verb {
    if wanted.only_reads() { Verb::Get } else { Verb::Create }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lasts_is_told_by_its_verb_and_part() {
        let check = |verb: &str, part: &str, expected: Lasts| {
            let mut wanted = Attributes::right(verb, "things.e.io", "things", "a", "b");
            if let What::Resource { subresource, .. } = &mut wanted.what {
                *subresource = part.to_owned();
            }
            assert_eq!(Lasts::of(&wanted), expected, "{verb} {part}");
        };
        check("get", "", Lasts::Briefly);
        check("list", "", Lasts::Briefly);
        check("create", "console", Lasts::Briefly);
        check("watch", "", Lasts::AsWatch);
        check("get", "log", Lasts::AsStream);
        check("create", "exec", Lasts::AsStream);
        check("proxy", "", Lasts::AsStream);
    }
}
