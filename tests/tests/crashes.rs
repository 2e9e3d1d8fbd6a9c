//! kun is killed after each of its API writes; every next start goes on from what can be observed.
#![allow(clippy::indexing_slicing, reason = "indexing a JSON value yields null where something is absent")]

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tests::{
    fixture::{Fixture, manifest},
    oracle::Shape,
    standalone::Standalone,
    story,
};

/// More writes than a create or a scale-out may need: beyond this the controller writes without end.
const MOST_WRITES: u32 = 120;
/// Exit code of the failpoint.
const FAILPOINT_EXIT: i32 = 137;

/// How one life of kun went.
#[derive(PartialEq, Eq)]
enum Life {
    Died,
    Ready,
}

/// Waits until the failpoint ends kun, or the cluster is Ready with nothing left to write: one life ends by its next write. After
/// it is Ready, kun is watched for two seconds; what it writes later would only end the next life.
async fn live(kun: &mut Standalone, shards: u16) -> Result<Life> {
    let begin = Instant::now();
    while begin.elapsed() < hung::change() {
        let object = kun.kubectl().get("rdc", "orders").await;
        let ready = object.is_ok_and(|object| story::is_ready(&object, shards));
        let patience = if ready { Duration::from_secs(2) } else { Duration::from_millis(100) };
        match kun.ended(patience).await? {
            Some(status) if status.code() == Some(FAILPOINT_EXIT) => return Ok(Life::Died),
            Some(status) => anyhow::bail!("kun ended with {status}, not by the failpoint:\n{}", kun.log_tail()),
            None if ready => return Ok(Life::Ready),
            None => {}
        }
    }
    anyhow::bail!("neither Ready nor a write:\n{}", kun.log_tail())
}

/// How many lives end by their very first write, before each so many further ones last twice as many writes. `make soak` ends each life
/// by its first write: on a slow machine progress alone is then written a hundred times.
const SHORT_LIVES: u32 = 8;

/// Lets kun die after single API writes of the controller until the cluster is Ready; returns how often it died.
async fn die_after_each_write(kun: &mut Standalone, shards: u16) -> Result<u32> {
    for deaths in 0..MOST_WRITES {
        let writes = if std::env::var_os("KUN_SOAK").is_some() { 1 } else { 1_u32 << (deaths / SHORT_LIVES).min(8) };
        let environment = vec![("KUN_FAILPOINT".to_owned(), writes.to_string())];
        // It may die before it says ready: that is a death like any other.
        kun.resume_with(&environment).await.ok();
        if live(kun, shards).await.with_context(|| format!("after {deaths} deaths"))? == Life::Ready {
            return Ok(deaths);
        }
    }
    anyhow::bail!("not Ready after {MOST_WRITES} writes:\n{}", kun.log_tail())
}

/// Only a process that really dies shows that nothing leans on its memory.
#[tokio::test]
async fn a_create_that_dies_after_each_api_write_ends_like_an_undisturbed_one() -> Result<()> {
    let mut kun = Standalone::start_with(&["--roles", "apiserver,webhook,node"], &[]).await?;
    kun.kubectl().feed(&["apply", "-f", "-"], &manifest(3, 1, &json!({}))).await?;
    kun.stop().await?;
    kun.forget_flags();
    let deaths = die_after_each_write(&mut kun, 3).await?;
    ensure!(deaths >= 8, "only {deaths} deaths: the failpoint did not bite");
    kun.stop().await?;
    kun.resume().await?;
    // Its pods were stopped with it: until the first look, the status is of before.
    story::settled(&kun.kubectl(), ("default", "orders"), Shape { shards: 3, replicas: 1 }, async || Ok(None)).await
}

/// The same while slots move under a writer, so that a death in the middle of a slot has keys to lose.
#[tokio::test]
async fn a_scale_out_that_dies_after_each_api_write_loses_nothing() -> Result<()> {
    let mut fixture = Fixture::start(3, 1, &json!({})).await?;
    fixture.kubectl.run(&["scale", "rdc", "orders", "--replicas=5"]).await?;
    fixture.kun.kill().await?;
    let deaths = die_after_each_write(&mut fixture.kun, 5).await?;
    ensure!(deaths >= 3, "only {deaths} deaths: the failpoint did not bite");
    // Its next write, whenever that is, would end this one, too.
    fixture.kun.kill().await?;
    fixture.kun.resume().await?;
    story::ready(&fixture.kubectl, "orders", 5).await?;
    fixture.verify(5, 1).await?;
    Ok(())
}
