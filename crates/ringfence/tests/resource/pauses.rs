//! A holder is stopped right after its acquire succeeded, for longer than its TTL, and then
//! continues as if it still held the lock.
//!
//! These tests block while they wait for a process, so the lock is renewed on another thread.

use ringfence::resource::{Marks, Stamp};
use ringfence::{Guard, Locks};
use ringfence_testkit::Fleet;
use rusqlite::{Connection, params};

use crate::resource::holder::{LOCK, PATIENCE, Process, RESOURCE, all};
use crate::resource::stores::{Store, Stores};

/// A holder that was stopped, and another client that got the lock since.
struct Scene {
    stores: Stores,
    opened: Vec<(&'static str, Box<dyn Store>)>,
    late: Process,
    late_fence: u64,
    late_stamp: String,
    guard: Guard,
    // Dropped after the fields that need the servers.
    _locks: Locks,
    _fleet: Fleet,
}

impl Scene {
    async fn start() -> Self {
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

    /// The stopped holder continues with this command.
    fn continue_with(&mut self, command: &str) -> String {
        self.late.send(command);
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
async fn without_a_fence_a_late_write_overwrites_the_data_of_a_later_holder() {
    let mut scene = Scene::start().await;
    scene.each(|store, _| store.write_unfenced(150));
    assert_eq!(scene.continue_with("write-unfenced 90"), all("has 90"));
    // The holder of the lock assumes that it wrote last.
    scene.guard.check().unwrap();
    scene.each(|store, _| assert_eq!(store.read_unfenced(), 90));
}

#[tokio::test(flavor = "multi_thread")]
async fn late_writes_and_late_reads_are_refused() {
    let mut scene = Scene::start().await;
    scene.each(|store, fence| store.write(fence, 150).unwrap());
    assert_eq!(scene.continue_with("write 90"), scene.refused());
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

/// Two holders both read before one of them writes: without fences one update would be lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_holder_cannot_write_data_that_a_later_holder_has_read() {
    let mut scene = Scene::start().await;
    // Without fences both add to the same 100, and one addition is lost.
    scene.each(|store, _| {
        let read = store.read_unfenced();
        assert_eq!(read, 100);
    });
    scene.each(|store, fence| assert_eq!(store.read(fence), Ok(100)));
    assert_eq!(scene.continue_with("write-unfenced 120"), all("has 120"));
    scene.each(|store, _| store.write_unfenced(150));
    scene.each(|store, _| assert_eq!(store.read_unfenced(), 150));

    // No holder has written with a fence yet, so the late read is correct, but the write is
    // refused.
    assert_eq!(scene.late.ask("read"), all("has 100"));
    assert_eq!(scene.late.ask("write 120"), scene.refused());
    scene.each(|store, fence| store.write(fence, 150).unwrap());
    assert_eq!(scene.late.ask("read"), scene.refused());
    scene.each(|store, fence| assert_eq!(store.read(fence), Ok(150)));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_holder_that_accesses_first_is_admitted_and_the_newer_one_reads_its_data() {
    let mut scene = Scene::start().await;
    assert_eq!(scene.continue_with("read"), all("has 100"));
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
async fn with_a_store_that_compares_for_equality_only_the_stamp_of_a_late_holder_does_not_match() {
    let scene = Scene::start().await;
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
