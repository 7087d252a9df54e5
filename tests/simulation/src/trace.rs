//! What happened, in order, as text: two runs of one seed are compared line by line.
//! Owns no judgement. Bytes are shown by a checksum, so that a line stays a line.

use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};

use crate::time::now_ms;

/// The lines of a run. Clones write to the same trace.
#[derive(Debug, Clone, Default)]
pub struct Trace(Option<Arc<Mutex<String>>>);

impl Trace {
    /// A trace that keeps its lines, or one that forgets them.
    pub fn new(kept: bool) -> Self {
        Self(kept.then(Arc::default))
    }

    /// Whether lines are kept: a caller may spare itself the making of one.
    pub fn is_kept(&self) -> bool {
        self.0.is_some()
    }

    /// Writes a line, with the time before it.
    pub fn line(&self, line: impl Display) {
        if let Some(text) = &self.0 {
            let mut text = text.lock().unwrap_or_else(PoisonError::into_inner);
            text.push_str(&format!("{:>6} {line}\n", now_ms()));
        }
    }

    /// Everything that was written.
    pub fn text(&self) -> String {
        self.0.as_ref().map(|text| text.lock().unwrap_or_else(PoisonError::into_inner).clone()).unwrap_or_default()
    }
}

/// FNV-1a of some bytes.
pub fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
