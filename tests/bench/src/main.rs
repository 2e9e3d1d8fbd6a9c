//! `make bench`: our figures beside a reference of the same run, one JSON line each, and a table at the end.
#![allow(clippy::print_stdout, reason = "the table is what the program is for")]
#![allow(clippy::indexing_slicing, reason = "indexing a JSON value yields null where something is absent")]

mod abuse;
mod aggregated;
mod api;
mod backup;
mod controller;
mod create;
mod echo;
mod failover;
mod http;
mod install;
mod introductions;
mod kubernetes;
mod machine;
mod members;
mod moves;
mod noise;
mod prober;
mod redis;
mod refused;
mod report;
mod reshard;
mod webhook;

use std::{net::SocketAddr, path::PathBuf, process::ExitCode};

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};

/// The same allocator as the measured kun: a ratio must not be one of allocators.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Part>,
    /// Which measurements to make; all if none is named.
    #[arg(long = "only", value_delimiter = ',')]
    only: Vec<String>,
    /// Fewer objects: for a look, not for a figure.
    #[arg(long)]
    quick: bool,
}

#[derive(Subcommand)]
enum Part {
    /// The reference server of the webhook's figures.
    Echo {
        /// Where to listen.
        listen: SocketAddr,
        /// Folder `pki` of a standalone's data directory.
        pki: PathBuf,
    },
}

/// The measurements, in the order in which they are made.
const ALL: [&str; 14] = [
    "abuse",
    "create",
    "introductions",
    "reshard",
    "failover",
    "moves",
    "refused",
    "backup",
    "webhook",
    "api",
    "kubernetes",
    "aggregated",
    "controller",
    "install",
];

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match &arguments.command {
        Some(Part::Echo { listen, pki }) => echo::serve(*listen, pki).await.map(|()| 0),
        None => measure(&arguments).await,
    };
    match result {
        Ok(0) => ExitCode::SUCCESS,
        Ok(missed) => {
            eprintln!("bench: {missed} bars are missed");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(arguments: &Arguments) -> Result<usize> {
    if let Some(unknown) = arguments.only.iter().find(|only| !ALL.contains(&only.as_str())) {
        bail!("there is no measurement {unknown:?}; there are {}", ALL.join(", "));
    }
    let mut report = report::Report::begin()?;
    for name in ALL {
        if !arguments.only.is_empty() && !arguments.only.iter().any(|only| only == name) {
            continue;
        }
        eprintln!("{name}");
        match name {
            "create" => create::run(&mut report).await?,
            "abuse" => abuse::run(&mut report).await?,
            "reshard" => reshard::run(&mut report).await?,
            "backup" => backup::run(&mut report, arguments.quick).await?,
            "webhook" => webhook::run(&mut report).await?,
            "failover" => failover::run(&mut report).await?,
            "moves" => moves::run(&mut report).await?,
            "refused" => refused::run(&mut report).await?,
            "kubernetes" => kubernetes::run(&mut report, arguments.quick).await?,
            "aggregated" => aggregated::run(&mut report).await?,
            "controller" => controller::run(&mut report, arguments.quick).await?,
            "install" => install::run(&mut report).await?,
            "introductions" => introductions::run(&mut report)?,
            _ => api::run(&mut report, arguments.quick).await?,
        }
    }
    let (table, missed) = report.table();
    println!("{table}");
    Ok(missed)
}
