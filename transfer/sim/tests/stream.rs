//! Streams on one device: order, exclusion, failures, and the end of their threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use morphgl_registry::{BatchId, Handle, Key};
use morphgl_sim::{Device, Stream, Work};

const MS: Duration = Duration::from_millis(1);

fn device(config: &str) -> Device {
    Device::new("sim:0".parse().expect("a place"), config.parse().expect("a configuration"))
}

fn key(text: &str) -> Key {
    text.parse().expect("a key")
}

fn stream<S: Send + 'static>(device: &Device, name: &str, work: Work, state: S) -> Stream<S> {
    Stream::new(device, &key(name), work, state).expect("a thread")
}

fn id(index: u32) -> BatchId {
    BatchId { epoch: 0, index }
}

fn wait_for_hang(device: &Device) {
    while device.statistics().hanging == 0 {
        std::thread::sleep(MS / 4);
    }
}

fn idle(stream: &Stream<()>, index: u32) -> Handle<()> {
    stream.submit(id(index), (), |(), ()| Ok(()))
}

#[test]
fn work_runs_in_order_for_its_duration() {
    let device = device("training=12ms");
    let stream = stream(&device, "Training_SIM_Ledger", Work::Training, Vec::new());
    let start = Instant::now();
    let (open, gate) = std::sync::mpsc::channel::<()>();
    let mut gate = Some(gate);
    let mut push = |i| {
        let gate = gate.take();
        stream.submit(id(i), (), move |seen: &mut Vec<u32>, ()| {
            gate.iter().for_each(|gate| gate.recv().expect("the gate is opened"));
            seen.push(i);
            Ok(seen.clone())
        })
    };
    let handles: Vec<_> = (0..5).map(&mut push).collect();
    assert!(handles.iter().all(|h| !h.is_ready()), "calls return while the first operation is blocked");
    open.send(()).expect("the stream waits at the gate");
    for (handle, expected) in handles.into_iter().zip(1u32..) {
        let (seen, took) = handle.wait().expect("no fault");
        assert_eq!(seen, (0..expected).collect::<Vec<_>>());
        assert!(took >= 12 * MS, "{took:?}");
    }
    assert!(start.elapsed() >= 60 * MS);
    assert!(device.statistics().sim.busy >= 60 * MS, "{:?}", device.statistics());
}

#[test]
fn real_work_is_part_of_the_duration() {
    let device = device("training=40ms");
    let stream = stream(&device, "Training_SIM_Ledger", Work::Training, ());
    let slept = |ms: u32| {
        stream.submit(id(ms), (), move |(), ()| {
            std::thread::sleep(ms * MS);
            Ok(())
        })
    };
    let start = Instant::now();
    let (_, within) = slept(25).wait().expect("no fault");
    let (_, beyond) = slept(60).wait().expect("no fault");
    assert!(within >= 40 * MS && beyond >= 60 * MS, "{within:?}, {beyond:?}");
    assert!(within + beyond <= start.elapsed(), "reported times do not exceed the elapsed time");
}

