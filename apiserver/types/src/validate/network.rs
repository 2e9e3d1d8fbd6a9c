//! Who may reach the members: what Kubernetes itself would find in a NetworkPolicy, in its words (networking/v1 validation of 1.34), so
//! that no policy is asked for that it refuses.

use std::net::IpAddr;

use k8s_openapi::api::networking::v1::{IPBlock, NetworkPolicyPeer};

use super::{Faults, selector::selector};
use crate::{
    cluster::NetworkPolicy,
    field::{Fault, Path},
};

/// Most bytes of all clients: the record of the owner carries them, and shares 256 KiB with all other annotations.
const BYTES_MAX: usize = 32 << 10;
/// Kubernetes' words for what is no block of addresses.
const CIDR: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

pub(super) fn policy(faults: &mut Faults, path: &Path, given: &NetworkPolicy) {
    let NetworkPolicy { enabled: _, clients } = given;
    let path = path.child("clients");
    // Nothing of ours fails to serialize; what did would not fit either.
    if serde_json::to_vec(clients).map_or(usize::MAX, |text| text.len()) > BYTES_MAX {
        faults.push(Fault::too_long(path, BYTES_MAX));
        return;
    }
    faults.each(&path, clients.as_deref().unwrap_or_default(), peer);
}

fn peer(faults: &mut Faults, path: &Path, given: &NetworkPolicyPeer) {
    let NetworkPolicyPeer { ip_block, namespace_selector, pod_selector } = given;
    selector(faults, &path.child("podSelector"), pod_selector.as_ref());
    selector(faults, &path.child("namespaceSelector"), namespace_selector.as_ref());
    let selects = pod_selector.is_some() || namespace_selector.is_some();
    match ip_block {
        None if !selects => faults.push(Fault::required(path.clone(), "must specify a peer")),
        None => {}
        Some(given) => {
            block(faults, &path.child("ipBlock"), given);
            if selects {
                faults.push(Fault::forbidden(path.clone(), "may not specify both ipBlock and another peer"));
            }
        }
    }
}

fn block(faults: &mut Faults, path: &Path, given: &IPBlock) {
    let IPBlock { cidr, except } = given;
    if cidr.is_empty() {
        faults.push(Fault::required(path.child("cidr"), ""));
        return;
    }
    let Some(whole) = Block::parse(cidr) else {
        faults.push(Fault::invalid(path.child("cidr"), cidr.as_str(), CIDR));
        return;
    };
    faults.each(&path.child("except"), except.as_deref().unwrap_or_default(), |faults, path, text| match Block::parse(
        text,
    ) {
        None => faults.push(Fault::invalid(path.clone(), text.as_str(), CIDR)),
        Some(part) if whole.is_wider_than(part) => {}
        Some(_) => {
            faults.push(Fault::invalid(path.clone(), text.as_str(), "must be a strict subset of `cidr`"));
        }
    });
}

/// A block of addresses: the first bits of one, how many of them count, and how many there are.
#[derive(Clone, Copy)]
struct Block {
    bits: u128,
    prefix: u32,
    width: u32,
}

impl Block {
    fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/')?;
        // Kubernetes knows neither signs nor leading zeros here.
        let is_plain = prefix.bytes().all(|byte| byte.is_ascii_digit()) && (prefix == "0" || !prefix.starts_with('0'));
        let prefix = prefix.parse().ok().filter(|_| is_plain)?;
        let (bits, width) = match address.parse().ok()? {
            IpAddr::V4(address) => (u128::from(address.to_bits()), u32::BITS),
            IpAddr::V6(address) => (address.to_bits(), u128::BITS),
        };
        (prefix <= width).then_some(Self { bits, prefix, width })
    }

    /// Whether it has all of the other's addresses, and more.
    fn is_wider_than(self, other: Self) -> bool {
        let rest = self.width.saturating_sub(self.prefix);
        let head = |bits: u128| bits.checked_shr(rest).unwrap_or_default();
        self.width == other.width && self.prefix < other.prefix && head(self.bits) == head(other.bits)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use serde_json::{Value, json};

    use super::*;

    fn faults(clients: &Value) -> Vec<String> {
        let mut faults = Faults::default();
        let given = serde_json::from_value(json!({"clients": clients})).unwrap();
        policy(&mut faults, &Path::new("n"), &given);
        faults.0.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_client_is_a_block_of_addresses_or_selects_pods() {
        for (client, expected) in [
            (json!({"podSelector": {}}), vec![]),
            (json!({"podSelector": {"matchLabels": {"app": "shop"}}, "namespaceSelector": {}}), vec![]),
            (json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16", "10.0.0.0/9"]}}), vec![]),
            (json!({"ipBlock": {"cidr": "::/0", "except": ["2001:db8::/64"]}}), vec![]),
            (json!({}), vec!["n.clients[0]: Required value: must specify a peer"]),
            (
                json!({"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}}),
                vec!["n.clients[0]: Forbidden: may not specify both ipBlock and another peer"],
            ),
            (
                json!({"podSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}),
                vec![
                    "n.clients[0].podSelector.matchExpressions[0].values: Required value: must be specified when \
                     `operator` is 'In' or 'NotIn'",
                ],
            ),
        ] {
            assert_eq!(faults(&json!([client])), expected, "{client}");
        }
    }

    #[test]
    fn blocks_of_addresses_are_legible_and_exceptions_are_within_them() {
        let block = |cidr: &str, except: &[&str]| faults(&json!([{"ipBlock": {"cidr": cidr, "except": except}}]));
        assert_eq!(block("", &[]), ["n.clients[0].ipBlock.cidr: Required value"]);
        for cidr in ["10.0.0.0", "10.0.0/8", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/08", "::/129", "a/8"] {
            assert_eq!(block(cidr, &[]), [format!("n.clients[0].ipBlock.cidr: Invalid value: \"{cidr}\": {CIDR}")]);
        }
        let subset = "must be a strict subset of `cidr`";
        for except in ["10.0.0.0/8", "0.0.0.0/0", "11.0.0.0/9", "2001:db8::/64"] {
            let expected = format!("n.clients[0].ipBlock.except[0]: Invalid value: \"{except}\": {subset}");
            assert_eq!(block("10.0.0.0/8", &[except]), [expected]);
        }
        let expected = format!("n.clients[0].ipBlock.except[0]: Invalid value: \"x\": {CIDR}");
        assert_eq!(block("10.0.0.0/8", &["x"]), [expected]);
    }

    #[test]
    fn clients_are_few_and_fit_into_the_record_of_their_owner() {
        let many: Vec<Value> = (0..65).map(|_| json!({"podSelector": {}})).collect();
        assert_eq!(faults(&json!(many)), ["n.clients: Too many: 65: must have at most 64 items"]);
        let long: Vec<Value> =
            (0..60).map(|_| json!({"podSelector": {"matchLabels": {"a": "b".repeat(600)}}})).collect();
        assert_eq!(faults(&json!(long)), ["n.clients: Too long: may not be more than 32768 bytes"]);
    }
}
