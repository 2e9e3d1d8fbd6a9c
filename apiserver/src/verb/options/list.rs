//! Options of lists and watches.

use super::{flag, number, refuse, version};
use crate::{
    error::{Cause, Error, Result},
    request::Call,
};

/// The parameter that says how a resourceVersion is read.
const MATCH: &str = "resourceVersionMatch";

/// How a list's resourceVersion is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// Exactly then.
    Exact,
    /// Then or later.
    NotOlderThan,
}

/// Options of list and watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// `resourceVersion`; absent: at least as new as every acknowledged write.
    pub version: Option<u64>,
    /// How it is read.
    pub version_match: Option<Match>,
    /// Most items of one page; absent: all.
    pub limit: Option<usize>,
    /// Token of the page before.
    pub continue_token: Option<String>,
    /// A watch begins with the present state.
    pub initial_events: Option<bool>,
    /// A watch gets bookmarks.
    pub bookmarks: bool,
    /// Seconds a watch may last; 0: it is over at once.
    pub timeout: Option<u64>,
}

impl ListOptions {
    /// Reads the query of a list.
    pub fn list(call: &Call) -> Result<Self> {
        let options = Self::read(call).map_err(|error| match error {
            Error::Unmergeable(text) => Error::bad_request(format!("invalid resource version: {text}")),
            other => other,
        })?;
        let mut causes = Vec::new();
        let forbidden = |field: &str, detail: &str| Cause::forbidden(field, detail);
        if let Some(given) = call.query.get(MATCH).filter(|text| !text.is_empty()) {
            if options.version.is_none() {
                causes.push(forbidden(MATCH, "resourceVersionMatch is forbidden unless resourceVersion is provided"));
            }
            if options.continue_token.is_some() {
                causes.push(forbidden(MATCH, "resourceVersionMatch is forbidden when continue is provided"));
            }
            if options.version_match.is_none() {
                causes.push(Cause::not_supported(MATCH, given, &["Exact", "NotOlderThan", ""]));
            }
            if options.version_match == Some(Match::Exact) && options.version == Some(0) {
                let detail = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                causes.push(forbidden(MATCH, detail));
            }
        }
        if options.initial_events.is_some() {
            causes.push(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
        }
        refuse("ListOptions", causes)?;
        if options.continue_token.is_some() && options.version.is_some_and(|version| version > 0) {
            return Err(Error::bad_request("specifying resource version is not allowed when using continue"));
        }
        Ok(options)
    }

    /// Reads the query of a watch.
    pub fn watch(call: &Call) -> Result<Self> {
        let options = Self::read(call)?;
        let given = call.query.get(MATCH).filter(|text| !text.is_empty());
        let mut causes = Vec::new();
        let mut forbidden = |detail: &str| causes.push(Cause::forbidden(MATCH, detail));
        if options.initial_events.is_some() && options.version_match != Some(Match::NotOlderThan) {
            forbidden("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
        }
        if given.is_some() && options.initial_events.is_none() {
            forbidden("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided");
        }
        // A watch that begins with the present state counts as one that says NotOlderThan.
        let begins_with_state = options.initial_events.is_none() && matches!(options.version, None | Some(0));
        if (given.is_some() || begins_with_state) && options.continue_token.is_some() {
            forbidden("resourceVersionMatch is forbidden when continue is provided");
        }
        if let Some(odd) = given.filter(|_| options.version_match != Some(Match::NotOlderThan)) {
            causes.push(Cause::not_supported(MATCH, odd, &["NotOlderThan"]));
        }
        refuse("ListOptions", causes)?;
        Ok(options)
    }

    fn read(call: &Call) -> Result<Self> {
        let query = &call.query;
        let version_match = match query.get(MATCH) {
            Some("Exact") => Some(Match::Exact),
            Some("NotOlderThan") => Some(Match::NotOlderThan),
            Some(_) | None => None,
        };
        Ok(Self {
            version: version(query.get("resourceVersion"))?,
            version_match,
            limit: number(query, "limit")?.filter(|limit| *limit > 0).and_then(|limit| usize::try_from(limit).ok()),
            continue_token: query.get("continue").filter(|token| !token.is_empty()).map(str::to_owned),
            initial_events: flag(query, "sendInitialEvents")?,
            bookmarks: flag(query, "allowWatchBookmarks")?.unwrap_or(false),
            // Less than nothing is over at once, as in Kubernetes.
            timeout: number(query, "timeoutSeconds")?
                .filter(|seconds| *seconds != 0)
                .map(|seconds| u64::try_from(seconds).unwrap_or(0)),
        })
    }
}
