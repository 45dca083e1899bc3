//! Rows cached on several devices. Number of devices and peer access are settings of the emulation: each test runs in a
//! process of its own.
#![cfg(feature = "emulate")]

mod common;

use std::sync::Arc;

use common::{check, operator, run, stream, with_rows};
use morphgl_conformance::batching::{Case, reference};
use morphgl_cuda::{Buffer, CudaBatch, Device, Stream, accelerators, emulation};
use morphgl_registry::{BatchId, HostBatch, Machine, MiniBatch, Place, Result, Transferring, TransferringContext};
use morphgl_tiering::{Division, TieredRows, Tiers};
use morphgl_transferring_cuda::{ZERO_COPY_KEY, ZeroCopy};
use serde_json::json;

#[test]
#[allow(clippy::print_stdout, reason = "the parent process reads it")]
fn in_a_process_of_its_own() {
    match std::env::var("MORPHGL_TEST_PART").as_deref() {
        Ok("gathers") => gathers(),
        Ok("apart") => apart(),
        Ok("budgets") => budgets(),
        Ok("tiers") => tiers(),
        Ok("pools") => pools(),
        Ok("replicated") => replicated(),
        Ok("planned") => planned(),
        _ => return,
    }
    println!("the part is done");
}

#[test]
fn rows_of_all_devices_are_gathered() {
    for devices in 1..=3 {
        run("gathers", &format!("devices={devices}"));
    }
    run("gathers", "devices=3,apart=1-2");
}

#[test]
fn inaccessible_devices_are_refused() {
    run("apart", "devices=3,apart=0-2");
}

#[test]
fn rows_are_charged_to_the_device_that_caches_them() {
    run("budgets", "devices=2,memory=1000000");
}

#[test]
fn a_reordered_dataset_lies_where_its_tiers_say() {
    for devices in 1..=3 {
        run("tiers", &format!("devices={devices}"));
    }
}

#[test]
fn gathers_of_all_devices_share_one_pool() {
    for devices in [1, 2, 4] {
        run("pools", &format!("devices={devices}"));
    }
}

#[test]
fn the_number_of_replicated_rows_is_chosen() {
    for devices in [1, 2, 3] {
        run("replicated", &format!("devices={devices}"));
    }
}

#[test]
fn a_pool_is_filled_once_with_the_planned_size() {
    for devices in [1, 2, 3] {
        run("planned", &format!("devices={devices}"));
    }
}

/// Whatever number is chosen on a device whose memory is the host's, rows fit the budget and are read right by all gathers.
fn replicated() {
    let places: Vec<Place> = accelerators(&Machine::probe()).into_iter().map(|a| a.place).collect();
    let num_devices = places.len() as u64;
    let case = Case::new(with_rows(2000, 200));
    let limit = |rows: u64| 32 * 16 + 8 * num_devices + rows * (200 + 4 * num_devices);
    for hot in [2000usize, 500] {
        let hotness: Vec<f32> =
            (0..2000).map(|v| if v % 4 < hot / 500 { 1e4 / (1 + v) as f32 } else { 0.0 }).rev().collect();
        for rows in [1, 100, 500, 3000] {
            let on = |place: &Place| {
                let (dataset, options) = (Arc::clone(&case.dataset), json!({"presample": 0, "peers": "all"}));
                let (from, to) = (place.clone(), place.clone());
                let context = TransferringContext { dataset, from, to, gather: true, sampled: None, options };
                ZeroCopy::new(&context).expect("memory")
            };
            let mut gathers: Vec<ZeroCopy> = places.iter().map(on).collect();
            for (gather, place) in gathers.iter_mut().zip(&places) {
                let cached = gather.gather().fill_cache(&hotness, limit(rows)).expect("enough memory");
                let by_device: Vec<usize> =
                    gather.gather().cached_rows_by_device().iter().map(|(_, rows)| *rows).collect();
                let spread = by_device.iter().sum::<usize>() - cached;
                assert!(cached <= hot && (num_devices > 1 || spread == 0), "{cached} of {hot}: {by_device:?}");
                // On the first device each row takes its bytes, and a rank of each cached one.
                let held = by_device[0] as u64 * 200 + if num_devices > 1 { 4 * cached as u64 } else { 0 };
                assert!(32 * 16 + 8 * num_devices + held <= limit(rows), "{by_device:?} of {rows}");
                assert!(rows < 3000 || cached == hot, "all rows fit: {cached} of {hot}");
                let device = Device::open(place, &ZERO_COPY_KEY).expect("the device is available");
                let stream = Stream::new(&device, false).expect("a stream");
                (0..2).for_each(|index| check(gather, &stream, &case, index));
            }
        }
    }
}

