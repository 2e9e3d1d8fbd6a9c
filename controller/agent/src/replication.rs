//! The password of replication is the shard's own.
//!
//! Replicas follow an address, and addresses are given out again: when pods come back with each other's, a replica finds the primary of
//! another shard where its own was, and would copy that and drop what it has. So what replicas log in with is derived from the cluster's
//! secret and the shard. It keeps nobody out who has read the secret; it keeps members out who are at the wrong door.
//!
//! Members of earlier releases log in with the secret itself, whatever their shard. While one of them is in this shard it is let in, and is
//! shown what it expects; their agents are known by that they tell the cluster's other agents nothing ([`Word::Silent`]).

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use aws_lc_rs::hmac;
use futures::{StreamExt, stream};
use resp::{Command, Error, Info, Node, NodeId};
use tokio::{sync::watch, time::sleep};
use types::names::USER_REPLICA;

use crate::{
    config::{Passwords, Secret},
    digest,
    fellows::Word,
    shared::Shared,
};

/// How long an agent may take to say which release it is of.
const ANSWER: Duration = Duration::from_millis(1000);
/// How often those are asked again who did not answer, or whose link is missing.
const AGAIN: Duration = Duration::from_millis(1000);
/// How often those are who are of an earlier release: one may stay for months, and shows by its link that it has been replaced.
const EARLIER_AGAIN: Duration = Duration::from_secs(10);
/// Agents asked at the same time; a shard has a handful.
const AT_ONCE: usize = 8;
/// How long Redis may take to change a parameter.
const DEADLINE: Duration = Duration::from_secs(2);

/// What the replicas of one shard log in with.
#[must_use]
pub fn of_shard(cluster: &Secret, shard: &str) -> Secret {
    let key = hmac::Key::new(hmac::HMAC_SHA256, cluster.expose().as_bytes());
    let tag = hmac::sign(&key, format!("kun: replication of shard {shard}").as_bytes());
    Secret::new(digest::hex(tag.as_ref()))
}

/// The hashes of what [`USER_REPLICA`] may log in with, as ACL rules.
#[must_use]
pub fn rules(passwords: &Passwords, lets_old_in: bool) -> Vec<String> {
    let old = lets_old_in.then_some(&passwords.replica_of_all);
    let hash = |secret: &Secret| format!("#{}", digest::sha256_hex(secret.expose().as_bytes()));
    [&passwords.replica].into_iter().chain(old).map(hash).collect()
}

/// The shard as the own Redis sees it, without those that count as failed: they are asked again when they are back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The other members.
    members: BTreeMap<NodeId, IpAddr>,
    /// Where they are, and those that count as failed.
    places: BTreeSet<IpAddr>,
    /// The one that it follows.
    primary: Option<NodeId>,
    /// Where that is, also when it counts as failed: it may be back, or be heard by this member alone.
    primary_at: Option<IpAddr>,
    /// A link is missing: its own, or that of a replica.
    is_parted: bool,
}

impl Seen {
    /// The primary that this member follows, and where it is; `None`: it follows nobody.
    #[must_use]
    pub fn followed(&self) -> Option<(NodeId, IpAddr)> {
        self.primary.clone().zip(self.primary_at)
    }

    /// Reads one look.
    #[must_use]
    pub fn of(table: &[Node], info: &Info) -> Option<Self> {
        let myself = table.iter().find(|node| node.flags.myself)?;
        let head = myself.primary.as_ref().unwrap_or(&myself.id);
        let fellows = table.iter().filter(|node| node.id != myself.id);
        let fellows = fellows.filter(|node| node.id == *head || node.primary.as_ref() == Some(head));
        let fellows: Vec<_> = fellows.filter_map(|node| Some((node, node.address?.ip()))).collect();
        let places = fellows.iter().map(|(_, ip)| *ip).collect();
        let there = fellows.iter().filter(|(node, _)| !node.flags.failed);
        let members: BTreeMap<_, _> = there.map(|(node, ip)| (node.id.clone(), *ip)).collect();
        let online = info.replicas().iter().filter(|line| line.state == "online").count();
        let is_parted = match info.get("role") {
            Some("slave") => info.get("master_link_status") != Some("up"),
            _ => online < members.len(),
        };
        let line = table.iter().find(|node| Some(&node.id) == myself.primary.as_ref());
        let primary_at = line.and_then(|line| line.address).map(|address| address.ip());
        Some(Self { members, places, primary: myself.primary.clone(), primary_at, is_parted })
    }
}

