//! One HTTP/1.1 exchange over a connection of its own, with one deadline for all of it.
//! What is known after a failure is told apart: a call that was never sent certainly had no effect.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The longest answer that is read, in bytes.
const ANSWER_LIMIT: u64 = 1 << 20;

/// How an exchange ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Exchange {
    /// An answer came, whole.
    Answer {
        /// Its status.
        status: u16,
        /// Its body, null where it is no JSON.
        body: Value,
    },
    /// No connection came about, so nothing was sent.
    NotSent(String),
    /// It was sent, in part at least, and no whole answer came.
    Unknown(String),
}

/// Calls `method path` at `url` with the token and, where there is one, a JSON body.
pub fn call(url: &str, token: &str, method: &str, path: &str, body: Option<&Value>, limit: Duration) -> Exchange {
    let begun = Instant::now();
    let host = url.trim_start_matches("http://");
    let address: SocketAddr = match host.parse() {
        Ok(address) => address,
        Err(error) => return Exchange::NotSent(format!("{url}: {error}")),
    };
    let mut stream = match TcpStream::connect_timeout(&address, limit) {
        Ok(stream) => stream,
        Err(error) => return Exchange::NotSent(error.to_string()),
    };
    let content = body.map(Value::to_string).unwrap_or_default();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        content.len()
    );
    match exchange(&mut stream, &[head.as_bytes(), content.as_bytes()].concat(), begun, limit) {
        Ok(answer) => whole(&answer),
        Err(error) => Exchange::Unknown(error.to_string()),
    }
}

/// The body of `GET path` from an open listener, as text.
///
/// # Errors
/// It does not connect, or gives no whole answer in time.
pub fn text(address: SocketAddr, path: &str, limit: Duration) -> std::io::Result<String> {
    let begun = Instant::now();
    let mut stream = TcpStream::connect_timeout(&address, limit)?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    let answer = exchange(&mut stream, request.as_bytes(), begun, limit)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn exchange(stream: &mut TcpStream, request: &[u8], begun: Instant, limit: Duration) -> std::io::Result<Vec<u8>> {
    let left = || {
        let left = limit.saturating_sub(begun.elapsed());
        if left.is_zero() { Err(std::io::Error::from(ErrorKind::TimedOut)) } else { Ok(left) }
    };
    stream.set_write_timeout(Some(left()?))?;
    stream.write_all(request)?;
    let mut answer = Vec::new();
    let mut piece = [0; 16 * 1024];
    while (answer.len() as u64) < ANSWER_LIMIT {
        stream.set_read_timeout(Some(left()?))?;
        match stream.read(&mut piece)? {
            0 => break,
            read => answer.extend_from_slice(&piece[..read]),
        }
    }
    Ok(answer)
}

/// The answer, if all of it is there. Half an answer says nothing about what was done.
fn whole(answer: &[u8]) -> Exchange {
    let half = || Exchange::Unknown("half an answer".to_owned());
    let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { return half() };
    let (head, body) = (String::from_utf8_lossy(&answer[..end]), &answer[end + 4..]);
    let Some(status) = head.split(' ').nth(1).and_then(|word| word.parse().ok()) else { return half() };
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    if length.is_none_or(|length| length != body.len()) {
        return half();
    }
    Exchange::Answer { status, body: serde_json::from_slice(body).unwrap_or(Value::Null) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_an_answer_is_no_answer() {
        assert!(matches!(whole(b"HTTP/1.1 201 Created\r\nContent-Length: 9\r\n\r\n{}"), Exchange::Unknown(_)));
        assert!(matches!(whole(b"HTTP/1.1 201 Crea"), Exchange::Unknown(_)));
        let good = whole(b"HTTP/1.1 201 Created\r\ncontent-length: 7\r\n\r\n{\"a\":1}");
        assert_eq!(good, Exchange::Answer { status: 201, body: serde_json::json!({"a": 1}) });
    }
}
