//! What is said of an execution, and what operators do to it: renewals, reports, evidence, resolutions, repair.

use hapax_machine::ids::{ClaimId, ExecutionId};

use super::{Asker, Call, Fact, Kept, Mend, Model, Named, Operation, Said, Stage, Why, Words, is_same_effect, told};

impl Model {
    pub(super) fn renew(&mut self, asker: Asker, id: ExecutionId, epoch: u64, lease_ms: u64) -> Said {
        let now = self.now;
        let Some((operation, at)) = self.find(asker, &id) else { return Said::Refused(Why::NotFound) };
        let is_newest = at + 1 == operation.tried.len();
        let one = &mut operation.tried[at];
        if !is_newest || epoch != one.epoch {
            return Said::Refused(Why::Stale);
        }
        if one.client != asker.client {
            return Said::Refused(Why::NotFound);
        }
        if one.stage != Stage::Executing || now >= one.deadline {
            return Said::Refused(Why::Lost);
        }
        one.deadline = one.deadline.max(now + lease_ms + 1);
        one.renewed = true;
        Said::Renewed { epoch, remaining_ms: told(one.deadline, now) }
    }

    pub(super) fn report(
        &mut self,
        asker: Asker,
        id: ExecutionId,
        epoch: u64,
        said: Option<Fact>,
        words: Words,
    ) -> Said {
        let (now, wall) = (self.now, self.wall);
        let Some((operation, at)) = self.find(asker, &id) else { return Said::Refused(Why::NotFound) };
        let is_newest = at + 1 == operation.tried.len();
        let one = &mut operation.tried[at];
        let own = one.client == asker.client;
        if own && one.report == Some((epoch, said, words)) {
            return Said::Accepted(operation.stage());
        }
        if !is_newest || epoch != one.epoch {
            return Said::Refused(Why::Stale);
        }
        if !own {
            return Said::Refused(Why::NotFound);
        }
        match one.stage {
            Stage::Known(fact) if Some(fact) == said && one.words.fits(words) => {
                return Said::Accepted(operation.stage());
            }
            Stage::Known(_) => return Said::Refused(Why::Conflict),
            Stage::Executing if now < one.deadline => {}
            _ => return Said::Refused(Why::Lost),
        }
        one.report = Some((epoch, said, words));
        match said {
            // One holder cannot speak for another.
            Some(fact @ Fact::NotApplied) if one.holders > 1 => {
                one.become_unknown(wall);
                let (call, fact) = (Call::Report(epoch), Some(fact));
                operation.keep(Kept::Words { execution: id, client: asker.client, call, fact, words });
            }
            Some(fact) => operation.know(fact, words, wall),
            None => {
                one.become_unknown(wall);
                // What it knows of the effect is where reconciliation begins.
                if words.external.is_some() {
                    let call = Call::Report(epoch);
                    operation.keep(Kept::Words { execution: id, client: asker.client, call, fact: None, words });
                }
            }
        }
        Said::Accepted(operation.stage())
    }

    pub(super) fn evidence(
        &mut self,
        asker: Asker,
        id: ExecutionId,
        claim: ClaimId,
        fact: Fact,
        words: Words,
    ) -> Said {
        let wall = self.wall;
        let Some((operation, at)) = self.find(asker, &id) else { return Said::Refused(Why::NotFound) };
        let mut own = operation.granted.iter().filter(|granted| granted.attempt == at);
        if !own.any(|granted| granted.claim == claim && granted.request.client == asker.client) {
            return Said::Refused(Why::NotFound);
        }
        let call = Call::Evidence(claim);
        let kept = Kept::Words { execution: id, client: asker.client, call, fact: Some(fact), words };
        // Nothing shows it, so there is no proof to keep where it agrees.
        if let Some(said) = operation.against_what_stands(at, fact, words, kept, false) {
            return said;
        }
        let one = &operation.tried[at];
        let counts = one.stage == Stage::Unknown && (fact != Fact::NotApplied || one.holders == 1);
        if counts {
            operation.keep(kept);
            operation.know(fact, words, wall);
        } else if operation.last != Some(kept) {
            operation.keep(kept);
            operation.remember(fact, words);
        }
        Said::Accepted(operation.stage())
    }

    pub(super) fn resolve(&mut self, asker: Asker, id: ExecutionId, epoch: u64, fact: Fact, words: Words) -> Said {
        let wall = self.wall;
        let Some((operation, at)) = self.find(asker, &id) else { return Said::Refused(Why::NotFound) };
        let (call, client) = (Call::Resolve(epoch), asker.client);
        let kept = Kept::Words { execution: id, client, call, fact: Some(fact), words };
        if let Some(said) = operation.against_what_stands(at, fact, words, kept, true) {
            return said;
        }
        let one = &operation.tried[at];
        if epoch != one.epoch {
            return Said::Refused(Why::Stale);
        }
        if one.stage != Stage::Unknown {
            return Said::Refused(Why::Executing);
        }
        operation.know(fact, words, wall);
        operation.keep(kept);
        Said::Accepted(operation.stage())
    }