/// What is known of a member's release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Release {
    /// It has the shard's password.
    Present,
    /// It has the cluster's alone.
    Earlier,
}

/// Which password is used, on both sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Use {
    /// The cluster's lets replicas in, too.
    lets_old_in: bool,
    /// The cluster's is shown to the primary.
    shows_old: bool,
}

/// Members whose release is known, and where that was.
type Known = BTreeMap<NodeId, (IpAddr, Release)>;

/// What follows. Who has not answered changes nothing. Pure.
fn decide(seen: &Seen, known: &Known, present: Use) -> Use {
    let release = |id: &NodeId| {
        let at = seen.members.get(id)?;
        known.get(id).filter(|(ip, _)| ip == at).map(|(_, release)| *release)
    };
    let releases: Vec<_> = seen.members.keys().map(release).collect();
    let lets_old_in = releases.contains(&Some(Release::Earlier)) || present.lets_old_in && releases.contains(&None);
    let shows_old = match seen.primary.as_ref().map(release) {
        Some(Some(release)) => release == Release::Earlier,
        Some(None) => present.shows_old,
        None => false,
    };
    Use { lets_old_in, shows_old }
}

/// Whom to ask: at rest nobody. Pure.
fn unsettled(seen: &Seen, known: &Known) -> Vec<(NodeId, IpAddr)> {
    let is_settled = |id: &NodeId, ip: &IpAddr| !seen.is_parted && known.get(id) == Some(&(*ip, Release::Present));
    let open = seen.members.iter().filter(|(id, ip)| !is_settled(id, ip));
    open.map(|(id, ip)| (id.clone(), *ip)).collect()
}

/// Sees to it that the members of the shard can replicate, and nobody else. Runs until dropped.
pub async fn follow(shared: &Arc<Shared>, mut seen: watch::Receiver<Seen>) {
    let mut inputs = shared.inputs.subscribe();
    let mut known = Known::new();
    // Redis was started so.
    let (mut wanted, mut applied) = (Use::default(), Some(Use::default()));
    // Somebody may be connected who has shown the cluster's password.
    let mut let_in = false;
    loop {
        let now = seen.borrow_and_update().clone();
        known.retain(|id, _| now.members.contains_key(id));
        let open = unsettled(&now, &known);
        known.extend(ask(shared, &open).await);
        wanted = decide(&now, &known, wanted);
        if applied != Some(wanted) {
            let_in |= wanted.lets_old_in;
            match apply(shared, wanted).await {
                Ok(()) => applied = Some(wanted),
                // One half of it may be.
                Err(error) => {
                    applied = None;
                    tracing::warn!(%error, "the password of replication is not changed yet");
                }
            }
        }
        if let_in && applied.is_some_and(|applied| !applied.lets_old_in) {
            match close_out(shared, &now).await {
                Ok(()) => let_in = false,
                Err(error) => tracing::warn!(%error, "who came in by the cluster's password is not closed out yet"),
            }
        }
        let open = unsettled(&now, &known);
        let is_known = |(id, ip): &(NodeId, IpAddr)| known.get(id) == Some(&(*ip, Release::Earlier));
        let is_applied = applied == Some(wanted) && (wanted.lets_old_in || !let_in);
        let calm = is_applied && !now.is_parted && open.iter().all(is_known);
        tokio::select! {
            _ = seen.changed() => {}
            // Whoever took new passwords over has set them for members of this release, before or after what was applied last, which may
            // have been with old ones.
            Ok(()) = inputs.changed() => applied = None,
            () = sleep(if calm { EARLIER_AGAIN } else { AGAIN }), if !calm || !open.is_empty() => {}
        }
    }
}

