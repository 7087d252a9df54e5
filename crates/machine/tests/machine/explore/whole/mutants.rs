//! Deliberately broken rules: each does what a careless change of the rules would do.
//! They wrap the real ones, lying to them about the state or the command, or spoiling what they answer.

mod authority;
mod outcomes;
mod records;

use hapax_machine::change::Changes;
use hapax_machine::command::{Command, EntryHead, Envelope};
use hapax_machine::namespace::OnLapse;
use hapax_machine::outcome::{Answer, Outcome};

use super::scope::Scope;
use super::world::{Rules, SOUND, sound};
use crate::memory::Memory;

/// A broken rule, the promise that it breaks, and where.
pub(super) struct Mutant {
    pub(super) name: &'static str,
    pub(super) breaks: &'static str,
    pub(super) scope: Scope,
    pub(super) rules: Rules,
}

type Apply = fn(&Memory, &EntryHead, &Envelope) -> (Changes, Outcome);

const fn mutant(name: &'static str, breaks: &'static str, scope: Scope, apply: Apply) -> Mutant {
    Mutant { name, breaks, scope, rules: Rules { apply, definite: SOUND.definite, read: SOUND.read } }
}

const BOUND: Scope = Scope::Epochs(OnLapse::Unknown);
const BOUND_OVER: Scope = Scope::Epochs(OnLapse::Takeover);

