//! Does what the status asks a person for, where that costs nothing.

use std::time::{Duration, Instant};

use ::tests::{fixture::Fixture, kubectl::condition};
use anyhow::Result;

const PAUSE: Duration = Duration::from_secs(1);
/// What comes by itself comes sooner.
const PATIENCE: Duration = Duration::from_secs(30);
/// Who keeps keys that Redis does not let it follow with, and that the owners of their slots have.
const FORMER: &str = " has been replaced as a primary";
const ELSEWHERE: &str = "The owners of these slots have all of these keys";

/// Once the status has named a former primary without a key that nobody else has for a while, deletes its claim and its pod. Gives its name.
pub(super) async fn gives_up_a_former_primary(fixture: &Fixture) -> Result<String> {
    let mut seen: Option<(String, Instant)> = None;
    loop {
        tokio::time::sleep(PAUSE).await;
        let Ok(cluster) = fixture.kubectl.get("rdc", "orders").await else { continue };
        let message = condition(&cluster, "Degraded")["message"].as_str().unwrap_or_default();
        seen = former(message).map(|member| match seen.take() {
            Some((named, since)) if named == member => (named, since),
            Some(_) | None => (member.to_owned(), Instant::now()),
        });
        if let Some((member, since)) = seen.as_ref()
            && since.elapsed() >= PATIENCE
        {
            let (claim, pod) = (format!("data-orders-{member}"), format!("orders-{member}"));
            // The claim stays until its pod is gone.
            fixture.kubectl.run(&["delete", "pvc", &claim, "--wait=false", "--ignore-not-found"]).await?;
            fixture.kubectl.run(&["delete", "pod", &pod, "--wait=false"]).await?;
            return Ok(pod);
        }
    }
}

/// The member of which it says so. Pure.
fn former(message: &str) -> Option<&str> {
    let (before, after) = message.split_once(FORMER)?;
    let member = before.rsplit_once("member ")?.1;
    // What is told of it ends where another one is told of.
    let own = after.split(FORMER).next()?;
    own.contains(ELSEWHERE).then_some(member)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_holds_nothing_that_nobody_else_has_is_given_up() {
        let told = |rest: &str| {
            format!("3 slots are half moved: member 0-1 has been replaced as a primary, owns no slot. {rest}")
        };
        let elsewhere = told(
            "The owners of these slots have all of these keys; a value that 0-1 was told too late nobody else has.",
        );
        assert_eq!(former(&elsewhere), Some("0-1"));
        let lacks = told("The owners of the slots 5 lack some of these keys.");
        assert_eq!(former(&lacks), None);
        let other = elsewhere.replace("0-1", "1-1");
        assert_eq!([former(&format!("{lacks} {other}")), former(&format!("{elsewhere} {lacks}"))], [None, Some("0-1")]);
        assert_eq!(former("16384 of 16384 slots have a primary that serves them"), None);
    }
}
