//! What is wanted, as the planner understands it, and how much may be disturbed at once.

use alloc::collections::BTreeSet;
use alloc::string::String;

use crate::observed::NodeId;

/// The wanted topology.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Desired {
    /// Redis Cluster, or one single server.
    pub mode: Mode,
    /// Number of shards (1 in Standalone). At least 1.
    pub shards: u16,
    /// Replicas of each primary (0 in Standalone).
    pub replicas: u16,
    /// `cluster-node-timeout` when nothing special goes on.
    pub node_timeout_millis: u64,
    /// A restarted pod finds its data set again (a volume, and persistence is on). Without it a shard's only copy is never restarted.
    pub restart_keeps_data: bool,
    /// A restarted pod finds each write again (a volume and an append-only file). Otherwise what a member has got since its last snapshot is in its memory
    /// alone until a replica has it, too.
    pub keeps_each_write: bool,
    /// Pods have volumes: the next pod of a place finds what the one before left there. Also where nothing is written while a member runs the last one
    /// that holds a shard's keys saves them when it is stopped.
    pub has_volumes: bool,
    /// When every copy of a shard is gone for good, its slots are given to the shard's new, empty members instead of waiting for a
    /// person. True for clusters that were never asked to keep anything (no volume or no persistence).
    pub adopt_lost_slots: bool,
    /// Whoever is restarted would not start: the Secret that each new pod needs is not there, or of no use.
    pub lacks_secret: bool,
    /// Why no new slot moves; what is half moved is finished.
    pub hold: Option<Hold>,
    /// Whether a person approves each hand-over of a rolling restart.
    pub approval: Approval,
    /// A failover that somebody asked for.
    pub failover: Option<FailoverRequest>,
    /// Primaries are spread over sites.
    pub spread: bool,
    /// Shards whose primary a person has placed: it stays there, wherever that is.
    pub placed_by_hand: BTreeSet<u16>,
}

impl Desired {
    /// Members of each shard.
    #[must_use]
    pub fn members_per_shard(&self) -> u16 {
        self.replicas.saturating_add(1)
    }

    /// A Redis Cluster of this size with everything else at its plainest.
    #[must_use]
    pub fn cluster(shards: u16, replicas: u16) -> Self {
        Self {
            mode: Mode::Cluster,
            shards,
            replicas,
            node_timeout_millis: 5_000,
            restart_keeps_data: true,
            keeps_each_write: true,
            has_volumes: true,
            adopt_lost_slots: false,
            lacks_secret: false,
            hold: None,
            approval: Approval::Automatic,
            failover: None,
            spread: true,
            placed_by_hand: BTreeSet::new(),
        }
    }
}

/// The kinds of deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// 16384 hash slots over the shards.
    Cluster,
    /// One server without slots.
    Standalone,
}

/// Why no new slot moves.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hold {
    /// A person wants it so: `spec.migration.paused`.
    Paused,
    /// A backup has not ended: a key that moved meanwhile could be in none of its files, or in two.
    Backup {
        /// Its name.
        name: String,
    },
}

/// Whether a person approves each hand-over of a rolling restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Approval {
    /// Nobody is asked.
    Automatic,
    /// Only the primaries of these shards may be handed over and restarted.
    Supervised {
        /// Shards a person approved.
        approved: BTreeSet<u16>,
    },
}

impl Approval {
    /// Whether the primary of this shard may be restarted.
    #[must_use]
    pub fn covers(&self, shard: u16) -> bool {
        match self {
            Self::Automatic => true,
            Self::Supervised { approved } => approved.contains(&shard),
        }
    }
}

/// A failover that somebody asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailoverRequest {
    /// Shard index.
    pub shard: u16,
    /// The primary at the time of the request: the request is done when the shard's slots are owned by another member.
    pub from: NodeId,
    /// Ordinal of the member to promote; absent: of the synced replicas at the site with the fewest primaries the one
    /// with the least lag.
    pub candidate: Option<u16>,
    /// How.
    pub how: FailoverHow,
    /// With [`FailoverHow::Force`]: a copy that is not whole may be promoted although a better one may come back, and without votes where
    /// too few primaries answer.
    pub accept_data_loss: bool,
}

/// How the primary role moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailoverHow {
    /// The old primary holds writes until the replica has caught up.
    Coordinated,
    /// Without the old primary, with the votes of a majority.
    Force,
    /// Without the old primary and without votes: those who would have to vote are gone. Nobody asks for it by name.
    Takeover,
}

/// How much one batch may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Slots of one [`crate::Step::Move`]. Bounds the time until the next look at the cluster.
    pub slots_per_move: u16,
    /// Moves that run at the same time, each with its own two primaries.
    pub moves_at_once: u16,
    /// Shards whose pods are restarted, released or failed over at the same time on purpose.
    pub disturbed_shards: u16,
    /// MEET commands of one batch. Above it the members hear of each other by gossip.
    pub meets: u16,
    /// `cluster-node-timeout` while an empty cluster is being created: Redis lets a primary rejoin only after
    /// clamp(node timeout, 500 ms, 5 s), and 500 is the least it accepts there.
    pub bootstrap_node_timeout_millis: u64,
    /// A replica further behind than this is not handed the primary role on purpose.
    pub lag_bytes: u64,
    /// A copy counts as whole while its primary is known to have lived no longer than this without it. Redis tells the age of a lost
    /// link in whole seconds.
    pub missed_millis: u64,
    /// … and while it said no more than this beyond the copy, in bytes: what may be on its way at any moment.
    pub missed_bytes: u64,
    /// A target of a move that has less room than this takes no more keys, in bytes: as much as goes over in one exchange.
    pub room_bytes: u64,
    /// A replica that has not answered for less than this is waited for before another is promoted: it may have more.
    pub unseen_millis: u64,
    /// A failover that was asked for is not asked for again before this time: a manual failover expires by itself after 5 s. (How long
    /// the shard rests after an election depends on its node timeout.)
    pub failover_patience_millis: u64,
    /// Two members that have been introduced are not introduced again before this time: so long Redis tries at least (a handshake lives
    /// for the node timeout, and a second if that is shorter). Each time it was in vain the wait doubles …
    pub meet_again_millis: u64,
    /// … up to this: what is wrong then is not mended by introductions, and they must not be what keeps the nodes busy.
    pub meet_again_most_millis: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            slots_per_move: 256,
            moves_at_once: 4,
            disturbed_shards: 1,
            meets: 512,
            bootstrap_node_timeout_millis: 500,
            lag_bytes: 1 << 20,
            missed_millis: 3_000,
            missed_bytes: 64 << 10,
            room_bytes: 256 << 10,
            unseen_millis: 3_000,
            failover_patience_millis: 6_000,
            meet_again_millis: 1_000,
            meet_again_most_millis: 15_000,
        }
    }
}
