//! A holder is stopped right after it was told that it holds the lock, for longer than its TTL, and
//! then goes on as if nothing had been.
//!
//! These tests wait for a process where they stand, so the lock is renewed on another thread.

use ringfence::resource::{Marks, Stamp};
use ringfence::{Guard, Locks};
use ringfence_testkit::Fleet;
use rusqlite::{Connection, params};

use crate::holder::{LOCK, PATIENCE, Process, RESOURCE, all};
use crate::stores::{Store, Stores};

/// A holder that was stopped, and another who got the lock since.
struct Scene {
    stores: Stores,
    opened: Vec<(&'static str, Box<dyn Store>)>,
    late: Process,
    late_fence: u64,
    late_stamp: String,
    guard: Guard,
    // After what needs the servers.
    _locks: Locks,
    _fleet: Fleet,
}

impl Scene {
    async fn set() -> Self {
        let stores = Stores::start();
        let fleet = Fleet::start(3);
        let nodes = fleet.urls_without_quarantine();
        let mut late = Process::start("hold", &nodes, Some(&stores.addresses()));
        let first = late.answer();
        late.pause();
        let (late_fence, late_stamp) = first.split_once(' ').unwrap();
        let locks = Locks::connect(&nodes).await.unwrap();
        let guard = locks.mutex(LOCK).wait(PATIENCE).lock().await.unwrap();
        let late_fence = late_fence.parse().unwrap();
        assert!(guard.fence() > late_fence);
        Self {
            opened: stores.addresses().open(RESOURCE),
            stores,
            late,
            late_fence,
            late_stamp: late_stamp.to_owned(),
            guard,
            _locks: locks,
            _fleet: fleet,
        }
    }

    /// The stopped holder goes on, and the first thing it does is this.
    fn wakes_and(&mut self, order: &str) -> String {
        self.late.tell(order);
        self.late.resume();
        self.late.answer()
    }

    /// The answer of stores that refuse the late holder because of the present one.
    fn refused(&self) -> String {
        all(&format!(
            "refused {} below {}",
            self.late_fence,
            self.guard.fence()
        ))
    }

    fn each(&mut self, act: impl Fn(&mut dyn Store, u64)) {
        for (_, store) in &mut self.opened {
            act(&mut **store, self.guard.fence());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_fence_a_late_write_destroys_what_a_later_holder_wrote() {
    let mut scene = Scene::set().await;
    scene.each(|store, _| store.write_unfenced(150));
    assert_eq!(scene.wakes_and("write-unfenced 90"), all("has 90"));
    // The holder of the lock wrote last, as far as it knows.
    scene.guard.check().unwrap();
    scene.each(|store, _| assert_eq!(store.read_unfenced(), 90));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_write_is_refused_and_so_is_a_late_read() {
    let mut scene = Scene::set().await;
    scene.each(|store, fence| store.write(fence, 150).unwrap());
    assert_eq!(scene.wakes_and("write 90"), scene.refused());
    assert_eq!(scene.late.ask("read"), scene.refused());
    scene.each(|store, fence| {
        assert_eq!(store.read(fence), Ok(150));
        let marks = Marks {
            read: fence,
            write: fence,
        };
        assert_eq!(store.marks(), marks);
    });
}

/// Two who both read before either writes: one of the updates would be lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_holder_does_not_write_what_a_later_one_has_read() {
    let mut scene = Scene::set().await;
    // Unguarded, both add to the same 100 and 50 of it is lost.
    scene.each(|store, _| {
        let read = store.read_unfenced();
        assert_eq!(read, 100);
    });
    scene.each(|store, fence| assert_eq!(store.read(fence), Ok(100)));
    assert_eq!(scene.wakes_and("write-unfenced 120"), all("has 120"));
    scene.each(|store, _| store.write_unfenced(150));
    scene.each(|store, _| assert_eq!(store.read_unfenced(), 150));

    // Nobody has written yet, so what it reads is no lie; what it makes of it has no place.
    assert_eq!(scene.late.ask("read"), all("has 100"));
    assert_eq!(scene.late.ask("write 120"), scene.refused());
    scene.each(|store, fence| store.write(fence, 150).unwrap());
    assert_eq!(scene.late.ask("read"), scene.refused());
    scene.each(|store, fence| assert_eq!(store.read(fence), Ok(150)));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_holder_that_comes_first_is_admitted_and_the_newer_one_builds_on_it() {
    let mut scene = Scene::set().await;
    assert_eq!(scene.wakes_and("read"), all("has 100"));
    assert_eq!(scene.late.ask("write 120"), all("has 120"));
    scene.each(|store, fence| {
        let read = store.read(fence).unwrap();
        assert_eq!(read, 120);
        store.write(fence, read + 50).unwrap();
    });
    assert_eq!(scene.late.ask("write 130"), scene.refused());
    scene.each(|store, fence| assert_eq!(store.read(fence), Ok(170)));
}

#[tokio::test(flavor = "multi_thread")]
async fn where_only_equality_is_known_the_stamp_of_a_late_holder_does_not_match() {
    let scene = Scene::set().await;
    let database = Connection::open(scene.stores.addresses().sqlite).unwrap();
    let late = &scene.late_stamp;
    database
        .execute_batch(
            "CREATE TABLE report (body text, stamp text); INSERT INTO report VALUES ('', '')",
        )
        .unwrap();
    let claim = |stamp: &str| {
        database
            .execute("UPDATE report SET stamp = ?1", [stamp])
            .unwrap()
    };
    let set = |body: &str, stamp: &str| {
        let update = "UPDATE report SET body = ?1 WHERE stamp = ?2";
        database.execute(update, params![body, stamp]).unwrap() == 1
    };
    claim(late);
    let stamp = Stamp::new(scene.guard.token(), scene.guard.fence());
    claim(stamp.as_str());
    assert!(!set("late, before the write", late));
    assert!(set("in time", stamp.as_str()));
    assert!(!set("late, after the write", late));
    let row = "SELECT body, stamp FROM report";
    let (body, found): (String, String) = database
        .query_row(row, [], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    assert_eq!(body, "in time");
    stamp.check(Some(&found)).unwrap();
}
