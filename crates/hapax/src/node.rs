//! `hapax serve`, `hapax config`, `hapax cluster init`: what runs on a node's own machine.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::Context;
use hapax_server::config::Config;
use hapax_server::{bootstrap, logging, serve};
use tokio::io::AsyncReadExt;

use crate::exit::Failure;
use crate::output;

/// How a node is started.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ServeOptions {
    /// Accept the plain token `dev`.
    pub(crate) dev_token: bool,
    /// End when standard input does: a local cluster's nodes do not outlive it.
    pub(crate) until_stdin_closes: bool,
}

/// How long memory that was freed stays the process's own, in milliseconds. A memtable's is freed at each flush and wanted by the
/// next one; giving it back in between costs a page fault for every page of it, which were a tenth of a claim's time.
const KEEP_MEMORY: (&str, &str) = ("MIMALLOC_PURGE_DELAY", "60000");

/// Begins this process again with [`KEEP_MEMORY`] in its environment, unless something stands there: the allocator reads it before
/// `main`, and setting it later would take `unsafe`. Called before anything is open; where it fails, nothing but speed is lost.
fn keep_memory() {
    let (name, value) = KEEP_MEMORY;
    if std::env::var_os(name).is_some() {
        return;
    }
    let mut arguments = std::env::args_os();
    let mut again = Command::new("/proc/self/exe");
    if let Some(own) = arguments.next() {
        again.arg0(own);
    }
    let failed = again.args(arguments).env(name, value).exec();
    tracing::debug!(%failed, "memory is given back to the system at once");
}

/// Runs one node until it is told to stop.
pub(crate) fn serve(file: &Path, options: ServeOptions) -> anyhow::Result<()> {
    keep_memory();
    let mut config = read(file)?;
    config.auth.dev_token = options.dev_token;
    logging::init(config.log.format, &config.log.level);
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if config.node.worker_threads > 0 {
        runtime.worker_threads(config.node.worker_threads);
    }
    let runtime = runtime.enable_all().build().context("no runtime")?;
    let served = runtime.block_on(async move {
        let until = async {
            if options.until_stdin_closes {
                stdin_closed().await;
            } else {
                std::future::pending::<()>().await;
            }
        };
        serve::serve(config, until).await
    });
    // The node has stopped; what is left is a thread that reads standard input, which may never end.
    runtime.shutdown_background();
    Ok(served?)
}

async fn stdin_closed() {
    let mut input = tokio::io::stdin();
    let mut buffer = [0; 64];
    while let Ok(read) = input.read(&mut buffer).await {
        if read == 0 {
            return;
        }
    }
}

/// Checks a configuration.
pub(crate) fn check(file: &Path) -> anyhow::Result<()> {
    read(file)?;
    output::line(&format!("{} is a valid configuration", file.display()));
    Ok(())
}

/// Prints the configuration that a node would run with.
pub(crate) fn show(file: &Path) -> anyhow::Result<()> {
    output::text(&read(file)?.show()?);
    Ok(())
}

/// Prepares this node to begin the cluster's life.
pub(crate) fn init(file: &Path) -> anyhow::Result<()> {
    let config = read(file)?;
    let token = bootstrap::prepare(&config).map_err(|error| Failure::Refused(error.to_string()))?;
    output::line(
        "This node begins the cluster's life when it is started next. Start the others too; order does not matter.",
    );
    output::line(&format!("The first token, good for everything, is in {}", token.display()));
    Ok(())
}

fn read(file: &Path) -> anyhow::Result<Config> {
    Config::read(file).map_err(|error| Failure::Usage(error.to_string()).into())
}
