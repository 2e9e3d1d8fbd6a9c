//! `INFO` and `CLUSTER INFO`. Pure.

use std::collections::BTreeMap;

use crate::reply::Error;

/// Fields that are kept: many times what any server has. Whoever has a pod's address may answer there, and a field takes ten times its bytes.
const MOST_FIELDS: usize = 4_000;

/// The fields of `INFO`, of whichever sections were asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Info {
    fields: BTreeMap<String, String>,
}

impl Info {
    /// Reads `name:value` lines; headings and empty lines are skipped. Never fails: what is not there is asked for later.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let fields = text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| line.trim_end().split_once(':'))
            .take(MOST_FIELDS)
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        Self { fields }
    }

    /// A field as text.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }

    /// A field as an integer.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<i64> {
        self.get(name)?.parse().ok()
    }

    /// A field as a number with a fraction.
    #[must_use]
    pub fn fraction(&self, name: &str) -> Option<f64> {
        self.get(name)?.parse().ok()
    }

    /// A field that is 0 or 1.
    #[must_use]
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.number(name).map(|value| value != 0)
    }

    /// All fields.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Whose server it is. Valkey says so; Redis says nothing of it.
    #[must_use]
    pub fn vendor(&self) -> Vendor {
        if self.get("server_name") == Some("valkey") { Vendor::Valkey } else { Vendor::Redis }
    }

    /// The server's own version. What Valkey gives as `redis_version` is the one it is compatible with.
    #[must_use]
    pub fn version(&self) -> Option<&str> {
        self.get(match self.vendor() {
            Vendor::Redis => "redis_version",
            Vendor::Valkey => "valkey_version",
        })
    }

    /// Keys of all databases, from the section Keyspace (`db0:keys=3,expires=0,avg_ttl=0`): those that have none are not listed.
    #[must_use]
    pub fn keys(&self) -> i64 {
        let is_database = |name: &str| name.strip_prefix("db").is_some_and(|number| number.parse::<u32>().is_ok());
        let databases = self.iter().filter(|(name, _)| is_database(name));
        let keys = databases.filter_map(|(_, text)| text.split(',').find_map(|pair| pair.strip_prefix("keys=")));
        keys.filter_map(|count| count.parse().ok()).fold(0, i64::saturating_add)
    }

    /// What a restart would find in the append-only file, from the section Persistence.
    #[must_use]
    pub fn append_only_file(&self) -> AppendOnlyFile {
        let fails = |name: &str| self.get(name) == Some("err");
        let rewrites = self.rewrites_its_log();
        if self.flag("aof_enabled") != Some(true) {
            AppendOnlyFile::Off
        } else if fails("aof_last_write_status") || (rewrites && fails("aof_last_bgrewrite_status")) {
            AppendOnlyFile::Failed
        } else if rewrites {
            AppendOnlyFile::Rewriting
        } else {
            AppendOnlyFile::Current
        }
    }

    /// Whether its append-only file is written anew, or is about to be (`aof_rewrite_scheduled` stays set until the child runs).
    #[must_use]
    pub fn rewrites_its_log(&self) -> bool {
        let is_set = |name: &str| self.flag(name) == Some(true);
        is_set("aof_enabled") && (is_set("aof_rewrite_in_progress") || is_set("aof_rewrite_scheduled"))
    }

    /// The lines `slave0:ip=…,port=…,state=online,offset=…,lag=0` of the section Replication.
    #[must_use]
    pub fn replicas(&self) -> Vec<ReplicaLine> {
        let count = self.number("connected_slaves").unwrap_or_default().clamp(0, MAX_REPLICAS);
        (0..count).filter_map(|index| ReplicaLine::parse(self.get(&format!("slave{index}"))?)).collect()
    }
}

/// Whose server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    /// Redis.
    Redis,
    /// Valkey.
    Valkey,
}

