//! Random typed graphs, written as csv and a manifest, come back as they were.

use std::fmt::Write;

use morphgl_formats::{Options, Silent, manifest};
use proptest::prelude::*;

use super::{features, folder, node_types, open};

#[derive(Debug, Clone)]
struct NodeType {
    /// Ids, all distinct; `None`: numbered from 0.
    ids: Option<Vec<String>>,
    count: usize,
    /// Features of each node, where it has any.
    dim: usize,
    timed: bool,
}

#[derive(Debug, Clone)]
struct EdgeType {
    ends: [usize; 2],
    /// Ends as numbers of nodes, weight and time.
    edges: Vec<([usize; 2], f32, i64)>,
    weighted: bool,
    timed: bool,
    reverse: bool,
}

fn node_type() -> impl Strategy<Value = NodeType> {
    let id = prop_oneof![(0u64..200).prop_map(|id| id.to_string()), "[a-zA-Z\" ,éß]{1,6}#"];
    let ids = prop::collection::hash_set(id, 0..8).prop_map(|ids| ids.into_iter().collect::<Vec<_>>());
    (prop::option::of(ids), 0usize..8, 0usize..3, any::<bool>()).prop_map(|(ids, count, dim, timed)| {
        // Blanks around a field are no part of it.
        let ids = ids.map(|ids| ids.into_iter().filter(|id| id.trim() == id).collect::<Vec<_>>());
        NodeType { count: ids.as_ref().map_or(count, Vec::len), ids, dim, timed }
    })
}

fn graphs() -> impl Strategy<Value = (Vec<NodeType>, Vec<EdgeType>)> {
    prop::collection::vec(node_type(), 1..4)
        .prop_filter("a node", |nodes| nodes.iter().any(|node| node.count > 0))
        .prop_flat_map(|nodes| {
            let counts: Vec<usize> = nodes.iter().map(|node| node.count).collect();
            let edge_type = (0..counts.len(), 0..counts.len()).prop_flat_map(move |(source, target)| {
                let [sources, targets] = [counts[source], counts[target]];
                let num_edges = if sources == 0 || targets == 0 { 0 } else { 12 };
                let edge = (0..sources.max(1), 0..targets.max(1), 0u8..9, -5i64..5)
                    .prop_map(|(source, target, weight, time)| ([source, target], f32::from(weight) / 2.0, time));
                (prop::collection::vec(edge, 0..=num_edges), any::<[bool; 3]>()).prop_map(
                    move |(edges, [weighted, timed, reverse])| EdgeType {
                        ends: [source, target],
                        edges,
                        weighted,
                        timed,
                        reverse,
                    },
                )
            });
            (Just(nodes), prop::collection::vec(edge_type, 1..4))
        })
}

/// A field of csv in quotes.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

impl NodeType {
    fn id(&self, node: usize) -> String {
        self.ids.as_ref().map_or_else(|| node.to_string(), |ids| ids[node].clone())
    }

    /// The feature of a node in a column.
    fn feature(node: usize, column: usize) -> f32 {
        node as f32 * 0.5 - column as f32
    }
}

/// The manifest and its files.
fn files(nodes: &[NodeType], edges: &[EdgeType]) -> Vec<(String, String)> {
    let (mut manifest, mut files) = (String::new(), Vec::new());
    for (of, node) in nodes.iter().enumerate() {
        writeln!(manifest, "[nodes.n{of}]\nfile = \"n{of}.csv\"").unwrap();
        let mut names = vec!["row".to_string()];
        if node.ids.is_some() {
            writeln!(manifest, "id = \"key\"").unwrap();
            names.push("key".into());
        }
        if node.dim > 0 {
            writeln!(manifest, "features = [\"f*\"]").unwrap();
            names.extend((0..node.dim).map(|column| format!("f{column}")));
        }
        if node.timed {
            writeln!(manifest, "time = \"at\"").unwrap();
            names.push("at".into());
        }
        let mut text = names.join(",") + "\n";
        for v in 0..node.count {
            let mut fields = vec![v.to_string()];
            fields.extend(node.ids.as_ref().map(|ids| quoted(&ids[v])));
            fields.extend((0..node.dim).map(|column| NodeType::feature(v, column).to_string()));
            fields.extend(node.timed.then(|| (v as i64 - 3).to_string()));
            text += &(fields.join(",") + "\n");
        }
        files.push((format!("n{of}.csv"), text));
    }
    for (of, edge) in edges.iter().enumerate() {
        let [source, target] = edge.ends;
        writeln!(manifest, "[[edges]]\ntype = \"e{of}\"\nfile = \"e{of}.csv\"").unwrap();
        writeln!(manifest, "source = {{ type = \"n{source}\", column = \"from\" }}").unwrap();
        writeln!(manifest, "target = {{ type = \"n{target}\", column = \"to\" }}").unwrap();
        if edge.weighted {
            writeln!(manifest, "weight = \"w\"").unwrap();
        }
        if edge.timed {
            writeln!(manifest, "time = \"at\"").unwrap();
        }
        writeln!(manifest, "reverse = {}", edge.reverse).unwrap();
        let mut text = "at,to,w,from\n".to_string();
        for &([from, to], weight, time) in &edge.edges {
            let ids = [quoted(&nodes[source].id(from)), quoted(&nodes[target].id(to))];
            writeln!(text, "{time},{},{weight},{}", ids[1], ids[0]).unwrap();
        }
        files.push((format!("e{of}.csv"), text));
    }
    files.push(("graph.toml".into(), manifest));
    files
}

