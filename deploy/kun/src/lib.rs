//! The one binary of KUN, as a library: the roles of a standalone installation and the node that runs pods as processes.

pub mod agent;
pub mod cli;
pub mod cluster;
pub mod ctl;
pub mod install;
pub mod keeping;
pub mod launch;
pub mod log;
pub mod node;
pub mod standalone;
mod trail;
