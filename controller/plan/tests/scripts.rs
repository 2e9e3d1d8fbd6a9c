//! Stories as scripts: commands and what comes of them in one file, to be read as documentation. `KUN_UPDATE=1` rewrites the answers.
//!
//! Commands: `cluster shards=3 replicas=1 [volumes=no] [adopt=yes] [supervised=yes]`, `at site pod…`, `plan`, `round [steps]`, `tick [n]`, `run` (until
//! rest), `layout`, `write`, `lost`, `preview`, `shards n`, `replicas n`, `pause yes|no`, `outdate all|pod…`, `approve n…`, `placed n…`,
//! `failover shard [ordinal]`, `forgive`, `crash pod`, `delete pod`, `wipe pod`, `hide pod`, `cut pod`, `rejoin`.

use std::fmt::Write as _;
use std::path::Path;

use crate::support::Run;
use plan::model::{Luck, Process, World};
use plan::{Approval, Desired, FailoverHow, FailoverRequest, Plan, Pod, Role, Site, preview};

fn script(name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts").join(name).with_extension("txt");
    let text = std::fs::read_to_string(&path).unwrap();
    let mut run = Run::new(Desired::cluster(1, 0), World::new(true, true), Luck::good());
    run.limits = plan::Limits { slots_per_move: 4_096, ..run.limits };
    let mut out = String::new();
    for line in text.lines().filter(|line| !line.starts_with("    ")) {
        out.push_str(line);
        out.push('\n');
        let words: Vec<&str> = line.split_whitespace().collect();
        if !line.starts_with('#') && !words.is_empty() {
            for answer in obey(&mut run, &words).lines() {
                writeln!(out, "    {answer}").unwrap();
            }
        }
    }
    if std::env::var_os("KUN_UPDATE").is_some() {
        std::fs::write(&path, &out).unwrap();
    }
    assert_eq!(text, out, "{name}: KUN_UPDATE=1 rewrites the script; read the difference first");
}

fn obey(run: &mut Run, words: &[&str]) -> String {
    let number = |index: usize| words.get(index).map_or(1, |word| word.parse::<u16>().unwrap());
    match words[0] {
        "cluster" => *run = cluster(&words[1..]),
        "plan" => {
            let observed = run.world.observe();
            return tell(&plan::plan(&run.desired, &observed, &run.limits));
        }
        "round" => {
            let most = words.get(1).map_or(usize::MAX, |word| word.parse().unwrap());
            let plan = run.round(most, false).unwrap();
            run.tick(2);
            return tell(&plan);
        }
        "run" => return until_rest(run),
        "tick" => run.tick(u32::from(number(1))),
        "layout" => return layout(run),
        "write" => run.write_everywhere(),
        "lost" => {
            run.everything_reads_back().unwrap();
            return format!("nothing; {} of {} writes excused", run.world.excused.len(), run.world.acked.len());
        }
        "preview" => {
            let next = preview(&run.desired, &run.world.observe(), &run.limits, 200);
            let (rounds, steps, slots) = (next.rounds, next.steps, next.slots);
            return format!(
                "{rounds} rounds, {steps} steps, {slots} slots move, {} restarts, {} hand-overs; {}",
                next.restarts,
                next.hand_overs,
                tell(&next.last)
            );
        }
        "shards" => run.desired.shards = number(1),
        "replicas" => run.desired.replicas = number(1),
        "pause" => run.desired.hold = (words[1] == "yes").then_some(plan::Hold::Paused),
        "outdate" if words[1] == "all" => run.world.homes.values_mut().for_each(|home| home.outdated = true),
        "outdate" => words[1..].iter().for_each(|word| run.world.homes.get_mut(&pod(word)).unwrap().outdated = true),
        "approve" => {
            let approved = words[1..].iter().map(|word| word.parse().unwrap()).collect();
            run.desired.approval = Approval::Supervised { approved };
        }
        "failover" => {
            let shard = number(1);
            let primaries = run.world.homes.iter().filter(|(pod, _)| pod.shard == shard);
            let from = primaries.filter_map(|(_, home)| home.server.as_ref()).find(|server| !server.slots().is_empty());
            let from = from.unwrap().id;
            let candidate = words.get(2).map(|word| word.parse().unwrap());
            run.desired.failover = Some(FailoverRequest {
                shard,
                from,
                candidate,
                how: FailoverHow::Coordinated,
                accept_data_loss: false,
            });
        }
        "at" => words[2..].iter().for_each(|word| {
            run.world.homes.get_mut(&pod(word)).unwrap().site = Site::At(words[1].to_owned());
        }),
        "placed" => run.desired.placed_by_hand = words[1..].iter().map(|word| word.parse().unwrap()).collect(),
        "forgive" => run.desired.failover = None,
        "crash" => run.crash(pod(words[1]), false),
        "delete" => run.crash(pod(words[1]), true),
        "wipe" => run.wipe(pod(words[1])),
        "hide" => run.world.homes.get_mut(&pod(words[1])).unwrap().hidden = true,
        "cut" => run.cut_off(pod(words[1])),
        "rejoin" => run.rejoin_all(),
        other => panic!("no such command: {other}"),
    }
    String::new()
}

