//! What a claim costs on disk, counted by RocksDB itself on this thread.

use hapax_machine::View;
use hapax_machine::namespace::OnLapse;
use rocksdb::perf::{PerfContext, PerfMetric, PerfStatsLevel, set_perf_stats};

use super::fixture::*;

#[test]
fn a_fresh_key_reads_no_disk() {
    const KEYS: u64 = 2_000;
    let place = Place::disk();
    let mut driver = Driver::on(place.open());
    for n in 1..=8 {
        driver.run_to(n * 250);
        driver.store.flush().unwrap();
    }
    drop(driver);
    let view = place.open().view();
    set_perf_stats(PerfStatsLevel::EnableCount);
    let mut perf = PerfContext::default();
    perf.reset();
    for key in 0..KEYS {
        assert_eq!(view.operation(&row(OnLapse::Unknown, 1_000_000 + key)).unwrap(), None);
    }
    let fresh = perf.metric(PerfMetric::BlockReadCount);
    perf.reset();
    for key in 0..KEYS {
        let _ = view.operation(&row(OnLapse::Unknown, key)).unwrap();
    }
    let known = perf.metric(PerfMetric::BlockReadCount);
    assert!(known > 20, "nothing was read at all, so nothing was counted: {known}");
    // Indexes and filters are read once; a filter is wrong about one key in a hundred, and blocks stay in the cache.
    assert!(fresh < 60, "{fresh} block reads for {KEYS} fresh keys, {known} for as many known ones");
}
