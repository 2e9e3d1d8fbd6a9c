//! The checker bites: one right history, and for every property changes that break only that one.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::{Answer, Call, Event, Filter, History, Kind, List, Property, Record, Request, Watch, check};

fn seen(revision: u64, value: &str) -> Option<(u64, String)> {
    Some((revision, value.to_owned()))
}

fn request(begin: u64, key: &str, call: Call, answer: Answer) -> Request {
    Request { begin, end: begin + 5, key: key.to_owned(), call, answer, in_transaction: false }
}

fn create(value: &str) -> Call {
    Call::Create { value: value.to_owned() }
}

fn update(expected: u64, value: &str) -> Call {
    Call::Update { expected, value: value.to_owned() }
}

fn event(kind: Kind, key: &str, revision: u64, value: &str, previous: Option<(u64, String)>) -> Event {
    Event { kind, key: key.to_owned(), revision, value: value.to_owned(), previous: Some(previous) }
}

fn one(event: Event) -> Record {
    Record::Events(vec![event])
}

/// Everything that happens, a tenth of a unit each.
fn requests() -> Vec<Request> {
    let together = |request: Request| Request { in_transaction: true, ..request };
    vec![
        request(10, "a/x", create("red-1"), Answer::Written(2)),
        request(20, "b/x", create("blue-2"), Answer::Written(3)),
        request(30, "a/x", update(2, "red-3"), Answer::Written(4)),
        request(40, "a/x", update(4, "blue-4"), Answer::Written(5)),
        request(45, "a/x", update(4, "red-lost"), Answer::Refused(seen(5, "blue-4"))),
        Request { end: 49, ..request(47, "a/x", Call::Get, Answer::Read(seen(5, "blue-4"))) },
        request(50, "a/x", Call::Delete { expected: 5 }, Answer::Written(6)),
        request(56, "a/x", Call::Get, Answer::Read(None)),
        request(60, "a/y", create("red-5"), Answer::Written(7)),
        together(request(70, "a/y", update(7, "red-6"), Answer::Written(8))),
        together(request(70, "b/y", create("red-7"), Answer::Written(8))),
        request(80, "b/x", Call::Delete { expected: 3 }, Answer::Written(9)),
        request(82, "b/x", Call::Get, Answer::Read(seen(3, "blue-2"))),
        request(84, "c/x", create("red-8"), Answer::Unknown),
    ]
}

fn everything() -> Watch {
    let records = vec![
        one(event(Kind::Added, "a/x", 2, "red-1", None)),
        one(event(Kind::Added, "b/x", 3, "blue-2", None)),
        one(event(Kind::Modified, "a/x", 4, "red-3", seen(2, "red-1"))),
        one(event(Kind::Modified, "a/x", 5, "blue-4", seen(4, "red-3"))),
        Record::Bookmark(5),
        one(event(Kind::Deleted, "a/x", 6, "blue-4", seen(5, "blue-4"))),
        one(event(Kind::Added, "a/y", 7, "red-5", None)),
        Record::Events(vec![
            event(Kind::Modified, "a/y", 8, "red-6", seen(7, "red-5")),
            event(Kind::Added, "b/y", 8, "red-7", None),
        ]),
        one(event(Kind::Deleted, "b/x", 9, "blue-2", seen(3, "blue-2"))),
        Record::Bookmark(9),
    ];
    Watch { name: "everything".to_owned(), from: 1, filter: Filter::default(), records }
}

/// What is red in `a`, from the middle on: an object that leaves is gone, and comes back new.
fn red() -> Watch {
    let records = vec![
        one(event(Kind::Modified, "a/x", 4, "red-3", seen(2, "red-1"))),
        one(event(Kind::Deleted, "a/x", 5, "red-3", seen(4, "red-3"))),
        one(event(Kind::Added, "a/y", 7, "red-5", None)),
        one(event(Kind::Modified, "a/y", 8, "red-6", seen(7, "red-5"))),
        Record::Bookmark(9),
    ];
    let filter = Filter { prefix: "a/".to_owned(), value: "red".to_owned() };
    Watch { name: "red".to_owned(), from: 2, filter, records }
}

fn right() -> History {
    let items =
        BTreeMap::from([("a/y".to_owned(), (8, "red-6".to_owned())), ("b/y".to_owned(), (8, "red-7".to_owned()))]);
    let list = List { begin: 90, end: 95, filter: Filter::default(), revision: 9, items };
    History { requests: requests(), lists: vec![list], watches: vec![everything(), red()] }
}

/// What is broken after a change, each once.
fn broken(change: impl FnOnce(&mut History)) -> BTreeSet<Property> {
    let mut history = right();
    change(&mut history);
    check(&history).into_iter().map(|violation| violation.property).collect()
}

fn events(record: &mut Record) -> &mut Vec<Event> {
    match record {
        Record::Events(events) => events,
        Record::Bookmark(revision) => panic!("a bookmark at {revision}"),
    }
}

macro_rules! bites {
    ($($property:ident, $name:ident: $history:ident => $change:expr;)+) => {
        $(
            #[test]
            fn $name() {
                let found = broken(|$history| $change);
                assert_eq!(found, BTreeSet::from([Property::$property]));
            }
        )+
    };
}

