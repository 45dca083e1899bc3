//! Exported arrays, read by a stream of another library, on the emulated device in late mode.

use morphgl_graph_store::{Dataset, Topology};
use morphgl_registry::{BatchFeatures, BatchPairs, Block, HostBatch, Key, TargetValues};
use proptest::prelude::*;

use super::*;
use crate::RowTable;
use crate::emulated::{EmulatedDevice, Settings};

/// A default stream, as another library has it.
const READER: u64 = 1;

fn late() -> Device {
    let key: Key = "Batching_CUDA_Tests".parse().expect("a key");
    Device::over(EmulatedDevice::new(0, Settings { late: true, ..Settings::default() }), None, &key)
}

/// Nodes with classes, without edges: mini-batches have theirs.
fn dataset(num_nodes: usize) -> Dataset {
    let topology = Topology::new(vec![0u64; num_nodes + 1], Vec::<u32>::new(), None).expect("offsets");
    let classes: Vec<i32> = (0..num_nodes as i32).map(|v| v % 5 - 1).collect();
    Dataset { labels: Some(classes.into()), num_classes: 4, ..Dataset::new("nodes", topology) }
}

/// A mini-batch whose values follow from `tag`.
fn batch(tag: u32, rows: &[Vec<u32>], dim: usize, dtype: Dtype) -> HostBatch {
    let num_dst = rows.len();
    let num_src = num_dst + 3;
    let indptr = std::iter::once(0).chain(rows.iter().scan(0, |sum, row| {
        *sum += row.len() as u32;
        Some(*sum)
    }));
    let indices: Vec<u32> = rows.iter().flatten().map(|source| source % num_src as u32).collect();
    let far = Block {
        num_dst,
        num_src,
        indptr: indptr.collect(),
        weights: Some(indices.iter().map(|&source| (source + tag) as f32).collect()),
        indices,
        ..Block::default()
    };
    // The seed's own hop: all other nodes are its neighbours.
    let near = Block {
        num_dst: 1,
        num_src: num_dst,
        indptr: vec![0, num_dst as u32 - 1],
        indices: (1..num_dst as u32).collect(),
        weights: Some(vec![tag as f32; num_dst - 1]),
        ..Block::default()
    };
    let mut features = BatchFeatures::zeros(0, dim, dtype);
    let bytes = features.resize(num_src, dim, dtype);
    bytes.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i as u32 * 7 + tag) as u8);
    HostBatch {
        id: BatchId { epoch: 1, index: tag },
        num_seeds: 1,
        input_nodes: (0..num_src as u32).map(|i| i * 3 + tag % 7).collect(),
        degrees: vec![1.0; num_src],
        blocks: vec![far, near],
        features: Some(features),
        pairs: Some(Box::new(BatchPairs {
            num_positives: 1,
            ends: vec![[0, tag % 3], [tag % 2, 1]],
            edge_types: Vec::new(),
        })),
        labels: vec![tag as i32, -1],
        targets: TargetValues { width: 3, values: (0..6).map(|i| (i + tag) as f32).collect() },
        ..HostBatch::default()
    }
}

/// Sources and destinations of an edge list, by a loop.
fn edges(blocks: &[&Block]) -> Vec<i64> {
    let sources = blocks.iter().flat_map(|block| &block.indices).map(|&source| i64::from(source));
    let rows = blocks
        .iter()
        .flat_map(|block| (0..block.num_dst).flat_map(|row| block.row(row).iter().map(move |_| row as i64)));
    sources.chain(rows).collect()
}

/// Bytes as elements of a type.
fn read<T: Pod>(bytes: &[u8]) -> Vec<T> {
    bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
}

fn words(bytes: &[u8]) -> Vec<i64> {
    read(bytes)
}

