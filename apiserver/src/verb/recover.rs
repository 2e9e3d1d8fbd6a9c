//! POST on `recover`: an object that a store has lost, made anew as the same object: with the uid and generation that it had,
//! by which what was made for it is known. Everything else is as in any create. A generation from which nobody could count on is none
//! that an object had, and is refused.
//!
//! Where the store went back and holds an older state of it, the specification is brought to what is sent. Nothing else that
//! exists is ever changed.

use serde_json::{Value, json};

use super::{
    Answer, Work,
    change::{Change, Face, Part},
    create::{self, Identity},
    incoming,
    options::WriteOptions,
    update::named,
};
use crate::{
    admission::Operation,
    error::{Cause, Error, Result},
    object::meta,
    registry::Kind,
    route::Route,
};

/// Largest generation that is believed: whoever changed the object a million times a second would need 285 years for it. From the largest
/// number of all, which a mistyped record may hold, no change would be counted ever again; and beyond this one, clients that read numbers
/// as floating point ones take the next generation for the same.
const GENERATION_MAX: i64 = (1 << 53) - 1;

/// POST on `recover`. What is sent must tell the uid, and a generation from 1 to 2^53 - 1.
pub async fn recover(work: &Work<'_>, bytes: &[u8], content_type: &str) -> Result<Answer> {
    let options = WriteOptions::parse(work.context, "CreateOptions")?;
    let kind = work.route.kind;
    let sent = incoming::object(work, kind, bytes, content_type, options.validation)?;
    let lost = lost(kind, named(work.name()?, sent)?)?;
    // From here on it is about the object itself: this is what admission sees.
    let work = &Work { route: Route { subresource: None, ..work.route }, ..*work };
    match work.storage.live(kind, &work.key()?).await {
        Ok(_) => bring_forward(work, kind, &lost, options).await,
        Err(Error::NotFound { .. }) => make_anew(work, kind, lost, &options).await,
        Err(error) => Err(error),
    }
}

/// An object as somebody remembers it.
struct Lost {
    object: Value,
    uid: String,
    generation: i64,
}

/// What is sent must say which object it was.
fn lost(kind: &Kind, object: Value) -> Result<Lost> {
    let uid = meta::text(&object, "uid").to_owned();
    let generation = meta::get(&object, "generation").and_then(Value::as_i64).unwrap_or(0);
    let mut causes = Vec::new();
    if uid.is_empty() {
        causes.push(Cause::required("metadata.uid", "tell the uid that the object had"));
    } else if uuid::Uuid::try_parse(&uid).is_err() {
        causes.push(Cause::invalid("metadata.uid", &meta::quoted(&uid), "must be a UUID"));
    }
    causes.extend(generation_fault(generation));
    if causes.is_empty() {
        return Ok(Lost { object, uid, generation });
    }
    Err(Error::Invalid { kind: kind.qualified(), name: meta::text(&object, "name").to_owned(), causes })
}

/// A generation that no object had, or from which none could be counted on.
fn generation_fault(generation: i64) -> Option<Cause> {
    let detail = match generation {
        ..1 => "must be the generation that the object had, 1 at least".to_owned(),
        1..=GENERATION_MAX => return None,
        _ => format!("must be the generation that the object had, {GENERATION_MAX} at most"),
    };
    Some(Cause::invalid("metadata.generation", &generation, &detail))
}

async fn make_anew(work: &Work<'_>, kind: &Kind, lost: Lost, options: &WriteOptions) -> Result<Answer> {
    let Lost { object, uid, generation } = lost;
    let attributes = work.attributes(Operation::Create, kind, None, options.object("CreateOptions"));
    let object = create::owned_by(work, kind, object, &options.manager);
    let identity = Identity::Known { uid, generation };
    let json = create::admit_and_store_as(work, kind, object, attributes, &identity).await?;
    Ok(Answer::Object { created: true, kind_of: kind.plural.to_owned(), json })
}

/// Only the specification, and only of the same object as it was before.
async fn bring_forward(work: &Work<'_>, kind: &Kind, lost: &Lost, options: WriteOptions) -> Result<Answer> {
    let change = Change {
        part: Part::Main,
        face: Face::Object,
        options,
        options_kind: "UpdateOptions",
        uid_is_field: false,
        is_owned: false,
        generation: Some(lost.generation),
    };
    let changed = change
        .run(work, |live| {
            check_same_before(kind, live, lost)?;
            let mut new = live.clone();
            if let Some(map) = new.as_object_mut() {
                map.insert("spec".to_owned(), lost.object.get("spec").cloned().unwrap_or_else(|| json!({})));
            }
            Ok(new)
        })
        .await?;
    Ok(Answer::Object { created: false, kind_of: kind.plural.to_owned(), json: changed.json })
}

fn check_same_before(kind: &Kind, live: &Value, lost: &Lost) -> Result<()> {
    let (uid, generation) =
        (meta::text(live, "uid"), meta::get(live, "generation").and_then(Value::as_i64).unwrap_or(0));
    let message = if uid != lost.uid {
        format!("another object has this name: its UID is {uid}, the one to be recovered had {}", lost.uid)
    } else if generation >= lost.generation {
        format!(
            "it is at generation {generation}, which is not older than {}: there is nothing to recover",
            lost.generation
        )
    } else {
        return Ok(());
    };
    let name = meta::text(live, "name").to_owned();
    Err(Error::Conflict { resource: kind.resource(), name, message, retry_after: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Before, an object of the largest generation of all was changed ever after without anybody being told.
    #[test]
    fn a_generation_is_one_from_which_it_can_be_counted_on() {
        let told =
            |generation: i64| generation_fault(generation).map(|cause| format!("{}: {}", cause.field, cause.message));
        for counted in [1, 7, (1 << 53) - 1] {
            assert_eq!(told(counted), None);
        }
        let least = "metadata.generation: Invalid value: 0: must be the generation that the object had, 1 at least";
        assert_eq!(told(0).as_deref(), Some(least));
        for (beyond, shown) in [(1 << 53, "9007199254740992"), (i64::MAX, "9223372036854775807")] {
            let most = format!(
                "metadata.generation: Invalid value: {shown}: must be the generation that the object had, 9007199254740991 at most"
            );
            assert_eq!(told(beyond), Some(most));
        }
    }
}