/// What the append-only file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendOnlyFile {
    /// It is not switched on.
    Off,
    /// What was accepted is in no file. Redis could not write it (`EverySec`, on a full disk), or not write a file anew that may be the first that
    /// counts: to that nothing is written between two attempts, while every write is accepted.
    Failed,
    /// It is written anew, or is about to be. After a full synchronisation, and after it was switched on, the former files count until that is done
    /// (`AOF_WAIT_REWRITE`); INFO does not tell that from any other rewrite.
    Rewriting,
    /// What is in memory. A rewrite that failed leaves a file that counts, or is scheduled again.
    Current,
}

/// What a field of INFO that has several values says by their names, as `calls=7,usec=1`.
#[must_use]
pub fn fields(text: &str) -> BTreeMap<&str, &str> {
    text.split(',').filter_map(|pair| pair.split_once('=')).collect()
}

/// Most replica lines that are read; a shard has a handful.
const MAX_REPLICAS: i64 = 64;

/// A replica as `INFO replication` of its primary shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaLine {
    /// Address, as the replica announced it.
    pub host: String,
    /// Port.
    pub port: u16,
    /// `online`, `wait_bgsave` or `send_bulk`.
    pub state: String,
    /// Acknowledged offset.
    pub offset: i64,
    /// Seconds since the last acknowledgement.
    pub lag: i64,
}

impl ReplicaLine {
    fn parse(text: &str) -> Option<Self> {
        let fields = fields(text);
        Some(Self {
            host: (*fields.get("ip")?).to_owned(),
            port: fields.get("port")?.parse().ok()?,
            state: (*fields.get("state")?).to_owned(),
            offset: fields.get("offset")?.parse().ok()?,
            lag: fields.get("lag")?.parse().ok()?,
        })
    }
}

/// The reply of `CLUSTER INFO`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterInfo {
    /// cluster_state is ok, in this node's own view.
    pub ok: bool,
    /// cluster_slots_assigned
    pub slots_assigned: u32,
    /// cluster_slots_ok
    pub slots_ok: u32,
    /// cluster_slots_pfail
    pub slots_suspected: u32,
    /// cluster_slots_fail
    pub slots_failed: u32,
    /// cluster_known_nodes
    pub known_nodes: u32,
    /// cluster_size: primaries with slots.
    pub size: u32,
    /// cluster_current_epoch
    pub current_epoch: u64,
    /// cluster_my_epoch
    pub my_epoch: u64,
}

