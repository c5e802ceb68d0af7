//! Lists in pages: which keys a page has, and the token that the next one begins with.
use crate::call::{Place, Token};
use api::meta::ListMeta;
use api::status::Status;
use store::KeyRange;
use store::cache::At;

const EXPIRED: &str = "The provided continue parameter is too old to display a consistent list \
    result. You can start a new list without the continue parameter, or use the continue token in \
    this response to retrieve the remainder of the results. Continuing with the provided token \
    results in an inconsistent list - objects that were created, modified, or deleted between the \
    time the first chunk was returned and now may show up in the list.";

/// The token that goes on after a key.
pub fn token(after: &store::Key, whole: &KeyRange, revision: u64) -> String {
    let start = after.next();
    let start = start.strip_prefix(&*whole.start).unwrap_or(&start);
    let start = String::from_utf8_lossy(start).into_owned();
    Token { revision: Some(revision), start }.written()
}

/// Which keys to read, as of when.
pub fn range(place: &Place, whole: &KeyRange) -> (KeyRange, At) {
    match place {
        Place::Beginning(at) => (whole.clone(), *at),
        Place::After(token) => {
            let start = [&*whole.start, token.start.as_bytes()].concat();
            let at = token.revision.map_or(At::Latest, At::Exactly);
            (whole.starting_at(start.as_slice()), at)
        }
    }
}

/// What a client is told when the history its token is about is gone.
pub fn expired(token: &Token) -> Status {
    let mut status = Status::expired(EXPIRED);
    let now = Token { revision: None, start: token.start.clone() }.written();
    let metadata = ListMeta { continue_: Some(now), ..ListMeta::default() };
    status.metadata = Some(Box::new(metadata));
    status
}
