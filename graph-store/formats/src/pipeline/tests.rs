use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use morphgl_graph_store::{Error, Position};

use super::*;

fn fault(n: u64) -> Error {
    Error::invalid(Path::new("x"), Position::Element(n), "bad", "cure")
}

/// Runs `count` jobs of which some fail; returns the results consumed, and the error.
fn run(count: u64, ahead: u64, source_fails: Option<u64>, work_fails: &[u64]) -> (Vec<u64>, Option<String>) {
    let (mut n, mut taken, open) = (0, Vec::new(), AtomicU64::new(0));
    let result = ordered(
        ahead,
        || {
            if source_fails == Some(n) {
                return Err(fault(n));
            }
            n += 1;
            assert!(open.fetch_add(1, Ordering::SeqCst) <= ahead, "jobs begun and not consumed");
            Ok((n <= count).then_some(n - 1))
        },
        |job| {
            if job % 3 == 0 {
                std::thread::yield_now();
            }
            if work_fails.contains(&job) { Err(fault(job)) } else { Ok(job * 10) }
        },
        |value| {
            taken.push(value);
            open.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        },
    );
    (taken, result.err().map(|e| e.to_string()))
}

#[test]
fn results_come_in_order_and_the_first_error_ends_them() {
    for ahead in [1, 2, 8] {
        for count in [0, 1, 2, 50, 300] {
            assert_eq!(run(count, ahead, None, &[]), ((0..count).map(|n| n * 10).collect(), None));
        }
        let (taken, error) = run(300, ahead, None, &[200, 77, 78]);
        assert_eq!((taken.len(), error), (77, Some(fault(77).to_string())));
        let (taken, error) = run(300, ahead, Some(31), &[40]);
        assert_eq!((taken.len(), error), (31, Some(fault(31).to_string())));
    }
}

#[test]
fn a_panic_of_a_worker_is_propagated() {
    let run = || ordered(4, || Ok(Some(())), |()| -> Result<()> { panic!("on purpose") }, Ok);
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    let result = std::panic::catch_unwind(run);
    std::panic::set_hook(hook);
    assert!(result.is_err(), "{result:?}");
}
