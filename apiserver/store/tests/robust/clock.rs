//! A clock that a test moves by hand, beside sockets and processes that are real: a limit of ours runs out when the test says so,
//! however slow the machine is, and what it must not run out for has all the time it needs.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Waits, by the clock on the wall, until something is so that others see to.
pub(crate) async fn until(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < hung::answer(), "never: {what}");
        breathe().await;
    }
}

/// A moment in which threads and sockets may get on, whether our clock stands still or not.
pub(crate) async fn breathe() {
    tokio::task::spawn_blocking(|| std::thread::sleep(Duration::from_millis(1))).await.unwrap();
}

/// Who is woken wakes others, as far as no socket is needed for it: what is to begin before time goes by has begun.
async fn settle() {
    for _ in 0..32 {
        tokio::task::yield_now().await;
    }
}

/// Time stands still while this lives, on a runtime of one thread.
pub(crate) struct Clock {
    _held: mpsc::Sender<()>,
}

impl Clock {
    /// Stops the clock. What hangs on a clock that stands still would hang for ever, so after a while it runs away by itself, and
    /// every limit runs out.
    pub(crate) fn stop() -> Clock {
        tokio::time::pause();
        let (held, released) = mpsc::channel::<()>();
        let limit = hung::process();
        // A clock that is paused jumps to the next timer whenever nothing else is to be done; not while a thread is at work.
        drop(tokio::task::spawn_blocking(move || released.recv_timeout(limit)));
        Clock { _held: held }
    }

    /// So much time goes by at once, and who waited for it is woken. Timers have a grain of a millisecond: who waited for no time at
    /// all waits for the next one.
    pub(crate) async fn pass(&self, time: Duration) {
        settle().await;
        tokio::time::advance(time + Duration::from_millis(1)).await;
        settle().await;
    }

    /// Time goes by in steps until something is done, and all there is to do is done after each. Says how much went by.
    pub(crate) async fn pass_until<T>(&self, step: Duration, done: impl Future<Output = T>) -> (T, Duration) {
        let begin = tokio::time::Instant::now();
        let passing = async {
            loop {
                self.pass(step).await;
            }
        };
        tokio::select! {
            biased;
            value = done => (value, begin.elapsed()),
            () = passing => unreachable!("it never ends"),
        }
    }

    /// Time goes by itself again.
    pub(crate) fn run(self) {
        tokio::time::resume();
    }
}
