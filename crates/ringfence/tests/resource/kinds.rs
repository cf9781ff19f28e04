//! Which fence belongs to which marks, for each kind of guard.

use ringfence::Locks;
use ringfence::resource::{Marks, Refused};

async fn locks() -> Locks {
    Locks::connect("memory:").await.unwrap()
}

#[tokio::test]
async fn a_guard_of_several_names_is_admitted_to_the_resource_of_each_name() {
    let locks = locks().await;
    let (mut a, mut b) = (Marks::default(), Marks::default());
    let first = locks.mutex("a").lock().await.unwrap();
    a = a.admit_write(first.fence()).unwrap();
    let fence_before = first.fence();
    first.release().await.unwrap();
    let both = locks.multi(["a", "b"]).lock().await.unwrap();
    a = a.admit_write(both.fence()).unwrap();
    b = b.admit_write(both.fence()).unwrap();
    assert!(a.admit_write(fence_before).is_err());
    let fence_of_both = both.fence();
    both.release().await.unwrap();
    let last = locks.mutex("b").lock().await.unwrap();
    b = b.admit_read(last.fence()).unwrap();
    assert!(b.admit_write(fence_of_both).is_err());
    last.release().await.unwrap();
}

#[tokio::test]
async fn concurrent_readers_are_admitted_in_any_order_but_only_between_writers() {
    let locks = locks().await;
    let lock = locks.rw_lock("n");
    let mut marks = Marks::default();
    let writer = lock.write().await.unwrap();
    marks = marks.admit_write(writer.fence()).unwrap();
    let writer_fence = writer.fence();
    let downgraded = writer.downgrade().await.unwrap();
    marks = marks.admit_read(downgraded.fence()).unwrap();
    let (one, other) = (lock.read().await.unwrap(), lock.read().await.unwrap());
    for reader in [&one, &other, &one, &downgraded] {
        marks = marks.admit_read(reader.fence()).unwrap();
    }
    let read = [one.fence(), other.fence()];
    // What a reader has read must not be changed by an earlier writer.
    assert!(marks.admit_write(writer_fence).is_err());
    for reader in [downgraded, one, other] {
        reader.release().await.unwrap();
    }
    let writer = lock.write().await.unwrap();
    marks = marks.admit_write(writer.fence()).unwrap();
    for fence in read {
        let mark = writer.fence();
        assert_eq!(marks.admit_read(fence), Err(Refused { fence, mark }));
    }
    writer.release().await.unwrap();
}

/// Fences of a semaphore are ordered per slot. With one pair of marks for all slots, a valid holder
/// would be refused.
#[tokio::test]
async fn every_slot_of_a_semaphore_needs_its_own_marks() {
    let locks = locks().await;
    let semaphore = locks.semaphore("pool", 2);
    let elder = semaphore.acquire().await.unwrap();
    let younger = semaphore.acquire().await.unwrap();
    assert!(elder.fence() < younger.fence());
    let together = Marks::default().admit_write(younger.fence()).unwrap();
    assert!(together.admit_write(elder.fence()).is_err());

    let mut slots = [Marks::default(); 2];
    for guard in [&younger, &elder] {
        let marks = &mut slots[guard.slot() as usize];
        *marks = marks.admit_write(guard.fence()).unwrap();
    }
    let (slot, fence) = (elder.slot() as usize, elder.fence());
    elder.release().await.unwrap();
    let next = semaphore.acquire().await.unwrap();
    assert_eq!(next.slot() as usize, slot);
    let marks = slots[slot].admit_write(next.fence()).unwrap();
    assert!(marks.admit_write(fence).is_err());
    next.release().await.unwrap();
    younger.release().await.unwrap();
}
