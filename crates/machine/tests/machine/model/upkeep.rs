//! What keeps the store going: reconciliation, retention, and policies.

use super::{Asker, Item, Keys, MARGIN_MS, Model, Named, Policy, Said, Stage, Why, told};

impl Model {
    /// Oldest first, as they were named; each is taken or passed over.
    pub(super) fn reconcile(
        &mut self,
        asker: Asker,
        owner: u8,
        lease_ms: u64,
        limit: u32,
        named: &[(Named, u64)],
    ) -> Said {
        let mut items: Vec<Item> = Vec::new();
        let mut before: Vec<u8> = Vec::new();
        for (named, epoch) in named {
            if items.len() as u32 >= limit {
                break;
            }
            // Whatever life of the key is named: once.
            if before.contains(&named.key) {
                continue;
            }
            before.push(named.key);
            items.extend(self.lease(asker, owner, lease_ms, *named, *epoch));
        }
        Said::Reconciling(items)
    }

    fn lease(&mut self, asker: Asker, owner: u8, lease_ms: u64, named: Named, epoch: u64) -> Option<Item> {
        let at = self.life(named).filter(|_| asker.reaches)?;
        self.settle(at);
        let (now, until) = (self.now, self.now + lease_ms + 1);
        let newest = self.operations[at].tried.last()?;
        if newest.stage != Stage::Unknown || newest.escalated {
            return None;
        }
        let held = newest.reconciler.filter(|(.., until)| *until > now);
        let until = match held {
            Some((by, client, held)) if (by, client) == (owner, asker.client) => held.max(until),
            Some(_) => return None,
            None if newest.epoch != epoch => return None,
            None if !self.keeps_pace() => return None,
            None => {
                self.drawn += 1;
                let drawn = self.drawn;
                let newest = self.operations[at].tried.last_mut()?;
                newest.epoch = drawn;
                newest.holders += 1;
                until
            }
        };
        let operation = &mut self.operations[at];
        let attempt = operation.tried.len() as u32;
        let newest = operation.tried.last_mut()?;
        newest.reconciler = Some((owner, asker.client, until));
        Some(Item {
            execution: newest.id,
            attempt,
            epoch: newest.epoch,
            remaining_ms: told(until, now),
            unknown_since: newest.unknown_since,
            effect: newest.effect,
        })
    }

    /// So many a minute of lease time.
    fn keeps_pace(&mut self) -> bool {
        let (since, granted) = if self.now >= self.pace.0 + 60_000 { (self.now, 0) } else { self.pace };
        if granted >= self.policy.pace {
            return false;
        }
        self.pace = (since, granted + 1);
        true
    }

    /// Clamped to what the policy allows, never back.
    pub(super) fn raise_floors(&mut self, compact: u64, forget: u64) -> Said {
        let allowed = |kept_ms: u64| self.wall.saturating_sub(kept_ms + MARGIN_MS);
        self.compact = self.compact.max(compact.min(allowed(self.policy.body_ms)));
        if self.policy.keys != Keys::Durable {
            self.forget = self.forget.max(forget.min(allowed(self.policy.identity_ms)));
        }
        Said::Floors { compact: self.compact, forget: self.forget }
    }

    /// From now on all is decided by another policy. What is over and has been unknown under the old one stays so.
    pub(super) fn write_policy(&mut self, asker: Asker, policy: Policy) -> Said {
        if !asker.reaches {
            return Said::Refused(Why::NotYours);
        }
        for at in 0..self.operations.len() {
            let lost = self.is_due(&self.operations[at]);
            if let Some(newest) = self.operations[at].tried.last_mut() {
                newest.lost |= lost;
            }
        }
        self.policy = policy;
        Said::Written
    }
}
