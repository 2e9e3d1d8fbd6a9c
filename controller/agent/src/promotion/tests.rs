#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
use super::*;

const NOW: i64 = 1_800_000_000_000;
const SECOND: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(5);

/// A replica from second to second. Its looks are a second apart, its primary is asked just before each.
struct Replica {
    promotion: Promotion,
    begun: Instant,
    /// Seconds since it began.
    seconds: u32,
    primary: u8,
    stream: &'static str,
    offset: u64,
    syncing: u8,
    /// For how many seconds its primary has been silent on the cluster bus.
    silent: u32,
    /// What the replica's own table says of its primary.
    health: &'static str,
    state_ok: bool,
    /// What Redis says of its last write to the append-only file.
    written: &'static str,
}

impl Replica {
    fn new() -> Self {
        Self {
            promotion: Promotion::default(),
            begun: Instant::now(),
            seconds: 0,
            primary: 1,
            stream: "first",
            offset: 100,
            syncing: 0,
            silent: 0,
            health: "",
            state_ok: true,
            written: "ok",
        }
    }

    fn now(&self) -> Instant {
        self.begun + SECOND * self.seconds
    }

    fn hear(&mut self, offset: u64) {
        let of = NodeId::parse(&format!("{:040x}", self.primary)).unwrap();
        let word = Word { of, stream: self.stream.to_owned(), offset, asked: self.now() };
        self.promotion.hear(word);
    }

    /// So many seconds later: what Redis is told then.
    fn after(&mut self, seconds: u32) -> Option<bool> {
        self.seconds += seconds;
        self.look(Duration::ZERO)
    }

    /// A look that takes so long.
    fn look(&mut self, takes: Duration) -> Option<bool> {
        let now = NOW + i64::from(self.seconds) * 1_000;
        let info = Info::parse(&format!(
            "server_time_usec:{}\nrole:slave\nmaster_sync_in_progress:{}\nslave_repl_offset:{}\nmaster_replid:{}\n\
             aof_enabled:1\naof_last_write_status:{}\n",
            now * 1_000,
            self.syncing,
            self.offset,
            self.stream,
            self.written
        ));
        let (pong, health) = (now - i64::from(self.silent) * 1_000, self.health);
        let line = format!("{:040x} 10.0.0.1:6379@16379 master{health} - 0 {pong} 1 connected 0-100", self.primary);
        let primary = resp::nodes::parse(&line).unwrap().pop();
        let look = Look { at: self.now(), done: self.now() + takes, info, primary, state_ok: self.state_ok };
        let told = self.promotion.decide(&look, TIMEOUT);
        told.into_iter().for_each(|forbidden| self.promotion.applied(forbidden));
        told
    }

    /// One that has all that its primary had.
    fn whole() -> Self {
        let mut replica = Self::new();
        replica.hear(100);
        assert_eq!(replica.look(Duration::ZERO), Some(false));
        replica
    }

    /// Its primary lives and is not asked for so many seconds: what Redis is told in each of them.
    fn unheard(&mut self, seconds: u32) -> Vec<Option<bool>> {
        (0..seconds).map(|_| self.after(1)).collect()
    }
}

#[test]
fn a_copy_counts_once_it_has_come_as_far_as_its_primary_was() {
    let mut replica = Replica::new();
    assert_eq!(replica.look(Duration::ZERO), None, "the primary has not told how far it is");
    replica.hear(101);
    assert_eq!(replica.after(1), None, "a byte is missing");
    replica.offset = 101;
    replica.hear(5_000);
    assert_eq!(replica.after(1), Some(false), "it had everything when that was asked, a second ago");
    let current = replica.promotion.standing().unwrap().current.unwrap();
    assert_eq!(replica.now() - current, SECOND * 2);
    assert_eq!(replica.unheard(4), [None, Some(true), None, None], "what follows does not come");
}

#[test]
fn a_copy_that_is_always_a_moment_behind_is_whole() {
    let mut replica = Replica::whole();
    for _ in 0..30 {
        let next = replica.offset + 1_000_000;
        replica.hear(next);
        assert_eq!(replica.after(1), None);
        replica.offset = next;
    }
    // Its buffer at the primary grows, which is heard of every second.
    let told: Vec<_> = (0..20)
        .map(|_| {
            replica.hear(replica.offset + 50_000_000);
            replica.offset += 1_000;
            replica.after(1)
        })
        .collect();
    assert_eq!(told.iter().flatten().collect::<Vec<_>>(), [&true]);
}

#[test]
fn a_dead_primary_did_nothing_however_long_ago_it_died() {
    let mut replica = Replica::whole();
    replica.silent = 2;
    assert_eq!(replica.after(2), None);
    (replica.silent, replica.health) = (602, ",fail");
    assert_eq!(replica.after(600), Some(true), "it stood still");
    let mut replica = Replica::whole();
    for second in 1..600 {
        (replica.silent, replica.health) = (second, if second > 8 { ",fail" } else { "" });
        assert_eq!(replica.after(1), None, "{second}");
    }
}

#[test]
fn a_primary_that_lives_on_without_the_replica_leaves_its_copy_behind() {
    let mut replica = Replica::whole();
    assert_eq!(replica.unheard(5), [None, None, None, Some(true), None]);
    // It dies; that its last answer is older than its end makes nobody whole.
    for silent in [2, 4, 60] {
        replica.silent = silent;
        assert_eq!(replica.after(1), None, "{silent}");
    }
    replica.hear(100);
    assert_eq!(replica.after(0), Some(false), "it is back, and the copy lacks nothing");
}

