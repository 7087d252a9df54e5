//! Where wire types meet the core's: requests become commands, outcomes become answers, records become views.
//! No rule lives here; a refusal of the core maps to exactly one code.

mod answers;
mod commands;
mod policies;
mod refusals;
mod views;

pub(crate) use answers::{accepted, claimed, duplicate, in_progress, reconciling, registered, renewed, replayed};
pub(crate) use commands::{
    Drawn, bump, claim, close, escalate, evidence, fence, issue, issue_bounded, key_of, message_of, quarantine,
    register, release, renew, report, resolve, revoke, supersede,
};
pub(crate) use policies::{namespace, policy, role, tenant, token};
pub(crate) use refusals::{code_of, refused};
pub(crate) use views::{capability, event, operation, refusal, word};

use std::str::FromStr;

use hapax_api::text::{self, Malformed};
use hapax_api::{Code, ConflictStyle};
use hapax_machine::{ids, namespace as core_namespace, operation as core};

use crate::problem::Refusal;

/// A text of the core as its wire type. The core only holds what the wire let in, or what it made itself.
fn wire<T: FromStr<Err = Malformed>>(text: &str) -> Result<T, Refusal> {
    text.parse().map_err(|Malformed(detail)| {
        tracing::error!(detail, "a stored text does not fit its wire type");
        Refusal::new(Code::StoreOutcomeUnknown)
    })
}

/// The same for a text that may be absent.
fn wire_option<T: FromStr<Err = Malformed>>(text: Option<&str>) -> Result<Option<T>, Refusal> {
    text.map(wire).transpose()
}

/// A state of the core on the wire.
pub(crate) fn state(state: core::State) -> hapax_api::operation::State {
    use hapax_api::operation::State;
    match state {
        core::State::Requested => State::Requested,
        core::State::Executing => State::Executing,
        core::State::Unknown => State::Unknown,
        core::State::NotApplied => State::NotApplied,
        core::State::Completed => State::Completed,
        core::State::Failed => State::Failed,
    }
}

/// A state on the wire as the core knows it.
pub(crate) fn core_state(state: hapax_api::operation::State) -> core::State {
    use hapax_api::operation::State;
    match state {
        State::Requested => core::State::Requested,
        State::Executing => core::State::Executing,
        State::Unknown => core::State::Unknown,
        State::NotApplied => core::State::NotApplied,
        State::Completed => core::State::Completed,
        State::Failed => core::State::Failed,
    }
}

/// A revision on the wire.
pub(crate) fn revision(revision: ids::Revision) -> text::Revision {
    text::Revision {
        incarnation: revision.incarnation.0.into(),
        group: revision.group.0.into(),
        index: revision.index,
        ordinal: revision.ordinal.into(),
    }
}

/// The conflict style of a namespace on the wire.
pub(crate) fn style(style: core_namespace::ConflictStyle) -> ConflictStyle {
    match style {
        core_namespace::ConflictStyle::Hapax => ConflictStyle::Hapax,
        core_namespace::ConflictStyle::Ietf => ConflictStyle::Ietf,
    }
}

fn settled(outcome: core::Definite) -> hapax_api::operation::Settled {
    use hapax_api::operation::Settled;
    match outcome {
        core::Definite::Completed => Settled::Completed,
        core::Definite::Failed => Settled::Failed,
        core::Definite::NotApplied => Settled::NotApplied,
    }
}
