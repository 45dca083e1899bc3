//! A reordered dataset is the original one, but for the numbers of its nodes.

use std::path::Path;
use std::sync::Arc;

use morphgl_batching_cpu::CpuNeighbor;
use morphgl_conformance::batching::graphs;
use morphgl_generate::{SbmConfig, sbm};
use morphgl_graph_store::{
    Dataset, DatasetWriter, EdgeSplits, FeatureMatrix, Load, Meta, NodeNames, NpyWriter, OpenOptions, PairTargets,
    Splits, TargetMatrix, Topology, Types,
};
use morphgl_registry::{
    BatchId, Batching, BatchingContext, Fanouts, HostBatch, NeighborSettings, Pick, SamplerSettings, SeedSet,
};
use morphgl_tiering::{Order, ReorderOptions, reorder};
use proptest::prelude::*;

fn options() -> ReorderOptions {
    ReorderOptions { by: "a test".into(), replace: false }
}

/// Reorders into `dir/name`, and opens what was written.
fn reordered(dataset: &Dataset, order: &Order, dir: &Path, name: &str) -> Dataset {
    let path = reorder(dataset, order, &dir.join(name), &options(), &|_, _, _| {}).expect("room");
    Dataset::open(path, OpenOptions { load: Load::Mmap, verify: true }).expect("what was written is sound")
}

/// A random order of nodes.
fn shuffled(num_nodes: usize, seed: u32) -> Order {
    let mut nodes: Vec<u32> = (0..num_nodes as u32).collect();
    nodes.sort_by_key(|v| (v ^ seed).wrapping_mul(0x9E37_79B1).rotate_left(seed % 31) ^ v.wrapping_mul(seed));
    Order::new(nodes).expect("each node once")
}

/// A random graph with splits.
fn graph(num_nodes: usize, degree: usize, weights: bool) -> Dataset {
    let nodes: Vec<u32> = (0..num_nodes as u32).rev().collect();
    let part = |from: usize| nodes.iter().copied().skip(from).step_by(3).collect::<Vec<u32>>().into();
    let splits = Splits { train: part(0), valid: part(1), test: Vec::new().into() };
    let pairs = |count: usize| nodes.iter().copied().cycle().take(2 * count).collect::<Vec<u32>>().into();
    let targets = |count: usize| PairTargets {
        labels: Some((0..count as i32).map(|pair| pair % 4 - 1).collect::<Vec<_>>().into()),
        values: Some(TargetMatrix::new((0..2 * count).map(|i| i as f32).collect::<Vec<_>>(), 2).expect("two each")),
    };
    let of_train = if degree.is_multiple_of(2) { PairTargets::default() } else { targets(degree) };
    let edges = EdgeSplits {
        targets: [of_train, PairTargets::default(), targets(7)],
        train: (!degree.is_multiple_of(2)).then(|| pairs(degree)),
        valid: pairs(num_nodes / 2),
        test: pairs(7),
        train_negatives: (!degree.is_multiple_of(2)).then(|| {
            let sources = pairs(degree).chunks(2).flat_map(|pair| [pair[0], pair[1], pair[0], 0]).collect::<Vec<_>>();
            sources.into()
        }),
        valid_negatives: None,
        test_negatives: Some(pairs(14)),
        types: Default::default(),
    };
    Dataset { splits, edges, ..graphs::random(num_nodes, degree, weights) }
}