fn rows() -> impl Strategy<Value = Vec<Vec<u32>>> {
    prop::collection::vec(prop::collection::vec(any::<u32>(), 0..40), 1..30)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn arrays_are_those_of_the_mini_batch(
        rows in rows(), tag in 0u32..1000, dim in 1usize..9, dtype in prop::sample::select(vec![Dtype::F32, Dtype::F16, Dtype::U8]),
    ) {
        let device = late();
        let (host, stream) = (batch(tag, &rows, dim, dtype), Stream::new(&device, false).expect("a stream"));
        let dataset = dataset(200);
        let exporter = Exporter::new(&device, &dataset).expect("memory");
        let upload = || CudaBatch::upload(&stream, &host).expect("memory").into_batch();
        let exported = exporter.export(upload(), EdgeList::AllHops).expect("memory");
        let bytes = |array: ExportedArray| array.to_bytes().expect("done");
        let n_id: Vec<i64> = host.input_nodes.iter().map(|&v| i64::from(v)).collect();
        prop_assert_eq!(words(&bytes(exported.n_id())), n_id.clone());
        let classes: Vec<i64> = n_id.iter().map(|v| v % 5 - 1).collect();
        prop_assert_eq!(words(&bytes(exported.classes().expect("classes"))), classes);
        let x = exported.features().expect("features");
        prop_assert_eq!((x.shape(), x.dtype()), (&[n_id.len(), dim][..], dtype));
        prop_assert_eq!(bytes(x), host.features.as_ref().expect("features").as_bytes());
        let [far, near] = &host.blocks[..] else { unreachable!() };
        prop_assert_eq!(words(&bytes(exported.edge_index().expect("edges"))), edges(&[near, far]));
        let weights: Vec<f32> = read(&bytes(exported.edge_weight().expect("weights")));
        let of_blocks = [near, far].into_iter().flat_map(|block| block.weights.clone().expect("weights"));
        prop_assert_eq!(weights, of_blocks.collect::<Vec<_>>());
        let pairs = host.pairs.as_ref().expect("pairs");
        let ends = [0, 1].map(|end| pairs.ends.iter().map(move |pair| i64::from(pair[end])));
        prop_assert_eq!(words(&bytes(exported.pairs().expect("pairs"))), ends.into_iter().flatten().collect::<Vec<_>>());
        for (block, expected) in exported.blocks().into_iter().zip(&host.blocks) {
            let ids = |array| read::<u32>(&bytes(array));
            prop_assert_eq!((ids(block.indptr), ids(block.indices)), (expected.indptr.clone(), expected.indices.clone()));
        }
        // A copy has the same arrays, and its mini-batch may be dropped before they are read.
        let kept = upload();
        let copied = exporter.export_copy(&kept, EdgeList::AllHops).expect("memory");
        drop((kept, upload()));
        for (copy, first) in [
            (copied.n_id(), exported.n_id()),
            (copied.features().expect("features"), exported.features().expect("features")),
            (copied.edge_index().expect("edges"), exported.edge_index().expect("edges")),
            (copied.pairs().expect("pairs"), exported.pairs().expect("pairs")),
            (copied.labels(), exported.labels()),
            (copied.row_targets(), exported.row_targets()),
        ] {
            prop_assert_eq!(copy.shape(), first.shape());
            prop_assert_eq!(bytes(copy), bytes(first));
        }
        prop_assert_eq!(read::<i32>(&bytes(copied.labels())), host.labels.clone());
        prop_assert_eq!(read::<f32>(&bytes(copied.row_targets())), host.targets.values.clone());
        let induced = exporter.export(upload(), EdgeList::OneHop).expect("memory");
        prop_assert_eq!(words(&bytes(induced.edge_index().expect("edges"))), edges(&[far]));
        prop_assert!(exporter.export(upload(), EdgeList::Nothing).expect("memory").edge_index().is_none());
    }

    /// Features that lie in a table of all nodes are copied to a row per input node.
    #[test]
    fn rows_of_a_table_are_copied(nodes in prop::collection::vec(0u32..50, 1..80), row_bytes in 1usize..40) {
        let device = late();
        let stream = Stream::new(&device, false).expect("a stream");
        let table: Vec<u8> = (0..50 * row_bytes).map(|i| (i * 31 % 251) as u8).collect();
        let mut batch = CudaBatch::upload(&stream, &HostBatch { input_nodes: nodes.clone(), ..HostBatch::default() }).expect("memory");
        let parts = Arc::new([Buffer::of(&stream, &table).expect("memory")]);
        let rows = CudaRows::OfNodes(RowTable::new(parts, 0));
        batch.features = Some(crate::CudaFeatures { dim: row_bytes, dtype: Dtype::U8, rows });
        batch.ready = stream.record(false).expect("an event");
        let exporter = Exporter::new(&device, &dataset(50)).expect("memory");
        let exported = exporter.export(batch.into_batch(), EdgeList::AllHops).expect("memory");
        let expected: Vec<u8> = nodes.iter().flat_map(|&v| &table[v as usize * row_bytes..][..row_bytes]).copied().collect();
        prop_assert_eq!(exported.features().expect("features").to_bytes().expect("done"), expected);
    }

    /// Another library copies arrays on a stream of its own and drops them at once; later mini-batches use their memory, and the
    /// copies are what the arrays were. `waits` are mini-batches after which the reader is waited for.
    #[test]
    fn memory_is_used_again_after_its_readers(count in 2usize..12, waits in prop::collection::vec(any::<bool>(), 12), rows in rows()) {
        let device = late();
        let stream = Stream::new(&device, false).expect("a stream");
        let exporter = Exporter::new(&device, &dataset(200)).expect("memory");
        let mut copies = Vec::new();
        for tag in 0..count as u32 {
            let host = batch(tag, &rows, 4, Dtype::F32);
            let uploaded = CudaBatch::upload(&stream, &host).expect("memory").into_batch();
            let exported = exporter.export(uploaded, EdgeList::AllHops).expect("memory");
            let arrays = [exported.n_id(), exported.edge_index().expect("edges"), exported.features().expect("features")];
            drop(exported);
            let copied = arrays.map(|array| {
                let bytes = array.shape().iter().product::<usize>() * array.dtype().size();
                let to = Pinned::<u8>::new(&device, bytes).expect("memory");
                // SAFETY: the default stream is never destroyed.
                unsafe { array.read_by(READER) }.expect("no failure");
                // SAFETY: both have as many bytes; the array is kept, and the copy waited for below.
                unsafe { device.driver().copy(READER, array.address(), to.address(), bytes) }.expect("queued");
                to
            });
            let [near, far] = [&host.blocks[1], &host.blocks[0]];
            let expected = [
                bytemuck::cast_slice(&host.input_nodes.iter().map(|&v| i64::from(v)).collect::<Vec<i64>>()).to_vec(),
                bytemuck::cast_slice(&edges(&[near, far])).to_vec(),
                host.features.as_ref().expect("features").as_bytes().to_vec(),
            ];
            copies.extend(copied.into_iter().zip(expected));
            if waits[tag as usize] {
                device.driver().synchronize(READER).expect("done");
            }
        }
        device.driver().synchronize(READER).expect("done");
        for (copied, expected) in copies {
            prop_assert_eq!(&copied[..], &expected[..]);
        }
    }
}

