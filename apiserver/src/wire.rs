//! Everything that goes over the wire: status bodies, response bodies, negotiation, documents computed from the registry.

pub mod body;
pub mod status;
