//! The body of a request, read in one pass.
//!
//! API servers tell the kind before the objects, so objects are built while the body is read. One that comes before its
//! kind, or that cannot be built, is kept as text and looked at after: a bad object is a bad object, not a bad review.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use super::{API_VERSION, Author, Error, KIND, Operation, Request, Stage, Target};
use crate::lean::{Reader, Subject};

/// Reads the body of a request to `/mutate` or `/validate`.
///
/// # Errors
/// When it is not an AdmissionReview v1 with a request.
pub fn read(body: &[u8], stage: Stage) -> Result<Request<'_>, Error> {
    // Checked once as a whole, which is much faster than text by text.
    let body = std::str::from_utf8(body).map_err(Error::NotText)?;
    let review = parse(body, true).or_else(|_| parse(body, false)).map_err(Error::Malformed)?;
    let request = review.request.filter(|_| review.api_version == API_VERSION && review.kind == KIND);
    let request = request.ok_or(Error::NotAReview)?;
    Ok(Request {
        stage,
        uid: request.uid,
        operation: request.operation,
        target: Target::of(&request.resource.group, &request.resource.resource, &request.subresource),
        object: request.object.and_then(|held| held.subject(&request.kind)),
        old_object: request.old_object.and_then(|held| held.subject(&request.kind)),
        name: request.name,
        namespace: request.namespace,
        kind: request.kind,
        author: request.author,
    })
}

fn parse(body: &str, in_place: bool) -> Result<WireReview<'_>, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_str(body);
    let review = ReviewSeed { in_place }.deserialize(&mut reader)?;
    reader.end().map(|()| review)
}

struct WireReview<'a> {
    api_version: Cow<'a, str>,
    kind: Cow<'a, str>,
    request: Option<WireRequest<'a>>,
}

struct WireRequest<'a> {
    uid: Cow<'a, str>,
    kind: Cow<'a, str>,
    resource: WireResource<'a>,
    subresource: Cow<'a, str>,
    name: Cow<'a, str>,
    namespace: Cow<'a, str>,
    operation: Operation,
    author: Author,
    object: Option<Held<'a>>,
    old_object: Option<Held<'a>>,
}

/// An object that was built, or its text.
enum Held<'a> {
    Built(Subject),
    Text(&'a RawValue),
}

impl Held<'_> {
    /// The object; null is none.
    fn subject(self, kind: &str) -> Option<Subject> {
        match self {
            Self::Built(subject) => Some(subject),
            Self::Text(text) if text.get() == "null" => None,
            Self::Text(text) => {
                let mut reader = serde_json::Deserializer::from_str(text.get());
                let built = Reader { kind }.deserialize(&mut reader);
                Some(built.unwrap_or_else(|error| Subject::Malformed(error.to_string())))
            }
        }
    }
}

/// A text that may also be null or absent.
#[derive(Default)]
struct Text<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Borrowed<'a>(#[serde(borrow)] Cow<'a, str>);
        Ok(Self(Option::<Borrowed<'a>>::deserialize(from)?.map(|text| text.0).unwrap_or_default()))
    }
}

#[derive(Deserialize)]
struct WireKind<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
}

#[derive(Deserialize)]
struct WireResource<'a> {
    #[serde(borrow)]
    group: Cow<'a, str>,
    #[serde(borrow)]
    resource: Cow<'a, str>,
}

#[derive(Clone, Copy)]
struct ReviewSeed {
    in_place: bool,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum ReviewField {
    ApiVersion,
    Kind,
    Request,
    #[serde(other)]
    Other,
}

impl<'de> DeserializeSeed<'de> for ReviewSeed {
    type Value = WireReview<'de>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ReviewSeed {
    type Value = WireReview<'de>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an AdmissionReview")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
        let mut review = WireReview { api_version: Cow::default(), kind: Cow::default(), request: None };
        while let Some(field) = fields.next_key()? {
            match field {
                ReviewField::ApiVersion => review.api_version = fields.next_value::<Text<'de>>()?.0,
                ReviewField::Kind => review.kind = fields.next_value::<Text<'de>>()?.0,
                ReviewField::Request => {
                    review.request = fields.next_value_seed(RequestSeed { in_place: self.in_place })?;
                }
                ReviewField::Other => {
                    fields.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(review)
    }
}

#[derive(Clone, Copy)]
struct RequestSeed {
    in_place: bool,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum RequestField {
    Uid,
    Kind,
    Resource,
    SubResource,
    Name,
    Namespace,
    Operation,
    UserInfo,
    Object,
    OldObject,
    #[serde(other)]
    Other,
}

impl<'de> DeserializeSeed<'de> for RequestSeed {
    type Value = Option<WireRequest<'de>>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for RequestSeed {
    type Value = Option<WireRequest<'de>>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an AdmissionRequest")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
        let (mut uid, mut subresource, mut name, mut namespace) =
            (Text::default(), Text::default(), Text::default(), Text::default());
        let mut kind: Option<WireKind<'de>> = None;
        let (mut resource, mut operation, mut object, mut old_object) = (None, None, None, None);
        let mut author = Author::default();
        while let Some(field) = fields.next_key()? {
            let known = kind.as_ref().filter(|_| self.in_place).map(|kind| kind.kind.as_ref());
            match field {
                RequestField::Uid => uid = fields.next_value()?,
                RequestField::Kind => kind = Some(fields.next_value()?),
                RequestField::Resource => resource = Some(fields.next_value()?),
                RequestField::SubResource => subresource = fields.next_value()?,
                RequestField::Name => name = fields.next_value()?,
                RequestField::Namespace => namespace = fields.next_value()?,
                RequestField::Operation => operation = Some(fields.next_value()?),
                RequestField::UserInfo => author = fields.next_value::<Option<Author>>()?.unwrap_or_default(),
                RequestField::Object => object = fields.next_value_seed(HeldSeed { known })?,
                RequestField::OldObject => old_object = fields.next_value_seed(HeldSeed { known })?,
                RequestField::Other => {
                    fields.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Some(WireRequest {
            uid: uid.0,
            kind: kind.ok_or_else(|| A::Error::missing_field("kind"))?.kind,
            resource: resource.ok_or_else(|| A::Error::missing_field("resource"))?,
            subresource: subresource.0,
            name: name.0,
            namespace: namespace.0,
            operation: operation.ok_or_else(|| A::Error::missing_field("operation"))?,
            author,
            object,
            old_object,
        }))
    }
}

/// Reads an object in place when its kind is known, as text otherwise.
struct HeldSeed<'k> {
    known: Option<&'k str>,
}

impl<'de> DeserializeSeed<'de> for HeldSeed<'_> {
    type Value = Option<Held<'de>>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        match self.known {
            None => Ok(Some(Held::Text(<&RawValue>::deserialize(from)?))),
            Some(_) => from.deserialize_option(self),
        }
    }
}

impl<'de> Visitor<'de> for HeldSeed<'_> {
    type Value = Option<Held<'de>>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        let kind = self.known.unwrap_or_default();
        Reader { kind }.deserialize(from).map(|subject| Some(Held::Built(subject)))
    }
}