#[test]
fn a_primary_that_only_this_member_does_not_hear_lives_on() {
    let mut replica = Replica::whole();
    let told: Vec<_> = (1..=20)
        .map(|second| {
            replica.silent = second;
            replica.after(1)
        })
        .collect();
    assert_eq!(told.iter().position(|told| *told == Some(true)), Some(14), "{told:?}");
    // Half a minute later the others do not hear it either.
    (replica.health, replica.silent) = (",fail", 50);
    assert_eq!(replica.after(1), None);
}

#[test]
fn another_copy_and_another_history_begin_anew() {
    let again: [fn(&mut Replica); 4] = [
        |replica| replica.syncing = 1,
        // It was thrown away.
        |replica| replica.offset = 0,
        |replica| replica.primary = 2,
        |replica| {
            // The primary was started anew and counts from 0.
            (replica.stream, replica.silent) = ("second", 0);
            replica.hear(0);
            replica.stream = "first";
        },
    ];
    for (number, begin) in again.into_iter().enumerate() {
        let mut replica = Replica::whole();
        begin(&mut replica);
        let told: Vec<_> = replica.unheard(4).into_iter().flatten().collect();
        assert_eq!(told, [true], "{number}");
        (replica.syncing, replica.stream, replica.offset) = (0, "second", 7);
        replica.after(1);
        replica.hear(7);
        assert_eq!(replica.after(1), Some(false), "{number}");
    }
}

#[test]
fn whoever_stood_still_comes_up_before_it_may_be_promoted() {
    let mut replica = Replica::whole();
    replica.silent = 10;
    assert_eq!(replica.after(10), Some(true));
    assert_eq!(replica.after(1), None);
    replica.hear(100);
    assert_eq!(replica.after(1), Some(false));
}

#[test]
fn who_stands_still_in_the_middle_of_a_look_comes_up_first() {
    let mut replica = Replica::whole();
    replica.hear(100);
    assert_eq!(replica.look(SECOND * 8), Some(true), "what it looked at is as old as the pause");
    assert!(!replica.promotion.is_current());
    replica.hear(100);
    assert_eq!((replica.after(1), replica.promotion.is_current()), (Some(false), true));
}

#[test]
fn what_another_primary_said_and_what_is_long_past_says_nothing() {
    let mut replica = Replica::new();
    replica.primary = 2;
    replica.hear(100);
    replica.primary = 1;
    assert_eq!(replica.after(1), None);
    for more in 0..100 {
        replica.hear(1_000 + more);
    }
    replica.offset = 999;
    assert_eq!(replica.after(1), None);
    replica.offset = 1_099;
    assert_eq!(replica.after(1), Some(false), "of many words the last ones count");
}

#[test]
fn whoever_was_alone_does_not_know_how_long_its_primary_lived() {
    let mut replica = Replica::whole();
    for second in 1..=3 {
        (replica.silent, replica.state_ok) = (second, false);
        assert_eq!(replica.after(1), None, "{second}");
    }
    replica.silent = 4;
    assert_eq!(replica.after(1), Some(true));
    // Cut off from everybody, it has heard of its primary as long ago as of anybody.
    (replica.silent, replica.state_ok, replica.health) = (60, true, ",fail");
    assert_eq!(replica.after(1), None);
    replica.health = "";
    replica.hear(100);
    assert_eq!(replica.after(0), Some(false));
}

#[test]
fn while_its_primary_counts_as_failed_nobody_gets_the_right_to_stand() {
    for health in [",fail?", ",fail"] {
        let mut replica = Replica::new();
        replica.health = health;
        replica.hear(100);
        assert_eq!(replica.after(1), None, "{health}");
        assert_eq!(replica.promotion.standing().unwrap().held_back, Some(NotElectable::TooLate));
        (replica.seconds, replica.health) = (replica.seconds + 1, "");
        replica.hear(100);
        assert_eq!(replica.look(Duration::ZERO), Some(false), "it is heard again");
        replica.health = health;
        assert_eq!(replica.after(1), None, "who has the right keeps it");
    }
}

#[test]
fn why_a_replica_is_held_back_is_told() {
    let why = |replica: &Replica| replica.promotion.standing().unwrap().held_back;
    let mut replica = Replica::new();
    replica.after(1);
    assert_eq!(why(&replica), Some(NotElectable::NeverWhole));
    let mut replica = Replica::whole();
    assert_eq!(why(&replica), None);
    replica.unheard(5);
    assert_eq!(why(&replica), Some(NotElectable::LeftBehind));
    let mut replica = Replica::whole();
    replica.silent = 10;
    replica.after(10);
    assert_eq!(why(&replica), Some(NotElectable::WasAlone));
    let mut replica = Replica::whole();
    replica.health = ",noaddr";
    replica.hear(100);
    assert_eq!((replica.after(1), why(&replica)), (Some(true), Some(NotElectable::AddressTaken)));
    replica.health = "";
    replica.hear(200);
    assert_eq!((replica.after(1), why(&replica)), (Some(false), None));
}

#[test]
fn a_right_that_may_have_been_given_is_taken_back() {
    let mut replica = Replica::whole();
    replica.promotion.unanswered();
    replica.health = ",fail?";
    assert_eq!(replica.after(1), Some(true), "it may stand, and nobody knows");
    replica.promotion.unanswered();
    replica.health = "";
    replica.hear(100);
    assert_eq!(replica.after(1), Some(false));
}