/// All of them; every promise is broken by at least one.
pub(super) const MUTANTS: [Mutant; 60] = [
    mutant(
        "a use is counted by nobody",
        "distinct uses never exceed what was issued",
        Scope::Bounded,
        authority::uses_forgotten,
    ),
    mutant(
        "a use is consumed twice",
        "distinct uses never exceed what was issued",
        Scope::Single,
        authority::used_twice,
    ),
    mutant(
        "not_applied gives the use back",
        "a use that was consumed is never given back",
        Scope::Single,
        authority::given_back,
    ),
    mutant(
        "revoking gives a use back",
        "a use that was consumed is never given back",
        Scope::Bounded,
        authority::revoked_back,
    ),
    mutant(
        "a claim consumes nothing",
        "an election consumes one use, and nothing else does",
        Scope::Single,
        authority::unspent,
    ),
    mutant(
        "a refused claim consumes",
        "an election consumes one use, and nothing else does",
        Scope::Single,
        authority::spent_in_vain,
    ),
    mutant("expiry is not looked at", "dead authority elects nobody", Scope::Single, authority::never_expires),
    mutant("revocation is not looked at", "dead authority elects nobody", Scope::Bounded, authority::never_revoked),
    mutant("a use elects one operation twice", "dead authority elects nobody", Scope::Bounded, authority::any_use),
    mutant(
        "the attempt is not looked at",
        "authority for one attempt elects no other",
        Scope::Single,
        authority::any_attempt,
    ),
    mutant(
        "a resource is good for every attempt",
        "authority for one attempt elects no other",
        Scope::Bounded,
        authority::any_use,
    ),
    mutant(
        "capabilities are optional",
        "no execution is opened without the authority asked for",
        Scope::Single,
        authority::optional_authority,
    ),
    mutant(
        "expired outranks consumed",
        "consumed outranks everything else about a capability",
        Scope::Single,
        authority::expired_first,
    ),
    mutant(
        "a refused delivery is accepted",
        "a refusal spends nothing and accepts no delivery",
        Scope::Single,
        authority::accepted_in_vain,
    ),
    mutant("the inbox is not looked at", "a delivery is accepted once", Scope::Single, authority::inbox_forgotten),
    mutant(
        "a stale epoch is accepted",
        "a claim bound to another value than the register's is refused",
        BOUND,
        authority::stale_accepted,
    ),
    mutant(
        "an epoch that was never handed out is accepted",
        "a claim bound to another value than the register's is refused",
        BOUND_OVER,
        authority::future_accepted,
    ),
    mutant(
        "a bump fences nothing that is open",
        "a bump fences what is open under a lower value",
        BOUND,
        authority::unbound,
    ),
    mutant(
        "under takeover a bump fences nothing",
        "a bump fences what is open under a lower value",
        BOUND_OVER,
        authority::unbound,
    ),
    mutant(
        "a reconciler's lease draws nothing",
        "every epoch and birth is new and higher",
        Scope::Reconcile,
        outcomes::draws_nothing,
    ),
    mutant(
        "a forced fence draws nothing",
        "every epoch and birth is new and higher",
        Scope::Repair,
        outcomes::draws_nothing,
    ),
    mutant("a bump counts by one", "every epoch and birth is new and higher", BOUND, authority::bump_by_one),
    mutant(
        "forgetting loses the counter",
        "every epoch and birth is new and higher",
        Scope::Retention,
        records::counter_lost,
    ),
    mutant(
        "unknown re-opens the gate",
        "unknown ends by evidence or resolution only",
        Scope::Reconcile,
        outcomes::gate_reopens,
    ),
    mutant(
        "unknown ages out",
        "unknown ends by evidence or resolution only",
        Scope::Retention,
        records::unknown_ages,
    ),
    mutant(
        "a lease is given to whoever asks",
        "an execution is leased to one reconciler at a time",
        Scope::Reconcile,
        outcomes::lease_for_all,
    ),
    mutant(
        "the escalated are leased",
        "what waits for people is leased to nobody",
        Scope::Reconcile,
        outcomes::never_escalated,
    ),
    mutant("any epoch resolves", "a resolution names the current epoch", Scope::Reconcile, outcomes::any_epoch),
    mutant("proof overwrites", "a terminal outcome never changes", Scope::Reconcile, outcomes::proof_overwrites),
    mutant("closing overwrites", "a terminal outcome never changes", Scope::Repair, outcomes::closes_anything),
    mutant(
        "a closed operation is claimed",
        "a new attempt follows one that was not applied",
        Scope::Repair,
        outcomes::attempt_jumps,
    ),
    mutant("unknown is closed", "only what nobody executes is closed", Scope::Repair, outcomes::closes_anything),
    mutant(
        "a superseded operation is claimed",
        "a quarantined or superseded operation elects nobody",
        Scope::Supersede,
        outcomes::never_stopped,
    ),
    mutant("a contradiction is only refused", "a contradiction stops claims", Scope::Repair, outcomes::unquarantined),
    mutant(
        "what is gone is shown to claims",
        "what is gone is never shown again",
        Scope::Retention,
        records::shown_again,
    ),
    mutant("floors are not clamped", "only what ended long enough ago goes", Scope::Retention, records::unclamped),
    mutant("floors are what was asked last", "floors only rise", Scope::Retention, records::floors_fall),
    Mutant {
        name: "a node answers for what it forgot",
        breaks: "a definite fact is what apply says",
        scope: Scope::Retention,
        rules: Rules { definite: records::definite_of_the_gone, ..SOUND },
    },
    mutant(
        "no refusal is kept",
        "a refusal of authority is on record before it is told",
        Scope::Single,
        records::unrecorded,
    ),
    mutant(
        "a decision leads to another capability",
        "a repeated command changes nothing",
        Scope::Single,
        authority::issued_again,
    ),
    mutant(
        "former places are forgotten",
        "lists lose an operation where it stood",
        Scope::Repair,
        records::misplaced,
    ),
    mutant("counts stand still", "a namespace counts what it holds", Scope::Repair, records::uncounted),
    mutant(
        "authority is issued ahead",
        "authority is issued for the attempt that is due",
        Scope::Single,
        authority::issued_ahead,
    ),
    mutant(
        "a duplicate extends the lease",
        "a duplicate delivery changes nothing",
        Scope::Single,
        authority::extended_in_vain,
    ),
    mutant(
        "a bump ends whatever is open",
        "unknown is reached by a word, a lapse, a bump or a fence",
        BOUND,
        authority::bumps_end_everything,
    ),
    Mutant {
        name: "a policy takes lapses back",
        breaks: "what was read as unknown never executes again",
        scope: Scope::Policy,
        rules: Rules { apply: outcomes::lapses_taken_back, read: outcomes::read_as_taken_back, ..SOUND },
    },
    Mutant {
        name: "a policy takes back what lapsed in its instant",
        breaks: "what was read as unknown never executes again",
        scope: Scope::Policy,
        rules: Rules { apply: outcomes::instants_taken_back, read: outcomes::read_as_in_that_instant, ..SOUND },
    },
    mutant(
        "every write of a policy begins takeover anew",
        "a reader sees what settling would leave",
        Scope::Policy,
        outcomes::takeover_anew,
    ),
    mutant(
        "any epoch fences",
        "unknown is reached by a word, a lapse, a bump or a fence",
        Scope::Repair,
        outcomes::any_fence,
    ),
    mutant("leases are not counted", "no more are leased than the pace allows", Scope::Reconcile, outcomes::unpaced),
    mutant("a reconciler holds nothing", "one holder cannot speak for another", Scope::Late, outcomes::all_are_sole),
    mutant("a reconciler is told another key", "an effect has one name", Scope::Reconcile, outcomes::named_anew),
    mutant(
        "a new attempt sends under the old key",
        "an effect has one name",
        Scope::Reconcile,
        outcomes::named_alike,
    ),
    mutant("closing forgets the link", "a link to a successor stays", Scope::Supersede, outcomes::unlinked),
    mutant("a pardon covers everything", "a contradiction stops claims", Scope::Repair, outcomes::all_is_pardoned),
    mutant(
        "what was claimed is forgotten",
        "a claimed effect that does not stand stops claims",
        Scope::Late,
        outcomes::claims_forgotten,
    ),
    mutant("no override is kept", "what an operator does is on record", Scope::Repair, outcomes::overrides_forgotten),
    mutant(
        "nobody keeps who escalated",
        "what an operator does is on record",
        Scope::Reconcile,
        outcomes::overrides_forgotten,
    ),
    Mutant {
        name: "a reader sees what is stored",
        breaks: "a reader sees what settling would leave",
        scope: BOUND,
        rules: Rules { read: records::read_as_stored, ..SOUND },
    },
    Mutant {
        name: "a reader is shown what is gone",
        breaks: "what is gone is never shown again",
        scope: Scope::Retention,
        rules: Rules { read: records::read_of_the_gone, ..SOUND },
    },
];

fn lied_to(
    memory: &Memory,
    entry: &EntryHead,
    envelope: &Envelope,
    lie: impl FnOnce(&mut Memory, &Command),
) -> (Changes, Outcome) {
    let mut believed = memory.clone();
    lie(&mut believed, &envelope.command);
    sound(&believed, entry, envelope)
}

fn spoiled(
    memory: &Memory,
    entry: &EntryHead,
    envelope: &Envelope,
    spoil: impl FnOnce(&mut Changes, &mut Answer),
) -> (Changes, Outcome) {
    let (mut changes, mut outcome) = sound(memory, entry, envelope);
    spoil(&mut changes, &mut outcome.answer);
    (changes, outcome)
}

fn is_claim(command: &Command) -> bool {
    matches!(command, Command::Claim(_))
}