/// The gathers of all devices have counted and cached; then a plan gives them another size: each gives its memory back, the first that
/// gathers fills the pool, and the others read it.
fn planned() {
    let places: Vec<Place> = accelerators(&Machine::probe()).into_iter().map(|a| a.place).collect();
    let num_devices = places.len() as u64;
    let devices: Vec<Device> =
        places.iter().map(|place| Device::open(place, &ZERO_COPY_KEY).expect("the device is available")).collect();
    let streams: Vec<Stream> = devices.iter().map(|device| Stream::new(device, false).expect("a stream")).collect();
    let case = Case::new(with_rows(900, 4000));
    let bytes =
        |rows: u64| 15 * 16 + 8 * num_devices + rows * (4000 + if num_devices > 1 { 4 * num_devices } else { 0 });
    for replicated in [json!(0), json!("auto")] {
        let on = |place: &Place| {
            let options = json!({"presample": 6, "peers": "all", "cache_bytes": bytes(20), "replicated": replicated});
            let (dataset, from, to) = (Arc::clone(&case.dataset), place.clone(), place.clone());
            ZeroCopy::new(&TransferringContext { dataset, from, to, gather: true, sampled: None, options })
                .expect("memory")
        };
        let mut gathers: Vec<ZeroCopy> = places.iter().map(on).collect();
        for index in 0..9 {
            for (gather, stream) in gathers.iter_mut().zip(&streams) {
                check(gather, stream, &case, index % 3);
            }
        }
        let free = || devices.iter().map(|device| device.free_bytes().expect("a number")).collect::<Vec<u64>>();
        let rows_on_first =
            |gather: &mut ZeroCopy| gather.gather().cached_rows_by_device().first().map_or(0, |(_, rows)| *rows);
        for gather in &mut gathers {
            let curve = gather.cache().expect("the counts are kept");
            assert!(curve.bytes > 0 && curve.bytes <= bytes(20) && curve.points.len() > 1, "{curve:?}");
            assert_eq!(
                curve.points.last().map(|p| p.bytes),
                Some(bytes(if replicated == json!(0) { 900u64.div_ceil(num_devices) } else { 900 }))
            );
        }
        let before = free();
        gathers.iter_mut().for_each(|gather| gather.resize_cache(bytes(60)).expect("it is filled later"));
        assert!(free().iter().zip(&before).all(|(after, before)| after > before), "the memory is free again");
        let mut last = None;
        for (gather, stream) in gathers.iter_mut().zip(&streams) {
            let before = free();
            check(gather, stream, &case, 0);
            let taken: Vec<u64> =
                before.iter().zip(free()).map(|(before, after)| before.saturating_sub(after)).collect();
            // 60 rows on each device take 240,000 bytes there; tables and ranks less than 8,192.
            let pool_is_filled = taken.iter().all(|&taken| taken > 50 * 4000);
            assert_eq!(pool_is_filled, last.is_none(), "{taken:?} bytes of each device");
            assert!(last.is_none() || taken.iter().all(|&taken| taken < 8192), "{taken:?} bytes for a second gather");
            let cached = gather.gather().num_cached_rows();
            assert!(*last.get_or_insert(cached) == cached && rows_on_first(gather) <= 60, "{cached} rows");
            assert_eq!(gather.cache(), None);
        }
        for index in 0..3 {
            for (gather, stream) in gathers.iter_mut().zip(&streams) {
                check(gather, stream, &case, index);
            }
        }
    }
}

/// Rows that are read once per mini-batch at most, of which the hottest are equally hot, and the others by a power law; and without that
/// limit, where the hottest are replicated.
fn pools() {
    let limited = |node: usize| (50.0 / (node + 1) as f32).min(1.0);
    pool(&(0..3000).map(limited).collect::<Vec<f32>>(), 0);
    pool(&(0..3000).map(|node| 50.0 / (node + 1) as f32).collect::<Vec<f32>>(), 100);
}