#[test]
fn a_right_history_is_right() {
    assert_eq!(check(&right()), []);
}

#[test]
fn an_unanswered_write_may_have_been_done_or_not() {
    assert_eq!(check(&right()), [], "not done");
    let done = broken(|history| {
        let records = &mut history.watches[0].records;
        records.push(one(event(Kind::Added, "c/x", 10, "red-8", None)));
    });
    assert_eq!(done, BTreeSet::new(), "done, and shown to one");
    let read = request(100, "c/x", Call::Get, Answer::Read(seen(10, "red-8")));
    assert_eq!(broken(|history| history.requests.push(read)), BTreeSet::new(), "done, and read");
}

#[test]
fn a_write_whose_revision_only_watches_tell_is_placed_by_them() {
    let done = broken(|history| history.requests[6].answer = Answer::Done);
    assert_eq!(done, BTreeSet::new());
}

/// What the second one takes away was written without an answer, and read.
#[test]
fn two_deletes_of_one_key_are_placed_by_what_each_takes_away() {
    let done = broken(|history| {
        history.requests.extend([
            request(100, "d", create("one"), Answer::Written(10)),
            request(110, "d", Call::Delete { expected: 10 }, Answer::Done),
            request(120, "d", create("two"), Answer::Unknown),
            request(130, "d", Call::Get, Answer::Read(seen(12, "two"))),
            request(140, "d", Call::Delete { expected: 12 }, Answer::Done),
        ]);
        history.watches[0].records.extend([
            one(event(Kind::Added, "d", 10, "one", None)),
            one(event(Kind::Deleted, "d", 11, "one", seen(10, "one"))),
            one(event(Kind::Added, "d", 12, "two", None)),
            one(event(Kind::Deleted, "d", 13, "two", seen(12, "two"))),
        ]);
    });
    assert_eq!(done, BTreeSet::new());
}

/// A delete that was not answered, of what was written at 10. A watch ends before it, and the next one begins with the list at 20.
fn unseen_delete(history: &mut History) {
    history.requests.extend([
        request(100, "d", create("one"), Answer::Written(10)),
        Request { end: u64::MAX, ..request(110, "d", Call::Delete { expected: 10 }, Answer::Unknown) },
        request(140, "d", create("two"), Answer::Written(21)),
    ]);
    history.watches[0].records.push(one(event(Kind::Added, "d", 10, "one", None)));
    let items = history.lists[0].items.clone();
    history.lists.push(List { begin: 120, end: 125, filter: Filter::default(), revision: 20, items });
    let records = vec![one(event(Kind::Added, "d", 21, "two", None))];
    history.watches.push(Watch { name: "next".to_owned(), from: 20, filter: Filter::default(), records });
}

#[test]
fn a_delete_may_lie_where_no_watch_looked() {
    assert_eq!(broken(unseen_delete), BTreeSet::new(), "it was not answered");
    let answered = broken(|history| {
        unseen_delete(history);
        history.requests.iter_mut().filter(|r| r.begin == 110).for_each(|r| (r.end, r.answer) = (115, Answer::Done));
    });
    assert_eq!(answered, BTreeSet::new(), "it was answered, without its revision");
    let read = broken(|history| {
        unseen_delete(history);
        history.requests.push(request(130, "d", Call::Get, Answer::Read(None)));
    });
    assert_eq!(read, BTreeSet::new(), "it was read to be gone");
}

#[test]
fn a_delete_that_is_only_read_may_lie_where_no_watch_looked() {
    let read = broken(|history| {
        unseen_delete(history);
        history.requests.retain(|request| request.begin != 140);
        history.requests.push(request(130, "d", Call::Get, Answer::Read(None)));
        history.watches.pop();
        history.lists.pop();
    });
    assert_eq!(read, BTreeSet::new());
}

#[test]
fn a_delete_where_a_watch_looked_is_found() {
    let looked = |history: &mut History| {
        unseen_delete(history);
        history.watches[0].records.push(Record::Bookmark(20));
    };
    let found = BTreeSet::from([Property::Linearizable, Property::PreviousValue, Property::IsCreate]);
    assert_eq!(broken(looked), found, "it would have been shown");
    let nobody = broken(|history| {
        unseen_delete(history);
        history.requests.retain(|request| request.begin != 110);
    });
    assert_eq!(nobody, found, "nobody asked for it");
}

