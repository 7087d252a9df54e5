//! The one signal that this node must not go on: its storage or its consensus has failed.
//! Whoever runs the node waits for it and ends the process; nothing is acknowledged after it.

use std::sync::Arc;

use hapax_store::seam::FatalHook;
use tokio::sync::watch;

/// Raised at most once. Clones are the same signal.
#[derive(Debug, Clone)]
pub struct Fatal(Arc<watch::Sender<Option<String>>>);

impl Default for Fatal {
    fn default() -> Self {
        Self::new()
    }
}

impl Fatal {
    /// A signal that was not raised.
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }

    /// Raises it; only the first reason is kept, since later ones are its consequences.
    pub fn raise(&self, reason: impl Into<String>) {
        let reason = reason.into();
        self.0.send_if_modified(|raised| {
            if raised.is_some() {
                return false;
            }
            tracing::error!(%reason, "this node must stop");
            *raised = Some(reason);
            true
        });
    }

    /// The reason, if it was raised.
    pub fn reason(&self) -> Option<String> {
        self.0.borrow().clone()
    }

    /// Waits until it is raised.
    pub async fn raised(&self) -> String {
        let mut raised = self.0.subscribe();
        let waited = raised.wait_for(Option::is_some).await.map(|reason| reason.clone());
        match waited {
            Ok(Some(reason)) => reason,
            // `self` holds the sender, and the condition was that there is a reason.
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }

    /// What the stores call when a disk refuses.
    pub fn hook(&self) -> FatalHook {
        let fatal = self.clone();
        Arc::new(move |fault| fatal.raise(fault.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_reason_stays_and_wakes_everybody() {
        let fatal = Fatal::new();
        let waiting = tokio::spawn({
            let fatal = fatal.clone();
            async move { fatal.raised().await }
        });
        fatal.raise("disk");
        fatal.raise("consequence");
        assert_eq!(waiting.await.unwrap(), "disk");
        assert_eq!(fatal.reason().as_deref(), Some("disk"));
        assert_eq!(fatal.raised().await, "disk");
    }
}
