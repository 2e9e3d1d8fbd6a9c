//! The cluster table: the reply of `CLUSTER NODES`, which is also the body of `nodes.conf`. Pure.

use std::{fmt, net::SocketAddr};

use crate::{
    reply::{Error, address},
    slot::SLOTS,
};

/// A Redis node ID: 40 hexadecimal digits.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(String);

impl NodeId {
    /// Reads a node ID.
    ///
    /// # Errors
    /// When the text is not 40 lower-case hexadecimal digits.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let legal = text.len() == 40 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if legal { Ok(Self(text.to_owned())) } else { Err(Error::new("a node ID", format!("{text:?} is none"))) }
    }

    /// The 40 digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Slots from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlotRange {
    /// First slot.
    pub first: u16,
    /// Last slot.
    pub last: u16,
}

impl SlotRange {
    /// Number of slots.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(self.last.saturating_sub(self.first)).saturating_add(1)
    }

    /// Never: a range holds at least one slot.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Whether the slot lies within.
    #[must_use]
    pub fn contains(&self, slot: u16) -> bool {
        self.first <= slot && slot <= self.last
    }
}

impl fmt::Display for SlotRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last { write!(f, "{}", self.first) } else { write!(f, "{}-{}", self.first, self.last) }
    }
}

/// Ranges as Redis prints them, joined by commas: `0-99,200`.
#[must_use]
pub fn slots_text(ranges: &[SlotRange]) -> String {
    ranges.iter().map(SlotRange::to_string).collect::<Vec<_>>().join(",")
}

/// Flags of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// The node that was asked.
    pub myself: bool,
    /// `master`
    pub primary: bool,
    /// `slave`
    pub replica: bool,
    /// `fail?`
    pub suspected: bool,
    /// `fail`
    pub failed: bool,
    /// `handshake`: not yet a member.
    pub handshake: bool,
    /// `noaddr`: its address is unknown.
    pub no_address: bool,
    /// `nofailover`: the replica will not try to be promoted.
    pub no_failover: bool,
}

/// One line of the cluster table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its ID.
    pub id: NodeId,
    /// Client address; `None` when unknown.
    pub address: Option<SocketAddr>,
    /// Port of the cluster bus, when given.
    pub bus_port: Option<u16>,
    /// Flags.
    pub flags: Flags,
    /// The primary it replicates.
    pub primary: Option<NodeId>,
    /// Milliseconds (unix time) at which an unanswered ping was sent, 0 if none is pending.
    pub ping_sent: i64,
    /// Milliseconds (unix time) of the last pong.
    pub pong_received: i64,
    /// Configuration epoch.
    pub config_epoch: u64,
    /// Whether the bus link is up.
    pub connected: bool,
    /// Slots it owns, ascending.
    pub slots: Vec<SlotRange>,
    /// Slots it gives away: slot and receiver. Only in a node's line about itself.
    pub migrating: Vec<(u16, NodeId)>,
    /// Slots it receives: slot and giver. Only in a node's line about itself.
    pub importing: Vec<(u16, NodeId)>,
}

impl Node {
    /// Number of slots it owns.
    #[must_use]
    pub fn slot_count(&self) -> usize {
        self.slots.iter().map(SlotRange::len).sum()
    }

    /// Whether it owns the slot.
    #[must_use]
    pub fn owns(&self, slot: u16) -> bool {
        self.slots.iter().any(|range| range.contains(slot))
    }

    /// Reads one line.
    ///
    /// # Errors
    /// When the line is not of the documented form.
    pub fn parse(line: &str) -> Result<Self, Error> {
        let mut words = line.split_ascii_whitespace();
        let mut word = |name: &'static str| words.next().ok_or_else(|| bad(format!("no {name} in {:?}", cut(line))));
        let id = NodeId::parse(word("ID")?)?;
        let (address, bus_port) = endpoint(word("address")?)?;
        let flags = flags(word("flags")?)?;
        let primary = match word("primary")? {
            "-" => None,
            text => Some(NodeId::parse(text)?),
        };
        let ping_sent = number(word("ping time")?)?;
        let pong_received = number(word("pong time")?)?;
        let config_epoch = number(word("epoch")?)?;
        let connected = match word("link state")? {
            "connected" => true,
            "disconnected" => false,
            other => return Err(bad(format!("link state {other:?}"))),
        };
        let mut node = Self {
            id,
            address,
            bus_port,
            flags,
            primary,
            ping_sent,
            pong_received,
            config_epoch,
            connected,
            slots: Vec::new(),
            migrating: Vec::new(),
            importing: Vec::new(),
        };
        words.try_for_each(|text| node.read_slots(text))?;
        Ok(node)
    }

    fn read_slots(&mut self, text: &str) -> Result<(), Error> {
        if let Some(mark) = text.strip_prefix('[') {
            let mark = mark.strip_suffix(']').ok_or_else(|| bad(format!("open slot {text:?}")))?;
            if let Some((slot, to)) = mark.split_once("->-") {
                self.migrating.push((slot_number(slot)?, NodeId::parse(to)?));
            } else if let Some((slot, from)) = mark.split_once("-<-") {
                self.importing.push((slot_number(slot)?, NodeId::parse(from)?));
            } else {
                return Err(bad(format!("open slot {text:?}")));
            }
            return Ok(());
        }
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let range = SlotRange { first: slot_number(first)?, last: slot_number(last)? };
        if range.first > range.last {
            return Err(bad(format!("slot range {text:?}")));
        }
        self.slots.push(range);
        Ok(())
    }
}

