//! Kubernetes' protobuf envelope, read only: kubectl sends a few built-in kinds in it (`create namespace`, `secret`,
//! `configmap`, `service`, `poddisruptionbudget`) whatever the server offers.
//!
//! Nothing is ever answered in protobuf. A message is described by a table of its fields; what the table does not know
//! is an unknown field and reported as such. Field numbers are those of Kubernetes' published .proto files.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

/// Media type of the envelope.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";
/// What every envelope begins with.
const MAGIC: &[u8] = b"k8s\0";
/// Deepest nesting; the deepest message described here has three levels.
const DEPTH_MAX: usize = 8;

/// The fields of a message.
#[derive(Debug, PartialEq, Eq)]
pub struct Message(&'static [(u64, &'static str, Type)]);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Text,
    Texts,
    Flag,
    /// A whole number. Kubernetes writes absent ones as 0, which is then left out, as its JSON does.
    Int,
    /// IntOrString: a number or a text, whatever the message says it is.
    IntOrText,
    TextMap,
    BytesMap,
    One(&'static Message),
    Many(&'static Message),
    /// Times only the server sets; a client's are thrown away either way.
    Dropped,
}

const OWNER: Message = Message(&[
    (1, "kind", Type::Text),
    (3, "name", Type::Text),
    (4, "uid", Type::Text),
    (5, "apiVersion", Type::Text),
    (6, "controller", Type::Flag),
    (7, "blockOwnerDeletion", Type::Flag),
]);

const META: Message = Message(&[
    (1, "name", Type::Text),
    (2, "generateName", Type::Text),
    (3, "namespace", Type::Text),
    (4, "selfLink", Type::Dropped),
    (5, "uid", Type::Text),
    (6, "resourceVersion", Type::Text),
    (7, "generation", Type::Dropped),
    (8, "creationTimestamp", Type::Dropped),
    (9, "deletionTimestamp", Type::Dropped),
    (10, "deletionGracePeriodSeconds", Type::Dropped),
    (11, "labels", Type::TextMap),
    (12, "annotations", Type::TextMap),
    (13, "ownerReferences", Type::Many(&OWNER)),
    (14, "finalizers", Type::Texts),
    (17, "managedFields", Type::Dropped),
]);

const NAMESPACE_SPEC: Message = Message(&[(1, "finalizers", Type::Texts)]);
const NAMESPACE_STATUS: Message = Message(&[(1, "phase", Type::Text)]);

/// v1 Namespace.
pub const NAMESPACE: Message = Message(&[
    (1, "metadata", Type::One(&META)),
    (2, "spec", Type::One(&NAMESPACE_SPEC)),
    (3, "status", Type::One(&NAMESPACE_STATUS)),
]);

/// v1 Secret.
pub const SECRET: Message = Message(&[
    (1, "metadata", Type::One(&META)),
    (2, "data", Type::BytesMap),
    (3, "type", Type::Text),
    (4, "stringData", Type::TextMap),
    (5, "immutable", Type::Flag),
]);

/// v1 ConfigMap.
pub const CONFIG_MAP: Message = Message(&[
    (1, "metadata", Type::One(&META)),
    (2, "data", Type::TextMap),
    (3, "binaryData", Type::BytesMap),
    (4, "immutable", Type::Flag),
]);

const SERVICE_PORT: Message = Message(&[
    (1, "name", Type::Text),
    (2, "protocol", Type::Text),
    (3, "port", Type::Int),
    (4, "targetPort", Type::IntOrText),
    (5, "nodePort", Type::Int),
    (6, "appProtocol", Type::Text),
]);

const SERVICE_SPEC: Message = Message(&[
    (1, "ports", Type::Many(&SERVICE_PORT)),
    (2, "selector", Type::TextMap),
    (3, "clusterIP", Type::Text),
    (4, "type", Type::Text),
    (5, "externalIPs", Type::Texts),
    (7, "sessionAffinity", Type::Text),
    (8, "loadBalancerIP", Type::Text),
    (9, "loadBalancerSourceRanges", Type::Texts),
    (10, "externalName", Type::Text),
    (11, "externalTrafficPolicy", Type::Text),
    (12, "healthCheckNodePort", Type::Int),
    (13, "publishNotReadyAddresses", Type::Flag),
    (17, "ipFamilyPolicy", Type::Text),
    (18, "clusterIPs", Type::Texts),
    (19, "ipFamilies", Type::Texts),
    (20, "allocateLoadBalancerNodePorts", Type::Flag),
    (21, "loadBalancerClass", Type::Text),
    (22, "internalTrafficPolicy", Type::Text),
]);

/// v1 Service. Its status is the server's.
pub const SERVICE: Message =
    Message(&[(1, "metadata", Type::One(&META)), (2, "spec", Type::One(&SERVICE_SPEC)), (3, "status", Type::Dropped)]);

const POLICY_RULE: Message = Message(&[
    (1, "verbs", Type::Texts),
    (2, "apiGroups", Type::Texts),
    (3, "resources", Type::Texts),
    (4, "resourceNames", Type::Texts),
    (5, "nonResourceURLs", Type::Texts),
]);
const AGGREGATION: Message = Message(&[(1, "clusterRoleSelectors", Type::Many(&LABEL_SELECTOR))]);
const SUBJECT: Message = Message(&[
    (1, "kind", Type::Text),
    (2, "apiGroup", Type::Text),
    (3, "name", Type::Text),
    (4, "namespace", Type::Text),
]);
const ROLE_REF: Message = Message(&[(1, "apiGroup", Type::Text), (2, "kind", Type::Text), (3, "name", Type::Text)]);

/// rbac.authorization.k8s.io/v1 Role.
pub const ROLE: Message = Message(&[(1, "metadata", Type::One(&META)), (2, "rules", Type::Many(&POLICY_RULE))]);

/// rbac.authorization.k8s.io/v1 ClusterRole.
pub const CLUSTER_ROLE: Message = Message(&[
    (1, "metadata", Type::One(&META)),
    (2, "rules", Type::Many(&POLICY_RULE)),
    (3, "aggregationRule", Type::One(&AGGREGATION)),
]);

/// rbac.authorization.k8s.io/v1 RoleBinding and ClusterRoleBinding.
pub const ROLE_BINDING: Message = Message(&[
    (1, "metadata", Type::One(&META)),
    (2, "subjects", Type::Many(&SUBJECT)),
    (3, "roleRef", Type::One(&ROLE_REF)),
]);

const RESOURCE_ATTRIBUTES: Message = Message(&[
    (1, "namespace", Type::Text),
    (2, "verb", Type::Text),
    (3, "group", Type::Text),
    (4, "version", Type::Text),
    (5, "resource", Type::Text),
    (6, "subresource", Type::Text),
    (7, "name", Type::Text),
]);
const PATH_ATTRIBUTES: Message = Message(&[(1, "path", Type::Text), (2, "verb", Type::Text)]);
const SELF_ACCESS_SPEC: Message = Message(&[
    (1, "resourceAttributes", Type::One(&RESOURCE_ATTRIBUTES)),
    (2, "nonResourceAttributes", Type::One(&PATH_ATTRIBUTES)),
]);
const ACCESS_SPEC: Message = Message(&[
    (1, "resourceAttributes", Type::One(&RESOURCE_ATTRIBUTES)),
    (2, "nonResourceAttributes", Type::One(&PATH_ATTRIBUTES)),
    (3, "user", Type::Text),
    (4, "groups", Type::Texts),
    (6, "uid", Type::Text),
]);
const RULES_SPEC: Message = Message(&[(1, "namespace", Type::Text)]);

/// authorization.k8s.io/v1 SelfSubjectAccessReview.
pub const SELF_SUBJECT_ACCESS_REVIEW: Message = Message(&[
    (1, "metadata", Type::One(&META)),
    (2, "spec", Type::One(&SELF_ACCESS_SPEC)),
    (3, "status", Type::Dropped),
]);
/// authorization.k8s.io/v1 SubjectAccessReview and LocalSubjectAccessReview.
pub const SUBJECT_ACCESS_REVIEW: Message =
    Message(&[(1, "metadata", Type::One(&META)), (2, "spec", Type::One(&ACCESS_SPEC)), (3, "status", Type::Dropped)]);
/// authorization.k8s.io/v1 SelfSubjectRulesReview.
pub const SELF_SUBJECT_RULES_REVIEW: Message =
    Message(&[(1, "metadata", Type::One(&META)), (2, "spec", Type::One(&RULES_SPEC)), (3, "status", Type::Dropped)]);
/// authentication.k8s.io/v1 SelfSubjectReview.
pub const SELF_SUBJECT_REVIEW: Message = Message(&[(1, "metadata", Type::One(&META)), (2, "status", Type::Dropped)]);

const REQUIREMENT: Message =
    Message(&[(1, "key", Type::Text), (2, "operator", Type::Text), (3, "values", Type::Texts)]);

const LABEL_SELECTOR: Message =
    Message(&[(1, "matchLabels", Type::TextMap), (2, "matchExpressions", Type::Many(&REQUIREMENT))]);

const BUDGET_SPEC: Message = Message(&[
    (1, "minAvailable", Type::IntOrText),
    (2, "selector", Type::One(&LABEL_SELECTOR)),
    (3, "maxUnavailable", Type::IntOrText),
    (4, "unhealthyPodEvictionPolicy", Type::Text),
]);

/// policy/v1 PodDisruptionBudget. Its status is the server's.
pub const DISRUPTION_BUDGET: Message =
    Message(&[(1, "metadata", Type::One(&META)), (2, "spec", Type::One(&BUDGET_SPEC)), (3, "status", Type::Dropped)]);

/// apimachinery's IntOrString: a type (1 for text), then both values.
const INT_OR_TEXT: Message = Message(&[(1, "type", Type::Int), (2, "int", Type::Int), (3, "text", Type::Text)]);

const TYPE_META: Message = Message(&[(1, "apiVersion", Type::Text), (2, "kind", Type::Text)]);

/// Reads an envelope that holds this message. The error is a sentence.
pub fn decode(bytes: &[u8], message: &Message) -> Result<Value, String> {
    let body = bytes.strip_prefix(MAGIC).ok_or("the body does not begin as Kubernetes' protobuf does")?;
    let mut type_meta = Map::new();
    let mut raw: &[u8] = &[];
    let mut rest = body;
    while let Some((number, field)) = next(&mut rest)? {
        match (number, field) {
            (1, Field::Bytes(inner)) => type_meta = object(inner, &TYPE_META, DEPTH_MAX)?,
            (2, Field::Bytes(inner)) => raw = inner,
            (3, Field::Bytes(encoding)) if !encoding.is_empty() => {
                return Err("an encoding within protobuf is not read".to_owned());
            }
            _ => {}
        }
    }
    let mut object = object(raw, message, DEPTH_MAX)?;
    object.extend(type_meta);
    Ok(Value::Object(object))
}

fn object(bytes: &[u8], message: &Message, depth: usize) -> Result<Map<String, Value>, String> {
    let depth = depth.checked_sub(1).ok_or("the message is nested too deeply")?;
    let mut map = Map::new();
    let mut rest = bytes;
    while let Some((number, field)) = next(&mut rest)? {
        let Some((_, name, of)) = message.0.iter().find(|(have, _, _)| *have == number) else {
            map.insert(format!("field{number}"), Value::Null);
            continue;
        };
        place(&mut map, name, *of, field, depth)?;
    }
    Ok(map)
}

fn place(map: &mut Map<String, Value>, name: &str, of: Type, field: Field<'_>, depth: usize) -> Result<(), String> {
    let wrong = || format!("field {name} has the wrong wire type");
    match (of, field) {
        (Type::Dropped, _) => {}
        (Type::Text, Field::Bytes(bytes)) => {
            let text = utf8(bytes, name)?;
            // proto3 of Kubernetes writes absent texts as empty ones.
            if !text.is_empty() {
                map.insert(name.to_owned(), json!(text));
            }
        }
        (Type::Texts, Field::Bytes(bytes)) => push(map, name, json!(utf8(bytes, name)?)),
        (Type::Flag, Field::Varint(number)) => {
            map.insert(name.to_owned(), json!(number != 0));
        }
        (Type::Int, Field::Varint(0)) => {}
        (Type::Int, Field::Varint(number)) => {
            map.insert(name.to_owned(), json!(number.cast_signed()));
        }
        (Type::IntOrText, Field::Bytes(bytes)) => {
            map.insert(name.to_owned(), int_or_text(bytes, depth)?);
        }
        (Type::One(inner), Field::Bytes(bytes)) => {
            map.insert(name.to_owned(), Value::Object(object(bytes, inner, depth)?));
        }
        (Type::Many(inner), Field::Bytes(bytes)) => push(map, name, Value::Object(object(bytes, inner, depth)?)),
        (Type::TextMap, Field::Bytes(bytes)) => {
            let (key, value) = entry(bytes, name)?;
            put(map, name, key, json!(utf8(value, name)?));
        }
        (Type::BytesMap, Field::Bytes(bytes)) => {
            let (key, value) = entry(bytes, name)?;
            put(map, name, key, json!(STANDARD.encode(value)));
        }
        (
            Type::Text | Type::Texts | Type::IntOrText | Type::TextMap | Type::BytesMap | Type::One(_) | Type::Many(_),
            Field::Varint(_),
        )
        | (Type::Flag | Type::Int, Field::Bytes(_)) => return Err(wrong()),
    }
    Ok(())
}

fn int_or_text(bytes: &[u8], depth: usize) -> Result<Value, String> {
    let mut both = object(bytes, &INT_OR_TEXT, depth)?;
    Ok(match both.contains_key("type") {
        true => both.remove("text").unwrap_or_else(|| json!("")),
        false => both.remove("int").unwrap_or_else(|| json!(0)),
    })
}

fn push(map: &mut Map<String, Value>, name: &str, value: Value) {
    if let Value::Array(list) = map.entry(name).or_insert_with(|| json!([])) {
        list.push(value);
    }
}

fn put(map: &mut Map<String, Value>, name: &str, key: String, value: Value) {
    if let Value::Object(inner) = map.entry(name).or_insert_with(|| json!({})) {
        inner.insert(key, value);
    }
}

/// An entry of a map: key = 1, value = 2.
fn entry<'a>(bytes: &'a [u8], name: &str) -> Result<(String, &'a [u8]), String> {
    let (mut key, mut value): (&[u8], &[u8]) = (&[], &[]);
    let mut rest = bytes;
    while let Some((number, field)) = next(&mut rest)? {
        match (number, field) {
            (1, Field::Bytes(bytes)) => key = bytes,
            (2, Field::Bytes(bytes)) => value = bytes,
            _ => return Err(format!("an entry of {name} is broken")),
        }
    }
    Ok((utf8(key, name)?, value))
}