/// Operations on the link, on the device, and on both: at most one occupies a resource at a time.
#[test]
fn resources_are_exclusive() {
    let device = device("transferring-pcie=1ms,training=1ms,batching-device=1ms");
    let holders = Arc::new([AtomicI32::new(0), AtomicI32::new(0)]);
    let most = Arc::new([AtomicI32::new(0), AtomicI32::new(0)]);
    let kinds = [
        ("Transferring_PCIe_SimDma", Work::TransferringPcie, vec![0]),
        ("Training_SIM_Ledger", Work::Training, vec![1]),
        ("Batching_PCIe+SIM_Neighbor", Work::BatchingDevice, vec![0, 1]),
        ("Batching_PCIe+SIM_Neighbor", Work::BatchingDevice, vec![0, 1]),
    ];
    let streams: Vec<_> = kinds.iter().map(|(name, work, _)| stream(&device, name, *work, ())).collect();
    let mut handles = Vec::new();
    for index in 0..25 {
        for (stream, (_, _, needs)) in streams.iter().zip(&kinds) {
            let (holders, most, needs) = (Arc::clone(&holders), Arc::clone(&most), needs.clone());
            handles.push(stream.submit(id(index), (), move |(), ()| {
                for &i in &needs {
                    most[i].fetch_max(holders[i].fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                }
                std::thread::sleep(MS);
                needs.iter().for_each(|&i| {
                    holders[i].fetch_sub(1, Ordering::SeqCst);
                });
                Ok(())
            }));
        }
    }
    handles.into_iter().for_each(|h| assert!(h.wait().expect("no deadlock, no fault").1 >= MS));
    assert_eq!((most[0].load(Ordering::SeqCst), most[1].load(Ordering::SeqCst)), (1, 1));
    let statistics = device.statistics();
    assert_eq!((statistics.pcie.operations, statistics.sim.operations), (75, 75));
    assert!(statistics.pcie.contended > 0 && statistics.sim.contended > 0, "{statistics:?}");
}

#[test]
fn different_resources_are_used_concurrently_without_contention() {
    let device = device("transferring-pcie=80ms,training=80ms");
    let copy = stream(&device, "Transferring_PCIe_SimDma", Work::TransferringPcie, ());
    let train = stream(&device, "Training_SIM_Ledger", Work::Training, ());
    // Both operations run at once, or the barrier would block for ever.
    let barrier = Arc::new(std::sync::Barrier::new(2));
    let meet = |stream: &Stream<()>| {
        let barrier = Arc::clone(&barrier);
        stream.submit(id(0), (), move |(), ()| {
            barrier.wait();
            Ok(())
        })
    };
    let (a, b) = (meet(&copy), meet(&train));
    assert!(a.wait().is_ok() && b.wait().is_ok());
    let statistics = device.statistics();
    assert_eq!((statistics.pcie.contended, statistics.sim.contended), (0, 0));
}

/// A later operation on one resource does not overtake an earlier one on both, which therefore does not starve.
#[test]
fn waiting_is_in_order_of_arrival() {
    let device = device("training=30ms,batching-device=1ms,transferring-pcie=1ms");
    let order = Arc::new(Mutex::new(Vec::new()));
    let train = stream(&device, "Training_SIM_Ledger", Work::Training, ());
    let both = stream(&device, "Batching_PCIe+SIM_Neighbor", Work::BatchingDevice, ());
    let copy = stream(&device, "Transferring_PCIe_SimDma", Work::TransferringPcie, ());
    let note = |stream: &Stream<()>, name: &'static str| {
        let order = Arc::clone(&order);
        stream.submit(id(0), (), move |(), ()| {
            order.lock().expect("no panic").push(name);
            Ok(())
        })
    };
    let until = |contended: u64| {
        while device.statistics().sim.contended + device.statistics().pcie.contended < contended {
            std::thread::sleep(MS / 4);
        }
    };
    let first = note(&train, "train");
    while order.lock().expect("no panic").is_empty() {
        std::thread::sleep(MS / 4);
    }
    let second = note(&both, "both");
    until(1);
    let third = note(&copy, "copy");
    for handle in [first, second, third] {
        handle.wait().expect("no fault");
    }
    assert_eq!(*order.lock().expect("no panic"), ["train", "both", "copy"]);
}

#[test]
fn faults_fail_by_their_kind() {
    let device =
        device("training=0s,memory=3,fault=training:error@0:1,fault=training:panic@0:2,fault=training:memory@0:3");
    let stream = stream(&device, "Training_SIM_Ledger", Work::Training, ());
    let message = |index| idle(&stream, index).wait().expect_err("a fault").to_string();
    assert!(idle(&stream, 0).wait().is_ok());
    assert_eq!(message(1), "Training_SIM_Ledger, mini-batch 1 of epoch 0: simulated error of training");
    let panic = catch_unwind(AssertUnwindSafe(|| idle(&stream, 2).wait())).expect_err("the wait panics");
    let message_text = panic.downcast_ref::<String>().expect("a message");
    assert_eq!(message_text, "simulated panic of Training_SIM_Ledger at mini-batch 2 of epoch 0");
    assert_eq!(
        message(3),
        "Training_SIM_Ledger, mini-batch 3 of epoch 0: simulated device memory: 3 mini-batches fit, and this is one \
         more; plan with a smaller device buffer"
    );
    assert!(idle(&stream, 4).wait().is_ok(), "the stream continues, and its resource is free");
}

