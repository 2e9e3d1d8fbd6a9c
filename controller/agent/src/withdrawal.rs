//! Takes the right to stand for election back from a Redis that does not answer. I/O.
//!
//! A replica that stood still reads that its primary has failed when it wakes up, and is elected half a second later, or at once. Its agent may sleep
//! between two looks then. So the order lies in a socket of Redis by that time, which reads it with all else that has come. The connection is made
//! before Redis gets the right: one that stands still lets nobody in, and there is not room for all who wait for that.

use std::{sync::Arc, time::Duration};

use resp::{Connection, Error};
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use crate::{local::Local, shared::Shared};

/// The parameter of Redis that takes the right.
pub(crate) const PARAMETER: &str = "cluster-replica-no-failover";
/// How long the connection may take that is made before; nothing has failed where it is not there.
const OPEN: Duration = Duration::from_millis(1500);
/// How long an order lies there. Nobody waits for it, and the kubelet ends a server that stands still for minutes.
const PATIENCE: Duration = Duration::from_secs(3600);
/// How soon it is given again to a Redis that does not take it now, as it runs a script: before it could be elected after that.
const AGAIN: Duration = Duration::from_millis(50);

/// An order not to stand for election that nobody waits for.
#[derive(Debug, Default)]
pub(crate) struct Withdrawal {
    /// Where it is to be written. Redis closes a connection when it likes (`timeout`, CLIENT KILL), so they are asked in turn whether they are still
    /// open. There are two, as one that is asked just when Redis comes to stand still is of no more use.
    open: [Option<Connection>; 2],
    /// It was, and ends when Redis has carried it out.
    given: Option<AbortOnDropHandle<()>>,
}

impl Withdrawal {
    /// To be called before Redis gets the right.
    pub(crate) async fn prepare(&mut self, local: &Local) {
        for open in &mut self.open {
            keep(open, local).await;
        }
    }

    /// To be called after a look that Redis has answered while it has the right. `false`: it answers no more.
    pub(crate) async fn keep(&mut self, local: &Local) -> bool {
        self.open.reverse();
        let [open, _] = &mut self.open;
        keep(open, local).await
    }

    /// Leaves the order with Redis.
    pub(crate) fn give(&mut self, shared: &Arc<Shared>) {
        if !self.is_under_way() {
            let (shared, open) = (Arc::clone(shared), std::mem::take(&mut self.open));
            // To both: one of them may have been closed since it was asked.
            let order = async move {
                let [first, second] = open.map(|redis| forbid(&shared.local, redis));
                tokio::join!(first, second);
            };
            self.given = Some(AbortOnDropHandle::new(tokio::spawn(order)));
        }
    }

    /// Whether Redis may carry it out later than what it is told now.
    pub(crate) fn is_under_way(&self) -> bool {
        self.given.as_ref().is_some_and(|given| !given.is_finished())
    }
}

/// Has a connection be one that is open. `false`: Redis does not answer on it.
async fn keep(open: &mut Option<Connection>, local: &Local) -> bool {
    if let Some(redis) = open {
        // Where it answers with an error, as while a script runs, it has read what was written.
        let answered = redis.call(&["PING"]).await;
        if matches!(answered, Err(Error::Deadline { .. })) {
            return false;
        }
    }
    if open.as_ref().is_none_or(Connection::is_broken) {
        *open = local.open(OPEN).await.ok();
    }
    true
}

/// Until Redis has taken it.
async fn forbid(local: &Local, mut open: Option<Connection>) {
    open.iter_mut().for_each(|redis| redis.set_deadline(PATIENCE));
    loop {
        if open.as_ref().is_none_or(Connection::is_broken) {
            open = local.open(PATIENCE).await.ok();
        }
        if let Some(redis) = &mut open
            && redis.config_set(PARAMETER, "yes").await.is_ok()
        {
            return;
        }
        sleep(AGAIN).await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpStream},
        sync::watch,
        time::timeout,
    };

    use super::*;

    #[tokio::test]
    async fn an_order_is_given_again_until_it_is_carried_out() {
        let redis = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let inputs = watch::Sender::new(Arc::new(crate::render::tests::inputs()));
        let local = Local::new(redis.local_addr().unwrap(), inputs.subscribe());
        let answers = async {
            let mut asked = String::new();
            // A script runs, and then the connection is closed.
            for answers in [&["+OK\r\n", "-BUSY a script runs\r\n", ""][..], &["+OK\r\n", "+OK\r\n"]] {
                let (mut client, _) = redis.accept().await.unwrap();
                let mut words = [0; 1024];
                for answer in answers {
                    let read = client.read(&mut words).await.unwrap();
                    asked.push_str(std::str::from_utf8(&words[..read]).unwrap());
                    client.write_all(answer.as_bytes()).await.unwrap();
                }
            }
            asked
        };
        let both = async { tokio::join!(forbid(&local, None), answers) };
        let ((), asked) = timeout(hung::answer(), both).await.unwrap();
        assert_eq!((asked.matches("AUTH").count(), asked.matches(PARAMETER).count()), (2, 3));
    }

    async fn read(client: &mut TcpStream) -> String {
        let mut words = [0; 1024];
        let read = timeout(hung::answer(), client.read(&mut words)).await.unwrap().unwrap();
        String::from_utf8(words[..read].to_vec()).unwrap()
    }

    /// Takes what the next connection begins with.
    async fn let_in(redis: &TcpListener) -> TcpStream {
        let (mut client, _) = timeout(hung::answer(), redis.accept()).await.unwrap().unwrap();
        assert!(read(&mut client).await.contains("AUTH"));
        client.write_all(b"+OK\r\n").await.unwrap();
        client
    }

    async fn answer(client: &mut TcpStream) {
        assert!(read(client).await.contains("PING"));
        client.write_all(b"+PONG\r\n").await.unwrap();
    }

    /// Before, an order was written to a connection that Redis had closed long ago, and the next one was made while it stood still.
    #[tokio::test]
    async fn an_order_finds_a_connection_that_is_open() {
        let redis = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let inputs = watch::Sender::new(Arc::new(crate::render::tests::inputs()));
        let local = Local::new(redis.local_addr().unwrap(), inputs.subscribe());
        let mut withdrawal = Withdrawal::default();
        let both = async { (let_in(&redis).await, let_in(&redis).await) };
        let ((), (first, mut second)) = tokio::join!(withdrawal.prepare(&local), both);
        let (answers, ()) = tokio::join!(withdrawal.keep(&local), answer(&mut second));
        assert!(answers);
        drop(first);
        let (answers, mut third) = tokio::join!(withdrawal.keep(&local), let_in(&redis));
        assert!(answers, "it was closed, and another one is there");
        // Redis stands still when it is asked for the second one: the time to answer passes at once.
        tokio::time::pause();
        assert!(!withdrawal.keep(&local).await);
        tokio::time::resume();
        let open = withdrawal.open.into_iter().flatten().find(|redis| !redis.is_broken());
        let order = async {
            let order = read(&mut third).await;
            third.write_all(b"+OK\r\n").await.unwrap();
            order
        };
        let ((), order) = tokio::join!(forbid(&local, open), order);
        assert!(order.contains(PARAMETER) && order.contains("yes"), "{order}");
    }
}