impl ClusterInfo {
    /// Reads the reply of `CLUSTER INFO`.
    ///
    /// # Errors
    /// When a field is missing or not a number.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let info = Info::parse(text);
        fn field<N: std::str::FromStr>(info: &Info, name: &str) -> Result<N, Error> {
            info.get(name)
                .and_then(|value| value.parse().ok())
                .ok_or_else(|| Error::new("CLUSTER INFO", format!("{name} is missing or not a number")))
        }
        let state = info.get("cluster_state").ok_or_else(|| Error::new("CLUSTER INFO", "no cluster_state"))?;
        Ok(Self {
            ok: state == "ok",
            slots_assigned: field(&info, "cluster_slots_assigned")?,
            slots_ok: field(&info, "cluster_slots_ok")?,
            slots_suspected: field(&info, "cluster_slots_pfail")?,
            slots_failed: field(&info, "cluster_slots_fail")?,
            known_nodes: field(&info, "cluster_known_nodes")?,
            size: field(&info, "cluster_size")?,
            current_epoch: field(&info, "cluster_current_epoch")?,
            my_epoch: field(&info, "cluster_my_epoch")?,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    #[test]
    fn a_server_tells_its_own_version_and_not_the_one_it_is_compatible_with() {
        let told = |text: &str| {
            let info = Info::parse(text);
            (info.vendor(), info.version().map(str::to_owned))
        };
        assert_eq!(told("redis_version:7.0.15\r\n"), (Vendor::Redis, Some("7.0.15".to_owned())));
        // As Valkey 8.1 and 9.1 say it.
        let valkey = "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\n";
        assert_eq!(told(valkey), (Vendor::Valkey, Some("9.1.2".to_owned())));
        assert_eq!(told("redis_version:7.2.4\r\nserver_name:valkey\r\n"), (Vendor::Valkey, None));
        assert_eq!(told(""), (Vendor::Redis, None));
    }

    #[test]
    fn sections_are_flattened_and_numbers_are_read() {
        let info = Info::parse(
            "# Replication\r\nrole:master\r\nconnected_slaves:1\r\n\
             slave0:ip=127.0.0.2,port=6379,state=online,offset=14,lag=1\r\nloading:0\r\n\r\n\
             # Keyspace\r\ndb0:keys=3,expires=1,avg_ttl=0\r\ndb15:keys=2,expires=0\r\nmem_fragmentation_ratio:1.25\r\n",
        );
        assert_eq!(info.get("role"), Some("master"));
        assert_eq!(info.flag("loading"), Some(false));
        assert_eq!(info.number("absent"), None);
        assert_eq!(info.fraction("mem_fragmentation_ratio"), Some(1.25));
        assert_eq!(info.keys(), 5, "of all databases");
        assert_eq!(
            info.replicas(),
            vec![ReplicaLine { host: "127.0.0.2".into(), port: 6379, state: "online".into(), offset: 14, lag: 1 }]
        );
        assert_eq!(Info::parse("nonsense").keys(), 0);
        let many: String = (0..MOST_FIELDS + 9).map(|number| format!("f{number}:1\n")).collect();
        assert_eq!(Info::parse(&many).iter().count(), MOST_FIELDS);
    }

    #[test]
    fn a_file_that_is_written_anew_or_about_to_be_is_not_current() {
        let told = |written: &str, rewritten: &str| {
            [(1, 0, 0), (1, 1, 0), (1, 0, 1), (0, 0, 0), (0, 1, 1)].map(|(enabled, running, scheduled)| {
                let text = format!(
                    "aof_enabled:{enabled}\naof_rewrite_in_progress:{running}\naof_rewrite_scheduled:{scheduled}\n\
                     aof_last_write_status:{written}\naof_last_bgrewrite_status:{rewritten}\n"
                );
                Info::parse(&text).append_only_file()
            })
        };
        use AppendOnlyFile::{Current, Failed, Off, Rewriting};
        assert_eq!(told("ok", "ok"), [Current, Rewriting, Rewriting, Off, Off]);
        // A first file that failed is scheduled again; of a usual one the file of before goes on.
        assert_eq!(told("ok", "err"), [Current, Failed, Failed, Off, Off]);
        assert_eq!([told("err", "ok"), told("err", "err")], [[Failed, Failed, Failed, Off, Off]; 2]);
        assert_eq!(Info::default().append_only_file(), Off);
    }

    #[test]
    fn cluster_info_needs_every_field() {
        let text = "cluster_state:ok\r\ncluster_slots_assigned:16384\r\ncluster_slots_ok:16384\r\n\
            cluster_slots_pfail:0\r\ncluster_slots_fail:0\r\ncluster_known_nodes:6\r\ncluster_size:3\r\n\
            cluster_current_epoch:6\r\ncluster_my_epoch:2\r\ncluster_stats_messages_sent:1\r\n";
        assert_eq!(
            ClusterInfo::parse(text),
            Ok(ClusterInfo {
                ok: true,
                slots_assigned: 16384,
                slots_ok: 16384,
                slots_suspected: 0,
                slots_failed: 0,
                known_nodes: 6,
                size: 3,
                current_epoch: 6,
                my_epoch: 2
            })
        );
        assert!(ClusterInfo::parse(&text.replace("cluster_size:3", "")).is_err());
        assert!(ClusterInfo::parse("").is_err());
    }
}