#[track_caller]
fn check(dataset: &Dataset, order: &Order, new: &Dataset) {
    assert_eq!((new.name.as_str(), new.num_classes), (dataset.name.as_str(), dataset.num_classes));
    assert_eq!(new.topology.types(), dataset.topology.types());
    let (topology, of_new) = (&dataset.topology, order.new_of_old());
    let rename = |nodes: &[u32]| nodes.iter().map(|&v| of_new[v as usize]).collect::<Vec<u32>>();
    for old in 0..dataset.num_nodes() as u32 {
        let v = of_new[old as usize];
        assert_eq!(new.topology.neighbors(v), rename(topology.neighbors(old)), "neighbours of {old}, now {v}");
        let weights = topology.weights().map(|w| &w[topology.edge_range(old)]);
        assert_eq!(new.topology.weights().map(|w| &w[new.topology.edge_range(v)]), weights);
        let row = |dataset: &Dataset, v: u32| {
            dataset.features.as_ref().map(|f| f.rows(v as usize..v as usize + 1).as_bytes().to_vec())
        };
        assert_eq!(row(new, v), row(dataset, old), "features of {old}");
        let targets = |dataset: &Dataset, v: u32| {
            dataset.targets.as_ref().map(|t| t.row(v).iter().map(|x| x.to_bits()).collect::<Vec<_>>())
        };
        assert_eq!(targets(new, v), targets(dataset, old), "targets of {old}");
        let types = topology.edge_types().map(|types| &types[topology.edge_range(old)]);
        assert_eq!(new.topology.edge_types().map(|types| &types[new.topology.edge_range(v)]), types);
        let times = |t: &Topology, v: u32| t.edge_times().map(|times| times[t.edge_range(v)].to_vec());
        assert_eq!(times(&new.topology, v), times(topology, old), "times of the edges of {old}");
        let time = |t: &Topology, v: u32| t.node_times().map(|times| times[v as usize]);
        assert_eq!(time(&new.topology, v), time(topology, old), "time of {old}");
        let row_of_type = |dataset: &Dataset, v: u32| {
            let types = dataset.topology.types()?;
            let of = types.node_type(v);
            let matrix = dataset.features_by_type.get(of)?.as_ref()?;
            let row = (v - types.range(of).start) as usize;
            Some((of, matrix.rows(row..row + 1).as_bytes().to_vec()))
        };
        assert_eq!(row_of_type(new, v), row_of_type(dataset, old), "features of {old} in its type");
        let label = |dataset: &Dataset, v: u32| dataset.labels.as_ref().map(|l| l[v as usize]);
        assert_eq!(label(new, v), label(dataset, old), "label of {old}");
        assert_eq!(new.topology.draw_key(v), topology.draw_key(old), "draw key of {old}");
        let first = topology.types().map_or(0, |types| types.range(types.node_type(old)).start);
        let id = dataset.node_ids.as_ref().map_or(u64::from(old - first), |ids| ids[old as usize]);
        assert_eq!(new.node_ids.as_ref().expect("ids are written")[v as usize], id);
    }
    let all = |d: &Dataset| [d.splits.train.to_vec(), d.splits.valid.to_vec(), d.splits.test.to_vec()];
    assert_eq!(all(new), all(dataset).map(|split| rename(&split)), "splits keep their order");
    assert_eq!(new.edges.targets, dataset.edges.targets, "targets of the pairs");
    let pairs = |d: &Dataset| d.edges.arrays().map(|pairs| pairs.map(|pairs| pairs.to_vec()));
    assert_eq!(pairs(new), pairs(dataset).map(|pairs| pairs.map(|pairs| rename(&pairs))), "pairs keep their order");
    let trained = dataset.train_pairs().iter().map(|pair| pair.map(|v| of_new[v as usize])).collect::<Vec<_>>();
    assert_eq!(*new.train_pairs(), trained, "training pairs keep their order");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn everything_is_renumbered_together(num_nodes in 1usize..300, degree in 0usize..12, weights: bool, seed: u32) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (dataset, order) = (graph(num_nodes, degree, weights), shuffled(num_nodes, seed));
        let once = reordered(&dataset, &order, dir.path(), "once");
        check(&dataset, &order, &once);
        // Again, from files: draw keys and ids are still those of the original dataset.
        let again = shuffled(num_nodes, seed.wrapping_add(1));
        let twice = reordered(&once, &again, dir.path(), "twice");
        check(&once, &again, &twice);
        let ids = twice.node_ids.as_ref().expect("ids");
        prop_assert!((0..num_nodes as u32).all(|v| u64::from(twice.topology.draw_key(v)) == ids[v as usize]));
        // The inverse order gives the original arrays back.
        let back = Order::new(order.new_of_old().to_vec()).expect("a permutation");
        let back = reordered(&once, &back, dir.path(), "back");
        prop_assert_eq!(back.topology.indptr(), dataset.topology.indptr());
        prop_assert_eq!(back.topology.indices(), dataset.topology.indices());
        prop_assert_eq!(&back.features, &dataset.features);
        prop_assert_eq!(&back.targets, &dataset.targets);
    }
}

/// Hubs whose rows are cut by blocks, many blocks of features, and a single thread.
#[test]
fn large_rows_and_many_blocks_on_any_number_of_threads() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let n = 400_000u32;
    let row = |v: u32| match v {
        0 | 2 => n,
        1 => 0,
        _ => v % 2,
    };
    let rows: Vec<Vec<u32>> = (0..n).map(|v| (0..row(v)).map(|i| (v + i) % n).collect()).collect();
    let dataset = graphs::dataset(&rows, None);
    let order = shuffled(n as usize, 77);
    for threads in [1, 3] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads start");
        let name = threads.to_string();
        let new = pool.install(|| reordered(&dataset, &order, dir.path(), &name));
        check(&dataset, &order, &new);
    }
    let bytes = |name: &str, array: &str| std::fs::read(dir.path().join(name).join(array)).expect("written");
    for array in ["indptr.npy", "indices.npy", "features.npy", "labels.npy", "draw_keys.npy", "node_ids.npy"] {
        assert!(bytes("1", array) == bytes("3", array), "{array}");
    }
}

