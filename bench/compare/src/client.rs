//! One connection's requests to the system under load, and the check of each answer: that this caller created the
//! key, or was given the receipt that it asked for. Any other answer is an error, which ends the run.

use std::net::SocketAddr;

use anyhow::{Context, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::grpc;
use crate::hapax::{self, Hapax};
use crate::http1::Http1;
use crate::postgres::Postgres;

/// Bytes that go with each key.
pub const VALUE_BYTES: usize = 256;

/// A system under load, the protocol it is spoken to in, and what is asked of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum System {
    /// `POST /v1/claims` over HTTP/1.1, each of a fresh key.
    Hapax,
    /// `POST /v1/batch` over HTTP/1.1, each with 128 claims of fresh keys.
    HapaxBatch,
    /// `POST /v1/claims` over HTTP/1.1, each of a completed key.
    HapaxReplay,
    /// `GET /v1/operations/{operation_id}` over HTTP/1.1, each of a completed operation.
    HapaxRead,
    /// `Txn` over gRPC.
    EtcdGrpc,
    /// `POST /v3/kv/txn` over HTTP/1.1, through etcd's JSON gateway.
    EtcdJson,
    /// `INSERT … ON CONFLICT DO NOTHING`, prepared, over PostgreSQL's own protocol.
    Postgres,
}

impl System {
    /// The name in the results file.
    pub fn name(self) -> &'static str {
        match self {
            System::Hapax => "hapax",
            System::HapaxBatch => "hapax-batch",
            System::HapaxReplay => "hapax-replay",
            System::HapaxRead => "hapax-read",
            System::EtcdGrpc => "etcd-grpc",
            System::EtcdJson => "etcd-json",
            System::Postgres => "postgres",
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

/// What answers did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Keys that these requests created.
    pub created: u64,
    /// Receipts and states given of keys that were completed before.
    pub found: u64,
    /// How many of these came from the asked node's own state.
    pub local: u64,
}

impl Done {
    /// What a rate counts: keys created, and receipts and states given.
    pub fn units(self) -> u64 {
        self.created + self.found
    }

    /// Counts `other` in.
    pub fn add(&mut self, other: Done) {
        self.created += other.created;
        self.found += other.found;
        self.local += other.local;
    }
}

/// One request in flight at most; owns its connection, or a stream of a shared one.
pub enum Client {
    /// Over HTTP/1.1 with keep-alive.
    Hapax(Hapax),
    /// The same, [`hapax::BATCH_ITEMS`] claims at a time.
    HapaxBatch(Hapax),
    /// The same, for keys that were completed before the load.
    HapaxReplay { hapax: Hapax, keys: Vec<String> },
    /// The same, for the operations of such keys.
    HapaxRead { hapax: Hapax, ids: Vec<String> },
    /// Over HTTP/1.1 with keep-alive; the value is base64 already.
    EtcdJson { http: Http1, value: String },
    /// Over HTTP/2.
    EtcdGrpc { channel: grpc::Channel, value: String },
    /// Over a connection with one prepared statement.
    Postgres(Postgres),
}

impl Client {
    /// Connects; `token` is Hapax's.
    pub async fn connect(system: System, target: SocketAddr, token: &str) -> anyhow::Result<Client> {
        let value = value();
        Ok(match system {
            System::Hapax => Client::Hapax(Hapax::connect(target, token, value).await?),
            System::HapaxBatch => Client::HapaxBatch(Hapax::connect(target, token, value).await?),
            System::HapaxReplay => {
                Client::HapaxReplay { hapax: Hapax::connect(target, token, value).await?, keys: Vec::new() }
            }
            System::HapaxRead => {
                Client::HapaxRead { hapax: Hapax::connect(target, token, value).await?, ids: Vec::new() }
            }
            System::EtcdJson => {
                Client::EtcdJson { http: Http1::connect(target, "").await?, value: STANDARD.encode(value) }
            }
            System::EtcdGrpc => Client::EtcdGrpc { channel: grpc::Channel::connect(target).await?, value },
            System::Postgres => Client::Postgres(Postgres::connect(target, value).await?),
        })
    }

    /// Another client on the same connection, for protocols that carry several requests at once.
    pub fn share(&self) -> anyhow::Result<Client> {
        match self {
            Client::EtcdGrpc { channel, value } => {
                Ok(Client::EtcdGrpc { channel: channel.clone(), value: value.clone() })
            }
            _ => anyhow::bail!("this protocol carries one request at a time: leave --streams at 1"),
        }
    }

    /// What must be there before the load: keys to be asked for again, named after `prefix`.
    pub async fn prepare(&mut self, prefix: &str) -> anyhow::Result<Done> {
        for number in 0..hapax::COMPLETED_KEYS {
            let key = format!("{prefix}-done-{number}");
            match self {
                Client::HapaxReplay { hapax, keys } => {
                    hapax.complete(&key).await?;
                    keys.push(key);
                }
                Client::HapaxRead { hapax, ids } => ids.push(hapax.complete(&key).await?),
                _ => return Ok(Done::default()),
            }
        }
        Ok(Done { created: hapax::COMPLETED_KEYS as u64, ..Done::default() })
    }

    /// Sends the request with this number. `key` is new, and so is every key that begins with it and a dash.
    pub async fn request(&mut self, key: &str, number: usize) -> anyhow::Result<Done> {
        match self {
            Client::Hapax(hapax) => hapax.claim(key).await,
            Client::HapaxBatch(hapax) => hapax.batch(key).await,
            Client::HapaxReplay { hapax, keys } => hapax.replay(&keys[number % keys.len()]).await,
            Client::HapaxRead { hapax, ids } => hapax.read(&ids[number % ids.len()]).await,
            Client::EtcdJson { http, value } => {
                let key = STANDARD.encode(key);
                let body = format!(
                    r#"{{"compare":[{{"target":"VERSION","key":"{key}","version":"0"}}],"success":[{{"requestPut":{{"key":"{key}","value":"{value}"}}}}]}}"#
                );
                let (status, answer) = http.post("/v3/kv/txn", &body).await?;
                let created = status == 200 && count(answer, r#""succeeded":true"#) == 1;
                ensure!(created, "not created: {status} {}", String::from_utf8_lossy(answer));
                Ok(Done { created: 1, ..Done::default() })
            }
            Client::EtcdGrpc { channel, value } => {
                let answer = channel.txn(&grpc::create_if_absent(key, value)).await.context("txn")?;
                ensure!(answer.succeeded, "not created: the key {key} was there");
                Ok(Done { created: 1, ..Done::default() })
            }
            Client::Postgres(postgres) => postgres.insert(key).await,
        }
    }
}

/// How often `wanted` stands in `text`.
pub fn count(text: &[u8], wanted: &str) -> usize {
    std::str::from_utf8(text).map_or(0, |text| text.matches(wanted).count())
}