async fn ask(shared: &Arc<Shared>, members: &[(NodeId, IpAddr)]) -> Known {
    let answers = members.iter().map(|(id, ip)| async move {
        let word = tokio::time::timeout(ANSWER, shared.fellows.ask(*ip)).await.ok()?.ok()?;
        let release = match word {
            Word::Report(_) | Word::Strange => Release::Present,
            Word::Silent => Release::Earlier,
        };
        Some((id.clone(), (*ip, release)))
    });
    stream::iter(answers).buffer_unordered(AT_ONCE).filter_map(|answer| async move { answer }).collect().await
}

async fn apply(shared: &Arc<Shared>, wanted: Use) -> Result<(), Error> {
    // First, so that passwords that change meanwhile find it.
    shared.let_old_in(wanted.lets_old_in);
    let inputs = shared.inputs();
    let mut connection = shared.open_for_users().await?;
    connection.command(&accepting(&inputs.passwords, wanted.lets_old_in)).await?;
    let Passwords { replica, replica_of_all, .. } = &inputs.passwords;
    let shown = if wanted.shows_old { replica_of_all } else { replica };
    let command = Command::new("CONFIG").args(["SET", "masterauth", shown.expose()]);
    shared.local.open(DEADLINE).await?.command(&command).await?;
    tracing::info!(?wanted, "what replication logs in with follows the releases of the shard's members");
    Ok(())
}

/// A password that counts no more ends no connection: who came in by it and is none of the shard is closed out, as is whoever has shown it and does
/// not replicate yet. A member of the shard that is on its way to that comes again.
async fn close_out(shared: &Arc<Shared>, seen: &Seen) -> Result<(), Error> {
    let mut connection = shared.open_for_users().await?;
    connection.call(&["CLIENT", "KILL", "TYPE", "normal", "USER", USER_REPLICA]).await?;
    let list = connection.call(&["CLIENT", "LIST", "TYPE", "replica"]).await?;
    for stranger in strangers(list.text().unwrap_or_default(), seen) {
        tracing::info!(client = stranger, "a replica that is none of this shard is closed out");
        connection.call(&["CLIENT", "KILL", "ID", stranger]).await?;
    }
    Ok(())
}

/// Connections of replication, by `CLIENT LIST`, from where no member of the shard is. Pure.
fn strangers<'a>(list: &'a str, seen: &Seen) -> Vec<&'a str> {
    let of = |line: &'a str, name: &str| line.split(' ').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
    let is_strange = |line: &&'a str| {
        let from = of(line, "addr").and_then(|addr| addr.parse::<SocketAddr>().ok());
        of(line, "user") == Some(USER_REPLICA) && !from.is_some_and(|from| seen.places.contains(&from.ip()))
    };
    list.lines().filter(is_strange).filter_map(|line| of(line, "id")).collect()
}

