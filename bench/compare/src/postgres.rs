//! PostgreSQL's requests: a row that is inserted unless its key is there, by a statement that each connection prepares
//! once, so that no text is parsed or planned under load. The table is made by `bench/postgres.sh`.

use std::net::SocketAddr;

use anyhow::{Context, ensure};
use tokio_postgres::{NoTls, Statement};

use crate::client::Done;

const INSERT: &str = "INSERT INTO operations (key, value) VALUES ($1, $2) ON CONFLICT (key) DO NOTHING";

/// A connection to the primary.
pub struct Postgres {
    client: tokio_postgres::Client,
    insert: Statement,
    value: Vec<u8>,
}

impl Postgres {
    /// Connects; a task of its own drives the connection until the client is dropped.
    pub async fn connect(target: SocketAddr, value: String) -> anyhow::Result<Postgres> {
        let mut config = tokio_postgres::Config::new();
        config.host(target.ip().to_string()).port(target.port()).user("postgres").dbname("postgres");
        let (client, connection) = config.connect(NoTls).await.with_context(|| format!("connecting to {target}"))?;
        // An error of the connection reaches the requests on it, which report it.
        tokio::spawn(connection);
        let insert = client.prepare(INSERT).await?;
        Ok(Postgres { client, insert, value: value.into_bytes() })
    }

    /// Inserts a row whose key must be new, in a transaction of its own.
    pub async fn insert(&mut self, key: &str) -> anyhow::Result<Done> {
        let rows = self.client.execute(&self.insert, &[&key, &self.value]).await.context("insert")?;
        ensure!(rows == 1, "not created: the key {key} was there");
        Ok(Done { created: 1, ..Done::default() })
    }
}