bites! {
    Linearizable, an_object_that_comes_back_after_an_unseen_delete_is_found: history => {
        unseen_delete(history);
        history.requests.push(request(126, "d", Call::Get, Answer::Read(None)));
        history.requests.push(request(132, "d", Call::Get, Answer::Read(seen(10, "one"))));
    };
    Reliable, a_delete_that_no_watch_tells_of_is_found: history => {
        history.requests.push(request(100, "b/y", Call::Delete { expected: 8 }, Answer::Done));
    };
    Ordered, two_events_that_change_places_are_found: history => history.watches[0].records.swap(0, 1);
    Unique, an_event_that_comes_twice_is_found: history => {
        let again = history.watches[0].records[2].clone();
        history.watches[0].records.insert(3, again);
    };
    Atomic, a_transaction_that_comes_in_parts_is_found: history => {
        let second = events(&mut history.watches[0].records[7]).remove(1);
        history.watches[0].records.insert(8, one(second));
    };
    Reliable, an_event_that_is_missing_in_between_is_found: history => drop(history.watches[0].records.remove(2));
    Reliable, a_part_of_a_transaction_that_is_missing_is_found: history => {
        events(&mut history.watches[0].records[7]).remove(0);
    };
    Reliable, a_value_that_nobody_wrote_is_found: history => {
        events(&mut history.watches[0].records[3])[0].value = "red-blue".to_owned();
    };
    Reliable, an_event_that_never_happened_is_found: history => {
        events(&mut history.watches[0].records[5]).push(event(Kind::Added, "z", 6, "red-0", None));
    };
    Resumable, a_first_event_that_is_missing_is_found: history => drop(history.watches[0].records.remove(0));
    Resumable, an_event_from_before_the_start_is_found: history => {
        history.watches[1].records.insert(0, one(event(Kind::Added, "a/x", 2, "red-1", None)));
    };
    Bookmarkable, a_bookmark_beyond_what_was_shown_is_found: history => drop(history.watches[0].records.remove(8));
    Bookmarkable, an_event_that_comes_after_its_bookmark_is_found: history => history.watches[0].records.swap(3, 4);
    Bookmarkable, a_bookmark_that_goes_back_is_found: history => {
        history.watches[0].records.insert(5, Record::Bookmark(4));
    };
    PreviousValue, a_wrong_previous_value_is_found: history => {
        events(&mut history.watches[0].records[2])[0].previous = Some(seen(2, "red-0"));
    };
    PreviousValue, a_previous_value_of_the_wrong_revision_is_found: history => {
        events(&mut history.watches[0].records[3])[0].previous = Some(seen(2, "red-3"));
    };
    PreviousValue, a_previous_value_that_is_denied_is_found: history => {
        events(&mut history.watches[0].records[3])[0].previous = Some(None);
    };
    PreviousValue, a_wrong_last_value_of_what_is_gone_is_found: history => {
        events(&mut history.watches[1].records[1])[0].value = "blue-4".to_owned();
    };
    IsCreate, a_new_object_that_is_called_changed_is_found: history => {
        events(&mut history.watches[0].records[6])[0].kind = Kind::Modified;
    };
    IsCreate, an_object_that_leaves_the_view_and_is_not_called_gone_is_found: history => {
        events(&mut history.watches[1].records[1])[0].kind = Kind::Modified;
    };
    Filter, an_object_that_was_not_asked_for_is_found: history => {
        history.watches[1].records.insert(0, one(event(Kind::Added, "b/x", 3, "blue-2", None)));
    };
    Linearizable, a_read_of_what_was_overwritten_before_is_found: history => {
        history.requests[5].answer = Answer::Read(seen(4, "red-3"));
    };
    Linearizable, a_read_of_what_was_written_later_is_found: history => {
        history.requests[5].answer = Answer::Read(seen(7, "red-5"));
    };
    Linearizable, a_read_that_finds_nothing_where_something_is_is_found: history => {
        history.requests[5].answer = Answer::Read(None);
    };
    Linearizable, a_read_that_goes_back_behind_another_is_found: history => {
        // Both while b/x is being deleted: the first finds it gone, the second finds it.
        history.requests[11].end = 99;
        history.requests.push(Request { end: 86, ..request(83, "b/x", Call::Get, Answer::Read(None)) });
        history.requests.push(request(88, "b/x", Call::Get, Answer::Read(seen(3, "blue-2"))));
    };
    Linearizable, two_updates_of_one_version_are_found: history => history.requests[3].call = update(2, "blue-4");
    Linearizable, a_create_of_what_exists_is_found: history => history.requests[3].call = create("blue-4");
    Linearizable, a_revision_that_time_contradicts_is_found: history => {
        (history.requests[1].begin, history.requests[1].end) = (1, 2);
    };
    Linearizable, a_revision_that_is_given_twice_is_found: history => {
        history.requests.push(request(58, "d/x", create("red-9"), Answer::Written(7)));
        events(&mut history.watches[0].records[6]).push(event(Kind::Added, "d/x", 7, "red-9", None));
        history.lists[0].items.insert("d/x".to_owned(), (7, "red-9".to_owned()));
    };
    Linearizable, a_refusal_without_a_reason_is_found: history => {
        history.requests[4].call = update(5, "red-lost");
    };
    Linearizable, a_list_of_the_past_is_found: history => {
        history.lists[0].revision = 8;
        history.lists[0].items.insert("b/x".to_owned(), (3, "blue-2".to_owned()));
    };
    Linearizable, a_list_of_two_moments_is_found: history => {
        history.lists[0].items.insert("a/y".to_owned(), (7, "red-5".to_owned()));
    };
    Linearizable, an_acknowledged_write_that_is_gone_is_found: history => {
        history.lists[0].items.clear();
    };
}