/// What 1,000 mini-batches take of the device is what the first few take.
#[test]
fn a_steady_state_allocates_nothing() {
    let device = late();
    let stream = Stream::new(&device, false).expect("a stream");
    let exporter = Exporter::new(&device, &dataset(200)).expect("memory");
    let rows = vec![vec![1, 2, 3], vec![4], Vec::new(), vec![5, 6]];
    let run = |tags: std::ops::Range<u32>| {
        for tag in tags {
            let uploaded = CudaBatch::upload(&stream, &batch(tag, &rows, 4, Dtype::F32)).expect("memory").into_batch();
            let array = exporter.export(uploaded, EdgeList::AllHops).expect("memory").n_id();
            // SAFETY: the default stream is never destroyed.
            unsafe { array.read_by(READER) }.expect("no failure");
            drop(array);
            device.driver().synchronize(READER).expect("done");
        }
        crate::statistics(&device).allocations
    };
    let first = run(0..20);
    assert_eq!(run(20..1000), first);
}

/// Without the readers' streams the same law fails: the test above can.
#[test]
fn memory_is_overwritten_before_a_reader_that_was_not_told() {
    let device = late();
    let stream = Stream::new(&device, false).expect("a stream");
    let exporter = Exporter::new(&device, &dataset(200)).expect("memory");
    let rows = vec![vec![1, 2, 3]; 20];
    let export = |tag| {
        let uploaded = CudaBatch::upload(&stream, &batch(tag, &rows, 4, Dtype::F32)).expect("memory").into_batch();
        exporter.export(uploaded, EdgeList::AllHops).expect("memory").n_id()
    };
    let array = export(1);
    let bytes = array.shape()[0] * 8;
    let to = Pinned::<u8>::new(&device, bytes).expect("memory");
    let expected = array.to_bytes().expect("done");
    // SAFETY: the memory stays the device's while it lives.
    unsafe { device.driver().copy(READER, array.address(), to.address(), bytes) }.expect("queued");
    drop(array);
    export(2).to_bytes().expect("done");
    device.driver().synchronize(READER).expect("done");
    assert_ne!(to[..], expected[..]);
}
