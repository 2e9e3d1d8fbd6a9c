//! Topology planning as data: `plan(desired, observed, limits) → Plan`.
//!
//! Synchronous, total, no clock, no randomness, no I/O. It knows nothing of Kubernetes, of time or of sockets: time arrives inside
//! [`Observed`] as numbers, and everything it decides is a value that somebody else carries out, shows or tests.
//!
//! Words: a *shard* is the set of pods `<cluster>-<shard>-*`; its members are interchangeable in role. A shard's *lead* is the member
//! that owns, or shall own, the shard's slots. *Unknown* is not absent: nothing destructive follows from it.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod desired;
pub mod goal;
pub mod model;
pub mod observed;
pub mod plan;
pub mod preview;
pub mod serving;
pub mod sites;
pub mod slots;
pub mod step;

mod apart;
mod phase;
mod safety;
mod scene;
mod sentences;
mod twins;

pub use desired::{Approval, Desired, FailoverHow, FailoverRequest, Hold, Limits, Mode};
pub use observed::{
    Address, Disk, Gap, Health, Introduced, Member, Node, NodeId, Observed, Open, Peer, PeerRole, Pod, Role, Seen,
    Stands, Unused, Unwritten, has_arrived,
};
pub use phase::plan;
pub use plan::{Operation, Plan, Refused, Waiting};
pub use preview::{Preview, preview};
pub use sentences::Told;
pub use serving::{Serving, serving};
pub use sites::Site;
pub use slots::{SLOTS, SlotSet, key_slot};
pub use step::{Leaver, ReleaseHow, RestartAs, Step, Who};
