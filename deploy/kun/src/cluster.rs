//! The parts of KUN in a Kubernetes cluster, each a process of its own that is told nothing but how to reach the
//! kube-apiserver, and what the chart says. None of them knows how the others run.

pub mod apiserver;
pub mod certs;
mod client;
pub mod controller;
mod observe;
mod ring;
pub mod webhook;
