//! Makes the cluster bus deliver at once what TCP holds back.
//!
//! The winner of a planned failover tells everybody so within 3 to 5 ms, in a small message behind another small one that
//! no one answers on the same connection. Redis leaves Nagle's algorithm on for the links of the bus, so the kernel holds
//! the second until the first is acknowledged, and the receiver delays that acknowledgement by 40 ms. All this time the
//! old primary holds its clients' writes. A message as large as a segment is never held, and what stands before it in the
//! stream goes with it: published at the winner, it makes the gap in which nobody takes writes 7 ms instead of 47.

use crate::{
    connection::{Connection, Error},
    frame::Command,
};

/// The channel of that message. The users of the controller and of the agents may publish on this one only.
pub const CHANNEL: &str = "kun:bus";
/// What somebody reads who subscribes to everything.
const TEXT: &str = "KUN: the primary role of a shard has moved. This long message makes the news arrive at once.";
/// The largest segment there is: that of the loopback interface.
const SEGMENT: usize = 64 << 10;

/// Publishes one message that fills a segment, at the node that won.
///
/// # Errors
/// When the node does not answer or refuses. Then the news takes its usual time; nothing else is lost.
pub async fn push(connection: &mut Connection) -> Result<(), Error> {
    connection.command(&Command::new("PUBLISH").arg(CHANNEL).arg(message())).await.map(|_receivers| ())
}

fn message() -> Vec<u8> {
    let mut message = TEXT.as_bytes().to_vec();
    message.resize(SEGMENT, b' ');
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_fills_a_segment_and_begins_with_what_it_is_for() {
        assert_eq!(message().len(), 65536);
        assert!(message().starts_with(b"KUN: the primary role"));
    }
}
