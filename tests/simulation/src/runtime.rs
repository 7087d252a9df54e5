//! A tokio runtime that is stepped: it does what can be done at this instant, on this thread, and returns.
//! Owns the order in which a node's tasks and its blocking work run, which must not depend on the kernel's scheduler.
//!
//! One thread runs everything. Blocking work is the exception, since the product hands it to a thread: that thread is held at its
//! start until the runtime has nothing else to do, and the runtime then waits until it has ended. So it happens at one point of
//! the order, and what it wakes runs after it.

use std::future::poll_fn;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use tokio::runtime::{Builder, EnterGuard, Runtime};

/// A step is over when the runtime was idle so often: after the first time timers are looked at, after the second what they woke
/// has run.
const IDLES_OF_A_STEP: u32 = 2;

/// What the runtime's hooks share.
struct Idle {
    /// Threads of the process while no blocking work is under way.
    threads: u64,
    /// Whether blocking work may run.
    open: Mutex<bool>,
    opened: Condvar,
    times: AtomicU32,
    step: Mutex<Option<Waker>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The threads of this process.
fn threads() -> u64 {
    let tasks = std::fs::metadata("/proc/self/task");
    // A folder has a link from each of its folders, from its parent and from itself.
    tasks.map_or(0, |tasks| tasks.nlink().saturating_sub(2))
}

impl Idle {
    /// The runtime has nothing to run: lets blocking work happen, then ends the step or goes on with it.
    fn reached(&self) {
        while threads() > self.threads {
            *lock(&self.open) = true;
            self.opened.notify_all();
            std::thread::yield_now();
        }
        *lock(&self.open) = false;
        self.times.fetch_add(1, Ordering::SeqCst);
        if let Some(waker) = lock(&self.step).take() {
            waker.wake();
        }
    }

    /// A thread for blocking work begins: it waits for its time.
    fn hold(&self) {
        let open = lock(&self.open);
        drop(self.opened.wait_while(open, |open| !*open));
    }
}

/// A runtime that runs only in [`Stepped::step`].
pub struct Stepped {
    runtime: Option<Runtime>,
    idle: Arc<Idle>,
}

impl Stepped {
    /// A runtime on the calling thread.
    ///
    /// # Errors
    /// The system refuses.
    pub fn new() -> std::io::Result<Self> {
        let idle = Arc::new(Idle {
            threads: threads(),
            open: Mutex::new(false),
            opened: Condvar::new(),
            times: AtomicU32::new(0),
            step: Mutex::new(None),
        });
        let (parks, starts) = (Arc::clone(&idle), Arc::clone(&idle));
        let runtime = Builder::new_current_thread()
            .enable_time()
            .max_blocking_threads(1)
            .thread_keep_alive(Duration::ZERO)
            .on_thread_park(move || parks.reached())
            .on_thread_start(move || starts.hold())
            .build()?;
        Ok(Self { runtime: Some(runtime), idle })
    }

    /// Does everything that can be done now.
    pub fn step(&self) {
        let Some(runtime) = &self.runtime else { return };
        self.idle.times.store(0, Ordering::SeqCst);
        runtime.block_on(poll_fn(|context| {
            if self.idle.times.load(Ordering::SeqCst) >= IDLES_OF_A_STEP {
                return Poll::Ready(());
            }
            *lock(&self.idle.step) = Some(context.waker().clone());
            Poll::Pending
        }));
    }

    /// Starts a task; it runs in the next step.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.runtime {
            drop(runtime.spawn(task));
        }
    }

    /// For calls that need to be inside of a runtime.
    pub fn enter(&self) -> Option<EnterGuard<'_>> {
        self.runtime.as_ref().map(Runtime::enter)
    }
}

impl Drop for Stepped {
    /// Every task ends where it stands, as in a process that is killed.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
