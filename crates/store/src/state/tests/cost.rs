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
    driver.ages = false;
    for n in 1..=8 {
        driver.run_to(n * 250);
        driver.store.flush().unwrap();
    }
    drop(driver);
    let view = place.open().view();
    set_perf_stats(PerfStatsLevel::EnableCount);
    let mut perf = PerfContext::default();
    let mut filters_said = |first_key: u64| {
        perf.reset();
        for key in first_key..first_key + KEYS {
            view.operation(&row(OnLapse::Unknown, key)).unwrap();
        }
        (perf.metric(PerfMetric::BloomSstHitCount), perf.metric(PerfMetric::BloomSstMissCount))
    };
    // A block is read only where a filter says "maybe".
    let (maybe, no) = filters_said(1_000_000);
    assert!(no >= 2 * KEYS, "a fresh key asks at least one file of each of two families: {no}");
    assert!(maybe * 50 < no, "{maybe} of {} answers were wrong", maybe + no);
    let (maybe, _) = filters_said(2);
    assert!(maybe >= KEYS - 2, "{maybe}: the script has claimed these keys, so their filters must not say no");
}
