//! `make bench`: our figures beside a reference of the same run, one JSON line each, and a table at the end.
#![allow(clippy::print_stdout, reason = "the table is what the program is for")]
#![allow(clippy::indexing_slicing, reason = "indexing a JSON value yields null where something is absent")]

mod api;
mod echo;
mod failover;
mod http;
mod machine;
mod redis;
mod report;
mod reshard;

use std::{net::SocketAddr, path::PathBuf, process::ExitCode};

use anyhow::Result;
use clap::{Parser, Subcommand};

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
        /// Folder with tls.crt and tls.key.
        folder: PathBuf,
    },
}

/// The measurements, in the order in which they are made.
const ALL: [&str; 3] = ["reshard", "failover", "api"];

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match &arguments.command {
        Some(Part::Echo { listen, folder }) => echo::serve(*listen, folder).await.map(|()| 0),
        None => measure(&arguments).await,
    };
    match result {
        Ok(0) => ExitCode::SUCCESS,
        Ok(missed) => {
            println!("{missed} bars were missed");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(arguments: &Arguments) -> Result<usize> {
    let mut report = report::Report::begin()?;
    for name in ALL {
        if !arguments.only.is_empty() && !arguments.only.iter().any(|only| only == name) {
            continue;
        }
        eprintln!("{name}");
        match name {
            "reshard" => reshard::run(&mut report).await?,
            "failover" => failover::run(&mut report).await?,
            _ => api::run(&mut report, arguments.quick).await?,
        }
    }
    let (table, missed) = report.table();
    println!("{table}");
    Ok(missed)
}