/// The gathers of n devices hold n times as many rows as that of one but for those replicated, each row on one device and read right by
/// all; what is read of each device by others differs by 2% at most.
fn pool(hotness: &[f32], replicated: u32) {
    let places: Vec<Place> = accelerators(&Machine::probe()).into_iter().map(|a| a.place).collect();
    let (num_devices, num_nodes, row_bytes) = (places.len() as u64, hotness.len(), 400);
    let devices: Vec<Device> =
        places.iter().map(|place| Device::open(place, &ZERO_COPY_KEY).expect("the device is available")).collect();
    let case = Case::new(with_rows(num_nodes, row_bytes));
    let on = |place: &Place, peers: &str| {
        let (dataset, options) =
            (Arc::clone(&case.dataset), json!({"presample": 0, "peers": peers, "replicated": replicated}));
        let (from, to) = (place.clone(), place.clone());
        ZeroCopy::new(&TransferringContext { dataset, from, to, gather: true, sampled: None, options }).expect("memory")
    };
    let budget = |rows: u64| 8 * num_devices + rows * row_bytes as u64;
    let alone = on(&places[0], "none").gather().fill_cache(hotness, budget(700)).expect("enough memory");

    let free = || devices.iter().map(|device| device.free_bytes().expect("a number")).collect::<Vec<u64>>();
    let empty = free();
    let mut gathers: Vec<ZeroCopy> = places.iter().map(|place| on(place, "all")).collect();
    let cached = gathers[0].gather().fill_cache(hotness, budget(700)).expect("enough memory");
    let copies = if num_devices > 1 { replicated as usize } else { 0 };
    assert_eq!((alone, cached), (700, (copies + (alone - copies) * places.len()).min(num_nodes)));
    let before = free();
    // What another gather has counted does not move rows.
    let reversed: Vec<f32> = hotness.iter().rev().copied().collect();
    for gather in &mut gathers[1..] {
        assert_eq!(gather.gather().fill_cache(&reversed, budget(700)).expect("enough memory"), cached);
    }
    for (before, after) in before.iter().zip(free()) {
        assert!(before - after < 4096, "{} bytes on a device for a second gather", before - after);
    }
    for (gather, device) in gathers.iter_mut().zip(&devices) {
        let stream = Stream::new(device, false).expect("a stream");
        (0..2).for_each(|index| check(gather, &stream, &case, index));
    }

    let (cached, copies, all) = (cached as u32, copies as u32, num_nodes as u32);
    let division =
        Division { devices: num_devices as u32, replicated: copies, interleaved: cached - copies, host: all - cached };
    let tiers = Tiers::new(all, division).expect("all rows");
    let spread = |device| tiers.device_rows(device).filter(|&row| row >= copies);
    let heat = |device| spread(device).map(|row| f64::from(hotness[row as usize])).sum::<f64>();
    let heats: Vec<f64> = (0..num_devices as u32).map(heat).collect();
    let [least, most] = [f64::min, f64::max].map(|of| heats.iter().copied().reduce(of).expect("a device"));
    assert!(most <= 1.02 * least, "{heats:?}");

    // The rows stay as long as a gather reads them.
    let mut last = gathers.pop().expect("a gather");
    drop(gathers);
    let stream = Stream::new(devices.last().expect("a device"), false).expect("a stream");
    check(&mut last, &stream, &case, 2);
    drop(last);
    assert_eq!(free(), empty, "the memory is free again");
}

/// Rows in the order of their hotness are cached where `Tiers` places them, and the device's gather, the view of the same tiers
/// on the host and the reference give the same bytes.
fn tiers() {
    let devices = accelerators(&Machine::probe()).len() as u32;
    let stream = stream();
    for row_bytes in [1usize, 36, 480] {
        let case = Case::new(with_rows(130, row_bytes));
        let hotness: Vec<f32> = (0..130).map(|v| (130 - v) as f32).collect();
        for (rows, replicated) in [(0, 0), (1, 0), (17, 0), (43, 0), (130, 0), (1, 5), (17, 5), (43, 43), (130, 60)] {
            let options = json!({"presample": 0, "peers": "all", "replicated": replicated});
            let mut operator = operator(&case, options).expect("all devices are accessible");
            // The first nodes need an address per device, and no tables.
            let budget = 8 * u64::from(devices) + rows * row_bytes as u64;
            let cached = operator.gather().fill_cache(&hotness, budget).expect("enough memory") as u32;
            let copies = if devices > 1 { replicated.min(rows as u32) } else { 0 };
            assert_eq!(cached, (copies + (rows as u32 - copies) * devices).min(130));
            let division = Division { devices, replicated: copies, interleaved: cached - copies, host: 130 - cached };
            let tiers = Tiers::new(130, division).expect("all rows");
            let by_device: Vec<u32> =
                operator.gather().cached_rows_by_device().iter().map(|(_, rows)| *rows as u32).collect();
            let expected: Vec<u32> = (0..devices).map(|d| tiers.num_device_rows(d)).collect();
            assert_eq!(by_device, if cached == 0 { vec![] } else { expected }, "{cached} rows of {row_bytes} bytes");
            check(&mut operator, &stream, &case, 0);

            let matrix = case.dataset.features.as_ref().expect("features");
            let copy = |rows: &mut dyn Iterator<Item = u32>| -> Vec<u8> {
                rows.flat_map(|v| matrix.rows(v as usize..v as usize + 1).as_bytes().to_vec()).collect()
            };
            let parts: Vec<Vec<u8>> = (0..devices).map(|d| copy(&mut tiers.device_rows(d))).collect();
            let host = copy(&mut tiers.host_rows());
            let view = TieredRows::new(tiers, row_bytes, parts.iter().map(Vec::as_slice).collect(), &host, &[]);
            let batch = reference::sample(&case, BatchId { epoch: 0, index: 0 });
            let mut out = vec![0; batch.input_nodes.len() * row_bytes];
            let counts = view.expect("the rows of the tiers").gather(&batch.input_nodes, 0, &mut out);
            assert_eq!(counts.requests(), batch.input_nodes.len() as u64);
            assert_eq!(out, copy(&mut batch.input_nodes.iter().copied()));
        }
    }
}

