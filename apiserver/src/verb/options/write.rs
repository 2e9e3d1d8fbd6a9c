//! Options of create, update, patch and apply.

use serde_json::{Value, json};

use super::{dry_run, flag, refuse};
use crate::{
    error::{Cause, Result},
    object::managed,
    request::Context,
};

/// What unknown and duplicate fields cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValidation {
    /// Nothing.
    Ignore,
    /// A warning.
    Warn,
    /// A refusal.
    Strict,
}

/// Options of create, update and patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteOptions {
    /// Do everything but store.
    pub dry_run: bool,
    /// What unknown and duplicate fields cause.
    pub validation: FieldValidation,
    /// Who makes the change.
    pub manager: String,
    /// Take fields from their owners; only of an apply.
    pub force: bool,
}

impl WriteOptions {
    /// Reads the query. `kind` is the name of the options in messages: `CreateOptions`, `UpdateOptions`, `PatchOptions`.
    pub fn parse(context: &Context, kind: &str) -> Result<Self> {
        Self::read(context, kind, false)
    }

    /// Reads the query of an apply: it must name its manager, and may take fields from others.
    pub fn parse_apply(context: &Context) -> Result<Self> {
        Self::read(context, "PatchOptions", true)
    }

    fn read(context: &Context, kind: &str, is_apply: bool) -> Result<Self> {
        let query = &context.call.query;
        let mut causes = Vec::new();
        let dry_run = dry_run(query.all("dryRun"), &mut causes);
        let validation = match query.get("fieldValidation") {
            None | Some("" | "Warn") => FieldValidation::Warn,
            Some("Ignore") => FieldValidation::Ignore,
            Some("Strict") => FieldValidation::Strict,
            Some(other) => {
                causes.push(Cause::not_supported("fieldValidation", other, &["", "Ignore", "Strict", "Warn"]));
                FieldValidation::Warn
            }
        };
        let manager = query.get("fieldManager").unwrap_or_default();
        managed::manager(manager, "fieldManager", &mut causes);
        if is_apply && manager.is_empty() {
            causes.push(Cause::required("fieldManager", "is required for apply patch"));
        }
        // Other options than those of a patch do not know the parameter.
        let force = if kind == "PatchOptions" { flag(query, "force")? } else { None };
        if !is_apply && force.is_some() {
            causes.push(Cause::forbidden("force", "may not be specified for non-apply patch"));
        }
        refuse(kind, causes)?;
        let manager = match manager {
            "" => context.user_agent.split('/').next().unwrap_or_default().chars().take(managed::MANAGER_MAX).collect(),
            given => given.to_owned(),
        };
        Ok(Self { dry_run, validation, manager, force: force.unwrap_or(false) })
    }

    /// As an options object for admission.
    #[must_use]
    pub fn object(&self, kind: &str) -> Value {
        let mut object = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
        if let Some(map) = object.as_object_mut() {
            if self.dry_run {
                map.insert("dryRun".into(), json!(["All"]));
            }
            if self.force {
                map.insert("force".into(), json!(true));
            }
            if !self.manager.is_empty() {
                map.insert("fieldManager".into(), json!(self.manager));
            }
            let validation = match self.validation {
                FieldValidation::Ignore => "Ignore",
                FieldValidation::Warn => "Warn",
                FieldValidation::Strict => "Strict",
            };
            map.insert("fieldValidation".into(), json!(validation));
        }
        object
    }
}
