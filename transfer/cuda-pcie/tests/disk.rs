//! A dataset left on disk: rows from the device's memory, the host's and the file, by one gather.

mod common;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use common::{place, with_rows};
use morphgl_conformance::available;
use morphgl_conformance::batching::{Case, reference};
use morphgl_graph_store::{Dataset, DatasetWriter, FeatureMatrix, Load, OpenOptions};
use morphgl_registry::{
    BatchId, CACHE_HITS, CACHE_REQUESTS, DISK_BYTES, DISK_READS, HostBatch, LINK_BYTES, MiniBatch, Place, Result,
    Transferring, TransferringContext,
};
use morphgl_transferring_cuda::{DMA_GATHER, DmaGather, HOST_ROWS, ZeroCopy};
use proptest::prelude::*;
use serde_json::{Value, json};

const NODES: usize = 100;
/// Words of the map of `NODES` nodes; on the device an address besides.
const MAP: u64 = 2 * 16;
const ADDRESS: u64 = 8;

/// Writes the dataset of `case` to `dir`, and opens it as one that does not fit in memory.
fn left_on_disk(case: &Case, dir: &Path) -> Arc<Dataset> {
    let made = &case.dataset;
    let mut writer = DatasetWriter::create(dir, true).expect("a fresh directory");
    writer.array("indptr", made.topology.indptr(), None).expect("space on the disk");
    writer.array("indices", made.topology.indices(), None).expect("space on the disk");
    let Some(FeatureMatrix::U8 { data, dim }) = &made.features else { panic!("features of bytes") };
    writer.array("features", data, Some(*dim)).expect("space on the disk");
    if let Some(targets) = &made.targets {
        writer.array("targets", targets.values(), Some(targets.dim())).expect("space on the disk");
    }
    if let Some(labels) = &made.labels {
        writer.array("labels", labels, None).expect("space on the disk");
    }
    writer.array("train", &made.splits.train, None).expect("space on the disk");
    writer.finish("set", made.num_classes, Default::default()).expect("arrays that fit");
    let options = OpenOptions { load: Load::Disk, verify: false };
    Arc::new(Dataset::open(dir, options).expect("what was written opens"))
}

fn context(case: &Case, dataset: Arc<Dataset>, options: Value) -> TransferringContext {
    let sampled = Some((case.seeds.clone(), case.settings.clone()));
    TransferringContext { dataset, from: Place::Host, to: place(), gather: true, sampled, options }
}

/// Transfers a mini-batch without features.
fn transfer(operator: &mut DmaGather, lacking: &HostBatch) -> Result<(HostBatch, morphgl_registry::Counters)> {
    let (batch, measured) = operator.transfer(MiniBatch::Host(lacking.clone()))?.measured()?;
    Ok((batch.to_host()?.into_owned(), measured.counters))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) })]
    #[test]
    fn any_division_gives_the_right_rows(
        row_bytes in 1usize..700,
        on_device in prop_oneof![Just(0u64), 1..110u64],
        on_host in prop_oneof![Just(0u64), 1..110u64],
        access in prop::sample::select(vec!["aligned", "naive"]),
    ) {
        if !available(&DMA_GATHER) {
            return Ok(());
        }
        let case = Case::new(with_rows(NODES, row_bytes));
        let dir = tempfile::tempdir().expect("a temporary directory");
        let dataset = left_on_disk(&case, &dir.path().join("set"));
        let bytes = |rows: u64, tables: u64| if rows == 0 { 0 } else { tables + rows * row_bytes as u64 };
        let options = json!({
            "host_bytes": bytes(on_host, MAP), "cache_bytes": bytes(on_device, MAP + ADDRESS), "cache": "in-degree", "access": access,
        });
        let mut operator = DmaGather::new(&context(&case, dataset, options)).expect("the device is available");
        // The hottest rows on the device, the next ones in host memory; nothing is read of a node without in-neighbours.
        let degree = |node: &u32| case.dataset.topology.degree(*node);
        let mut ranked: Vec<u32> = (0..NODES as u32).filter(|node| degree(node) > 0).collect();
        ranked.sort_by_key(|node| (std::cmp::Reverse(degree(node)), *node));
        let (device, rest) = ranked.split_at(ranked.len().min(on_device as usize));
        let host = &rest[..rest.len().min(on_host as usize)];
        prop_assert_eq!(operator.gather().num_cached_rows(), device.len());
        prop_assert_eq!(operator.gather().num_host_rows(), host.len());
        for index in 0..3 {
            let whole = reference::sample(&case, BatchId { epoch: 0, index });
            let lacking = HostBatch { features: None, ..whole.clone() };
            let (made, counters) = transfer(&mut operator, &lacking).expect("no failure");
            prop_assert_eq!(&made, &whole);
            let count = |rows: &[u32]| whole.input_nodes.iter().filter(|node| rows.contains(node)).count() as u64;
            let (requests, hits, held) = (whole.input_nodes.len() as u64, count(device), count(host));
            let found = |spec| counters.get(spec).unwrap_or(0);
            if on_device > 0 && !device.is_empty() {
                prop_assert_eq!((found(&CACHE_REQUESTS), found(&CACHE_HITS)), (requests, hits));
            }
            prop_assert_eq!(found(&HOST_ROWS), held);
            let read = requests - hits - held;
            prop_assert_eq!((found(&DISK_READS) > 0, found(&DISK_BYTES) >= read * row_bytes as u64), (read > 0, true));
            let crossing = lacking.num_bytes() as u64 + 4 * requests + (requests - hits) * row_bytes as u64;
            prop_assert_eq!(found(&LINK_BYTES), crossing);
        }
    }
}

