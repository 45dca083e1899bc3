//! Graphs of many shapes, in every input form, against a sort in memory; the same bytes for every budget and number of threads.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::support::edges;
use morphgl_formats::edge_list::{self, EdgeListOptions};
use morphgl_formats::numpy::{self, NumpyOptions};
use morphgl_formats::{Ingest, Options, RowContent, Silent};
use morphgl_graph_store::{Dataset, Element, NpyWriter, Result};

/// SplitMix64.
struct Draws(u64);

impl Draws {
    fn below(&mut self, n: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((((z ^ (z >> 31)) >> 32) * u64::from(n)) >> 32) as u32
    }

    /// Each power of two as likely as any other.
    fn wide(&mut self, bits: u32) -> u32 {
        let bits = self.below(bits);
        self.below(1 << bits)
    }

    /// Ids below `n` of one shape: even, a power law, one hub, few bits, runs of equals; in any order.
    fn ids(&mut self, len: u32, n: u32) -> Vec<u32> {
        let (shape, hub, stride, run) = (self.below(6), self.below(n), 1 << self.below(12), 1 + self.wide(16));
        let id = |i: u32, draws: &mut Self| match shape {
            0 => draws.below(n),
            1 => ((u64::from(draws.below(n)) * u64::from(draws.below(n))) / u64::from(n)) as u32,
            2 if draws.below(3) > 0 => hub,
            3 => draws.below(n) / stride * stride,
            4 => i / run % n,
            _ => draws.below(n.min(1 << 14)),
        };
        let mut ids: Vec<u32> = (0..len).map(|i| id(i, self)).collect();
        match self.below(4) {
            0 => ids.sort_unstable(),
            1 => ids.sort_unstable_by(|a, b| b.cmp(a)),
            _ => {}
        }
        ids
    }
}

/// Edges, and their input form.
struct Case {
    num_nodes: u32,
    edges: Vec<(u32, u32, f32)>,
    weighted: bool,
    way: Way,
    slice: usize,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    Pairs,
    Planar,
    Interleaved,
    BySource,
    ByTarget,
    Pushed,
    Text,
}

const WAYS: [Way; 7] =
    [Way::Pairs, Way::Planar, Way::Interleaved, Way::BySource, Way::ByTarget, Way::Pushed, Way::Text];

impl Case {
    fn new(draws: &mut Draws, most: u32, way: Way) -> Self {
        let (len, num_nodes) = (most - draws.below(most / 8), 1 + draws.wide(17));
        let (sources, targets) = (draws.ids(len, num_nodes), draws.ids(len, num_nodes));
        let weighted = draws.below(3) == 0;
        let weight = |i: usize| if weighted { i as f32 } else { 1.0 };
        let mut edges: Vec<_> = (0..len as usize).map(|i| (sources[i], targets[i], weight(i))).collect();
        match way {
            Way::BySource => edges.sort_by_key(|e| e.0),
            Way::ByTarget => edges.sort_by_key(|e| e.1),
            _ => {}
        }
        Self { num_nodes, edges, weighted, way, slice: 1 + draws.wide(20) as usize }
    }

    /// The graph by the definition of the options.
    fn expected(&self, options: &Options) -> Vec<(u32, u32, f32)> {
        let mut all = Vec::new();
        for &(u, v, w) in self.edges.iter().filter(|e| !options.drop_self_loops || e.0 != e.1) {
            all.push((u, v, if options.drop_weights { 1.0 } else { w }));
            if options.symmetrise && u != v {
                all.push((v, u, if options.drop_weights { 1.0 } else { w }));
            }
        }
        all.sort_by_key(|e| (e.1, e.0));
        if options.symmetrise || options.drop_duplicates {
            all.dedup_by_key(|e| (e.0, e.1));
        }
        if options.add_self_loops {
            let mut missing = vec![true; self.num_nodes as usize];
            all.iter().filter(|e| e.0 == e.1).for_each(|e| missing[e.0 as usize] = false);
            all.extend((0..self.num_nodes).filter(|&v| missing[v as usize]).map(|v| (v, v, 1.0)));
            all.sort_by_key(|e| (e.1, e.0));
        }
        all
    }

    /// Writes the input.
    fn write(&self, dir: &Path) {
        let column = |of: fn(&(u32, u32, f32)) -> u32| self.edges.iter().map(of).collect::<Vec<u32>>();
        let (sources, targets) = (column(|e| e.0), column(|e| e.1));
        match self.way {
            Way::Pairs => {
                put(dir, "src", &sources, None);
                put(dir, "dst", &targets.iter().map(|&v| i64::from(v)).collect::<Vec<_>>(), None);
            }
            Way::Planar => put(dir, "edge_index", &[sources, targets].concat(), Some(self.edges.len())),
            Way::Interleaved => {
                let pairs: Vec<i64> = self.edges.iter().flat_map(|e| [e.0.into(), e.1.into()]).collect();
                put(dir, "edge_index", &pairs, Some(2));
            }
            Way::BySource | Way::ByTarget => {
                let (rows, indices) =
                    if self.way == Way::BySource { (&sources, &targets) } else { (&targets, &sources) };
                let offsets = (0..=self.num_nodes).map(|v| rows.partition_point(|&row| row < v) as u64);
                put(dir, "indptr", &offsets.collect::<Vec<_>>(), None);
                put(dir, "indices", indices, None);
            }
            Way::Pushed => {}
            Way::Text => {
                let mut text = std::io::BufWriter::new(fs::File::create(dir.join("edges")).unwrap());
                for (u, v, w) in &self.edges {
                    if self.weighted { writeln!(text, "{u}\t{v}\t{w}") } else { writeln!(text, "{u} {v}") }.unwrap();
                }
            }
        }
        if self.weighted && !matches!(self.way, Way::Pushed | Way::Text) {
            put(dir, "weights", &self.edges.iter().map(|e| e.2).collect::<Vec<_>>(), None);
        }
    }

