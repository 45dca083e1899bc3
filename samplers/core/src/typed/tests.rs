use std::sync::Arc;

use morphgl_graph_store::{Dataset, NodeType};
use morphgl_registry::{CustomSettings, Place, SamplerSettings, Sampling, SeedSet};

use super::*;

/// Paper 0 cites 1 and 2, author 3 writes 2, and paper 2 cites itself by a type named as an author's.
fn papers() -> Topology {
    let node = |name: &str, count| NodeType { name: name.into(), count };
    let edge = |source: &str, name: &str| EdgeType { source: source.into(), name: name.into(), target: "paper".into() };
    let edges = vec![edge("paper", "cites"), edge("author", "writes"), edge("paper", "writes")];
    let types = Types::new(vec![node("paper", 3), node("author", 1)], edges).expect("sound");
    let topology = Topology::new(vec![0u64, 0, 1, 4, 4], vec![0u32, 0, 3, 2], None).expect("a graph");
    topology.with_types(types, vec![0, 0, 1, 2]).expect("sorted")
}

fn settings(topology: Topology, fanouts: &str, by_type: &str) -> Result<TypedSettings> {
    let hops: NeighborSettings = fanouts.parse::<Fanouts>().expect("fanouts").into();
    let settings = [("fanouts_by_type".to_string(), by_type.into())].into_iter().collect();
    let layers = hops.fanouts.0.len();
    let custom = CustomSettings { kind: TYPED.name.into(), layers, hops: Some(hops), settings };
    TypedSettings::new(&BatchingContext {
        seeds: SeedSet::new("seeds", &[0], topology.num_nodes()).expect("a node"),
        dataset: Arc::new(Dataset::new("papers", topology)),
        settings: SamplerSettings::from(Sampling::Custom(custom)),
        gather: false,
        place: Place::Host,
        options: Default::default(),
    })
}

#[test]
fn types_have_fanouts_of_their_own() {
    let at_most = |k: u32| Some(Fanout::AtMost(std::num::NonZeroU32::new(k).expect("not 0")));
    let all = settings(papers(), "3,2", "").expect("sound");
    assert_eq!(all.fanouts, [[at_most(3); 3], [at_most(2); 3]]);
    let own = settings(papers(), "3,2", "cites=-1,0; author-writes-paper = 5,1;").expect("sound");
    assert_eq!(own.fanouts, [[Some(Fanout::All), at_most(5), at_most(3)], [None, at_most(1), at_most(2)]]);
    let untyped = Topology::new(vec![0u64, 0], Vec::<u32>::new(), None).expect("a node");
    assert_eq!(settings(untyped, "3,2", "").expect("sound").fanouts, Vec::<Vec<TypeFanout>>::new());
}

/// Node 0 has the in-neighbours 1 to 4, whose times are their numbers; its own time is 0. Trees end at the times given in place of it.
#[test]
fn trees_end_at_the_times_given() {
    let topology = Topology::new(vec![0u64, 4, 4, 4, 4, 4], vec![1u32, 2, 3, 4], None).expect("a star");
    let topology = topology.with_times(Some(vec![0i64, 1, 2, 3, 4].into()), None).expect("a time per node");
    let hops: NeighborSettings = "-1".parse::<Fanouts>().expect("all neighbours").into();
    let settings = [("temporal".to_string(), "uniform".into())].into_iter().collect();
    let custom = CustomSettings { kind: TYPED.name.into(), layers: 1, hops: Some(hops), settings };
    let seeds = SeedSet::new("seeds", &[0], 5).expect("a node");
    let settings = SamplerSettings::from(Sampling::Custom(custom));
    let context = BatchingContext::new(Arc::new(Dataset::new("star", topology.clone())), seeds, settings);
    let host = HostBatching::new(&context).expect("sound");
    let typed = TypedSettings::new(&context).expect("sound");
    let mut sampler = TypedSampler::new(&topology, typed, 1, &Arc::default());
    let mut batch = HostBatch::default();
    for (times, nodes) in [(Some(&[2, 3, -1][..]), vec![0, 0, 0, 1, 2, 1, 2, 3]), (None, vec![0, 0, 0])] {
        let seeds = Seeds { times, ..Seeds::of_nodes(&[0, 0, 0]) };
        sampler.sample(&host, seeds, &Excluded::default(), &mut batch).expect("a mini-batch");
        assert_eq!(batch.input_nodes, nodes, "{times:?}");
    }
}

#[test]
fn unknown_types_and_fanouts_are_refused() {
    let refused = |by_type: &str| settings(papers(), "3,2", by_type).expect_err("refused").to_string();
    let known = "paper-cites-paper, author-writes-paper, paper-writes-paper";
    for (by_type, what) in [
        ("cites", "\"cites\" has no =".to_string()),
        ("cited=1,1", format!("no edge type \"cited\"; there are {known}")),
        ("writes=1,1", format!("several edge types are named \"writes\"; give one of {known}")),
        ("cites=1", "cites has 1 fanouts for 2 hops".to_string()),
        ("cites=1,x", "cites: ".to_string()),
        ("cites=1,-2", "cites: ".to_string()),
    ] {
        let error = refused(by_type);
        assert!(error.contains("fanouts_by_type") && error.contains(&what), "{error}");
    }
    let untyped = Topology::new(vec![0u64, 0], Vec::<u32>::new(), None).expect("a node");
    let error = settings(untyped, "3", "cites=1").expect_err("refused").to_string();
    assert!(error.contains("the graph has no edge types"), "{error}");
    let degree = 70_000;
    let hub = Topology::new(vec![0u64, degree], vec![0u32; degree as usize], None).expect("self-loops");
    let types = Types::new(
        vec![NodeType { name: "a".into(), count: 1 }],
        vec![EdgeType { source: "a".into(), name: "to".into(), target: "a".into() }],
    );
    let hub = hub.with_types(types.expect("sound"), vec![0; degree as usize]).expect("one type");
    let error = settings(hub, "3", "to=65537").expect_err("refused").to_string();
    assert!(error.contains("more than 65536 draws"), "{error}");
}

/// A table that is filled piece by piece has the sub-rows of the graph, and refuses types out of order or of another node type.
#[test]
fn sub_rows_are_found_row_by_row() {
    let papers = papers();
    let types = papers.types().expect("types");
    let mut ends = crate::SubRowEnds::empty(types);
    assert_eq!((ends.num_bytes(), crate::SubRowEnds::num_bytes_of(types)), (36, 36));
    assert_eq!(
        (ends.extend(1, 0, &[0]), ends.extend(2, 0, &[0, 1]), ends.extend(2, 2, &[1, 2])),
        (Ok(()), Ok(()), Ok(()))
    );
    assert_eq!(ends.sub_rows(0).count(), 0);
    assert_eq!(ends.sub_rows(1).collect::<Vec<_>>(), [(0, 0..1)]);
    assert_eq!(ends.sub_rows(2).collect::<Vec<_>>(), [(0, 0..1), (1, 1..3), (2, 3..4)]);
    assert_eq!(ends.extend(2, 4, &[2, 2, 1]), Err(2), "after a later type");
    assert_eq!(ends.extend(0, 0, &[3]), Err(0), "no such type");
    assert_eq!(ends.extend(3, 0, &[0]), Err(0), "no type leads to an author");
}
