//! One connection's way to create one absent key: the request of each system, and the check that its answer says
//! that this caller created it. Any other answer is an error, which ends the run.

use std::net::SocketAddr;

use anyhow::{Context, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::grpc;
use crate::http1::Http1;

/// Bytes that go with each key.
pub const VALUE_BYTES: usize = 256;

/// A system under load, and the protocol it is spoken to in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum System {
    /// `POST /v1/claims` over HTTP/1.1.
    Hapax,
    /// `Txn` over gRPC.
    EtcdGrpc,
    /// `POST /v3/kv/txn` over HTTP/1.1, through etcd's JSON gateway.
    EtcdJson,
}

impl System {
    /// The name in the results file.
    pub fn name(self) -> &'static str {
        match self {
            System::Hapax => "hapax",
            System::EtcdGrpc => "etcd-grpc",
            System::EtcdJson => "etcd-json",
        }
    }
}

/// A value as long as [`VALUE_BYTES`], of printable characters in no short period.
pub fn value() -> String {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let letters = (0..VALUE_BYTES).map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'a' + (state % 26) as u8)
    });
    letters.collect()
}

/// One request in flight at most; owns its connection, or a stream of a shared one.
pub enum Client {
    /// Over HTTP/1.1 with keep-alive.
    Hapax { http: Http1, value: String },
    /// Over HTTP/1.1 with keep-alive; the value is base64 already.
    EtcdJson { http: Http1, value: String },
    /// Over HTTP/2.
    EtcdGrpc { channel: grpc::Channel, value: String },
}

impl Client {
    /// Connects; `channel` is the HTTP/2 connection to share, where the system uses one.
    pub async fn connect(system: System, target: SocketAddr, token: &str) -> anyhow::Result<Client> {
        let value = value();
        Ok(match system {
            System::Hapax => {
                let headers = format!("authorization: Bearer {token}\r\n");
                Client::Hapax { http: Http1::connect(target, "/v1/claims", &headers).await?, value }
            }
            System::EtcdJson => {
                let http = Http1::connect(target, "/v3/kv/txn", "").await?;
                Client::EtcdJson { http, value: STANDARD.encode(value) }
            }
            System::EtcdGrpc => Client::EtcdGrpc { channel: grpc::Channel::connect(target).await?, value },
        })
    }

    /// Another client on the same connection, for protocols that carry several requests at once.
    pub fn share(&self) -> anyhow::Result<Client> {
        match self {
            Client::EtcdGrpc { channel, value } => {
                Ok(Client::EtcdGrpc { channel: channel.clone(), value: value.clone() })
            }
            _ => anyhow::bail!("HTTP/1.1 carries one request at a time: leave --streams at 1"),
        }
    }

    /// Creates `key`, which must be new, and holds the answer against what it must say.
    pub async fn create(&mut self, key: &str) -> anyhow::Result<()> {
        match self {
            Client::Hapax { http, value } => {
                let claim_id = uuid::Uuid::new_v4();
                let body = format!(
                    r#"{{"namespace":"default","key":"{key}","claim_id":"{claim_id}","owner":"bench","lease_ms":600000,"request":{{"value":"{value}"}}}}"#
                );
                let (status, answer) = http.post(&body).await?;
                let claimed = status == 201 && contains(answer, br#""result":"claimed""#);
                ensure!(claimed, "not claimed: {status} {}", String::from_utf8_lossy(answer));
            }
            Client::EtcdJson { http, value } => {
                let key = STANDARD.encode(key);
                let body = format!(
                    r#"{{"compare":[{{"target":"VERSION","key":"{key}","version":"0"}}],"success":[{{"requestPut":{{"key":"{key}","value":"{value}"}}}}]}}"#
                );
                let (status, answer) = http.post(&body).await?;
                let created = status == 200 && contains(answer, br#""succeeded":true"#);
                ensure!(created, "not created: {status} {}", String::from_utf8_lossy(answer));
            }
            Client::EtcdGrpc { channel, value } => {
                let answer = channel.txn(&grpc::create_if_absent(key, value)).await.context("txn")?;
                ensure!(answer.succeeded, "not created: the key {key} was there");
            }
        }
        Ok(())
    }
}

fn contains(text: &[u8], wanted: &[u8]) -> bool {
    text.windows(wanted.len()).any(|window| window == wanted)
}