fn epoch(dataset: &Dataset, settings: &SamplerSettings, threads: usize) -> Vec<HostBatch> {
    let operator = CpuNeighbor::new(&BatchingContext::new(
        Arc::new(dataset.clone()),
        SeedSet::new("train", &dataset.splits.train, dataset.num_nodes()).expect("each node once"),
        settings.clone(),
    ));
    let operator = operator.expect("valid settings");
    let mut worker = operator.worker(threads).expect("a worker");
    let batch = |index| {
        let batch = worker.prepare(BatchId { epoch: 2, index }, None).and_then(|handle| handle.wait());
        batch.expect("a mini-batch").0.into_host().expect("in host memory")
    };
    (0..operator.num_batches() as u32).map(batch).collect()
}

/// Mini-batches of a graph larger than the suite's, with lists beyond every task and prefetch distance.
#[test]
fn mini_batches_are_the_same_but_for_the_numbers() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let made = sbm(&SbmConfig { nodes: 20_000, degree: 12.0, dim: 4, ..SbmConfig::default() }).expect("a graph");
    let degrees: Vec<f32> = (0..20_000).map(|v| made.topology.degree(v) as f32).collect();
    let order = Order::by_hotness(&degrees).expect("numbers");
    let new = reordered(&made, &order, dir.path(), "new");
    assert!(new.topology.indptr().windows(3).all(|w| w[1] - w[0] >= w[2] - w[1]), "degrees descend");
    let hops: NeighborSettings = "7,70,3".parse::<Fanouts>().expect("fanouts").into();
    for pick in [Pick::Uniform, Pick::Weighted] {
        let weighted = |dataset: &Dataset, of: &dyn Fn(u32, u32) -> f32| {
            let topology = &dataset.topology;
            let edges = (0..20_000).flat_map(|v| topology.neighbors(v).iter().map(move |&u| of(u, v)));
            let weights: Vec<f32> = edges.collect();
            let keys = topology.draw_keys().cloned();
            let (indptr, indices) = (topology.indptr().clone(), topology.indices().clone());
            let mut topology = Topology::new(indptr, indices, Some(weights.into())).expect("sound");
            if let Some(keys) = keys {
                topology = topology.with_draw_keys(keys).expect("a permutation");
            }
            Dataset { topology, ..dataset.clone() }
        };
        let weight = |u: u32, v: u32| ((u ^ v) % 7) as f32;
        let (old, new) = match pick {
            Pick::Uniform => (made.clone(), new.clone()),
            Pick::Weighted => {
                let old = order.old_of_new();
                (weighted(&made, &weight), weighted(&new, &|u, v| weight(old[u as usize], old[v as usize])))
            }
        };
        let settings = NeighborSettings { pick, ..hops.clone() }.into();
        for threads in [1, 2] {
            let (new, old) = (epoch(&new, &settings, threads), epoch(&old, &settings, threads));
            for (new, old) in new.into_iter().zip(old) {
                let named = old.input_nodes.iter().map(|&v| order.new_of_old()[v as usize]).collect();
                assert!(new == HostBatch { input_nodes: named, ..old }, "{}, {pick:?}, {threads} threads", new.id);
            }
        }
    }
}

/// A path with names, as an import writes it.
fn named(dir: &Path) -> Dataset {
    let mut writer = DatasetWriter::create(dir.join("named"), false).expect("a fresh path");
    writer.array("indptr", &[0u64, 1, 3, 4], None).expect("room");
    writer.array("indices", &[1u32, 0, 2, 1], None).expect("room");
    writer.array("node_names", b"annbobcy", None).expect("room");
    writer.array("node_name_ends", &[3u64, 6, 8], None).expect("room");
    let provenance = [("format".to_string(), "edges".into())].into();
    let path = writer.finish("named", 0, provenance).expect("arrays that fit");
    Dataset::open(path, OpenOptions::default()).expect("sound")
}

