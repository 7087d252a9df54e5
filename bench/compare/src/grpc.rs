//! The least gRPC client for etcd's `Txn`: HTTP/2 by `h2`, messages by `prost`, no service layer above them.
//! Only the fields that create-if-absent needs are declared; names and tags are etcd's `rpc.proto`.

use std::net::SocketAddr;

use anyhow::{Context, bail, ensure};
use bytes::{BufMut, Bytes, BytesMut};
use h2::client::SendRequest;
use http::Request;
use prost::Message;
use tokio::net::TcpStream;

/// Bytes of a gRPC message's prefix: a compression flag and a length.
const PREFIX_BYTES: usize = 5;

/// `etcdserverpb.TxnRequest`.
#[derive(Clone, PartialEq, Message)]
pub struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub success: Vec<RequestOp>,
}

/// `etcdserverpb.Compare`: result EQUAL and target VERSION are both 0.
#[derive(Clone, PartialEq, Message)]
pub struct Compare {
    #[prost(int32, tag = "1")]
    pub result: i32,
    #[prost(int32, tag = "2")]
    pub target: i32,
    #[prost(bytes = "bytes", tag = "3")]
    pub key: Bytes,
    /// Of a oneof, so written even when it is 0.
    #[prost(int64, optional, tag = "4")]
    pub version: Option<i64>,
}

/// `etcdserverpb.RequestOp`.
#[derive(Clone, PartialEq, Message)]
pub struct RequestOp {
    #[prost(message, optional, tag = "2")]
    pub request_put: Option<PutRequest>,
}

/// `etcdserverpb.PutRequest`.
#[derive(Clone, PartialEq, Message)]
pub struct PutRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
}

/// `etcdserverpb.TxnResponse`.
#[derive(Clone, PartialEq, Message)]
pub struct TxnResponse {
    #[prost(bool, tag = "2")]
    pub succeeded: bool,
}

/// Puts the key if its version is 0, which means that it does not exist.
pub fn create_if_absent(key: &str, value: &str) -> TxnRequest {
    let key = Bytes::copy_from_slice(key.as_bytes());
    let put = PutRequest { key: key.clone(), value: Bytes::copy_from_slice(value.as_bytes()) };
    TxnRequest {
        compare: vec![Compare { result: 0, target: 0, key, version: Some(0) }],
        success: vec![RequestOp { request_put: Some(put) }],
    }
}

/// An HTTP/2 connection, or one more handle on it.
#[derive(Clone)]
pub struct Channel {
    sender: SendRequest<Bytes>,
    uri: http::Uri,
}

impl Channel {
    /// Connects; a task of its own drives the connection until the last handle is gone.
    pub async fn connect(target: SocketAddr) -> anyhow::Result<Channel> {
        let stream = TcpStream::connect(target).await.with_context(|| format!("connecting to {target}"))?;
        stream.set_nodelay(true)?;
        let (sender, connection) = h2::client::handshake(stream).await?;
        // An error of the connection reaches the requests on it, which report it.
        tokio::spawn(connection);
        Ok(Channel { sender, uri: format!("http://{target}/etcdserverpb.KV/Txn").parse()? })
    }

    /// One unary call.
    pub async fn txn(&mut self, message: &TxnRequest) -> anyhow::Result<TxnResponse> {
        let length = message.encoded_len();
        let mut frame = BytesMut::with_capacity(PREFIX_BYTES + length);
        frame.put_u8(0);
        frame.put_u32(u32::try_from(length)?);
        message.encode(&mut frame)?;

        let request =
            Request::post(self.uri.clone()).header("content-type", "application/grpc").header("te", "trailers");
        ready(&mut self.sender).await?;
        let (answer, mut body) = self.sender.send_request(request.body(())?, false)?;
        body.send_data(frame.freeze(), true)?;

        let answer = answer.await?;
        ensure!(answer.status() == 200, "HTTP status {}", answer.status());
        let mut stream = answer.into_body();
        let mut bytes = BytesMut::new();
        while let Some(chunk) = stream.data().await {
            let chunk = chunk?;
            stream.flow_control().release_capacity(chunk.len())?;
            bytes.extend_from_slice(&chunk);
        }
        let trailers = stream.trailers().await?.context("no trailers")?;
        let status = trailers.get("grpc-status").context("no grpc-status")?;
        if status != "0" {
            bail!("grpc-status {status:?}: {:?}", trailers.get("grpc-message"));
        }
        ensure!(bytes.len() >= PREFIX_BYTES, "an answer without a message");
        Ok(TxnResponse::decode(&bytes[PREFIX_BYTES..])?)
    }
}

/// Waits until the connection takes another stream.
async fn ready(sender: &mut SendRequest<Bytes>) -> Result<(), h2::Error> {
    std::future::poll_fn(|context| sender.poll_ready(context)).await
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::create_if_absent;

    #[test]
    fn the_request_is_what_etcd_reads() {
        // compare { key: "k" version: 0 } success { request_put { key: "k" value: "v" } }, as protoc encodes it.
        let expected = b"\x0a\x05\x1a\x01k\x20\x00\x12\x08\x12\x06\x0a\x01k\x12\x01v";
        assert_eq!(create_if_absent("k", "v").encode_to_vec(), expected);
    }
}