fn utf8(bytes: &[u8], name: &str) -> Result<String, String> {
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_not_utf8| format!("field {name} is no UTF-8"))
}

enum Field<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
}

/// The next field with its number; `None` at the end.
fn next<'a>(rest: &mut &'a [u8]) -> Result<Option<(u64, Field<'a>)>, String> {
    if rest.is_empty() {
        return Ok(None);
    }
    let tag = varint(rest)?;
    let field = match tag & 7 {
        0 => Field::Varint(varint(rest)?),
        2 => {
            let length = usize::try_from(varint(rest)?).map_err(|_too_long| truncated())?;
            let (bytes, after) = rest.split_at_checked(length).ok_or_else(truncated)?;
            *rest = after;
            Field::Bytes(bytes)
        }
        other => return Err(format!("wire type {other} is not read")),
    };
    Ok(Some((tag >> 3, field)))
}

fn varint(rest: &mut &[u8]) -> Result<u64, String> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first().ok_or_else(truncated)?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err("a number is too long".to_owned())
}

fn truncated() -> String {
    "the message is cut off".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let length = u8::try_from(bytes.len()).unwrap_or_default();
        [&[number << 3 | 2, length], bytes].concat()
    }

    fn enveloped(kind: &str, raw: &[u8]) -> Vec<u8> {
        let type_meta = [field(1, b"v1"), field(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), field(1, &type_meta), field(2, raw), field(3, b""), field(4, b"")].concat()
    }

    #[test]
    fn a_secret_comes_out_as_json_would_have_it() {
        let meta =
            [field(1, b"s"), field(2, b""), field(8, b""), field(11, &[field(1, b"a"), field(2, b"b")].concat())]
                .concat();
        let data = [field(1, b"password"), field(2, b"hi")].concat();
        let raw = [field(1, &meta), field(2, &data), field(3, b"Opaque")].concat();
        let expected = json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {"name": "s", "labels": {"a": "b"}}, "data": {"password": "aGk="}});
        assert_eq!(decode(&enveloped("Secret", &raw), &SECRET), Ok(expected));
    }

    #[test]
    fn numbers_and_number_or_text_come_out_as_json_would_have_them() {
        let number = |at: u8, value: u8| vec![at << 3, value];
        let target = |text: &[u8]| {
            let kind = u8::from(!text.is_empty());
            field(4, &[number(1, kind), number(2, 80), field(3, text)].concat())
        };
        let port = |text: &[u8]| {
            let parts = [field(1, b"p"), number(3, 81), target(text), number(5, 0)];
            field(1, &parts.concat())
        };
        let raw = field(2, &[port(b""), port(b"web"), number(13, 1)].concat());
        let expected = json!({"apiVersion": "v1", "kind": "Service", "spec": {"publishNotReadyAddresses": true, "ports": [
            {"name": "p", "port": 81, "targetPort": 80}, {"name": "p", "port": 81, "targetPort": "web"}]}});
        assert_eq!(decode(&enveloped("Service", &raw), &SERVICE), Ok(expected));
    }

    #[test]
    fn what_is_broken_is_said_in_a_sentence() {
        assert_eq!(decode(b"{}", &SECRET), Err("the body does not begin as Kubernetes' protobuf does".to_owned()));
        assert_eq!(decode(b"k8s\0\x0a\x05", &SECRET), Err("the message is cut off".to_owned()));
        let wrong = enveloped("Secret", &[0x28 | 2, 0]);
        assert_eq!(decode(&wrong, &SECRET), Err("field immutable has the wrong wire type".to_owned()));
    }

    proptest! {
        #[test]
        fn no_bytes_break_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            drop(decode(&enveloped("Secret", &bytes), &SECRET));
            drop(decode(&enveloped("Service", &bytes), &SERVICE));
            drop(decode(&bytes, &NAMESPACE));
        }
    }
}
