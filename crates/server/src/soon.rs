//! Stands in for what the node is about to offer; removed with the commit that brings it.

use hapax_consensus::node::{Node, ReadGuard};
use hapax_consensus::notify::Watch;
use hapax_machine::command::CountedRefusal;
use hapax_machine::ids::TenantTag;

pub(crate) trait Soon {
    fn fresh_view(&self) -> Option<ReadGuard> {
        None
    }
    fn count_refusals(&self, _: Vec<CountedRefusal>) {}
    fn watch(&self, _: TenantTag) -> Option<Watch> {
        None
    }
}

impl Soon for Node {}