/// An edge: target, name of the type, source, weight and time.
type Edge = (u32, String, u32, f32, i64);

/// The edges of the dataset in order: by target, edge type and source.
fn expected(nodes: &[NodeType], edges: &[EdgeType]) -> Vec<Edge> {
    let starts: Vec<u32> = (0..nodes.len()).map(|of| nodes[..of].iter().map(|node| node.count as u32).sum()).collect();
    let mut all = Vec::new();
    for forward in [true, false] {
        for (of, edge) in edges.iter().enumerate().filter(|(_, edge)| forward || edge.reverse) {
            let name = if forward { format!("e{of}") } else { format!("rev_e{of}") };
            for &([from, to], weight, time) in &edge.edges {
                let [from, to] = [starts[edge.ends[0]] + from as u32, starts[edge.ends[1]] + to as u32];
                let [from, to] = if forward { [from, to] } else { [to, from] };
                let weight = if edge.weighted { weight } else { 1.0 };
                let time = if edge.timed { time } else { i64::MIN };
                all.push((
                    (to, usize::from(!forward) * edges.len() + of, from),
                    (to, name.clone(), from, weight, time),
                ));
            }
        }
    }
    all.sort_by_key(|(key, _)| *key);
    all.into_iter().map(|(_, edge)| edge).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn graphs_come_back((nodes, edge_types) in graphs(), memory in prop::sample::select(vec![1u64, 1 << 20, 1 << 30])) {
        let written = files(&nodes, &edge_types);
        let dir = folder(&written.iter().map(|(name, text)| (&**name, &**text)).collect::<Vec<_>>());
        let options = Options { memory, ..Options::default() };
        let dataset = open(|target| manifest::import(&dir.path().join("graph.toml"), target, &options, &Silent));
        let counts: Vec<(String, u64)> = (0..).zip(&nodes).map(|(of, node)| (format!("n{of}"), node.count as u64)).collect();
        let counts: Vec<(&str, u64)> = counts.iter().map(|(name, count)| (&**name, *count)).collect();
        prop_assert_eq!(node_types(&dataset), counts);

        let topology = &dataset.topology;
        let types = topology.types().expect("types");
        let edge = |v: u32, e: usize| (
            v,
            types.edge_types()[usize::from(topology.edge_types().expect("types")[e])].name.clone(),
            topology.indices()[e],
            topology.weights().map_or(1.0, |weights| weights[e]),
            topology.edge_times().map_or(i64::MIN, |times| times[e]),
        );
        let row = |v: u32| topology.edge_range(v).map(move |e| (v, e));
        let edges: Vec<Edge> = (0..dataset.num_nodes() as u32).flat_map(row).map(|(v, e)| edge(v, e)).collect();
        prop_assert_eq!(edges, expected(&nodes, &edge_types));
        prop_assert_eq!(topology.weights().is_some(), edge_types.iter().any(|edge| edge.weighted));
        prop_assert_eq!(topology.edge_times().is_some(), edge_types.iter().any(|edge| edge.timed));

        let mut node = 0u32;
        for (of, node_type) in nodes.iter().enumerate() {
            for v in 0..node_type.count {
                match (&dataset.names, &dataset.node_ids) {
                    (Some(names), _) => {
                        let name = format!("n{of}:{}", node_type.id(v));
                        prop_assert_eq!(String::from_utf8_lossy(names.get(node)), name.as_str());
                        prop_assert_eq!(names.find(name.as_bytes()), Some(node));
                    }
                    (None, Some(ids)) => prop_assert_eq!(ids[node as usize].to_string(), node_type.id(v)),
                    (None, None) => prop_assert!(false, "typed graphs have ids"),
                }
                if let Some(times) = topology.node_times() {
                    let time = if node_type.timed { v as i64 - 3 } else { i64::MIN };
                    prop_assert_eq!(times[node as usize], time);
                }
                node += 1;
            }
            let values: Vec<f32> = (0..node_type.count)
                .flat_map(|v| (0..node_type.dim).map(move |column| NodeType::feature(v, column)))
                .collect();
            prop_assert_eq!(features(&dataset, of).0, values);
        }
    }
}
