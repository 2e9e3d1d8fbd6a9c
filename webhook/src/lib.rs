//! The admission webhook of redis.kun.io: AdmissionReview in, a verdict out.
//!
//! `decide` is the whole of it and pure; around it stand `review` (the wire form), `gather` (watches that keep the facts
//! in memory, so that hardly any request waits for an API call), `rights` (the one call there is: may its author reach what
//! a request names) and `serve` (a thin TLS server). It must not know how objects
//! are stored and never talks to Redis. What must hold always is in `types::validate` and enforced by the API server
//! itself; what depends on measurements, on other objects or on a policy is decided here.

pub mod decide;
pub mod facts;
mod gather;
mod lean;
mod metrics;
pub mod review;
pub mod rights;
pub mod serve;

pub use decide::decide;
pub use facts::Facts;
pub use gather::Gathered;
pub use review::{Author, Operation, Request, Stage, Subject, Target};
pub use rights::Rights;
pub use serve::{Callers, Judge, Options, run, serve};