/// Gives the user of replication its passwords.
pub(crate) fn accepting(passwords: &Passwords, lets_old_in: bool) -> Command {
    Command::new("ACL").args(["SETUSER", USER_REPLICA, "resetpass"]).args(rules(passwords, lets_old_in))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const TWO: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    fn id(last: u8) -> NodeId {
        NodeId::parse(&format!("{last:040x}")).unwrap()
    }

    /// Member 3, a replica of 1 beside 2, or of nobody.
    fn replica(primary: Option<u8>) -> Seen {
        let members: BTreeMap<_, _> = [(id(1), ONE), (id(2), TWO)].into();
        let places = members.values().copied().collect();
        Seen { members, places, primary: primary.map(id), primary_at: primary.map(|_| ONE), is_parted: false }
    }

    #[test]
    fn each_shard_has_a_password_of_its_own() {
        let secret = Secret::new("canary");
        let [first, second] = ["0", "1"].map(|shard| of_shard(&secret, shard));
        // printf 'kun: replication of shard 0' | openssl dgst -sha256 -hmac canary
        assert_eq!(first.expose(), "116435e3ea20464d83af9445b47b8e1c12f2257f7449cb5a403f7460feaded27");
        assert_ne!(first, second);
        assert_ne!(first, of_shard(&Secret::new("another"), "0"));
    }

    #[test]
    fn the_shard_is_its_primary_and_who_follows_it() {
        let text = format!(
            "{} 10.0.0.1:6379@16379 master - 0 0 1 connected 0-5\n{} 10.0.0.2:6379@16379 slave {} 0 0 1 connected\n\
             {} 10.0.0.3:6379@16379 myself,slave {} 0 0 1 connected\n{} 10.0.0.4:6379@16379 master - 0 0 2 connected 6-9\n",
            id(1),
            id(2),
            id(1),
            id(3),
            id(1),
            id(4)
        );
        let table = resp::nodes::parse(&text).unwrap();
        let up = Info::parse("role:slave\nmaster_link_status:up\n");
        assert_eq!(Seen::of(&table, &up), Some(replica(Some(1))));
        let [mut dead, _, own, _] = <[Node; 4]>::try_from(table.clone()).unwrap();
        dead.flags.failed = true;
        let left = Seen { members: [].into(), places: [ONE].into(), ..replica(Some(1)) };
        assert_eq!(Seen::of(&[dead, own], &up), Some(left), "nobody answers for it");
        let down = Info::parse("role:slave\nmaster_link_status:down\n");
        assert_eq!(Seen::of(&table, &down), Some(Seen { is_parted: true, ..replica(Some(1)) }));
    }

    #[test]
    fn the_clusters_password_counts_while_a_member_of_an_earlier_release_is_there() {
        use Release::{Earlier, Present};
        let known = |first: Option<Release>, second: Option<Release>| -> Known {
            let all = [(id(1), ONE, first), (id(2), TWO, second)];
            all.into_iter().filter_map(|(id, ip, release)| Some((id, (ip, release?)))).collect()
        };
        let used = |lets_old_in, shows_old| Use { lets_old_in, shows_old };
        let rows = [
            (known(Some(Present), Some(Present)), used(true, true), used(false, false)),
            (known(Some(Earlier), Some(Present)), used(false, false), used(true, true)),
            (known(Some(Present), Some(Earlier)), used(false, true), used(true, false)),
            // Nobody answers: what was right stays.
            (known(None, None), used(false, false), used(false, false)),
            (known(None, None), used(true, true), used(true, true)),
            (known(None, Some(Present)), used(true, true), used(true, true)),
        ];
        for (known, present, then) in rows {
            assert_eq!(decide(&replica(Some(1)), &known, present), then, "{known:?}");
        }
        let elsewhere = Known::from([(id(1), (TWO, Earlier)), (id(2), (TWO, Present))]);
        assert_eq!(decide(&replica(Some(1)), &elsewhere, used(false, false)), used(false, false));
        // A primary shows nothing to anybody.
        assert_eq!(decide(&replica(None), &known(Some(Earlier), None), used(false, true)), used(true, false));
    }

    #[test]
    fn who_replicates_and_is_none_of_the_shard_is_closed_out() {
        let line = |id: u8, addr: &str, user: &str| {
            format!("id={id} addr={addr} laddr=10.0.0.9:6379 fd=8 name= flags=S user={user} redir=-1\n")
        };
        let list = [
            line(3, "10.0.0.1:4711", USER_REPLICA),
            line(4, "10.0.0.7:6379", USER_REPLICA),
            line(5, "10.0.0.7:6379", "kun-agent"),
            line(6, "/run/redis.sock:0", USER_REPLICA),
        ];
        assert_eq!(strangers(&list.concat(), &replica(Some(1))), ["4", "6"]);
        assert_eq!(strangers("", &replica(Some(1))), Vec::<&str>::new());
    }

    #[test]
    fn nobody_is_asked_at_rest() {
        use Release::{Earlier, Present};
        let seen = replica(Some(1));
        let mut known = Known::from([(id(1), (ONE, Present)), (id(2), (TWO, Present))]);
        assert_eq!(unsettled(&seen, &known), []);
        assert_eq!(unsettled(&Seen { is_parted: true, ..seen.clone() }, &known).len(), 2);
        known.insert(id(2), (TWO, Earlier));
        assert_eq!(unsettled(&seen, &known), [(id(2), TWO)]);
        known.insert(id(2), (ONE, Present));
        assert_eq!(unsettled(&seen, &known), [(id(2), TWO)], "its pod was made anew");
    }
}
