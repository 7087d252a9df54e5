//! Wall clocks that a test can move under a running node, by libfaketime; monotonic time stays real.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use tempfile::TempDir;

use crate::cluster::Node;

/// Where Debian puts the library.
const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";
/// How far a clock may be from where it was set and still count as set, in seconds.
const TOLERANCE_S: f64 = 60.0;
/// How long a node may take to show its new clock.
const SEEN_WITHIN: Duration = Duration::from_secs(10);

/// The clocks of some nodes.
#[derive(Debug)]
pub struct FakeTime {
    directory: TempDir,
    nodes: u64,
}

impl FakeTime {
    /// Clocks for nodes 1 to `nodes`, right at first.
    ///
    /// # Errors
    /// libfaketime is not installed.
    pub fn new(nodes: u64) -> Result<Self> {
        ensure!(Path::new(LIBRARY).is_file(), "{LIBRARY} is missing: apt-get install libfaketime");
        let time = Self { directory: tempfile::tempdir()?, nodes };
        for node in 1..=nodes {
            time.set(node, 0)?;
        }
        Ok(time)
    }

    fn file(&self, node: u64) -> PathBuf {
        self.directory.path().join(node.to_string())
    }

    /// What each node's process needs in its environment.
    pub fn environment(&self) -> Vec<(u64, String, String)> {
        let mut all = Vec::new();
        for node in 1..=self.nodes {
            let file = self.file(node).display().to_string();
            for (name, value) in [
                ("LD_PRELOAD", LIBRARY),
                ("FAKETIME_TIMESTAMP_FILE", &file),
                // Without it a jump of the wall would be a jump of the monotonic clock too, which no machine has.
                ("DONT_FAKE_MONOTONIC", "1"),
                ("FAKETIME_NO_CACHE", "1"),
            ] {
                all.push((node, name.to_owned(), value.to_owned()));
            }
        }
        all
    }

    /// Sets a node's wall clock this far off, in seconds.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn set(&self, node: u64, seconds: i64) -> Result<()> {
        let staged = self.file(node).with_extension("staged");
        fs::write(&staged, format!("{seconds:+}s\n"))?;
        Ok(fs::rename(staged, self.file(node))?)
    }
}

/// Waits until the node shows, in its metrics, a clock this far off.
///
/// # Errors
/// It does not: then a test of what it does with such a clock would prove nothing.
pub async fn seen(node: &Node, seconds: i64) -> Result<()> {
    let begun = Instant::now();
    loop {
        let shown = node.metric("hapax_wall_clock_seconds").await?;
        let off = shown - SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
        if (off - seconds as f64).abs() <= TOLERANCE_S {
            return Ok(());
        }
        ensure!(begun.elapsed() < SEEN_WITHIN, "the clock of node {} is {off:.0} s off, not {seconds}", node.id);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
