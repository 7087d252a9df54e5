//! The least HTTP/1.1 client that measures a server and not itself: one connection that is kept, one request written in one piece, one
//! answer with a `Content-Length` read into a buffer that is used again.

use std::io::{Error, ErrorKind, Result, Write};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longest answer that is read.
const ANSWER_BYTES_MAX: usize = 4 << 20;
const HEADERS_MAX: usize = 32;
const BUFFER_BYTES: usize = 16 << 10;

/// A connection to one server.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    /// Header lines of every request.
    head: String,
    request: Vec<u8>,
    answer: Vec<u8>,
}

/// A method and a path.
#[derive(Debug, Clone, Copy)]
pub enum Ask<'a> {
    /// `GET`, without a body.
    Get(&'a str),
    /// `POST` of a JSON document.
    Post(&'a str, &'a [u8]),
}

impl Connection {
    /// Connects to `authority` (`host:port`); `headers` are further header lines of each request, each with its line end.
    ///
    /// # Errors
    /// Nobody listens there.
    pub async fn open(authority: &str, headers: &str) -> Result<Connection> {
        let stream = TcpStream::connect(authority).await?;
        stream.set_nodelay(true)?;
        let head = format!(" HTTP/1.1\r\nhost: {authority}\r\n{headers}");
        Ok(Connection { stream, head, request: Vec::new(), answer: vec![0; BUFFER_BYTES] })
    }

    /// Sends one request and reads its answer: the status and the body.
    ///
    /// # Errors
    /// The connection broke, or what came is no answer with a length. The connection is of no use any more.
    pub async fn ask(&mut self, ask: Ask<'_>) -> Result<(u16, &[u8])> {
        self.request.clear();
        match ask {
            Ask::Get(path) => write!(self.request, "GET {path}{}\r\n", self.head)?,
            Ask::Post(path, body) => {
                let length = body.len();
                write!(
                    self.request,
                    "POST {path}{}content-type: application/json\r\ncontent-length: {length}\r\n\r\n",
                    self.head
                )?;
                self.request.extend_from_slice(body);
            }
        }
        self.stream.write_all(&self.request).await?;
        let mut filled = 0;
        loop {
            if filled == self.answer.len() {
                if filled >= ANSWER_BYTES_MAX {
                    return Err(wrong("an answer that is too long"));
                }
                self.answer.resize(filled * 2, 0);
            }
            let read = self.stream.read(&mut self.answer[filled..]).await?;
            if read == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            filled += read;
            if let Some((status, start, length)) = parse(&self.answer[..filled])?
                && filled >= start + length
            {
                return match filled == start + length {
                    true => Ok((status, &self.answer[start..filled])),
                    false => Err(wrong("bytes after the answer")),
                };
            }
        }
    }
}

fn wrong(what: &'static str) -> Error {
    Error::new(ErrorKind::InvalidData, what)
}

/// Reads an answer's head: status, where the body starts, its length. `None` while the head is incomplete.
fn parse(bytes: &[u8]) -> Result<Option<(u16, usize, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut answer = httparse::Response::new(&mut headers);
    let parsed = answer.parse(bytes).map_err(|_| wrong("no HTTP answer"))?;
    let httparse::Status::Complete(start) = parsed else { return Ok(None) };
    let status = answer.code.ok_or_else(|| wrong("no status"))?;
    let length = answer.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"));
    let length = length.and_then(|header| std::str::from_utf8(header.value).ok()?.trim().parse().ok());
    Ok(Some((status, start, length.ok_or_else(|| wrong("an answer without Content-Length"))?)))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn a_head_is_read_when_it_is_whole() {
        let whole = b"HTTP/1.1 201 Created\r\nX-A: b\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(parse(whole).expect("it is an answer"), Some((201, 51, 2)));
        assert_eq!(parse(&whole[..40]).expect("its beginning"), None);
        assert!(parse(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").is_err());
        assert!(parse(b"SSH-2.0\r\n\r\n").is_err());
    }

    #[tokio::test]
    async fn answers_that_come_in_pieces_and_large_ones() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let authority = listener.local_addr().expect("bound").to_string();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a caller");
            let mut asked = vec![0; 4_096];
            let mut texts = Vec::new();
            for length in [0, 5, 100_000] {
                let read = stream.read(&mut asked).await.expect("a request");
                texts.push(String::from_utf8_lossy(&asked[..read]).into_owned());
                let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{}", "x".repeat(length));
                let (first, rest) = answer.as_bytes().split_at(10);
                stream.write_all(first).await.expect("written");
                stream.flush().await.expect("sent");
                tokio::task::yield_now().await;
                stream.write_all(rest).await.expect("written");
            }
            texts
        });
        let mut connection = Connection::open(&authority, "x-a: b\r\n").await.expect("it connects");
        assert_eq!(connection.ask(Ask::Get("/a")).await.expect("an answer"), (200, &b""[..]));
        assert_eq!(connection.ask(Ask::Post("/b", b"{}")).await.expect("an answer").1, b"xxxxx");
        assert_eq!(connection.ask(Ask::Get("/c")).await.expect("an answer").1.len(), 100_000);
        let texts = server.await.expect("it ends");
        assert_eq!(texts[0], format!("GET /a HTTP/1.1\r\nhost: {authority}\r\nx-a: b\r\n\r\n"));
        assert!(texts[1].ends_with("content-length: 2\r\n\r\n{}"), "{}", texts[1]);
        assert!(connection.ask(Ask::Get("/d")).await.is_err(), "the server is gone");
    }
}
