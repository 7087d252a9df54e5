//! The least HTTP/1.1 client that measures a server and not itself: one connection kept alive, one request written in
//! one piece, one answer with a Content-Length read into a buffer that is used again.

use std::io::Write;
use std::net::SocketAddr;

use anyhow::{Context, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longest answer that is read.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
const HEADERS_MAX: usize = 32;

/// A connection that posts JSON to one path.
pub struct Http1 {
    stream: TcpStream,
    head: String,
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl Http1 {
    /// Connects; `headers` are further header lines, each with its line end.
    pub async fn connect(target: SocketAddr, path: &str, headers: &str) -> anyhow::Result<Http1> {
        let stream = TcpStream::connect(target).await.with_context(|| format!("connecting to {target}"))?;
        stream.set_nodelay(true)?;
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {target}\r\n{headers}content-type: application/json\r\ncontent-length: "
        );
        Ok(Http1 { stream, head, request: Vec::new(), answer: vec![0; ANSWER_BYTES_MAX] })
    }

    /// Sends one request and reads its answer: the status and the body.
    pub async fn post(&mut self, body: &str) -> anyhow::Result<(u16, &[u8])> {
        self.request.clear();
        write!(self.request, "{}{}\r\n\r\n{body}", self.head, body.len())?;
        self.stream.write_all(&self.request).await?;
        let mut filled = 0;
        loop {
            ensure!(filled < self.answer.len(), "an answer longer than {ANSWER_BYTES_MAX} bytes");
            let read = self.stream.read(&mut self.answer[filled..]).await?;
            ensure!(read > 0, "the server closed the connection");
            filled += read;
            if let Some((status, start, length)) = parse(&self.answer[..filled])?
                && filled >= start + length
            {
                ensure!(filled == start + length, "bytes after the answer");
                return Ok((status, &self.answer[start..start + length]));
            }
        }
    }
}

/// Reads an answer's head: status, where the body starts, its length. `None` while the head is incomplete.
fn parse(bytes: &[u8]) -> anyhow::Result<Option<(u16, usize, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut answer = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(start) = answer.parse(bytes)? else { return Ok(None) };
    let status = answer.code.context("no status")?;
    let length = answer.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"));
    let Some(length) = length else { bail!("an answer without Content-Length, status {status}") };
    let length: usize = std::str::from_utf8(length.value)?.trim().parse()?;
    Ok(Some((status, start, length)))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_head_is_read_when_it_is_whole() {
        let whole = b"HTTP/1.1 201 Created\r\nX-A: b\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(parse(whole).unwrap(), Some((201, 51, 2)));
        assert_eq!(parse(&whole[..40]).unwrap(), None);
        assert!(parse(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").is_err());
    }
}
