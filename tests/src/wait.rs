//! Waiting for what takes its time: a condition is tried until it holds. Never a pause instead of a condition.

use std::time::{Duration, Instant};

use anyhow::Result;

/// How long anything may take that a test waits for; an election under load is the longest.
const WITHIN: Duration = Duration::from_secs(20);
/// Pause between looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Tries again until it holds.
///
/// # Errors
/// What the last try failed with, when time is up.
pub async fn until<T>(mut check: impl AsyncFnMut() -> Result<T>) -> Result<T> {
    let begun = Instant::now();
    loop {
        match check().await {
            Ok(found) => return Ok(found),
            Err(error) if begun.elapsed() > WITHIN => return Err(error),
            Err(_) => tokio::time::sleep(LOOK_EVERY).await,
        }
    }
}
