//! What happens in a random history. References are resolved against the model when it does.

use proptest::prelude::*;

use crate::model::{Fact, Keys, Policy, Words};

/// One thing that happens.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Ask {
        who: u8,
        what: What,
    },
    /// The last thing that was asked, again.
    Again,
    /// Lease time passes, and the wall with it unless the leader's wall clock stands still.
    Pass {
        ms: u64,
        wall: bool,
    },
    Elect,
    OldStamp,
    /// The wall is moved.
    Jump(u64),
    /// Every sweep that is due.
    Sweep,
    /// Time goes on so far that all that has ended may go, and it does.
    Retain,
}

/// What is asked.
#[derive(Debug, Clone)]
pub(super) enum What {
    Register { key: u8, digest: u8, resource: Option<u8>, made: Made },
    Claim(Claim),
    Renew { execution: usize, epoch: Epoch, lease: u64 },
    Report { execution: usize, epoch: Epoch, said: Option<Fact>, words: Words },
    Evidence { execution: usize, claim: u8, fact: Fact, words: Words },
    Resolve { execution: usize, epoch: Epoch, fact: Fact, words: Words },
    Lapse { key: u8, epoch: Epoch, deadline_off: u64 },
    Settle { key: u8 },
    Issue { key: u8, decision: u8, attempt: Attempt, expires: u64, bound: Option<Bound>, effect: Option<u32> },
    IssueBounded { resource: u8, decision: u8, uses: u32, expires: u64, bound: Option<Bound> },
    Revoke { capability: usize },
    Bump { scope: u8, value: Epoch },
    Reconcile { owner: u8, lease: u64, limit: u32, keys: Vec<u8>, epoch: Epoch },
    Escalate { execution: usize, epoch: Epoch, on: bool },
    Fence { execution: usize, epoch: Epoch },
    Repair { key: u8, mend: Mending, expects: Expects },
    Floors { compact: Floor, forget: Floor },
    Count { capability: usize },
    Policy(Policy),
}

#[derive(Debug, Clone)]
pub(super) struct Claim {
    pub(super) key: u8,
    pub(super) claim: u8,
    pub(super) digest: u8,
    pub(super) lease: u64,
    pub(super) attempt: Option<u32>,
    pub(super) capability: Option<usize>,
    pub(super) message: Option<u8>,
    pub(super) bound: Option<Bound>,
    pub(super) resource: Option<u8>,
    pub(super) made: Made,
}

/// Which epoch, or value of a register, is named.
#[derive(Debug, Clone, Copy)]
pub(super) enum Epoch {
    Current,
    Before,
    After,
    First,
}

/// Which value of which register.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bound {
    pub(super) scope: u8,
    pub(super) value: Epoch,
}

/// When a key was made.
#[derive(Debug, Clone, Copy)]
pub(super) enum Made {
    /// As it was said before of the operation that is there, else now.
    AsBefore,
    Unsaid,
    Now,
    Zero,
    TooLate,
    AtTheFloor,
}

/// Which attempt a decision is on: the one that is due, or off it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Attempt {
    Due,
    Next,
    First,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Mending {
    Quarantine,
    Release,
    Close,
    Supersede(u8),
}

