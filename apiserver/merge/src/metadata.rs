//! The schema of `metadata` (meta/v1 ObjectMeta), which every kind shares and none describes.

use std::collections::BTreeMap;

use crate::schema::{Array, ListType, MapType, Node, Object, Shape};

/// A text without bounds.
pub(crate) fn text() -> Node {
    Node::plain(Shape::String { is_time: false, least: None, most: None })
}

fn time() -> Node {
    Node::plain(Shape::String { is_time: true, least: None, most: None })
}

fn number() -> Node {
    Node::plain(Shape::Integer { least: i64::MIN, most: i64::MAX })
}

fn fields(properties: &[(&str, Node)], required: &[&str]) -> Node {
    Node::plain(Shape::Object(Object {
        properties: properties.iter().map(|(name, node)| ((*name).to_owned(), node.clone())).collect(),
        required: required.iter().map(|name| (*name).to_owned()).collect(),
        ..Object::default()
    }))
}

fn map() -> Node {
    Node::plain(Shape::Object(Object { additional: Some(Box::new(text())), ..Object::default() }))
}

fn list(items: Node, list_type: ListType) -> Node {
    Node::plain(Shape::Array(Array { items: Box::new(items), list_type, least: None, most: None }))
}

/// meta/v1 ObjectMeta.
pub(crate) fn object_meta() -> Node {
    let owner = fields(
        &[
            ("apiVersion", text()),
            ("kind", text()),
            ("name", text()),
            ("uid", text()),
            ("controller", Node::plain(Shape::Boolean)),
            ("blockOwnerDeletion", Node::plain(Shape::Boolean)),
        ],
        // That all four are there is checked by the server, in words of its own.
        &[],
    );
    fields(
        &[
            ("annotations", map()),
            ("creationTimestamp", time()),
            ("deletionGracePeriodSeconds", number()),
            ("deletionTimestamp", time()),
            ("finalizers", list(text(), ListType::Atomic)),
            ("generateName", text()),
            ("generation", number()),
            ("labels", map()),
            ("managedFields", list(managed_fields(), ListType::Atomic)),
            ("name", text()),
            ("namespace", text()),
            // Duplicates are removed with a warning by the server (they were accepted once), so no list type here.
            ("ownerReferences", list(owner, ListType::Atomic)),
            ("resourceVersion", text()),
            ("selfLink", text()),
            ("uid", text()),
        ],
        &[],
    )
}

/// meta/v1 ObjectMeta as managers share it: finalizers one by one, owners by uid and each as a whole. That no two are the same is not
/// checked, for the reason given above.
pub(crate) fn shared_meta() -> Node {
    let mut meta = object_meta();
    if let Shape::Object(object) = &mut meta.shape {
        if let Some(Shape::Array(finalizers)) = object.properties.get_mut("finalizers").map(|node| &mut node.shape) {
            finalizers.list_type = ListType::Set;
        }
        if let Some(Shape::Array(owners)) = object.properties.get_mut("ownerReferences").map(|node| &mut node.shape) {
            owners.list_type = ListType::Map(vec!["uid".to_owned()]);
            if let Shape::Object(owner) = &mut owners.items.shape {
                owner.map_type = MapType::Atomic;
            }
        }
    }
    meta
}

fn managed_fields() -> Node {
    let kept = Node::plain(Shape::Object(Object {
        properties: BTreeMap::new(),
        additional: None,
        preserve_unknown: true,
        required: Vec::new(),
        map_type: MapType::Atomic,
    }));
    fields(
        &[
            ("apiVersion", text()),
            ("fieldsType", text()),
            ("fieldsV1", kept),
            ("manager", text()),
            ("operation", text()),
            ("subresource", text()),
            ("time", time()),
        ],
        &[],
    )
}
