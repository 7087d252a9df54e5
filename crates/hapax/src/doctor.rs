//! `hapax doctor`: looks into the files of a node that does not run, and changes none of them.

use std::path::Path;

use hapax_server::doctor;

use crate::exit::Failure;
use crate::output;

/// Prints every logical row of a node's state.
pub(crate) fn state(data_dir: &Path) -> anyhow::Result<()> {
    doctor::state(data_dir, &mut output::stdout()).map_err(refused)
}

/// Checks a node's log and prints what is in it.
pub(crate) fn log(data_dir: &Path) -> anyhow::Result<()> {
    doctor::log(data_dir, &mut output::stdout()).map_err(refused)
}

fn refused(error: doctor::DoctorError) -> anyhow::Error {
    Failure::Refused(error.to_string()).into()
}
