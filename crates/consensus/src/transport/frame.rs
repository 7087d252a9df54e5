//! Frames on a byte stream: reading them whole, and writing many in one vectored write.
//! Knows their length prefix only; what is in them is [`hapax_codec::peer`]'s.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use bytes::{Buf, Bytes};
use futures::StreamExt;
use hapax_codec::peer::{Frame, MAX_FRAME_LEN};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio_util::codec::{FramedRead, LengthDelimitedCodec};

use super::io::BoxIo;

/// Reads frames' bodies.
pub struct FrameReader<R> {
    framed: FramedRead<R, LengthDelimitedCodec>,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// Accepts frames whose body is at most `max_len` bytes.
    pub fn new(io: R, max_len: usize) -> Self {
        let mut codec = LengthDelimitedCodec::new();
        codec.set_max_frame_length(max_len);
        Self { framed: FramedRead::new(io, codec) }
    }

    /// From here on accepts frames of the protocol's full length: the peer has introduced itself.
    pub fn raise_limit(&mut self) {
        self.framed.decoder_mut().set_max_frame_length(MAX_FRAME_LEN);
    }

    /// The next body; `None` at the end of the stream. A frame above the limit, and a stream that
    /// ends inside a frame, are errors. Nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> io::Result<Option<Bytes>> {
        match self.framed.next().await {
            None => Ok(None),
            Some(Ok(body)) => Ok(Some(body.freeze())),
            Some(Err(error)) => Err(error),
        }
    }
}

/// Writes frames.
pub struct FrameWriter<W> {
    io: W,
    batch: Segments,
}

impl<W: AsyncWrite + Unpin> FrameWriter<W> {
    /// Writes to this stream.
    pub fn new(io: W) -> Self {
        Self { io, batch: Segments::default() }
    }

    /// Adds a frame to the next [`Self::flush`].
    pub fn push(&mut self, frame: Frame) {
        for segment in frame.into_segments() {
            self.batch.push(segment);
        }
    }

    /// Bytes that the next [`Self::flush`] writes.
    pub fn pushed_len(&self) -> usize {
        self.batch.len
    }

    /// Writes everything that was added. When the future is dropped half-way, the stream holds a
    /// torn frame and cannot be used again.
    pub async fn flush(&mut self) -> io::Result<()> {
        self.io.write_all_buf(&mut self.batch).await?;
        self.io.flush().await
    }

    /// Writes one frame.
    pub async fn send(&mut self, frame: Frame) -> io::Result<()> {
        self.push(frame);
        self.flush().await
    }
}

/// Reading half of a connection.
pub type ConnReader = FrameReader<ReadHalf<BoxIo>>;
/// Writing half of a connection.
pub type ConnWriter = FrameWriter<WriteHalf<BoxIo>>;

/// Splits a stream into frames in and frames out.
pub fn split(io: BoxIo, max_len: usize) -> (ConnReader, ConnWriter) {
    let (read, write) = tokio::io::split(io);
    (FrameReader::new(read, max_len), FrameWriter::new(write))
}

/// The unwritten rest of a batch, offered to the stream as one vectored write.
#[derive(Default)]
struct Segments {
    queue: VecDeque<Bytes>,
    len: usize,
}

impl Segments {
    fn push(&mut self, segment: Bytes) {
        if !segment.is_empty() {
            self.len += segment.len();
            self.queue.push_back(segment);
        }
    }
}

impl Buf for Segments {
    fn remaining(&self) -> usize {
        self.len
    }

    fn chunk(&self) -> &[u8] {
        self.queue.front().map(Bytes::as_ref).unwrap_or_default()
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut filled = 0;
        for (slice, segment) in slices.iter_mut().zip(&self.queue) {
            *slice = IoSlice::new(segment);
            filled += 1;
        }
        filled
    }

    fn advance(&mut self, mut count: usize) {
        assert!(count <= self.len, "a stream reports no more than it was offered");
        self.len -= count;
        while count > 0 {
            let Some(front) = self.queue.front_mut() else { return };
            if front.len() > count {
                front.advance(count);
                return;
            }
            count -= front.len();
            self.queue.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use hapax_codec::peer::Kind;
    use hapax_codec::peer::call::Request;

    use super::*;

    fn request(id: u64, len: usize) -> Frame {
        Request { id, op: 1, budget_ms: 0, payload: vec![id as u8; len].into() }.encode()
    }

    #[tokio::test]
    async fn frames_survive_a_narrow_pipe() {
        // A pipe of 7 bytes cuts frames, segments and prefixes everywhere.
        let (near, far) = tokio::io::duplex(7);
        let mut writer = FrameWriter::new(near);
        let mut reader = FrameReader::new(far, MAX_FRAME_LEN);
        let sending = tokio::spawn(async move {
            for id in 0..20 {
                writer.push(request(id, id as usize * 700));
            }
            writer.flush().await.expect("written");
        });
        for id in 0..20u64 {
            let mut body = reader.next().await.expect("read").expect("a frame");
            assert_eq!(Kind::take(&mut body), Ok(Kind::Request));
            let request = Request::decode(body).expect("a request");
            assert_eq!((request.id, request.payload.len()), (id, id as usize * 700));
            assert!(request.payload.iter().all(|b| *b == id as u8));
        }
        sending.await.expect("sent");
        assert!(reader.next().await.expect("clean end").is_none());
    }

    #[tokio::test]
    async fn an_oversized_or_torn_frame_is_an_error() {
        let (mut near, far) = tokio::io::duplex(64);
        let mut reader = FrameReader::new(far, 16);
        near.write_all(&17u32.to_be_bytes()).await.expect("written");
        assert!(reader.next().await.is_err());

        let (mut near, far) = tokio::io::duplex(64);
        let mut reader = FrameReader::new(far, 16);
        near.write_all(&[0, 0, 0, 9, 1, 2]).await.expect("written");
        drop(near);
        assert!(reader.next().await.is_err());
    }

    #[tokio::test]
    async fn the_limit_rises_after_the_hello() {
        let (mut near, far) = tokio::io::duplex(64);
        let mut reader = FrameReader::new(far, 4);
        near.write_all(&[0, 0, 0, 1, 9]).await.expect("written");
        assert_eq!(reader.next().await.expect("read"), Some(Bytes::from_static(&[9])));
        reader.raise_limit();
        near.write_all(&[0, 0, 0, 5, 1, 2, 3, 4, 5]).await.expect("written");
        assert_eq!(reader.next().await.expect("read").map(|body| body.len()), Some(5));
    }
}
