//! Large answers are compressed for clients that take that.
use crate::answer::{Answer, full};
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderValue, header};
use http_body_util::BodyExt;
use hyper::body::Body as _;
use std::io::Write;

/// Smaller answers cost more to compress than to send: upstream's threshold.
const THRESHOLD: u64 = 128 * 1024;

pub fn is_taken(accept_encoding: &str) -> bool {
    accept_encoding.split(',').any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        parts.next() == Some("gzip") && !parts.any(|part| part == "q=0")
    })
}

/// Compresses an answer that has an end and is long enough; a stream goes as it is.
pub async fn compress(answer: Answer) -> Answer {
    let length = answer.body().size_hint();
    let worth_it = length.upper().is_some() && length.lower() >= THRESHOLD;
    if !worth_it || answer.headers().contains_key(header::CONTENT_ENCODING) {
        return answer;
    }
    let (mut head, body) = answer.into_parts();
    // A body that has an end is in memory already and cannot fail.
    let Ok(plain) = body.collect().await else { return Answer::from_parts(head, full("")) };
    let plain = plain.to_bytes();
    let packed = tokio::task::spawn_blocking(move || {
        let mut encoder = GzEncoder::new(Vec::with_capacity(plain.len() / 8), Compression::fast());
        encoder.write_all(&plain).and_then(|()| encoder.finish()).map_err(|_| plain)
    })
    .await;
    match packed {
        Ok(Ok(packed)) => {
            let gzip = HeaderValue::from_static("gzip");
            head.headers.insert(header::CONTENT_ENCODING, gzip);
            head.headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
            Answer::from_parts(head, full(packed))
        }
        Ok(Err(plain)) => Answer::from_parts(head, full(plain)),
        Err(_) => Answer::from_parts(head, full("")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_client_says_whether_it_takes_gzip() {
        for (header, taken) in
            [("gzip", true), ("deflate, gzip;q=0.5", true), ("gzip;q=0", false), ("", false)]
        {
            assert_eq!(is_taken(header), taken, "{header}");
        }
    }

    #[tokio::test]
    async fn only_large_answers_are_compressed() {
        let small = compress(Answer::new(full(vec![b'x'; 1000]))).await;
        assert!(!small.headers().contains_key(header::CONTENT_ENCODING));
        let text = vec![b'x'; 200_000];
        let large = compress(Answer::new(full(text.clone()))).await;
        assert_eq!(large.headers()[header::CONTENT_ENCODING], "gzip");
        let packed = large.into_body().collect().await.expect("a body").to_bytes();
        let mut unpacked = Vec::new();
        flate2::read::GzDecoder::new(&*packed).read_to_end(&mut unpacked).expect("gzip");
        assert_eq!(unpacked, text);
    }
}
