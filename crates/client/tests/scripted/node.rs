//! A node that answers from a script, one connection for each request, and keeps what it was asked.
//! It speaks just enough HTTP/1.1 for a client, and can break a connection at either end of a request.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What the node does with one request.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// Answers.
    Answer { status: u16, headers: Vec<(&'static str, String)>, body: String },
    /// Begins a stream of events, and then says nothing more, or closes the connection.
    Stream { body: String, ends: bool },
    /// Reads the request and closes the connection.
    HangUp,
    /// Reads the request and says nothing.
    Silence,
}

/// One request.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) line: String,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Asked {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// The node. The last reply of its script is repeated.
pub(crate) struct Node {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Node {
    pub(crate) async fn start(script: impl IntoIterator<Item = Reply>) -> Node {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (script, seen) = (Arc::new(Mutex::new(script.into_iter().collect::<VecDeque<Reply>>())), asked.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, script.clone(), seen.clone()));
            }
        });
        Node { url, asked }
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

/// A URL that nobody listens at.
pub(crate) async fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

async fn serve(mut stream: TcpStream, script: Arc<Mutex<VecDeque<Reply>>>, asked: Arc<Mutex<Vec<Asked>>>) {
    let Some(request) = read(&mut stream).await else { return };
    asked.lock().unwrap().push(request);
    let reply = {
        let mut script = script.lock().unwrap();
        if script.len() > 1 { script.pop_front().unwrap() } else { script.front().unwrap().clone() }
    };
    match reply {
        Reply::HangUp => {}
        Reply::Silence => std::future::pending().await,
        Reply::Stream { body, ends } => {
            let head = "HTTP/1.1 200 Scripted\r\nconnection: close\r\ncontent-type: text/event-stream\r\n";
            let _ = stream.write_all(format!("{head}\r\n{body}").as_bytes()).await;
            if !ends {
                std::future::pending::<()>().await;
            }
            let _ = stream.shutdown().await;
        }
        Reply::Answer { status, headers, body } => {
            let mut head = format!("HTTP/1.1 {status} Scripted\r\nconnection: close\r\n");
            for (name, value) in headers {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
            if status != 304 {
                head.push_str(&format!("content-length: {}\r\n", body.len()));
            }
            let _ = stream.write_all(format!("{head}\r\n{body}").as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    }
}

async fn read(stream: &mut TcpStream) -> Option<Asked> {
    let mut bytes = Vec::new();
    loop {
        let mut chunk = [0; 4096];
        let count = stream.read(&mut chunk).await.ok()?;
        if count == 0 {
            return None;
        }
        bytes.extend_from_slice(&chunk[..count]);
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head
            .lines()
            .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:").map(|n| n.trim().to_owned()))
            .map_or(0, |n| n.parse().unwrap());
        if body.len() >= length {
            let line = head.lines().next().unwrap_or_default().to_owned();
            return Some(Asked { line, head: head.to_ascii_lowercase(), body: body.to_owned() });
        }
    }
}
