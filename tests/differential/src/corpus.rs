//! Scenarios as data: what a file of the corpus may say.
//!
//! It must not know what an answer should be: the oracle says that.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

use crate::settle::Settled;

/// All scenarios of one file.
#[derive(Clone, Debug)]
pub(crate) struct Family {
    /// Name of the file, without its ending.
    pub name: String,
    /// In the order of the file.
    pub scenarios: Vec<Scenario>,
}

/// Requests that depend on each other, in a namespace of their own.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scenario {
    /// What it is about.
    pub name: String,
    /// In this order.
    pub steps: Vec<Step>,
}

/// One request. Texts may hold `${name}` for a captured value and `${name+1}` for a captured number and some more.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Step {
    /// Verb of HTTP; GET if absent.
    pub method: Option<String>,
    /// Path; `${clusters}` and `${policies}` are the collections of the scenario.
    pub path: String,
    /// Parameters.
    pub query: BTreeMap<String, String>,
    /// Headers besides the usual ones; null takes one of those away.
    pub headers: BTreeMap<String, Option<String>>,
    /// The object that the body starts from: one of `objects.json`, or one that an earlier step saved.
    pub object: Option<String>,
    /// The body; with `object`, a merge patch of it.
    pub body: Option<Value>,
    /// The body as text.
    pub text: Option<String>,
    /// Values to remember from the answer: name to JSON pointer.
    pub capture: BTreeMap<String, String>,
    /// Name under which the answer's body is remembered.
    pub save: Option<String>,
    /// The request is a watch.
    pub watch: Option<Watch>,
    /// Only the code of the answer is compared: who else writes this object, and when, is chance.
    pub code_only: bool,
    /// Before the request, what was written so far is to count in admission.
    pub settled: Option<Settled>,
    /// The request, which changes nothing, is repeated until its answer has this code, or nothing takes that long.
    pub until: Option<u16>,
}

/// What happens while a watch is open, and how much of it is read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Watch {
    /// Events after which reading may end; absent: the server ends the stream.
    pub events: Option<usize>,
    /// Requests made once the headers of the watch are there.
    pub during: Vec<Step>,
    /// Every bookmark is an event. Otherwise only the one that ends the initial events: when the others come is chance.
    pub bookmarks: bool,
}

/// Objects that bodies start from, by name.
pub(crate) type Objects = BTreeMap<String, Value>;

/// Reads every family of a folder, by name, and `objects.json` beside them.
pub(crate) fn read(folder: &Path) -> Result<(Vec<Family>, Objects)> {
    let mut families = Vec::new();
    let mut objects = Objects::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let text = fs::read_to_string(&path)?;
        let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_owned();
        let place = || format!("read {}", path.display());
        if name == "objects" {
            objects = serde_json::from_str(&text).with_context(place)?;
        } else {
            families.push(Family { name, scenarios: serde_json::from_str(&text).with_context(place)? });
        }
    }
    families.sort_by(|one, other| one.name.cmp(&other.name));
    Ok((families, objects))
}
