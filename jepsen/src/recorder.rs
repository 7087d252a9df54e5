//! Collects what happens during a run by one clock: the events of the history, the record of faults, and who was seen to lead.
//! An event's index and time are given under one lock, so that the order of indices is the order of times.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::fault::{Became, Record};
use crate::history::{Event, History};

/// Who a node said leads, when that changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Led {
    /// When it was seen.
    pub time_ns: u64,
    /// The leader, none where no node said that it leads.
    pub leader: Option<u64>,
    /// Its term.
    pub term: u64,
}

/// What a run collects.
#[derive(Debug)]
pub struct Recorder {
    begun: Instant,
    events: Mutex<Vec<Event>>,
    faults: Mutex<Vec<Record>>,
    led: Mutex<Vec<Led>>,
}

fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Default for Recorder {
    fn default() -> Self {
        Self { begun: Instant::now(), events: Mutex::default(), faults: Mutex::default(), led: Mutex::default() }
    }
}

impl Recorder {
    /// Nanoseconds since the run began.
    pub fn now_ns(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Adds an event; its index and time are filled in here.
    pub fn event(&self, mut event: Event) {
        let mut events = held(&self.events);
        event.index = events.len() as u64;
        event.time_ns = self.now_ns();
        events.push(event);
    }

    /// Adds a line to the record of faults.
    pub fn fault(&self, fault: &str, occurrence: u32, became: Became, detail: String) {
        let time_ns = self.now_ns();
        held(&self.faults).push(Record { time_ns, fault: fault.to_owned(), occurrence, became, detail });
    }

    /// Adds who leads, if that is news.
    pub fn led(&self, leader: Option<u64>, term: u64) {
        let mut led = held(&self.led);
        if led.last().is_none_or(|last| (last.leader, last.term) != (leader, term)) {
            led.push(Led { time_ns: self.now_ns(), leader, term });
        }
    }

    /// The history until now.
    pub fn history(&self) -> History {
        History { events: held(&self.events).clone() }
    }

    /// The record of faults until now.
    pub fn faults(&self) -> Vec<Record> {
        held(&self.faults).clone()
    }

    /// Who led until now.
    pub fn leaders(&self) -> Vec<Led> {
        held(&self.led).clone()
    }
}
