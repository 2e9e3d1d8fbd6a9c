//! Everything that goes over the wire: status bodies, response bodies, negotiation, documents computed from the registry.

pub mod answer;
pub mod body;
pub mod decode;
pub mod discovery;
pub mod encode;
pub mod etag;
pub mod negotiate;
pub mod openapi;
pub mod protobuf;
pub mod status;
pub mod table;
pub mod watch;
pub mod yaml;