    fn import(&self, source: &Path, target: &Path, options: &Options) -> Result<PathBuf> {
        let num_nodes = Some(self.num_nodes.into());
        match self.way {
            Way::Text => {
                let format = EdgeListOptions { num_nodes, ..EdgeListOptions::default() };
                edge_list::import(&source.join("edges"), target, &format, options, &Silent)
            }
            Way::Pushed => {
                let mut ingest = Ingest::new(source, target, options, &Silent)?;
                let mut sink = ingest.edges(source, num_nodes, self.weighted)?;
                for (i, slice) in self.edges.chunks(self.slice).enumerate() {
                    // Slices of different lengths, so that single edges and blocks of them alternate.
                    let (few, many) = slice.split_at(if i % 2 == 0 { slice.len() / 9 } else { 0 });
                    for slice in [few, many] {
                        let sources: Vec<u32> = slice.iter().map(|e| e.0).collect();
                        let targets: Vec<u32> = slice.iter().map(|e| e.1).collect();
                        let weights: Vec<f32> = slice.iter().map(|e| e.2).collect();
                        sink.push(&sources, &targets, self.weighted.then_some(&weights))?;
                    }
                }
                sink.finish()?;
                ingest.finish()
            }
            way => {
                let rows = if way == Way::BySource { RowContent::Targets } else { RowContent::Sources };
                numpy::import(source, target, NumpyOptions { rows: Some(rows), num_nodes }, options, &Silent)
            }
        }
    }
}

fn put<T: Element>(dir: &Path, name: &str, values: &[T], dim: Option<usize>) {
    let mut out = NpyWriter::create(dir.join(format!("{name}.npy"))).unwrap();
    out.write(values).unwrap();
    out.finish(dim).unwrap();
}

/// The bytes of all files.
fn bytes(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    files.map(|path| (path.file_name().unwrap().into(), fs::read(&path).unwrap())).collect()
}

fn check(seed: u64, most: u32) {
    let mut draws = Draws(seed.wrapping_mul(0x1234_5678_9abc_def1));
    let mut case = Case::new(&mut draws, most, WAYS[(seed % 7) as usize]);
    let [symmetrise, drop_self_loops, drop_duplicates, add_self_loops, drop_weights] =
        std::array::from_fn(|_| draws.below(3) == 0);
    let mut options =
        Options { symmetrise, drop_self_loops, drop_duplicates, add_self_loops, drop_weights, ..Options::default() };
    let expected = case.expected(&options);
    let dir = tempfile::tempdir().unwrap();
    let (source, target) = (dir.path().join("source"), dir.path().join("made").join("dataset"));
    fs::create_dir(&source).unwrap();
    fs::create_dir(target.parent().expect("a directory")).unwrap();
    case.write(&source);
    let least = case.edges.len() as u64 / 2;
    let what = format!("seed {seed}: {} edges, {} nodes, {:?}", case.edges.len(), case.num_nodes, case.way);
    let mut first = None;
    for memory in [2 << 30, least + u64::from(draws.wide(24))] {
        options.memory = memory;
        let threads = 1 + draws.below(5) as usize;
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| case.import(&source, &target, &options)).unwrap();
        let dataset = Dataset::open(&target, Default::default()).unwrap();
        assert_eq!(dataset.topology.weights().is_some(), case.weighted && !drop_weights);
        assert!(edges(&dataset) == expected, "{what}, {options:?} on {threads} threads");
        let bytes = bytes(&target);
        assert!(*first.get_or_insert_with(|| bytes.clone()) == bytes, "{what}, {options:?} on {threads} threads");
        fs::remove_dir_all(&target).unwrap();
    }
    // An edge to a node that does not exist: nothing is left.
    let at = draws.below(case.edges.len() as u32) as usize;
    case.edges[at].0 = case.num_nodes;
    if case.way != Way::BySource {
        case.write(&source);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        let refused = pool.install(|| case.import(&source, &target, &options)).expect_err(&what).to_string();
        assert!(refused.contains(&case.num_nodes.to_string()) && !refused.contains('\n'), "{what}: {refused}");
        assert_eq!(fs::read_dir(target.parent().expect("a directory")).unwrap().count(), 0, "{what}");
    }
}

#[test]
fn every_form_and_every_budget_give_the_sorted_graph() {
    // Blocks of 65,536 edges or more keep the ends of the ranges of their targets.
    (0..14).for_each(|seed| check(seed, if seed < 7 { 76_000 } else { 3_000 }));
}
