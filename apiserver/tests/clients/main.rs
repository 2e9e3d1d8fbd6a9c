//! Real clients over TLS: kubectl and kube-rs against the whole server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

#[path = "../../store/tests/robust/clock.rs"]
mod clock;
mod kube_rs;
mod kubectl;
mod site;
