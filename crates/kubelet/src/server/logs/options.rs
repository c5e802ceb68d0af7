//! Parameters of a log request.
use crate::server::route::Asked;
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Options {
    pub follow: bool,
    pub previous: bool,
    pub timestamps: bool,
    pub since: Option<Timestamp>,
    pub tail: Option<u64>,
    pub limit: Option<u64>,
    /// The only stream that is wanted.
    pub stream: Option<&'static str>,
}

const INVALID: &str = r#"{"message": "Invalid request."}"#;
const UNREADABLE: &str = r#"{"message": "Unable to decode query."}"#;

pub fn parse(asked: &Asked<'_>, now: Timestamp) -> Result<Options, (StatusCode, String)> {
    let invalid = || (StatusCode::UNPROCESSABLE_ENTITY, INVALID.to_owned());
    let unreadable = || (StatusCode::BAD_REQUEST, UNREADABLE.to_owned());
    let number = |name: &str, least: i64| {
        let text = asked.get(name);
        if text.is_empty() {
            return Ok(None);
        }
        let number = text.parse::<i64>().map_err(|_| unreadable())?;
        if number < least { Err(invalid()) } else { Ok(Some(number.unsigned_abs())) }
    };
    // An old name of `tailLines`, under which all of them could be asked for.
    let tail = match asked.get("tail") {
        "" => number("tailLines", 0)?,
        "all" => None,
        _ => number("tail", 0)?,
    };
    let seconds = number("sinceSeconds", 1)?;
    let time = match asked.get("sinceTime") {
        "" => None,
        text => Some(text.parse::<Timestamp>().map_err(|_| unreadable())?),
    };
    if seconds.is_some() && time.is_some() {
        return Err(invalid());
    }
    let ago = |seconds: u64| {
        let age = SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
        now.checked_sub(age).unwrap_or(Timestamp::MIN)
    };
    let stream = match asked.get("stream") {
        "" | "All" => None,
        "Stdout" => Some("stdout"),
        "Stderr" => Some("stderr"),
        _ => return Err(invalid()),
    };
    // Counted from a file's end, lines of both streams would be counted.
    if stream.is_some() && tail.is_some() {
        return Err(invalid());
    }
    Ok(Options {
        follow: asked.flag("follow"),
        previous: asked.flag("previous"),
        timestamps: asked.flag("timestamps"),
        since: time.or(seconds.map(ago)),
        tail,
        limit: number("limitBytes", 1)?,
        stream,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(query: &str) -> Result<Options, u16> {
        let asked =
            Asked { rest: Vec::new(), query: form_urlencoded::parse(query.as_bytes()).collect() };
        parse(&asked, Timestamp::from_second(100).unwrap()).map_err(|(status, _)| status.as_u16())
    }

    #[test]
    fn parameters_are_read() {
        let at = |second| Some(Timestamp::from_second(second).unwrap());
        let none = Options::default;
        for (query, expected) in [
            ("", Ok(none())),
            (
                "follow=true&timestamps=1&previous=true",
                Ok(Options { follow: true, timestamps: true, previous: true, ..none() }),
            ),
            ("tailLines=5", Ok(Options { tail: Some(5), ..none() })),
            ("tail=5", Ok(Options { tail: Some(5), ..none() })),
            ("tail=all&tailLines=3", Ok(none())),
            ("sinceSeconds=40", Ok(Options { since: at(60), ..none() })),
            ("sinceTime=1970-01-01T00:00:07Z", Ok(Options { since: at(7), ..none() })),
            (
                "stream=Stderr&limitBytes=3",
                Ok(Options { stream: Some("stderr"), limit: Some(3), ..none() }),
            ),
            ("stream=All&tailLines=1", Ok(Options { tail: Some(1), ..none() })),
            ("stream=Stdout&tailLines=1", Err(422)),
            ("sinceSeconds=1&sinceTime=1970-01-01T00:00:07Z", Err(422)),
            ("sinceSeconds=0", Err(422)),
            ("tailLines=-1", Err(422)),
            ("limitBytes=0", Err(422)),
            ("stream=stdin", Err(422)),
            ("tailLines=x", Err(400)),
            ("sinceTime=x", Err(400)),
        ] {
            assert_eq!(check(query), expected, "{query}");
        }
    }
}
