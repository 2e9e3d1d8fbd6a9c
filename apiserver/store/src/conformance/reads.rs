//! Checks of listing: ranges, order, pages of one snapshot.

use super::{Subject, pod};
use crate::pins::PIN_AGE;
use crate::{Error, Key, ListOptions, Page, Range, Revision};

fn names(page: &Page) -> Vec<String> {
    page.items.iter().map(|(key, stored)| format!("{key}@{}", stored.revision)).collect()
}

async fn list(subject: &Subject, range: Range) -> Vec<String> {
    let mut page = subject.store.list(ListOptions::all(range.clone())).await.unwrap();
    if !matches!(range, Range::Namespace { .. }) {
        // The order of namespaces is the store's own.
        page.items.sort_by(|(a, _), (b, _)| a.cmp(b));
    }
    names(&page)
}

pub(crate) async fn a_list_holds_its_range_in_order_and_nothing_else(subject: Subject) {
    let other = Key::new("podsets", Some("a"), "z").unwrap();
    let scoped = Key::new("pods", None, "cluster").unwrap();
    for key in [&pod("b", "a"), &pod("a", "b"), &other, &pod("a-b", "c"), &pod("a", "a"), &scoped] {
        subject.create(key, "x").await;
    }
    let pods = ["pods/cluster@7", "pods/a/a@6", "pods/a/b@3", "pods/a-b/c@5", "pods/b/a@2"];
    assert_eq!(list(&subject, Range::of("pods", None)).await, pods);
    assert_eq!(list(&subject, Range::of("pods", Some("a"))).await, ["pods/a/a@6", "pods/a/b@3"]);
    assert_eq!(list(&subject, Range::of("podsets", None)).await, ["podsets/a/z@4"]);
    assert_eq!(list(&subject, Range::of("secrets", None)).await, Vec::<String>::new());
    assert_eq!(list(&subject, Range::All).await.len(), 6);
    let beyond = ListOptions { after: Some(other), ..ListOptions::all(Range::of("pods", None)) };
    assert_eq!(subject.store.list(beyond).await.unwrap().items, []);
}

/// Five pods `a/p0`…`a/p4` and the first two of them, listed.
async fn begin_paging(subject: &Subject) -> (Page, ListOptions) {
    for n in 0..5 {
        subject.create(&pod("a", &format!("p{n}")), "x").await;
    }
    let options = ListOptions { limit: Some(2), ..ListOptions::all(Range::of("pods", Some("a"))) };
    let page = subject.store.list(options.clone()).await.unwrap();
    let next = ListOptions { at: Some(page.revision), after: page.next.clone(), ..options };
    (page, next)
}

pub(crate) async fn pages_are_one_snapshot_whatever_is_written_meanwhile(subject: Subject) {
    let (mut page, mut options) = begin_paging(&subject).await;
    assert_eq!((page.revision, page.next.clone()), (Revision(6), Some(pod("a", "p1"))));
    subject.delete(&pod("a", "p3"), Revision(5)).await;
    subject.update(&pod("a", "p2"), Revision(4), "changed").await;
    subject.create(&pod("a", "p2x"), "new").await;
    let mut all = names(&page);
    while let Some(after) = page.next {
        options.after = Some(after);
        page = subject.store.list(options.clone()).await.unwrap();
        assert_eq!(page.revision, Revision(6));
        all.extend(names(&page));
    }
    assert_eq!(all, ["pods/a/p0@2", "pods/a/p1@3", "pods/a/p2@4", "pods/a/p3@5", "pods/a/p4@6"]);
    let now = list(&subject, Range::All).await;
    assert_eq!(now, ["pods/a/p0@2", "pods/a/p1@3", "pods/a/p2@8", "pods/a/p2x@9", "pods/a/p4@6"]);
}

pub(crate) async fn a_snapshot_nobody_pages_through_expires(subject: Subject) {
    let (_, options) = begin_paging(&subject).await;
    let current = subject.create(&pod("a", "p9"), "x").await;
    subject.advance(PIN_AGE);
    assert_eq!(names(&subject.store.list(options.clone()).await.unwrap()), ["pods/a/p2@4", "pods/a/p3@5"]);
    subject.forget().await;
    let expired = Error::Expired { requested: Revision(6), oldest: current, current };
    assert_eq!(subject.store.list(options).await, Err(expired));
}

pub(crate) async fn the_future_cannot_be_listed(subject: Subject) {
    let options = ListOptions { at: Some(Revision(9)), ..ListOptions::all(Range::All) };
    let future = Error::Future { requested: Revision(9), current: Revision(1) };
    assert_eq!(subject.store.list(options).await, Err(future));
}
