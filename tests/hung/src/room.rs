//! Whether this machine has room for a test that keeps servers busy.
//!
//! Redis nodes, agents, controllers and kubelets do a part of their work once a second, however long it takes. Where more of them run than a
//! machine can serve, each waits for a processor for seconds: nodes take each other for dead, nothing becomes ready, and no test comes to
//! its end. So a test starts its servers only while few processes wait for a processor, and one test at a time.

use std::{
    env, fs,
    fs::File,
    num::NonZero,
    thread,
    time::{Duration, Instant},
};

use crate::process;

/// So many processes for each processor run, or wait for it, where another test waits instead of starting its servers.
const CROWD: f64 = 16.0;
/// How often they are counted before that is said, and how long after each other: a process that starts is many for a moment.
const LOOKS: u32 = 10;
const BETWEEN: Duration = Duration::from_millis(200);

/// Returns once this machine has room. Where it has none for as long as [`process`], one test goes on anyhow: what is crowded by somebody else
/// is no reason never to begin.
pub fn wait_for_room() {
    if !is_crowded(average()) {
        return;
    }
    let begin = Instant::now();
    // Who cannot wait in line waits beside the others.
    let door = File::create(env::temp_dir().join("kun-room")).ok();
    let _held = door.as_ref().map(File::lock);
    let limit = begin.elapsed() + process();
    while begin.elapsed() < limit && is_crowded(now()) {}
}

fn is_crowded(running: f64) -> bool {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    running > CROWD * f64::from(u32::try_from(processors).unwrap_or(u32::MAX))
}

/// How many ran or waited in the last minute, those that wait for a disk among them.
fn average() -> f64 {
    read().map_or(0.0, |(average, _)| average)
}

/// How many do so now, over some looks.
fn now() -> f64 {
    let looks = (0..LOOKS).map(|_| {
        thread::sleep(BETWEEN);
        read().map_or(0.0, |(_, running)| running)
    });
    looks.sum::<f64>() / f64::from(LOOKS)
}

/// What the kernel says of both (proc_loadavg(5)). Where it says nothing, nobody waits.
fn read() -> Option<(f64, f64)> {
    parse(&fs::read_to_string("/proc/loadavg").ok()?)
}

fn parse(text: &str) -> Option<(f64, f64)> {
    let mut words = text.split_whitespace();
    let average = words.next()?.parse().ok()?;
    let (running, _) = words.nth(2)?.split_once('/')?;
    Some((average, running.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_how_many_run_now_and_in_the_last_minute() {
        assert_eq!(parse("100.25 40.00 9.99 33/1450 12345\n"), Some((100.25, 33.0)));
        assert_eq!([parse(""), parse("1.0 1.0 1.0 33 5")], [None, None]);
        assert!(read().is_some_and(|(_, running)| running >= 1.0));
    }

    #[test]
    fn a_machine_is_crowded_by_many_for_each_processor() {
        let processors = f64::from(u32::try_from(thread::available_parallelism().unwrap().get()).unwrap());
        assert_eq!([0.0, CROWD * processors, CROWD * processors + 1.0].map(is_crowded), [false, false, true]);
    }
}
