//! How much a peer may say in answer to which command. Whoever has a pod's address may answer there, and a controller asks many at the same
//! time: what no honest server says is refused before it takes memory.

/// `CLUSTER NODES`, and what tells the same. A line has about 150 bytes; a thousand nodes, every slot a range of its own and every other one with a mark, are 1.5 MB.
pub const TABLE: usize = 2 << 20;
/// `INFO` of named sections. The statistics of each command have 60 KB, all others 6 KB, and each of a few replicas adds a line. `errorstats` is never asked
/// for: it has a line for each prefix of an error, and clients with scripts make them up, without a bound before Redis 7.2.5 or so.
pub const INFO: usize = 256 << 10;
/// `CLUSTER GETKEYSINSLOT`. A thousand names of 128 KB; names are seldom longer than a hundred bytes, and a slot whose names are not read never
/// moves.
pub const NAMES: usize = 128 << 20;
/// `FUNCTION LIST`: all names, or the code of one library. Code of more than a few hundred KB is a mistake, and a script of a client could load it.
pub const LIBRARIES: usize = 16 << 20;
/// `CONFIG GET`: lists of everything have 20 KB.
pub const SETTINGS: usize = 256 << 10;
/// `ROLE`, whose list has an entry for each replica, and answers of one line or number.
pub const WORD: usize = 64 << 10;

/// All answers to one pipeline of such commands: a thousand names, and what is asked beside them.
pub const PIPELINE: usize = 160 << 20;

/// The most bytes of an answer to the command of this name; `None`: it depends on data of users, and the connection's own limits hold.
#[must_use]
pub fn of(command: &str) -> Option<usize> {
    match command {
        "CLUSTER NODES" | "CLUSTER SLOTS" | "CLUSTER SHARDS" => Some(TABLE),
        "INFO" => Some(INFO),
        "CLUSTER GETKEYSINSLOT" => Some(NAMES),
        "CONFIG GET" => Some(SETTINGS),
        "FUNCTION LIST" => Some(LIBRARIES),
        "ROLE" | "PING" | "AUTH" | "DBSIZE" | "MIGRATE" | "WAIT" | "PUBLISH" | "MEMORY USAGE" | "CONFIG SET"
        | "FUNCTION LOAD" => Some(WORD),
        other => other.starts_with("CLUSTER ").then_some(WORD),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Command;

    #[test]
    fn what_the_controller_asks_has_a_budget_and_what_users_store_has_not() {
        let most = |words: &[&str]| of(Command::from_words(words).name());
        assert_eq!(most(&["cluster", "nodes"]), Some(TABLE));
        assert_eq!(most(&["INFO", "replication"]), Some(INFO));
        assert_eq!(most(&["CLUSTER", "GETKEYSINSLOT", "1", "1000"]), Some(NAMES));
        assert_eq!(most(&["CONFIG", "GET", "maxmemory"]), Some(SETTINGS));
        assert_eq!((most(&["FUNCTION", "LIST"]), most(&["function", "load", "#!lua"])), (Some(LIBRARIES), Some(WORD)));
        assert_eq!((most(&["DBSIZE"]), most(&["CLUSTER", "MYID"])), (Some(WORD), Some(WORD)));
        assert_eq!(most(&["GET", "k"]), None);
    }
}
