//! The least HTTP/1.1 client that measures a server and not itself: one connection kept alive, one request written in
//! one piece, one answer with a Content-Length read into a buffer that is used again.

use std::io::Write;
use std::net::SocketAddr;

use anyhow::{Context, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longest answer that is read.
const ANSWER_BYTES_MAX: usize = 256 * 1024;
const HEADERS_MAX: usize = 32;

/// A connection that posts JSON, and gets it.
pub struct Http1 {
    stream: TcpStream,
    /// The header lines that are the same for all requests.
    headers: String,
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl Http1 {
    /// Connects; `headers` are further header lines, each with its line end.
    pub async fn connect(target: SocketAddr, headers: &str) -> anyhow::Result<Http1> {
        let stream = TcpStream::connect(target).await.with_context(|| format!("connecting to {target}"))?;
        stream.set_nodelay(true)?;
        let headers = format!("host: {target}\r\n{headers}");
        Ok(Http1 { stream, headers, request: Vec::new(), answer: vec![0; ANSWER_BYTES_MAX] })
    }

    /// Posts a body and reads the answer: its status and its body.
    pub async fn post(&mut self, path: &str, body: &str) -> anyhow::Result<(u16, &[u8])> {
        let (headers, length) = (&self.headers, body.len());
        self.request.clear();
        write!(
            self.request,
            "POST {path} HTTP/1.1\r\n{headers}content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        )?;
        self.exchange().await
    }

    /// Asks for a path and reads the answer likewise.
    pub async fn get(&mut self, path: &str) -> anyhow::Result<(u16, &[u8])> {
        self.request.clear();
        write!(self.request, "GET {path} HTTP/1.1\r\n{}\r\n", self.headers)?;
        self.exchange().await
    }

    async fn exchange(&mut self) -> anyhow::Result<(u16, &[u8])> {
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
