//! Large answers are compressed for clients that take that.
use crate::answer::{Answer, Body};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderValue, header};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Frame};
use std::io::{self, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Smaller answers cost more to compress than to send: upstream's threshold.
const THRESHOLD: u64 = 128 * 1024;
/// So much is packed in one turn: it takes about as long as a few small requests.
const TURN: usize = 64 << 10;
/// What is packed is sent in frames of this length, each of which fills a record of TLS.
const FRAME: usize = (16 << 10) - 9;
/// What a turn may add to a frame that is nearly full, if nothing could be packed.
const ROOM: usize = FRAME + TURN;

pub fn is_taken(accept_encoding: &str) -> bool {
    accept_encoding.split(',').any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        parts.next() == Some("gzip") && !parts.any(|part| part == "q=0")
    })
}

/// Compresses an answer that has an end and is long enough, while it is sent; a stream goes as it is.
pub fn compress(answer: Answer) -> Answer {
    let length = answer.body().size_hint();
    let worth_it = length.upper().is_some() && length.lower() >= THRESHOLD;
    if !worth_it || answer.headers().contains_key(header::CONTENT_ENCODING) {
        return answer;
    }
    let (mut head, body) = answer.into_parts();
    head.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    head.headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    Answer::from_parts(head, BodyExt::boxed(Packed::new(body)))
}

/// A body that is compressed piece by piece as the connection takes it, so that neither form of it is
/// ever there as a whole. What the plain body holds on to goes with its last byte.
struct Packed {
    plain: Option<Body>,
    /// What is left of the plain body's last frame.
    piece: Bytes,
    /// Nothing once all is packed.
    encoder: Option<GzEncoder<Vec<u8>>>,
    /// What was packed in this turn.
    turn: usize,
    out: Bytes,
}

impl Packed {
    fn new(plain: Body) -> Packed {
        let encoder = Some(GzEncoder::new(Vec::with_capacity(ROOM), Compression::fast()));
        Packed { plain: Some(plain), piece: Bytes::new(), encoder, turn: 0, out: Bytes::new() }
    }

    /// Packs some of what is at hand.
    fn pack(&mut self) -> io::Result<()> {
        let Some(encoder) = &mut self.encoder else { return Ok(()) };
        let some = self.piece.split_to(self.piece.len().min(TURN - self.turn));
        self.turn += some.len();
        encoder.write_all(&some)?;
        if encoder.get_ref().len() >= FRAME {
            let packed = std::mem::replace(encoder.get_mut(), Vec::with_capacity(ROOM));
            self.out = packed.into();
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        if let Some(encoder) = self.encoder.take() {
            self.out = encoder.finish()?.into();
        }
        Ok(())
    }
}

impl hyper::body::Body for Packed {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        loop {
            if !self.out.is_empty() {
                let length = self.out.len().min(FRAME);
                let frame = self.out.split_to(length);
                if self.is_end_stream() {
                    self.plain = None;
                }
                return Poll::Ready(Some(Ok(Frame::data(frame))));
            }
            if self.encoder.is_none() {
                return Poll::Ready(None);
            }
            if self.turn >= TURN {
                // Others have their turn before the next piece.
                self.turn = 0;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            if !self.piece.is_empty() {
                self.pack()?;
                continue;
            }
            let next = match &mut self.plain {
                Some(plain) => ready!(Pin::new(plain).poll_frame(context)?),
                None => None,
            };
            match next {
                Some(frame) => self.piece = frame.into_data().unwrap_or_default(),
                None => self.finish()?,
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.encoder.is_none() && self.out.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::full;
    use crate::answer::holding;
    use futures_util::{StreamExt, stream};
    use http_body_util::StreamBody;
    use hyper::body::SizeHint;
    use std::io::Read;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn a_client_says_whether_it_takes_gzip() {
        for (header, taken) in
            [("gzip", true), ("deflate, gzip;q=0.5", true), ("gzip;q=0", false), ("", false)]
        {
            assert_eq!(is_taken(header), taken, "{header}");
        }
    }

    fn unpacked(packed: &[u8]) -> Vec<u8> {
        let mut unpacked = Vec::new();
        flate2::read::GzDecoder::new(packed).read_to_end(&mut unpacked).expect("gzip");
        unpacked
    }

    #[tokio::test]
    async fn only_large_answers_are_compressed() {
        let small = compress(Answer::new(full(vec![b'x'; 1000])));
        assert!(!small.headers().contains_key(header::CONTENT_ENCODING));
        // Whether or not there is anything to gain.
        let plain = vec![b'x'; 2_000_000];
        let noise: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..)).take(2_000_000).collect();
        for text in [plain, noise] {
            let large = compress(Answer::new(full(text.clone())));
            assert_eq!(large.headers()[header::CONTENT_ENCODING], "gzip");
            let packed = large.into_body().collect().await.expect("a body").to_bytes();
            assert_eq!(unpacked(&packed), text);
        }
    }

    /// What a list holds (its share of the budget, its seat) is held until its client has the last
    /// byte, and no more is made of it than the client takes.
    #[tokio::test]
    async fn a_client_that_reads_slowly_keeps_its_share_and_no_copy() {
        let held = Arc::new(());
        let made = Arc::new(AtomicUsize::new(0));
        let counted = made.clone();
        let frames = stream::iter(0..1000).map(move |_| {
            counted.fetch_add(1, Relaxed);
            let noise: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..)).take(16_000).collect();
            Ok(Frame::data(Bytes::from(noise)))
        });
        let long = Sized(BodyExt::boxed(StreamBody::new(frames)));
        let answer = holding::until_sent(Answer::new(BodyExt::boxed(long)), held.clone());
        let mut body = compress(answer).into_body();
        let mut packed = Vec::new();
        for _ in 0..10 {
            let frame = body.frame().await.expect("more").expect("a frame");
            packed.extend_from_slice(&frame.into_data().expect("data"));
        }
        assert!(made.load(Relaxed) < 30, "{made:?}");
        assert_eq!(Arc::strong_count(&held), 2);
        while let Some(frame) = body.frame().await {
            packed.extend_from_slice(&frame.expect("a frame").into_data().expect("data"));
            assert!(Arc::strong_count(&held) == 2 || body.is_end_stream());
        }
        assert_eq!(unpacked(&packed).len(), 16_000_000);
        assert_eq!(Arc::strong_count(&held), 1);
    }

    /// A body that knows how long it is, about.
    struct Sized(Body);

    impl hyper::body::Body for Sized {
        type Data = Bytes;
        type Error = io::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
            Pin::new(&mut self.0).poll_frame(context)
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(16_000_000)
        }
    }
}
