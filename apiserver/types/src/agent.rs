//! What the controller and the agent tell each other: the agent's configuration file and its HTTP answers.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::backup::ArtifactStatus;
use crate::cluster::{AppendOnly, EvictionPolicy, Mode, SavePoint};

/// `agent.json` of the cluster's ConfigMap; the same for all members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AgentConfig {
    /// Namespace of the RedisCluster.
    pub namespace: String,
    /// Name of the RedisCluster.
    pub cluster: String,
    /// Cluster or Standalone.
    pub mode: Mode,
    /// cluster-node-timeout in milliseconds.
    pub node_timeout_millis: u64,
    /// min-replicas-to-write.
    pub min_replicas_to_write: u32,
    /// maxmemory in bytes; absent: `max_memory_percent` of the container's limit (`KUN_MEMORY_LIMIT`), if it has one.
    pub max_memory_bytes: Option<u64>,
    /// maxmemory in percent of the container's limit.
    pub max_memory_percent: u32,
    /// maxmemory-policy.
    pub max_memory_policy: EvictionPolicy,
    /// appendonly and appendfsync.
    pub append_only: AppendOnly,
    /// `save` lines.
    pub snapshots: Vec<SavePoint>,
    /// The user's redis.conf parameters, already validated.
    pub parameters: BTreeMap<String, String>,
}

/// Answer of `GET /v1/report`: what the agent knows about its Redis, also when Redis does not run. The controller asks for it, and the
/// cluster's other agents do before they send a password there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentReport {
    /// Pod name.
    pub pod: String,
    /// What the agent is doing.
    pub phase: AgentPhase,
    /// Why Redis is not started, as a sentence: in phase Held, and in phase Starting if only another image can help. In phase Stopping: why it is
    /// not ended.
    pub held_because: Option<String>,
    /// Node ID found in nodes.conf, if it is legible.
    pub node_id: Option<String>,
    /// Whether the data directory holds a data set (an RDB file or append-only files that are not empty).
    pub holds_data: bool,
    /// Restarts of redis-server seen by this agent process.
    pub starts: u32,
    /// Whose whole copy its volume last held, and how far that had come; absent: nobody's, or nothing is known of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy: Option<CopyReport>,
    /// The same of a primary in service: itself, and what is written durably on its volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serves: Option<CopyReport>,
    /// Why the parameters of `agent.json` are not in use, in the engine's words: it was asked and refused them. Those of before stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Whether that is the engine's answer, which its next start gets as well; `false`: it could not be asked yet. Absent: an agent of an
    /// earlier release, which does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<bool>,
    /// Parameters that are in use and of which the engine makes something else, with its words: what was asked for, and what is used.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub altered: BTreeMap<String, String>,
    /// What it has of the primary that it follows. Absent: it follows none, or is of an earlier release, which does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub following: Option<FollowReport>,
    /// Whether what lies on its volume lags behind what its Redis has in memory: it was sent everything anew, and its append-only file is not written
    /// yet. Absent: it has not looked, or is of an earlier release, which does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lags: Option<bool>,
    /// Parameters that the running server did not take, with its words.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub not_set: BTreeMap<String, String>,
    /// Where this member's node runs already, `ip:port`, by the word of the agent there: it is held for that, whatever the controller says.
    /// Absent: it is not known to run elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs_at: Option<String>,
    /// In phase Held: no release is taken now, for the reason of `heldBecause`; it goes on by itself once that is mended. Absent: one is taken, or
    /// the agent is of an earlier release, which does not tell.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub takes_no_release: bool,
    /// In phase Starting: what it waits for, for how long, and what comes then; once that takes long. Absent: it waits for nothing, or is of an
    /// earlier release, which does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// For how many milliseconds it has waited for its volume, which another pod's agent still uses. Absent: it does not wait for it, or is of an
    /// earlier release, which does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_in_use_millis: Option<u64>,
    /// Servers that ran in this pod and have ended. Empty: none has, or nothing is known of it, as after the machine was started anew, or the
    /// agent is of an earlier release, which does not tell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<EndReport>,
    /// What was lost as redis-server was last started with a copy that others were ahead of, or may have been. Absent: nothing is known to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<LossReport>,
}

/// The end of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndReport {
    /// Its node ID.
    pub node_id: String,
    /// How many milliseconds ago it ended, at least: where nobody saw it end, since the next agent was there.
    pub millis: u64,
}

/// Writes that a start has cost.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LossReport {
    /// When redis-server was started.
    pub at: Timestamp,
    /// With what, instead of what, and what that costs, as sentences of which the member is the subject.
    pub what: String,
}

/// What a replica has of its primary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FollowReport {
    /// Node ID of the primary.
    pub of: String,
    /// How many milliseconds ago it was last known to have everything that the primary had: what that one did since then it may lack.
    /// Absent: it has not been seen to have everything since this agent started, or since it began another copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_millis: Option<u64>,
    /// Why its agent does not let it stand for election. Absent: it may stand, or its agent is of an earlier release, which does not tell why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_back: Option<NotElectable>,
}

/// Why a replica is not to replace its primary by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NotElectable {
    /// It has not been seen to have everything, since its agent started or its copy was begun.
    NeverWhole,
    /// Its primary lived on beyond what it has.
    LeftBehind,
    /// It stood still, or saw no majority: how long its primary lived on it cannot know.
    WasAlone,
    /// Its copy was seen to be whole only when its primary counted as failed already.
    TooLate,
    /// Another node answers at the address of its primary, and what epoch it would ask for votes under may be that one's
    /// (`getNodeFromLinkAndMsg`): voters could grant it slots that have moved since.
    AddressTaken,
}

/// How far a primary's data set had come. It is counted, so that no clocks are compared: later ones are greater, also after the primary
/// was another member for a while, whose count was its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Beat {
    /// The primary's configuration epoch.
    pub epoch: u64,
    /// How often it was written down; continued from epoch to epoch.
    pub count: u64,
}

/// A data set, as it lies on a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CopyReport {
    /// Node ID of the primary.
    pub of: String,
    /// The last one that it had told while the link was up and the disk held what the memory held.
    pub beat: Beat,
}

/// What an agent is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AgentPhase {
    /// Preparing files.
    Starting,
    /// Refuses to start Redis until the controller says how (`POST /v1/release`).
    Held,
    /// redis-server runs.
    Running,
    /// Handing over and stopping.
    Stopping,
}

/// Body of `POST /v1/release`: the controller's word on a held member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Release {
    /// How to start.
    pub how: ReleaseHow,
}

/// How a held member starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReleaseHow {
    /// With the files as they are.
    AsIs,
    /// Its files are quarantined (renamed, kept); it starts as a blank node with a new identity.
    Blank,
}

/// What a backup worker (`kun agent backup`, `kun agent erase`) leaves in its termination message, as JSON:
/// `{"stored":{…}}`, `{"erased":{…}}` or `{"failed":{"message":…}}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum WorkerReport {
    /// The artifact is on disk, was read back and its checksum agreed.
    Stored {
        /// What was stored.
        artifact: ArtifactStatus,
        /// Version of the engine of the member it came from.
        engine_version: String,
    },
    /// No artifact of the backup is left at the target.
    Erased {
        /// Files deleted; none if there was nothing.
        files: u32,
        /// Files of others found in the backup's folder; they and the folder stay.
        left: u32,
    },
    /// Nothing under the artifact's name was stored, or an artifact may be left.
    Failed {
        /// Why, as a sentence.
        message: String,
    },
}