fn cluster(words: &[&str]) -> Run {
    let value = |name: &str| words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    let number = |name: &str| value(name).unwrap().parse().unwrap();
    let volumes = value("volumes") != Some("no");
    let mut desired = Desired::cluster(number("shards"), number("replicas"));
    (desired.restart_keeps_data, desired.has_volumes) = (volumes, volumes);
    desired.adopt_lost_slots = value("adopt") == Some("yes");
    if value("supervised") == Some("yes") {
        desired.approval = Approval::Supervised { approved: [].into() };
    }
    let mut run = Run::new(desired, World::new(volumes, volumes), Luck::good());
    run.limits = plan::Limits { slots_per_move: 4_096, ..run.limits };
    run
}

fn pod(text: &str) -> Pod {
    let (shard, ordinal) = text.split_once('-').unwrap();
    Pod::new(shard.parse().unwrap(), ordinal.parse().unwrap())
}

fn tell(plan: &Plan) -> String {
    let mut text = String::new();
    // Introductions and settings are many and dull.
    for kind in ["Meet", "NodeTimeout"] {
        let steps = plan.steps.iter().filter(|step| step.kind() == kind).count();
        if steps > 0 {
            writeln!(text, "{kind} × {steps}").unwrap();
        }
    }
    for step in plan.steps.iter().filter(|step| step.kind() != "Meet" && step.kind() != "NodeTimeout") {
        writeln!(text, "{step}").unwrap();
    }
    plan.waiting.iter().for_each(|reason| writeln!(text, "waits: {reason}").unwrap());
    plan.refused.iter().for_each(|reason| writeln!(text, "refuses: {reason}").unwrap());
    if let Some(operation) = plan.operation {
        writeln!(text, "operation: {operation:?}").unwrap();
    }
    if plan.is_satisfied() { text + "satisfied" } else { text }
}

fn until_rest(run: &mut Run) -> String {
    let begun = run.log.len();
    let plan = run.settle(200).unwrap_or_else(|reason| panic!("{reason}"));
    let dull = |line: &&String| !line.contains("introduce ") && !line.contains("node timeout") && line.contains('→');
    let mut text = String::new();
    for line in run.log[begun..].iter().filter(dull) {
        writeln!(text, "{}", line.trim().trim_end_matches(" → Done")).unwrap();
    }
    text + &tell(&plan)
}

fn layout(run: &Run) -> String {
    let mut text = String::new();
    for (pod, home) in &run.world.homes {
        let place = match (home.process, &home.server) {
            (Process::Up, Some(server)) => match &server.role {
                Role::Primary { slots } => {
                    format!("primary of {}", if slots.is_empty() { "nothing".to_owned() } else { slots.to_string() })
                }
                Role::Replica { of, .. } => {
                    let primary = run
                        .world
                        .homes
                        .iter()
                        .find(|(_, home)| home.server.as_ref().is_some_and(|server| server.id == *of));
                    format!("replica of {}", primary.map_or("nobody".to_owned(), |(pod, _)| pod.to_string()))
                }
            },
            (process, _) => format!("{process:?}"),
        };
        writeln!(text, "{pod} {place}").unwrap();
    }
    text
}

#[test]
fn create() {
    script("create");
}

#[test]
fn scale_out_and_in() {
    script("scale_out_and_in");
}

#[test]
fn scale_replicas() {
    script("scale_replicas");
}

#[test]
fn failover_on_request() {
    script("failover_on_request");
}

#[test]
fn rolling_restart() {
    script("rolling_restart");
}

#[test]
fn a_primary_dies() {
    script("a_primary_dies");
}

#[test]
fn leads_on_different_sites() {
    script("leads_on_different_sites");
}

#[test]
fn too_many_primaries_on_one_site() {
    script("too_many_primaries_on_one_site");
}

#[test]
fn everything_moves() {
    script("everything_moves");
}

#[test]
fn what_needs_a_person() {
    script("what_needs_a_person");
}

#[test]
fn an_older_copy_is_left() {
    script("an_older_copy_is_left");
}