/// Mini-batches equal the reference's for any cached rows and devices, and n devices cache n times as many.
fn gathers() {
    let places: Vec<Place> = accelerators(&Machine::probe()).into_iter().map(|a| a.place).collect();
    let others: Vec<String> = places[1..].iter().map(Place::to_string).collect();
    let reversed: Vec<&String> = others.iter().rev().collect();
    let stream = stream();
    for row_bytes in [1u64, 2, 36, 100, 128, 400, 1044] {
        let case = Case::new(with_rows(130, row_bytes as usize));
        let hotness: Vec<f32> = (0..130).map(|v| (v * 37 % 131) as f32).collect();
        for (peers, devices, order) in [
            (json!("none"), 1, "nodes"),
            (json!("all"), places.len(), "nodes"),
            (json!("all"), places.len(), "pages"),
            (json!(reversed), places.len(), "auto"),
            (json!(others[..others.len().min(1)]), 1 + others.len().min(1), "pages"),
        ] {
            let options = json!({"presample": 0, "peers": peers, "order": order, "replicated": 0});
            let mut operator = operator(&case, options).expect("all devices are accessible");
            for rows in [40, 0, 1, 130] {
                let rank = if devices > 1 { 4 * devices as u64 } else { 0 };
                let budget = 3 * 16 + 8 * devices as u64 + rows * (row_bytes + rank);
                let cached = operator.gather().fill_cache(&hotness, budget).expect("enough memory");
                // A node that was never accessed is not cached.
                assert_eq!(cached, (rows as usize * devices).min(129), "{peers}, capacity of {rows} rows on each");
                let by: Vec<usize> = operator.gather().cached_rows_by_device().iter().map(|(_, rows)| *rows).collect();
                let round = |i: usize| (0..cached).skip(i).step_by(devices).count();
                let expected: Vec<usize> = if cached == 0 { vec![] } else { (0..devices).map(round).collect() };
                assert_eq!(by, expected);
                (0..2).for_each(|index| check(&mut operator, &stream, &case, index));
            }
            let order: Vec<Place> =
                operator.gather().cached_rows_by_device().into_iter().map(|(place, _)| place).collect();
            assert_eq!((order.len(), &order[0]), (devices, &places[0]));
            if peers == json!(reversed) {
                assert_eq!(json!(order[1..].iter().map(Place::to_string).collect::<Vec<_>>()), peers);
            }
        }
    }
}

/// An inaccessible peer is an error that names the accessible ones.
fn apart() {
    let case = Case::new(with_rows(60, 20));
    for (peers, cure) in [
        (json!(["cuda:2"]), "give []"),
        (json!(["cuda:1", "cuda:2"]), "give [\"cuda:1\"]"),
        (json!("all"), "[\"cuda:1\"]"),
    ] {
        let error = operator(&case, json!({"peers": peers})).expect_err("no peer access");
        let expected = "Transferring_CUDA+PCIe_ZeroCopy: options: peers: cuda:0 cannot read the memory of cuda:2; ";
        assert!(error.starts_with(expected) && error.ends_with(cure), "{error}");
    }
    let mut operator = operator(&case, json!({"presample": 0, "peers": ["cuda:1"]})).expect("the peer is accessible");
    assert_eq!(operator.gather().fill_cache(&[1.0; 60], u64::MAX).expect("enough memory"), 60);
    check(&mut operator, &stream(), &case, 0);
}

