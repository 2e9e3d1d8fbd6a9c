//! How a pod's process starts: directory and address once, the node's name, volumes and environment each time, then the
//! process itself, recorded before it runs.

use std::sync::Arc;

use jiff::Timestamp;

use super::Worker;
use crate::log::chain;
use crate::node::machine::Waiting;
use crate::node::prepare::{self, Prepared};
use crate::node::process;
use crate::node::record::Record;
use crate::node::{project, report};

impl Worker {
    pub(super) async fn try_start(&mut self) -> Result<(), Waiting> {
        let failed = |error: &dyn std::error::Error| prepare::refuse("CreateContainerError", chain(error));
        self.enter()?;
        self.bind().await?;
        let prepared = self.prepare()?;
        let log = self.directory.join("log");
        // The message of the process before is not the message of this one.
        let _ = std::fs::remove_file(self.directory.join("termination-log"));
        let held = process::spawn(&process::Start {
            launcher: &self.node.machinery.own_program,
            program: &prepared.command.program,
            args: &prepared.command.args,
            env: &prepared.command.env,
            work: &prepared.command.work,
            log: &log,
        })
        .map_err(|error| failed(&error))?;
        if let Some(record) = &mut self.record {
            record.process = Some(held.id().clone());
            record.started_at = Some(Timestamp::now());
            record.restarts = self.machine.restarts;
            record.write(&self.directory).map_err(|error| failed(&error))?;
        }
        self.prepared = Some(prepared);
        // Even if the word cannot be given there is a process now; its end will be seen like any other.
        self.process = Some(held.release().await.map_err(|error| failed(&error))?);
        Ok(())
    }

    /// Gives the pod its directory and its address, once.
    fn enter(&mut self) -> Result<(), Waiting> {
        let failed = |error: &dyn std::error::Error| prepare::refuse("CreatePodSandboxError", chain(error));
        let container = prepare::check_shape(&self.pod)?;
        if self.record.is_some() {
            return Ok(());
        }
        let ports: Vec<u16> =
            container.ports.iter().flatten().filter_map(|port| u16::try_from(port.container_port).ok()).collect();
        project::directory(&self.directory).map_err(|error| failed(&error))?;
        project::directory(&self.places.run).map_err(|error| failed(&error))?;
        let address = self.node.pool.take(&ports).map_err(|error| failed(&error))?;
        let meta = &self.pod.metadata;
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let record = Record::new(&text(&meta.namespace), &text(&meta.name), &text(&meta.uid), address);
        record.write(&self.directory).map_err(|error| failed(&error))?;
        self.record = Some(record);
        Ok(())
    }

    /// Says in the pod that it runs here. A pod that runs nowhere is deleted at once, without a grace period.
    async fn bind(&mut self) -> Result<(), Waiting> {
        let bound = self.pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        if bound.is_some_and(|name| !name.is_empty()) {
            return Ok(());
        }
        let bound = report::bind(&self.node.client, &self.pod, &self.node.machinery.name).await;
        let pod = bound.map_err(|error| prepare::refuse("ContainerCreating", chain(&error)))?;
        self.pod = Arc::new(pod);
        Ok(())
    }

    pub(super) fn prepare(&self) -> Result<Prepared, Waiting> {
        let address = self.record.as_ref().map(|record| record.address);
        let address =
            address.ok_or_else(|| prepare::refuse("CreatePodSandboxError", "the pod has no address".to_owned()))?;
        prepare::prepare(&self.node, &self.pod, &self.places, address)
    }
}