    /// The sweep: acts only if nothing moved since it looked.
    pub(super) fn lapse(&mut self, key: u8, epoch: u64, deadline: u64) -> Said {
        let seen = self.live(key).filter(|at| {
            let newest = self.operations[*at].tried.last();
            newest.is_some_and(|newest| (newest.epoch, newest.deadline) == (epoch, deadline) && self.is_over(newest))
        });
        Said::Lapsed(seen.is_some_and(|at| self.settle(at)))
    }

    /// Forced by an operator who names the epoch that it is held under.
    pub(super) fn fence(&mut self, asker: Asker, id: ExecutionId, epoch: u64) -> Said {
        let wall = self.wall;
        let Some((operation, at)) = self.find(asker, &id) else { return Said::Refused(Why::NotFound) };
        let kept = Kept::Fence { execution: id, client: asker.client, epoch };
        let is_newest = at + 1 == operation.tried.len();
        if is_newest && operation.last == Some(kept) {
            return Said::Accepted(operation.stage());
        }
        if !is_newest || operation.tried[at].epoch != epoch {
            return Said::Refused(Why::Stale);
        }
        if operation.tried[at].stage != Stage::Executing {
            return Said::Refused(Why::State);
        }
        operation.keep(kept);
        operation.tried[at].become_unknown(wall);
        self.drawn += 1;
        let (drawn, (of, at)) = (self.drawn, self.place(&id).expect("it was found"));
        self.operations[of].tried[at].epoch = drawn;
        Said::Accepted(Stage::Unknown)
    }

    pub(super) fn escalate(&mut self, asker: Asker, id: ExecutionId, epoch: u64, on: bool) -> Said {
        let Some((operation, at)) = self.find(asker, &id) else { return Said::Refused(Why::NotFound) };
        if at + 1 != operation.tried.len() || operation.tried[at].epoch != epoch {
            return Said::Refused(Why::Stale);
        }
        if operation.tried[at].stage != Stage::Unknown {
            return Said::Refused(Why::State);
        }
        if operation.tried[at].escalated != on {
            operation.keep(Kept::Override);
            operation.tried[at].escalated = on;
            operation.tried[at].reconciler = None;
        }
        Said::Accepted(Stage::Unknown)
    }

    pub(super) fn repair(&mut self, asker: Asker, named: Named, mend: Mend, expected: Stage) -> Said {
        let Some(at) = self.life(named).filter(|_| asker.reaches) else { return Said::Refused(Why::NotFound) };
        self.settle(at);
        let operation = &self.operations[at];
        let stage = operation.stage();
        let done = match mend {
            Mend::Quarantine => operation.quarantined,
            Mend::Release => !operation.quarantined,
            Mend::Close => operation.closed,
            Mend::Supersede(by) => operation.superseded_by == Some(by.birth),
        };
        if done {
            return Said::Accepted(stage);
        }
        let closable = matches!(stage, Stage::Requested | Stage::Known(Fact::NotApplied));
        if stage != expected || (mend == Mend::Close && !closable) {
            return Said::Refused(Why::State);
        }
        if let Mend::Supersede(by) = mend
            && !self.link(at, by)
        {
            return Said::Refused(Why::Fixed);
        }
        let wall = self.wall;
        let operation = &mut self.operations[at];
        let last = operation.last;
        operation.keep(Kept::Override);
        match mend {
            Mend::Quarantine => operation.quarantined = true,
            Mend::Release => (operation.quarantined, operation.forgiven) = (false, last),
            Mend::Supersede(by) => operation.superseded_by = Some(by.birth),
            Mend::Close => (operation.closed, operation.ended) = (true, Some(wall)),
        }
        Said::Accepted(operation.stage())
    }

    /// A genuinely new key: one that was born later and takes nobody else's place.
    fn link(&mut self, at: usize, by: Named) -> bool {
        let old = &self.operations[at];
        let (birth, linked) = (old.named.birth, old.superseded_by.is_some());
        if linked || by.birth == birth {
            return false;
        }
        let Some(other) = self.life(by) else { return false };
        self.settle(other);
        let other = &mut self.operations[other];
        let free = other.supersedes.is_none() && other.superseded_by.is_none() && !other.quarantined;
        if free && other.named.birth > birth {
            other.supersedes = Some(birth);
            return true;
        }
        false
    }
}

impl Operation {
    /// Evidence and resolve look at their execution's standing outcome first. What shows it is kept, even where it agrees.
    fn against_what_stands(&mut self, at: usize, fact: Fact, words: Words, kept: Kept, proven: bool) -> Option<Said> {
        let Stage::Known(stands) = self.tried[at].stage else { return None };
        if stands == fact && self.tried[at].words.fits(words) {
            if proven && self.last != Some(kept) {
                self.keep(kept);
            }
            return Some(Said::Accepted(self.stage()));
        }
        let is_news = self.forgiven != Some(kept) && (!self.quarantined || self.last != Some(kept));
        if is_news {
            self.quarantined = true;
            self.keep(kept);
        }
        Some(Said::Refused(Why::Conflict))
    }

    /// An effect that is told of before there is an outcome is remembered; another one contradicts it.
    fn remember(&mut self, fact: Fact, words: Words) {
        let newest = self.tried.last_mut().expect("somebody was elected");
        if fact == Fact::NotApplied {
            return;
        }
        match newest.claimed {
            Some(claimed) => self.quarantined |= !is_same_effect(claimed, fact, words.external),
            None => newest.claimed = Some((fact, words.external)),
        }
    }
}
