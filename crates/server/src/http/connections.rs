//! The accept loop: a cap on connections, and a limit on the time that each stage of one may take.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;

use crate::room::Room;

/// Largest head of a request, in bytes: the request line and all headers.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Most headers in a request.
const HEADERS_MAX: usize = 64;
/// Most requests at once on one HTTP/2 connection.
const STREAMS_MAX: u32 = 256;
/// Pause after a failed accept, which means that the process is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long a graceful end of the connections may take.
const DRAIN: Duration = Duration::from_secs(10);

/// What each stage of a connection may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeouts {
    /// From the first byte of a request to the end of its head.
    pub(crate) header_read: Duration,
    /// Without any byte arriving; longer than the longest wait for an answer.
    pub(crate) idle: Duration,
}

/// The client listener's connections.
#[derive(Debug)]
pub(crate) struct Connections {
    listener: TcpListener,
    slots: Room,
    timeouts: Timeouts,
}

impl Connections {
    pub(crate) fn new(listener: TcpListener, slots: Room, timeouts: Timeouts) -> Self {
        Self { listener, slots, timeouts }
    }

    /// Serves until `stop`, then lets the requests at work finish.
    pub(crate) async fn serve(self, router: Router, stop: CancellationToken) {
        let graceful = GracefulShutdown::new();
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => self.spawn(stream, &router, &graceful),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(self.listener);
        let drained = tokio::time::timeout(DRAIN, graceful.shutdown()).await;
        if drained.is_err() {
            tracing::warn!("some connections did not end in time and are dropped");
        }
    }

    fn spawn(&self, stream: TcpStream, router: &Router, graceful: &GracefulShutdown) {
        // Beyond the cap a connection is closed at once: queueing it would let idle ones starve the rest.
        let Some(slot) = self.slots.enter() else {
            metrics::counter!("hapax_connections_refused_total").increment(1);
            return;
        };
        if stream.set_nodelay(true).is_err() {
            return;
        }
        let mut stream = TimeoutStream::new(stream);
        // Also bounds a client that sends half of a protocol preface and then nothing.
        stream.set_read_timeout(Some(self.timeouts.idle));
        stream.set_write_timeout(Some(self.timeouts.idle));
        let builder = self.builder();
        let service = TowerToHyperService::new(router.clone());
        let watcher = graceful.watcher();
        tokio::spawn(async move {
            let _slot = slot;
            let io = TokioIo::new(Box::pin(stream));
            let connection = builder.serve_connection(io, service).into_owned();
            if let Err(error) = watcher.watch(connection).await {
                tracing::debug!(%error, "a connection ended early");
            }
        });
    }

    fn builder(&self) -> auto::Builder<TokioExecutor> {
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(self.timeouts.header_read)
            .max_buf_size(HEAD_BYTES_MAX)
            .max_headers(HEADERS_MAX)
            .keep_alive(true);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(HEAD_BYTES_MAX as u32)
            .keep_alive_interval(self.timeouts.idle / 2)
            .keep_alive_timeout(self.timeouts.header_read);
        builder
    }
}

/// Binds `address`, naming it in the error.
pub(crate) async fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .map_err(|error| std::io::Error::new(error.kind(), format!("cannot listen on {address}: {error}")))
}
