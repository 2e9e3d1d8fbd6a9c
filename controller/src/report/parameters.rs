//! On which members the user's parameters are not in use, and what to do about it.

use std::collections::BTreeSet;

use plan::Pod;
use types::names;

use super::Seeing;
use crate::probe::{Finding, Refusal};
use crate::resolve::Resolved;

/// Pods that are named; the rest are a number.
const NAMED: usize = 3;
/// What a person does about it.
const NEXT: &str = "correct spec.config, and everything goes on by itself";
/// What a person may do where the engine uses less than was asked for.
const LESS: &str = "ask for what is used, or raise the limits of its machine";

/// Members on which the user's parameters are not in use: their engines refused them, or they are still on their way. What differs for
/// the time of a step, and on members that wait for their restart, is told elsewhere.
pub(super) fn not_in_use(seeing: Seeing<'_>, resolved: &Resolved) -> Option<(&'static str, String)> {
    rejected(seeing, resolved).map(|text| ("ConfigRejected", text)).or_else(|| {
        let text = untried(seeing, resolved).or_else(|| pending(seeing, resolved));
        let altered = || altered(seeing, resolved).map(|text| ("ConfigAltered", text));
        text.map(|text| ("ConfigPending", text)).or_else(altered)
    })
}

/// What engines, or their servers, have answered.
fn rejected(seeing: Seeing<'_>, resolved: &Resolved) -> Option<String> {
    let answers = |finding: &Finding| match finding {
        Finding::Refused | Finding::NotSet => true,
        Finding::Undecided | Finding::Altered(_) => false,
    };
    let refused: Vec<_> = seeing.probed.refused.iter().filter(|(_, refusal)| answers(&refusal.finding)).collect();
    let (first, refusal) = refused.first()?;
    let pods: Vec<Pod> = refused.iter().map(|(pod, _)| **pod).collect();
    let is_open = |pod: &Pod| !pods.contains(pod);
    let differing = seeing.probed.facts.iter().filter(|(_, facts)| !facts.unlike.is_empty());
    let are_all_known = !differing.map(|(pod, _)| *pod).any(|pod| is_open(&pod));
    let (named, name) = (named(resolved, &pods, are_all_known, ["does", "do"]), name(resolved, **first));
    Some(format!("{named} not use spec.config; the engine of {name} says: {}; {NEXT}", clause(refusal)))
}

/// As a sentence's beginning. While some have not answered the number of the others would be another one with every look.
fn named(resolved: &Resolved, pods: &[Pod], are_all_known: bool, [one, many]: [&str; 2]) -> String {
    let names: Vec<String> = pods.iter().take(NAMED).map(|pod| name(resolved, *pod)).collect();
    let (rest, names) = (pods.len().saturating_sub(NAMED), names.join(", "));
    match (pods.len(), rest) {
        (1, _) => format!("{names} {one}"),
        (_, 0) => format!("{names} {many}"),
        (_, rest) if are_all_known => format!("{names} and {rest} more {many}"),
        (_, _) => format!("{names} and others {many}"),
    }
}

/// An engine's words, to go on with a semicolon.
fn clause(refusal: &Refusal) -> &str {
    refusal.words.trim_end_matches('.')
}

/// Engines that could not be asked.
fn untried(seeing: Seeing<'_>, resolved: &Resolved) -> Option<String> {
    let is_untried = |finding: &Finding| match finding {
        Finding::Undecided => true,
        Finding::Refused | Finding::NotSet | Finding::Altered(_) => false,
    };
    let (pod, refusal) = seeing.probed.refused.iter().find(|(_, refusal)| is_untried(&refusal.finding))?;
    Some(format!("spec.config is not in use on {} yet: {}", name(resolved, *pod), refusal.words))
}

/// Members whose engines use the parameters and make something else of some; nothing waits for that.
fn altered(seeing: Seeing<'_>, resolved: &Resolved) -> Option<String> {
    let altered: Vec<_> = seeing.probed.refused.iter().filter(|(_, one)| names_altered(one).is_some()).collect();
    let (first, refusal) = altered.first()?;
    let pods: Vec<Pod> = altered.iter().map(|(pod, _)| **pod).collect();
    let (named, name) = (named(resolved, &pods, true, ["uses", "use"]), name(resolved, **first));
    Some(format!("{named} spec.config with a change; the engine of {name} says: {}; {LESS}", clause(refusal)))
}

/// Of a member that uses the parameters: those of which its engine makes something else.
fn names_altered(refusal: &Refusal) -> Option<&BTreeSet<String>> {
    match &refusal.finding {
        Finding::Altered(names) => Some(names),
        Finding::Refused | Finding::NotSet | Finding::Undecided => None,
    }
}

fn pending(seeing: Seeing<'_>, resolved: &Resolved) -> Option<String> {
    let members = seeing.probed.facts.iter().filter_map(|(pod, facts)| {
        let is_outdated = seeing.probed.observed.members.get(pod).is_some_and(|member| member.outdated);
        let altered = seeing.probed.refused.get(pod).and_then(names_altered);
        let is_told = |name: &String| altered.is_some_and(|names| names.contains(name));
        let is_own = |name: &String| !seeing.temporary.contains_key(name) && !is_told(name);
        let mut unlike = facts.unlike.iter().filter(|(name, _)| is_own(name) && !is_outdated);
        unlike.next().map(|(name, shown)| (pod, name, shown))
    });
    let members: Vec<_> = members.collect();
    let (pod, parameter, shown) = members.first()?;
    let wanted = resolved.agent.parameters.get(*parameter).map(String::as_str).unwrap_or_default();
    let count = match members.len() {
        1 => "1 member does".to_owned(),
        many => format!("{many} members do"),
    };
    Some(format!(
        "{count} not show spec.config yet; the first is {}, where {parameter} is {shown:?} and {wanted:?} is wanted",
        name(resolved, **pod)
    ))
}

fn name(resolved: &Resolved, pod: Pod) -> String {
    names::pod(&resolved.key.name, pod.shard, pod.ordinal)
}