/// The rest of a cache beside one that holds all, and `auto`, which ranks by inclusion probability.
#[test]
fn tiers_may_be_absent() {
    if !available(&DMA_GATHER) {
        return;
    }
    let case = Case::new(with_rows(NODES, 36));
    let dir = tempfile::tempdir().expect("a temporary directory");
    let dataset = left_on_disk(&case, &dir.path().join("set"));
    for (options, sampled, tiers) in [
        (json!({"host_bytes": 0}), true, [true, false]),
        (json!({"host_bytes": 10_000, "cache_bytes": 0}), true, [false, true]),
        (json!({"host_bytes": 10_000, "cache_bytes": MAP + ADDRESS + 36 * 10}), true, [true, true]),
        (json!({"host_bytes": 10_000, "cache": "none"}), true, [false, false]),
        (json!({"host_bytes": 10_000}), false, [false, false]),
    ] {
        let mut context = context(&case, Arc::clone(&dataset), options.clone());
        context.sampled = context.sampled.filter(|_| sampled);
        let mut operator = DmaGather::new(&context).expect("the device is available");
        let gather = operator.gather();
        assert_eq!([gather.num_cached_rows() > 0, gather.num_host_rows() > 0], tiers, "{options}");
        drop(gather);
        assert_eq!(operator.cache(), None, "its size is not chosen with the plan");
        for index in 0..2 {
            let whole = reference::sample(&case, BatchId { epoch: 1, index });
            let lacking = HostBatch { features: None, ..whole.clone() };
            assert_eq!(transfer(&mut operator, &lacking).expect("no failure").0, whole, "{options}");
        }
    }
}

#[test]
fn what_cannot_work_is_refused_with_a_cure() {
    if !available(&DMA_GATHER) {
        return;
    }
    let case = Case::new(with_rows(NODES, 36));
    let dir = tempfile::tempdir().expect("a temporary directory");
    let set = dir.path().join("set");
    let dataset = left_on_disk(&case, &set);
    let refused = |context: &TransferringContext, words: &[&str]| {
        let error = DmaGather::new(context).expect_err("refused").to_string();
        words.iter().for_each(|word| assert!(error.contains(word), "{error:?} does not say {word:?}"));
    };
    let on_disk = |options| context(&case, Arc::clone(&dataset), options);
    let in_memory = context(&case, Arc::clone(&case.dataset), json!({"host_bytes": 1000}));
    refused(&in_memory, &["was made in memory", "write it to a directory first"]);
    let counted = on_disk(json!({"host_bytes": 1000, "cache": "presample:1"}));
    refused(&counted, &["cache presample:1", "before the first mini-batch", "another policy"]);
    refused(&on_disk(json!({"host_bytes": 1000, "cache": "sieve"})), &["cache sieve", "name a hotness policy"]);
    let of_device = TransferringContext { from: place(), ..on_disk(json!({"host_bytes": 1000})) };
    let error = ZeroCopy::new(&of_device).expect_err("refused").to_string();
    assert!(error.contains("host_bytes") && error.contains("features in memory"), "{error}");

    // The features are cut short after the operator was built: an error with the file, and no row of garbage.
    let mut operator = DmaGather::new(&on_disk(json!({"host_bytes": 0, "cache": "none"}))).expect("a device");
    let whole = reference::sample(&case, BatchId { epoch: 0, index: 0 });
    let lacking = HostBatch { features: None, ..whole };
    transfer(&mut operator, &lacking).expect("no failure yet");
    let features = fs::read_dir(&set).expect("readable").map(|e| e.expect("readable").path());
    let features = features.into_iter().find(|path| path.file_name().is_some_and(|n| n == "features.npy"));
    let features = features.expect("written");
    fs::File::options().write(true).open(&features).expect("there").set_len(200).expect("shorter");
    let error = transfer(&mut operator, &lacking).expect_err("the file ends").to_string();
    assert!(error.contains("features.npy") && error.contains("cut short"), "{error}");

    // In-neighbours that do not exist, in a file that was not checked when it was opened.
    let other = dir.path().join("damaged");
    drop(left_on_disk(&case, &other));
    let path = other.join("indices.npy");
    let mut bytes = fs::read(&path).expect("written");
    let end = bytes.len();
    bytes[end - 4..].copy_from_slice(&u32::MAX.to_le_bytes());
    fs::write(&path, bytes).expect("space on the disk");
    let options = OpenOptions { load: Load::Disk, verify: false };
    let damaged = Arc::new(Dataset::open(&other, options).expect("opened without a check"));
    let damaged = context(&case, damaged, json!({"host_bytes": 1000, "cache": "inclusion"}));
    refused(&damaged, &["has the in-neighbour 4294967295", "import it again"]);
}