/// The state that a repair names: the one that is read, or another.
#[derive(Debug, Clone, Copy)]
pub(super) enum Expects {
    Right,
    Wrong,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Floor {
    Unasked,
    AsFarAsAllowed,
    Wall,
}

/// A step, whether it shares an entry with the one before, and whether it comes after its time.
pub(super) type Happening = (Step, bool, bool);

fn facts() -> impl Strategy<Value = Fact> {
    prop_oneof![Just(Fact::Completed), Just(Fact::Failed), Just(Fact::NotApplied), Just(Fact::NotApplied)]
}

fn epochs() -> impl Strategy<Value = Epoch> {
    prop_oneof![6 => Just(Epoch::Current), 1 => Just(Epoch::Before), 1 => Just(Epoch::After), 1 => Just(Epoch::First)]
}

fn words() -> impl Strategy<Value = Words> {
    let one = || prop_oneof![3 => Just(None), 1 => Just(Some(1u8)), 1 => Just(Some(2u8))];
    (one(), one()).prop_map(|(external, result)| Words { external, result })
}

/// Clients 0–2 reach the namespace; 3 is of another tenant; 4 is client 0 with a credential for another namespace.
fn who() -> impl Strategy<Value = u8> {
    prop_oneof![12 => 0..3u8, 1 => 3..5u8]
}

fn keys() -> impl Strategy<Value = u8> {
    prop_oneof![4 => Just(0u8), 2 => Just(1u8), 1 => Just(2u8)]
}

fn made() -> impl Strategy<Value = Made> {
    prop_oneof![
        8 => Just(Made::AsBefore),
        1 => Just(Made::Unsaid),
        1 => Just(Made::Now),
        1 => Just(Made::Zero),
        1 => Just(Made::TooLate),
        1 => Just(Made::AtTheFloor),
    ]
}

fn bound() -> impl Strategy<Value = Option<Bound>> {
    let one = (0..2u8, epochs()).prop_map(|(scope, value)| Bound { scope, value });
    proptest::option::weighted(0.25, one)
}

fn digests() -> impl Strategy<Value = u8> {
    prop_oneof![9 => Just(0u8), 1 => Just(1u8)]
}

fn claims() -> impl Strategy<Value = What> {
    let named = prop_oneof![6 => Just(None), 2 => (1..4u32).prop_map(Some)];
    let capability = prop_oneof![5 => Just(None), 6 => (0..3usize).prop_map(Some), 1 => Just(Some(9))];
    let message = proptest::option::weighted(0.35, 0..3u8);
    let what = (keys(), 0..8u8, digests(), 1..3u64, named, capability);
    let with = (message, bound(), proptest::option::weighted(0.5, 0..2u8), made());
    (what, with).prop_map(|((key, claim, digest, lease, attempt, capability), (message, bound, resource, made))| {
        What::Claim(Claim { key, claim, digest, lease, attempt, capability, message, bound, resource, made })
    })
}

fn authority() -> impl Strategy<Value = What> {
    let attempt = prop_oneof![6 => Just(Attempt::Due), 2 => Just(Attempt::Next), 1 => Just(Attempt::First)];
    let expires = || prop_oneof![1 => Just(0u64), 2 => Just(150), 6 => Just(500_000)];
    let effect = proptest::option::weighted(0.2, 1..4u32);
    prop_oneof![
        6 => (keys(), 0..3u8, attempt, expires(), bound(), effect).prop_map(
            |(key, decision, attempt, expires, bound, effect)| {
                What::Issue { key, decision, attempt, expires, bound, effect }
            }
        ),
        2 => (0..2u8, 0..3u8, 1..3u32, expires(), bound()).prop_map(|(resource, decision, uses, expires, bound)| {
            What::IssueBounded { resource, decision, uses, expires, bound }
        }),
        1 => (0..3usize).prop_map(|capability| What::Revoke { capability }),
        2 => (0..2u8, epochs()).prop_map(|(scope, value)| What::Bump { scope, value }),
        1 => (0..3usize).prop_map(|capability| What::Count { capability }),
    ]
}

fn upkeep() -> impl Strategy<Value = What> {
    let execution = || prop_oneof![4 => Just(0usize), 2 => Just(1usize), 1 => 2..6usize];
    let mend = prop_oneof![
        2 => Just(Mending::Quarantine),
        3 => Just(Mending::Release),
        1 => Just(Mending::Close),
        2 => keys().prop_map(Mending::Supersede),
    ];
    let expects = prop_oneof![5 => Just(Expects::Right), 1 => Just(Expects::Wrong)];
    let floor = || prop_oneof![1 => Just(Floor::Unasked), 4 => Just(Floor::AsFarAsAllowed), 1 => Just(Floor::Wall)];
    prop_oneof![
        3 => (0..2u8, 1..3u64, 1..4u32, proptest::collection::vec(keys(), 1..4), epochs()).prop_map(
            |(owner, lease, limit, keys, epoch)| What::Reconcile { owner, lease, limit, keys, epoch }
        ),
        2 => (execution(), epochs(), any::<bool>())
            .prop_map(|(execution, epoch, on)| What::Escalate { execution, epoch, on }),
        1 => (execution(), epochs()).prop_map(|(execution, epoch)| What::Fence { execution, epoch }),
        3 => (keys(), mend, expects).prop_map(|(key, mend, expects)| What::Repair { key, mend, expects }),
        3 => (floor(), floor()).prop_map(|(compact, forget)| What::Floors { compact, forget }),
        1 => keys().prop_map(|key| What::Settle { key }),
        2 => written().prop_map(What::Policy),
    ]
}

fn asked() -> impl Strategy<Value = What> {
    let execution = || prop_oneof![4 => Just(0usize), 2 => Just(1usize), 1 => 2..6usize];
    let register = (keys(), digests(), proptest::option::weighted(0.5, 0..2u8), made())
        .prop_map(|(key, digest, resource, made)| What::Register { key, digest, resource, made });
    prop_oneof![
        10 => claims(),
        2 => register,
        6 => authority(),
        6 => upkeep(),
        2 => (execution(), epochs(), 1..4u64)
            .prop_map(|(execution, epoch, lease)| What::Renew { execution, epoch, lease }),
        5 => (execution(), epochs(), proptest::option::weighted(0.7, facts()), words())
            .prop_map(|(execution, epoch, said, words)| What::Report { execution, epoch, said, words }),
        4 => (execution(), 0..8u8, facts(), words())
            .prop_map(|(execution, claim, fact, words)| What::Evidence { execution, claim, fact, words }),
        3 => (execution(), epochs(), facts(), words())
            .prop_map(|(execution, epoch, fact, words)| What::Resolve { execution, epoch, fact, words }),
        1 => (keys(), epochs(), prop_oneof![3 => Just(0u64), 1 => Just(1u64)])
            .prop_map(|(key, epoch, deadline_off)| What::Lapse { key, epoch, deadline_off }),
    ]
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        32 => (who(), asked()).prop_map(|(who, what)| Step::Ask { who, what }),
        5 => Just(Step::Again),
        3 => (1..250u64, proptest::bool::weighted(0.8)).prop_map(|(ms, wall)| Step::Pass { ms, wall }),
        1 => Just(Step::Pass { ms: 61_000, wall: true }),
        1 => Just(Step::Elect),
        1 => Just(Step::OldStamp),
        1 => prop_oneof![Just(1_000u64), Just(61_000), Just(130_000)].prop_map(Step::Jump),
        1 => Just(Step::Sweep),
        1 => Just(Step::Retain),
    ]
}

pub(super) fn histories() -> impl Strategy<Value = Vec<Happening>> {
    let happening = (steps(), proptest::bool::weighted(0.3), proptest::bool::weighted(0.06));
    proptest::collection::vec(happening, 1..96)
}

/// What a policy is changed to: as one that a history begins with, or one that keeps for longer.
fn written() -> impl Strategy<Value = Policy> {
    let kept = prop_oneof![3 => Just(2_000u64), 1 => Just(200_000u64)];
    (policies(), kept).prop_map(|(policy, identity_ms)| Policy { identity_ms, ..policy })
}

pub(super) fn policies() -> impl Strategy<Value = Policy> {
    let keys = prop_oneof![3 => Just(Keys::New), 2 => Just(Keys::RejectOlder), 1 => Just(Keys::Durable)];
    let open_max = proptest::option::weighted(0.2, 1..3u64);
    let flags = (any::<bool>(), any::<bool>(), proptest::bool::weighted(0.3));
    (flags, keys, open_max, 1..4u32).prop_map(|((takeover, explicit, must_present), keys, open_max, pace)| Policy {
        takeover,
        explicit,
        must_present,
        keys,
        body_ms: 1_000,
        identity_ms: 2_000,
        pace,
        open_max,
    })
}