#[test]
fn a_hang_occupies_its_resource_until_it_is_released() {
    let device = device("training=0s,batching-device=0s,fault=training:hang@0:0");
    assert_eq!(device.statistics().hanging, 0);
    let train = stream(&device, "Training_SIM_Ledger", Work::Training, ());
    let hung = idle(&train, 0);
    let both = stream(&device, "Batching_PCIe+SIM_Neighbor", Work::BatchingDevice, ());
    wait_for_hang(&device);
    let waiting = idle(&both, 1);
    while device.statistics().sim.contended == 0 {
        std::thread::sleep(MS / 4);
    }
    assert!(!hung.is_ready() && !waiting.is_ready(), "the device is occupied");
    device.release();
    let error = hung.wait().expect_err("a hang fails").to_string();
    assert_eq!(error, "Training_SIM_Ledger, mini-batch 0 of epoch 0: simulated hang of training, which was let go");
    assert!(waiting.wait().is_ok());
}

/// The thread's state is dropped when the thread ends, and dropping the stream waits for that.
#[test]
fn threads_end_when_their_stream_is_dropped() {
    let device = device("training=600s,fault=training:hang@0:7,batching-device=0s");
    let token = Arc::new(());
    let sleeping = stream(&device, "Training_SIM_Ledger", Work::Training, Arc::clone(&token));
    let submit = |stream: &Stream<Arc<()>>, index| stream.submit(id(index), (), |_, ()| Ok(()));
    let (under_way, queued) = (submit(&sleeping, 0), submit(&sleeping, 1));
    let waiting = stream(&device, "Batching_PCIe+SIM_Neighbor", Work::BatchingDevice, Arc::clone(&token));
    while device.statistics().sim.contended == 0 {
        // The second operation proceeds until the first occupies the device.
        drop(submit(&waiting, 0));
        std::thread::sleep(MS);
    }
    let start = Instant::now();
    drop(waiting);
    drop(sleeping);
    for handle in [under_way, queued] {
        let error = handle.wait().expect_err("the operation was cancelled").to_string();
        assert!(error.ends_with("the operator was dropped before this was done"), "{error}");
    }
    let hanging = stream(&device, "Training_SIM_Ledger", Work::Training, Arc::clone(&token));
    let hung = submit(&hanging, 7);
    wait_for_hang(&device);
    drop(hanging);
    assert!(hung.wait().is_err());
    assert_eq!(Arc::strong_count(&token), 1, "all threads ended");
    assert!(start.elapsed() < Duration::from_secs(500), "the 600 s were interrupted");
}

#[test]
fn the_input_lives_until_the_operation_is_done() {
    let device = device("training=30ms");
    let stream = stream(&device, "Training_SIM_Ledger", Work::Training, ());
    let read = Arc::new(5);
    let handle = stream.submit(id(0), Arc::clone(&read), |(), input| Ok(**input));
    assert_eq!(Arc::strong_count(&read), 2);
    assert_eq!(handle.wait().expect("no fault").0, 5);
    assert_eq!(Arc::strong_count(&read), 1, "dropped before the handle is ready");
}

#[test]
fn a_part_of_the_work_takes_that_part_of_the_duration() {
    let device = device("training=60s");
    let stream = stream(&device, "Training_SIM_Ledger", Work::Training, ());
    let (_, took) = stream.submit_part(id(0), 5e-4, (), |(), ()| Ok(())).wait().expect("no fault");
    assert!((30 * MS..30_000 * MS).contains(&took), "{took:?}");
}
