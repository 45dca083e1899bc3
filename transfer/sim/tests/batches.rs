//! Digests and devices.

use morphgl_conformance::batching::{Case, graphs, reference};
use morphgl_registry::{BatchId, DeviceBatch, GivenRows, HostBatch};
use morphgl_sim::{Config, Device, SimBatch, digest};

fn batch(index: u32) -> HostBatch {
    reference::sample(&Case::new(graphs::random(120, 7, true)), BatchId { epoch: 1, index })
}

type Change = fn(&mut HostBatch);

#[test]
fn the_digest_covers_every_part_of_a_mini_batch() {
    let whole = batch(0);
    assert_eq!(digest(&whole), digest(&batch(0)), "a function of the content");
    let changes: [(&str, Change); 17] = [
        ("epoch", |b| b.id.epoch += 1),
        ("index", |b| b.id.index += 1),
        ("seeds", |b| b.num_seeds -= 1),
        ("nodes", |b| b.input_nodes.swap(0, 1)),
        ("degrees", |b| b.degrees[2] += 1.0),
        ("labels", |b| b.labels[0] ^= 1),
        ("targets", |b| b.targets.values[1] = -7.5),
        ("width of targets", |b| b.targets.width = 1),
        ("no labels", |b| b.labels.clear()),
        ("blocks", |b| b.blocks.swap(0, 1)),
        ("rows", |b| b.blocks[0].indptr[1] += 1),
        ("edges", |b| b.blocks[1].indices[0] += 1),
        ("sources", |b| b.blocks[1].num_src += 1),
        ("weights", |b| b.blocks[0].weights.as_mut().expect("weights")[0] += 1.0),
        ("given rows", |b| b.given = Some(Box::default())),
        ("no features", |b| b.features = None),
        ("features", |b| {
            let features = b.features.as_mut().expect("features");
            let (rows, dim, dtype) = (features.num_rows(), features.dim, features.dtype);
            features.resize(rows, dim, dtype)[7] ^= 1;
        }),
    ];
    for (what, change) in changes {
        let mut changed = whole.clone();
        change(&mut changed);
        assert_ne!(changed, whole, "{what}: the change changes something");
        assert_ne!(digest(&changed), digest(&whole), "{what}");
    }
}

#[test]
fn a_copy_is_independent_and_its_memory_is_reused() {
    let device = Device::new("sim:3".parse().expect("a place"), Config::instant(1));
    let key = "Transferring_PCIe_SimDma".parse().expect("a key");
    let bare = HostBatch { id: BatchId { epoch: 0, index: 9 }, ..Default::default() };
    for content in [batch(0), bare, batch(1)] {
        let mut source = content.clone();
        let ours = SimBatch::copy(&device, &key, &source).expect("memory");
        source.input_nodes.clear();
        assert_eq!((ours.id(), ours.place().to_string()), (content.id, "sim:3".to_string()));
        assert_eq!((ours.expected_digest(), ours.to_host().expect("intact")), (digest(&content), content));
        assert_eq!(device.statistics().memory_used, 1);
    }
    assert_eq!((device.statistics().memory_used, device.statistics().memory_peak), (0, 1));
}

#[test]
fn equal_place_and_configuration_share_one_device() {
    let shared = |place: &str, config: &str| {
        Device::shared(place.parse().expect("a place"), config.parse().expect("a configuration"))
    };
    let device = shared("sim:0", "name=one");
    assert!(device.is(&shared("sim:0", "name=one,memory=14")));
    assert!(!device.is(&shared("sim:1", "name=one")) && !device.is(&shared("sim:0", "name=two")));
    let batch =
        SimBatch::copy(&device, &"Training_SIM_Ledger".parse().expect("a key"), &self::batch(0)).expect("memory");
    drop(device);
    assert_eq!(shared("sim:0", "name=one").statistics().memory_used, 1, "shared while a handle exists");
    drop(batch);
    assert_eq!(shared("sim:0", "name=one").statistics().memory_peak, 0, "a new device");
}

#[test]
fn given_rows_leave_out_the_edges_that_computed_ones_would_have() {
    let device = Device::new("sim:0".parse().expect("a place"), Config::instant(2));
    let key = "Transferring_PCIe_SimDma".parse().expect("a key");
    let mut batch = batch(0);
    let copied = SimBatch::copy(&device, &key, &batch).expect("memory for two");
    assert_eq!((copied.training_part(), copied.first_layer_rows().version), (1.0, None), "all rows are computed");
    drop(copied);
    // Half as many rows are given as computed, so half as many edges of the first layer are left out.
    let (edges, first, rows) = (batch.num_edges() as f64, batch.blocks[0].num_edges() as f64, batch.blocks[0].num_dst);
    let nodes = vec![0; rows / 2];
    let given = GivenRows {
        degrees: vec![1.0; nodes.len()],
        rows: vec![0.5; nodes.len()],
        nodes,
        version: 7,
        inputs: Vec::new(),
    };
    let left_out = first * given.nodes.len() as f64 / rows as f64;
    batch.given = Some(Box::new(given));
    let copied = SimBatch::copy(&device, &key, &batch).expect("memory for two");
    assert_eq!(copied.first_layer_rows().version, Some(7));
    assert!((copied.training_part() - edges / (edges + left_out)).abs() < 1e-12, "{}", copied.training_part());
    assert_eq!(copied.to_host().expect("intact"), batch);
}
