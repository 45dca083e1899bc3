use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use proptest::prelude::*;

use super::{CloseOnDrop, Window};

/// A call in a model of the protocol on one thread: any legal sequence of calls is compared with plain counters.
#[derive(Debug, Clone, Copy)]
enum Call {
    Claim,
    Put(prop::sample::Index),
    Take,
    Release,
    Close,
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        10 => Just(Call::Claim),
        10 => any::<prop::sample::Index>().prop_map(Call::Put),
        10 => Just(Call::Take),
        10 => Just(Call::Release),
        1 => Just(Call::Close),
    ]
}

proptest! {
    #[test]
    fn every_order_of_calls_keeps_order_and_bound(
        start in 0u32..5, len in 0u32..20, size in 1usize..6, calls in proptest::collection::vec(call(), 0..200),
    ) {
        let end = start + len;
        let window: Window<u32, u32> = Window::new(start..end, size, Vec::new());
        let (mut claimed, mut taken, mut released, mut closed) = (start, start, start, false);
        let (mut open, mut put): (Vec<u32>, Vec<u32>) = (Vec::new(), Vec::new());
        let mut spares = 0;
        for call in calls {
            match call {
                // Calls that would sleep for ever on one thread are left out.
                Call::Claim if !closed && claimed < end && (claimed - released) as usize >= size => {}
                Call::Claim => {
                    let got = window.claim();
                    if closed || claimed == end {
                        prop_assert_eq!(got, None);
                    } else {
                        let (index, spare) = got.expect("there is space");
                        prop_assert_eq!(index, claimed);
                        prop_assert_eq!(spare.is_some(), spares > 0);
                        spares -= usize::from(spare.is_some());
                        claimed += 1;
                        open.push(index);
                    }
                }
                Call::Put(_) if open.is_empty() => {}
                Call::Put(which) => {
                    let index = open.swap_remove(which.index(open.len()));
                    window.put(index, index);
                    put.push(index);
                }
                Call::Take if !closed && taken < end && !put.contains(&taken) => {}
                Call::Take => {
                    let got = window.take();
                    prop_assert_eq!(got, (!closed && taken < end).then_some(taken));
                    if got.is_some() {
                        put.retain(|&i| i != taken);
                        taken += 1;
                    }
                }
                Call::Release if released == taken => {}
                Call::Release => {
                    window.release(Some(released));
                    released += 1;
                    spares += 1;
                }
                Call::Close => {
                    window.close();
                    closed = true;
                }
            }
            prop_assert_eq!(window.lock().items.iter().flatten().count(), put.len());
            prop_assert!(window.peak() <= size);
        }
    }
}

#[test]
fn many_threads_deliver_in_order_within_the_window() {
    for (workers, size) in [(1, 1), (2, 1), (2, 3), (8, 2), (8, 9)] {
        let window: Window<u32, Box<u32>> = Window::new(0..500, size, Vec::new());
        let alive = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| {
                    while let Some((index, _)) = window.claim() {
                        assert!(alive.fetch_add(1, Ordering::SeqCst) < size, "more than {size} in flight");
                        if index % 7 == 3 {
                            thread::yield_now();
                        }
                        window.put(index, index);
                    }
                });
            }
            let _close = CloseOnDrop(&window);
            for expected in 0..500 {
                assert_eq!(window.take(), Some(expected));
                alive.fetch_sub(1, Ordering::SeqCst);
                window.release(Some(Box::new(expected)));
            }
            assert_eq!(window.take(), None);
        });
        assert!(window.peak() <= size);
        assert!(window.spares().len() <= size);
    }
}

#[test]
fn closing_wakes_every_thread() {
    let window: Window<u32, u32> = Window::new(0..100, 2, Vec::new());
    thread::scope(|scope| {
        // Two claims fill the window; the other claims and the take sleep until it is closed.
        assert!(window.claim().is_some() && window.claim().is_some());
        let claims: Vec<_> = (0..3).map(|_| scope.spawn(|| window.claim())).collect();
        let take = scope.spawn(|| window.take());
        window.close();
        for claim in claims {
            assert_eq!(claim.join().expect("no panic"), None);
        }
        assert_eq!(take.join().expect("no panic"), None);
        // Late deliveries are harmless.
        window.put(1, 1);
        assert_eq!(window.take(), None);
    });
}

#[test]
fn spares_beyond_the_window_are_returned() {
    let window: Window<u32, u32> = Window::new(0..10, 2, vec![1]);
    assert_eq!(window.give(2), None);
    assert_eq!(window.give(3), Some(3));
    assert_eq!(window.spares(), [1, 2]);
}
