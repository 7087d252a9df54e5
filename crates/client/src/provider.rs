//! What a send to a provider proves, so that it is reported as what it is and never as what was hoped.
//!
//! | what happened | report |
//! |---|---|
//! | a 2xx with the provider's reference | `completed` |
//! | a rejection that the provider documents as made before execution | `not_applied` |
//! | the provider says that the key is still being processed | `unknown` |
//! | timeout, reset, cancellation, 5xx, an answer that cannot be read | `unknown` |
//! | nothing left this process | `not_applied` |

use hapax_api::execution::Reported;

/// What one send came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Send {
    /// Provably nothing left this process: no connection, or stopped before the first byte.
    NotSent,
    /// A complete answer.
    Answered {
        /// Its HTTP status.
        status: u16,
        /// What its body says, by the provider's documentation.
        says: Says,
    },
    /// Anything between: a timeout, a reset, a cancellation, an answer that cannot be read.
    Lost,
}

/// What the body of a provider's answer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Says {
    /// The effect has this reference, which the caller keeps as `external_id`.
    Reference,
    /// Rejected before execution, as the provider documents for exactly this answer.
    RejectedBeforeExecution,
    /// The effect key is in use by a request that is still being processed.
    StillProcessing,
    /// Something else.
    Other,
}

impl Send {
    /// What this send proves, taken by itself.
    #[must_use]
    pub fn proves(self) -> Reported {
        match self {
            Send::NotSent => Reported::NotApplied,
            Send::Answered { status: 200..=299, says: Says::Reference } => Reported::Completed,
            Send::Answered { status: 400..=499, says: Says::RejectedBeforeExecution } => Reported::NotApplied,
            Send::Answered { .. } | Send::Lost => Reported::Unknown,
        }
    }
}

/// What all sends of one attempt prove together, with the same effect key: one that completed settles it, and
/// `not_applied` needs every one of them. No send at all proves that nothing happened.
#[must_use]
pub fn proven_by(sends: &[Send]) -> Reported {
    if sends.iter().any(|send| send.proves() == Reported::Completed) {
        Reported::Completed
    } else if sends.iter().all(|send| send.proves() == Reported::NotApplied) {
        Reported::NotApplied
    } else {
        Reported::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(status: u16, says: Says) -> Send {
        Send::Answered { status, says }
    }

    #[test]
    fn each_send_by_itself() {
        for (send, proves) in [
            (Send::NotSent, Reported::NotApplied),
            (Send::Lost, Reported::Unknown),
            (answered(201, Says::Reference), Reported::Completed),
            (answered(200, Says::Other), Reported::Unknown),
            (answered(200, Says::StillProcessing), Reported::Unknown),
            (answered(200, Says::RejectedBeforeExecution), Reported::Unknown),
            (answered(302, Says::Reference), Reported::Unknown),
            (answered(402, Says::RejectedBeforeExecution), Reported::NotApplied),
            (answered(402, Says::Other), Reported::Unknown),
            (answered(409, Says::StillProcessing), Reported::Unknown),
            (answered(409, Says::Reference), Reported::Unknown),
            (answered(500, Says::RejectedBeforeExecution), Reported::Unknown),
            (answered(503, Says::Other), Reported::Unknown),
        ] {
            assert_eq!(send.proves(), proves, "{send:?}");
        }
    }

    #[test]
    fn sends_together() {
        let (paid, rejected) = (answered(201, Says::Reference), answered(422, Says::RejectedBeforeExecution));
        for (sends, proves) in [
            (&[][..], Reported::NotApplied),
            (&[Send::NotSent, Send::NotSent], Reported::NotApplied),
            (&[Send::NotSent, rejected], Reported::NotApplied),
            // The first may have happened, whatever the second was told.
            (&[Send::Lost, rejected], Reported::Unknown),
            (&[Send::Lost, Send::NotSent], Reported::Unknown),
            (&[Send::Lost, paid], Reported::Completed),
            (&[paid, Send::Lost], Reported::Completed),
        ] {
            assert_eq!(proven_by(sends), proves, "{sends:?}");
        }
    }
}