/// Without a budget, each device caches within its own free memory; a budget beyond it is an error.
fn budgets() {
    let case = Case::new(with_rows(300, 1000));
    let device = Device::open(&"cuda:1".parse().expect("a place"), &ZERO_COPY_KEY).expect("the device is available");
    let other = Stream::new(&device, false).expect("a stream");
    let taken = Buffer::<u8>::new(&other, 800_000).expect("memory");
    let free = device.unallocated_bytes().expect("a number");
    let mut gather =
        operator(&case, json!({"presample": 2, "peers": "all", "replicated": 0})).expect("the peer is accessible");
    let stream = stream();
    (0..3).for_each(|index| check(&mut gather, &stream, &case, index));
    let rows = (free / 2 / 1000) as usize;
    let expected =
        [("cuda:0", rows + 1), ("cuda:1", rows)].map(|(place, rows)| (place.parse().expect("a place"), rows));
    assert_eq!(gather.gather().cached_rows_by_device(), expected, "{free} bytes are free on the peer");
    assert!(device.free_bytes().expect("a number") <= free - 1000 * rows as u64);
    drop(gather);
    assert_eq!(device.free_bytes().expect("a number"), free, "the peer's memory is released");

    let mut gather =
        operator(&case, json!({"presample": 0, "peers": "all", "replicated": 0})).expect("the peer is accessible");
    let error = gather.gather().fill_cache(&[1.0; 300], 200_000).expect_err("the peer's memory is full").to_string();
    assert!(error.starts_with("Transferring_CUDA+PCIe_ZeroCopy, rows on cuda:1: cuMemAlloc_v2: "), "{error}");
    check(&mut gather, &stream, &case, 0);
    drop(taken);
    assert_eq!(gather.gather().fill_cache(&[1.0; 300], 200_000).expect("memory is free again"), 300);
    check(&mut gather, &stream, &case, 1);
}

/// Caches rows on `place` and `peer`, and gathers; returns the number of calls of each up to the last one whose outcome is
/// reported.
fn part(case: &Case, place: &Place, peer: &Place, fail: [u64; 2]) -> Result<[u64; 2]> {
    let devices = [Device::open(place, &ZERO_COPY_KEY)?, Device::open(peer, &ZERO_COPY_KEY)?];
    devices.iter().zip(fail).for_each(|(device, call)| emulation::fail_from(device, call));
    let (dataset, from, to) = (Arc::clone(&case.dataset), place.clone(), place.clone());
    // Where the number of replicated rows is chosen, it and the number of calls vary from run to run.
    let options = json!({"presample": 0, "peers": [peer.to_string()], "replicated": 0});
    let mut operator = ZeroCopy::new(&TransferringContext { dataset, from, to, gather: true, sampled: None, options })?;
    operator.gather().fill_cache(&vec![1.0; case.dataset.num_nodes()], u64::MAX)?;
    let whole = reference::sample(case, BatchId { epoch: 0, index: 0 });
    let stream = Stream::new(&devices[0], false)?;
    let batch = CudaBatch::upload(&stream, &HostBatch { features: None, ..whole.clone() })?.into_batch();
    let MiniBatch::Device(batch) = operator.transfer(batch)?.wait()?.0 else {
        panic!("the mini-batch is on the device")
    };
    assert_eq!(batch.to_host()?, whole);
    drop((batch, operator));
    stream.synchronize()?;
    devices[1].free_bytes()?;
    Ok([0, 1].map(|i: usize| emulation::calls(&devices[i])))
}

#[test]
fn a_lost_device_is_an_error_of_the_next_call() {
    let case = Case::new(with_rows(80, 12));
    let places = |i: u64| [i, 100_000 + i].map(|i| format!("cuda:{i}").parse::<Place>().expect("a place"));
    let [place, peer] = places(1000);
    let calls = part(&case, &place, &peer, [u64::MAX; 2]).expect("nothing fails");
    for (which, calls) in calls.into_iter().enumerate() {
        for call in 1..=calls {
            let [place, peer] = places(2000 + 10_000 * which as u64 + call);
            let mut fail = [u64::MAX; 2];
            fail[which] = call;
            let error = part(&case, &place, &peer, fail).expect_err("a call fails").to_string();
            let named = error.starts_with("Transferring_CUDA+PCIe_ZeroCopy") && error.contains(": cu");
            assert!(named && error.ends_with("is made to fail"), "device {which}, call {call}: {error}");
        }
    }
}
