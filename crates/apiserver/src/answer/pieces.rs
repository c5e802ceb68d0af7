//! An answer in pieces that are all there: a long list in protobuf, whose head says how long it is.
use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A piece is begun when the last one is about so long: none has to grow into megabytes.
const PIECE: usize = 64 << 10;

#[derive(Default)]
pub struct Pieces {
    full: Vec<Bytes>,
    last: Vec<u8>,
}

impl Pieces {
    /// Where to append what must not be torn apart.
    pub fn next(&mut self) -> &mut Vec<u8> {
        if self.last.len() >= PIECE {
            self.full.push(std::mem::take(&mut self.last).into());
        }
        if self.last.capacity() == 0 {
            self.last.reserve(PIECE + (4 << 10));
        }
        &mut self.last
    }

    pub fn length(&self) -> usize {
        self.full.iter().map(Bytes::len).sum::<usize>() + self.last.len()
    }

    /// The pieces between what goes before and after them. None is empty: a client that is wary ends a
    /// connection on which a hundred empty frames have come (h2 does), and with it all else on it.
    pub fn between(self, before: Vec<u8>, after: &'static [u8]) -> PiecesBody {
        let left = before.len() + self.length() + after.len();
        let ends = [self.last.into(), Bytes::from_static(after)];
        let all = [Bytes::from(before)].into_iter().chain(self.full).chain(ends);
        let pieces: Vec<Bytes> = all.filter(|piece| !piece.is_empty()).collect();
        PiecesBody { pieces: pieces.into_iter(), left }
    }
}

pub struct PiecesBody {
    pieces: std::vec::IntoIter<Bytes>,
    left: usize,
}

impl Body for PiecesBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(piece) = self.pieces.next() else { return Poll::Ready(None) };
        self.left -= piece.len();
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    #[tokio::test]
    async fn pieces_come_in_order_and_are_counted() {
        for items in [0, 1, 500] {
            let mut pieces = Pieces::default();
            let mut expected = b"<".to_vec();
            for i in 0..items {
                let item = vec![i as u8; 1000];
                pieces.next().extend_from_slice(&item);
                expected.extend_from_slice(&item);
            }
            expected.push(b'>');
            let body = pieces.between(b"<".to_vec(), b">");
            assert!(body.pieces.as_slice().iter().all(|piece| !piece.is_empty()));
            assert_eq!(body.size_hint().exact(), Some(expected.len() as u64));
            assert_eq!(body.collect().await.unwrap().to_bytes(), expected);
        }
    }
}