#[test]
fn names_and_provenance_stay() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut dataset = named(dir.path());
    let mut expected = [b"ann".as_slice(), b"bob", b"cy"].to_vec();
    for (name, order) in [("first", [2u32, 0, 1]), ("second", [1, 0, 2])] {
        let order = Order::new(order.to_vec()).expect("a permutation");
        dataset = reordered(&dataset, &order, dir.path(), name);
        expected = order.old_of_new().iter().map(|&old| expected[old as usize]).collect();
        assert!(dataset.node_ids.is_none() && dataset.features.is_none());
        let names = NodeNames::read(&dataset.path).expect("sound").expect("names");
        for (v, &name) in (0u32..).zip(&expected) {
            assert_eq!((names.get(v), names.find(name)), (name, Some(v)));
        }
        assert_eq!(names.find(b"dan"), None);
    }
    let provenance = Meta::read(&dataset.path).expect("there").provenance;
    assert_eq!(provenance["format"], "edges");
    let steps = provenance["reordered"].as_array().expect("a list");
    assert_eq!(steps.len(), 2);
    assert_eq!(steps[1]["by"], "a test");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]
    #[test]
    fn typed_graphs_are_reordered_within_their_types(
        (num_nodes, degree, weights) in (4usize..200, 0usize..12, any::<bool>()), by_type: bool, of_edges: bool, seed: u32
    ) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut dataset = graphs::timed(&graphs::typed(num_nodes, degree, weights), false, of_edges);
        let types = Types::clone(dataset.topology.types().expect("types"));
        if by_type {
            let matrix = |of: usize| FeatureMatrix::F32 {
                data: types.range(of).flat_map(|v| [v as f32, -(v as f32)]).collect::<Vec<f32>>().into(),
                dim: 2,
            };
            dataset.features = None;
            dataset.features_by_type = vec![Some(matrix(0)), None, (seed % 2 == 0).then(|| matrix(2))];
        }
        let order = shuffled(num_nodes, seed);
        let within = order.within(&types).expect("an order of all nodes");
        for of in 0..3 {
            let nodes: Vec<u32> = types.range(of).map(|new| within.old_of_new()[new as usize]).collect();
            let listed = order.old_of_new().iter().copied().filter(|&old| types.node_type(old) == of);
            prop_assert_eq!(nodes, listed.collect::<Vec<u32>>(), "the order of the nodes of a type");
        }
        let once = reordered(&dataset, &order, dir.path(), "once");
        check(&dataset, &within, &once);
        let again = shuffled(num_nodes, seed.wrapping_add(1));
        let twice = reordered(&once, &again, dir.path(), "twice");
        check(&once, &again.within(&types).expect("an order of all nodes"), &twice);
    }
}

#[test]
fn refusals_leave_nothing_behind() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let dataset = graph(30, 3, false);
    let target = dir.path().join("new");
    let run = |order: &Order| reorder(&dataset, order, &target, &options(), &|_, _, _| {});
    let error = run(&shuffled(29, 1)).expect_err("a node is missing").to_string();
    assert_eq!(error, "order: it has 29 nodes, and test has 30; give an order of all nodes of the dataset");
    assert!(!target.exists());
    run(&shuffled(30, 1)).expect("room");
    let error = run(&shuffled(30, 2)).expect_err("it exists").to_string();
    assert!(error.contains("the output exists; choose another output or pass --force"), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).expect("readable").count(), 1, "no partial dataset");
}

#[test]
fn orders_are_read_from_integers_of_numpy() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("order.npy");
    macro_rules! write {
        ($Type:ty, $values:expr) => {{
            let mut writer = NpyWriter::<$Type>::create(&path).expect("room");
            writer.write(&$values).expect("room");
            writer.finish(None).expect("room");
        }};
    }
    let refused = |words: &str| {
        let error = Order::read(&path).expect_err("no order").to_string();
        assert!(error.contains("order.npy") && error.contains(words) && error.contains("; "), "{error}");
    };
    write!(i64, [2i64, 0, 1]);
    assert_eq!(Order::read(&path).expect("an order").new_of_old(), [1, 2, 0]);
    write!(u32, [1u32, 0]);
    assert_eq!(Order::read(&path).expect("an order").old_of_new(), [1, 0]);
    write!(i64, [0i64, -1]);
    refused("element 1: -1 is no node");
    write!(u64, [0u64, 1 << 32]);
    refused("element 1: 4294967296 is no node");
    write!(i32, [0i32, 0]);
    refused("position 1 has node 0 for the second time");
    write!(f32, [0f32]);
    refused("an order of nodes cannot be f32");
}

/// A file that is changed while it is mapped is named, and no dataset is written.
#[test]
fn ids_that_change_in_a_mapped_file() {
    let dir = tempfile::tempdir().expect("a folder");
    let dataset = graphs::mapped(&graphs::random(500, 4, true), &dir.path().join("set"));
    let indices = dataset.topology.indices();
    for node in [500, u32::MAX] {
        let mut changed = indices.to_vec();
        *changed.last_mut().expect("edges") = node;
        graphs::overwrite(indices, &changed);
        let target = dir.path().join("hot");
        let error =
            reorder(&dataset, &shuffled(500, 9), &target, &options(), &|_, _, _| {}).expect_err("refused").to_string();
        assert!(error.starts_with(&indices.file().expect("mapped").display().to_string()), "{error}");
        assert!(error.ends_with("but there are 500 nodes; the mapped file was changed: import it again"), "{error}");
        let left: Vec<_> =
            std::fs::read_dir(dir.path()).expect("a folder").map(|entry| entry.expect("one").file_name()).collect();
        assert_eq!(left, ["set"]);
    }
}