/// Lines of a table: a cluster has a thousand nodes, and remembers some that are gone.
const MOST_NODES: usize = 4_000;

/// Reads the reply of `CLUSTER NODES`.
///
/// # Errors
/// When a line is not of the documented form, or there are more than any cluster has.
pub fn parse(text: &str) -> Result<Vec<Node>, Error> {
    if text.lines().nth(MOST_NODES).is_some() {
        return Err(bad(format!("more than {MOST_NODES} lines")));
    }
    text.lines().filter(|line| !line.trim().is_empty()).map(Node::parse).collect()
}

fn bad(why: String) -> Error {
    Error::new("CLUSTER NODES", why)
}

fn cut(line: &str) -> String {
    line.chars().take(80).collect()
}

fn number<N: std::str::FromStr>(text: &str) -> Result<N, Error> {
    text.parse().map_err(|_| bad(format!("{text:?} is not a number")))
}

fn slot_number(text: &str) -> Result<u16, Error> {
    let slot: u16 = number(text)?;
    if slot < SLOTS { Ok(slot) } else { Err(bad(format!("slot {slot} is out of range"))) }
}

/// `ip:port@bus[,hostname[,key=value…]]`; `:0@0` when the address is unknown.
fn endpoint(text: &str) -> Result<(Option<SocketAddr>, Option<u16>), Error> {
    let main = text.split(',').next().unwrap_or_default();
    let (client, bus) = main.split_once('@').unwrap_or((main, ""));
    if !client.contains(':') {
        return Err(bad(format!("address {text:?}")));
    }
    let bus = if bus.is_empty() { None } else { Some(number(bus)?).filter(|port| *port != 0) };
    Ok((address(client), bus))
}

fn flags(text: &str) -> Result<Flags, Error> {
    let mut flags = Flags::default();
    for word in text.split(',') {
        match word {
            "myself" => flags.myself = true,
            "master" => flags.primary = true,
            "slave" => flags.replica = true,
            "fail?" => flags.suspected = true,
            "fail" => flags.failed = true,
            "handshake" => flags.handshake = true,
            "noaddr" => flags.no_address = true,
            "nofailover" => flags.no_failover = true,
            "noflags" => {}
            other => return Err(bad(format!("flag {other:?}"))),
        }
    }
    Ok(flags)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;

    const A: &str = "07c37dfeb235213a872192d90877d0cd55635b91";
    const B: &str = "e7d1eecce10fd6bb5eb35b9f99a514335d9ba9ca";

    #[test]
    fn a_primary_with_open_slots_is_read() {
        let line = format!(
            "{A} 127.0.0.1:30004@31004,hostname4 myself,master - 0 1426238317239 4 connected \
             0-5460 7000 [93->-{B}] [77-<-{B}]"
        );
        let b = NodeId::parse(B).unwrap();
        assert_eq!(
            Node::parse(&line).unwrap(),
            Node {
                id: NodeId::parse(A).unwrap(),
                address: Some("127.0.0.1:30004".parse().unwrap()),
                bus_port: Some(31004),
                flags: Flags { myself: true, primary: true, ..Flags::default() },
                primary: None,
                ping_sent: 0,
                pong_received: 1_426_238_317_239,
                config_epoch: 4,
                connected: true,
                slots: vec![SlotRange { first: 0, last: 5460 }, SlotRange { first: 7000, last: 7000 }],
                migrating: vec![(93, b.clone())],
                importing: vec![(77, b)],
            }
        );
    }

    #[test]
    fn failed_replicas_without_address_are_read() {
        let nodes = parse(&format!("{A} :0@0 slave,fail,noaddr {B} 1 2 3 disconnected\n\n")).unwrap();
        assert_eq!(nodes[0].address, None);
        assert_eq!(nodes[0].bus_port, None);
        assert_eq!(nodes[0].primary, Some(NodeId::parse(B).unwrap()));
        assert_eq!(nodes[0].flags, Flags { replica: true, failed: true, no_address: true, ..Flags::default() });
        assert!(!nodes[0].connected);
    }

    #[test]
    fn damaged_lines_are_refused_with_a_reason() {
        let good = format!("{A} 127.0.0.1:1@2 master - 0 0 1 connected 0-5");
        assert!(Node::parse(&good).is_ok());
        for bad in [
            &good[..30],
            &good[..45],
            &good.replace("0-5", "5-0"),
            &good.replace("0-5", "16384"),
            &good.replace("connected", "maybe"),
            &good.replace("master", "boss"),
            &good.replace("0-5", "[5->"),
            &good.replace('@', "@x"),
            &good.replacen('0', "Z", 1),
        ] {
            assert!(Node::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ranges_are_printed_as_redis_prints_them() {
        let ranges = [SlotRange { first: 0, last: 99 }, SlotRange { first: 200, last: 200 }];
        assert_eq!(slots_text(&ranges), "0-99,200");
        assert_eq!(ranges[0].len(), 100);
    }
}
