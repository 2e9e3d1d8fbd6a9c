//! The Redis wire: RESP2 frames, one connection, typed replies, key slots, and a small cluster-aware client.
//!
//! Shared by the controller, the agent and the tests. It must not know Kubernetes, our API kinds or any policy: it says
//! what Redis said. [`budget`], [`frame`], [`decode`], [`reply`] and [`slot`] are pure; [`connection`], [`cluster`] and [`bus`] do I/O.

pub mod budget;
pub mod bus;
pub mod cluster;
pub mod connection;
pub mod decode;
pub mod frame;
pub mod info;
pub mod nodes;
pub mod reply;
pub mod slot;

pub use cluster::{ClusterClient, Outcome};
pub use connection::{Connection, Credentials, Error, Options};
pub use frame::{Command, Limits, Reply};
pub use info::{AppendOnlyFile, ClusterInfo, Info, ReplicaLine, Vendor};
pub use nodes::{Node, NodeId, SlotRange};
pub use reply::{ErrorKind, ErrorReply, Link, Role};
