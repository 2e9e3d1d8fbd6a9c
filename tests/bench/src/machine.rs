//! What this machine can do and what a process uses: the yardsticks of the same run.

use std::{
    fs,
    io::{Seek, SeekFrom, Write},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

/// fdatasync after overwriting 1.1 KB of a file that is already allocated, per second, one after the other.
pub(crate) fn fdatasync_rate(folder: &std::path::Path) -> Result<f64> {
    const FILE: usize = 4 << 20;
    const RECORD: usize = 1100;
    let mut file = fs::File::create(folder.join("fdatasync"))?;
    file.write_all(&vec![0; FILE])?;
    file.sync_all()?;
    let begin = Instant::now();
    let mut count = 0u32;
    while begin.elapsed() < Duration::from_secs(2) {
        let offset = (usize::try_from(count)? * RECORD) % (FILE - RECORD);
        file.seek(SeekFrom::Start(u64::try_from(offset)?))?;
        file.write_all(&[u8::try_from(count % 251)?; RECORD])?;
        file.sync_data()?;
        count += 1;
    }
    Ok(f64::from(count) / begin.elapsed().as_secs_f64())
}

/// Resident memory of a process in bytes.
pub(crate) fn resident(pid: u32) -> Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let line = text.lines().find(|line| line.starts_with("Rss:")).context("Rss")?;
    let kib: f64 = line.split_whitespace().nth(1).context("Rss")?.parse()?;
    Ok(kib * 1024.0)
}

/// CPU time that a process has used so far, in seconds.
pub(crate) fn cpu_seconds(pid: u32) -> Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in brackets may hold blanks; utime and stime are the 12th and 13th fields behind it (proc(5)).
    let (_, fields) = text.rsplit_once(") ").context("stat")?;
    let ticks = fields.split(' ').skip(11).take(2).map(str::parse::<f64>).sum::<Result<f64, _>>()?;
    #[allow(clippy::cast_precision_loss, reason = "100, by the kernel's ABI")]
    let per_second = rustix::param::clock_ticks_per_second() as f64;
    Ok(ticks / per_second)
}
