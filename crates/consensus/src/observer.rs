//! Who hears of what was applied: called on the apply worker, after the write and before the answers.
//! Observers must be quick, and must not ask consensus for anything.

use hapax_machine::Changes;

/// What one run of entries did.
#[derive(Debug, Clone, Copy)]
pub struct Applied<'a> {
    /// The last entry of the run.
    pub index: u64,
    /// The head after it, and every row that it wrote, once, in its final form.
    pub changes: &'a Changes,
}

/// Told in order, from one task.
pub trait ApplyObserver: Send + Sync + 'static {
    /// A run was applied and written.
    fn applied(&self, applied: &Applied<'_>);

    /// A snapshot took the state's place: everything may be different now.
    fn installed(&self);
}
