//! Edge lists, MatrixMarket and METIS: real files against their published counts, and malformed ones against messages.

use std::io::Write;
use std::path::Path;

use crate::support::{edges, open, refusal, write};
use morphgl_formats::edge_list::{self, EdgeListOptions, Ids};
use morphgl_formats::{Options, Silent, metis, mtx};
use morphgl_graph_store::Dataset;
use morphgl_testdata::extra;

#[track_caller]
fn edge_list(source: &Path, format: EdgeListOptions, options: &Options) -> Dataset {
    open(|target| edge_list::import(source, target, &format, options, &Silent))
}

#[track_caller]
fn check_counts(dataset: &Dataset, num_nodes: usize, num_edges: u64) {
    assert_eq!((dataset.num_nodes(), dataset.topology.num_edges()), (num_nodes, num_edges));
}

#[track_caller]
fn check_symmetric(dataset: &Dataset) {
    let mut reversed: Vec<_> = edges(dataset).into_iter().map(|(u, v, w)| (v, u, w)).collect();
    reversed.sort_by_key(|e| (e.1, e.0));
    assert_eq!(reversed, edges(dataset));
}

#[test]
fn wiki_vote_has_the_nodes_and_edges_its_header_says() {
    let source = morphgl_testdata::path("edge-lists/wiki-Vote.txt.gz");
    let kept = edge_list(&source, EdgeListOptions::default(), &Options::default());
    check_counts(&kept, 8298, 103_689);
    assert_eq!(kept.name, "wiki-Vote");
    let format = EdgeListOptions { ids: Ids::Compact, ..Default::default() };
    let compact = edge_list(&source, format.clone(), &Options::default());
    check_counts(&compact, 7115, 103_689);
    let ids = compact.node_ids.as_ref().unwrap();
    assert!(ids.is_sorted_by(|a, b| a < b));
    let renamed: Vec<_> =
        edges(&compact).into_iter().map(|(u, v, w)| (ids[u as usize] as u32, ids[v as usize] as u32, w)).collect();
    assert_eq!(renamed, edges(&kept), "the same graph under the old names");
    // Little memory spills to the disk, in many small chunks.
    let tight = Options { memory: 64 << 10, ..Options::default() };
    assert_eq!(edge_list(&source, EdgeListOptions::default(), &tight).topology, kept.topology);
    assert_eq!(edge_list(&source, format, &tight).topology, compact.topology);
}

/// More text than a chunk, all between the two highest ids there are.
#[test]
fn the_highest_ids_of_64_bits_are_renumbered() {
    let text = format!("{} {}\n", u64::MAX - 1, u64::MAX).repeat(3000);
    let format = EdgeListOptions { ids: Ids::Compact, ..Default::default() };
    let dir = tempfile::tempdir().unwrap();
    let source = crate::support::write(&dir, "edges", text.as_bytes());
    for memory in [0, 1 << 30] {
        let options = Options { memory, drop_duplicates: true, ..Options::default() };
        let dataset = open(|target| edge_list::import(&source, target, &format, &options, &Silent));
        assert_eq!(dataset.node_ids.as_ref().expect("ids are kept")[..], [u64::MAX - 1, u64::MAX]);
        assert_eq!(edges(&dataset), [(0, 1, 1.0)]);
    }
}

#[test]
fn real_lists_are_symmetrised() {
    // Of wiki-Vote's 103,689 edges 2,927 have their reverse in the file.
    let wiki_vote = (Some(morphgl_testdata::path("edge-lists/wiki-Vote.txt.gz")), 8298, 100_762);
    let mit8 = (extra("edge-lists/MIT8.edgelist"), 6440, 251_252);
    for (source, num_nodes, pairs) in [wiki_vote, mit8] {
        let Some(source) = source else { continue };
        let options = Options { symmetrise: true, ..Options::default() };
        let dataset = edge_list(&source, EdgeListOptions::default(), &options);
        check_counts(&dataset, num_nodes, 2 * pairs);
        check_symmetric(&dataset);
    }
}

#[test]
fn blanks_separate_weights() {
    let source = morphgl_testdata::path("edge-lists/spaceseparated_weighted.edgelist");
    let dataset = edge_list(&source, EdgeListOptions { first_id: Some(1), ..Default::default() }, &Options::default());
    assert_eq!(edges(&dataset), [(0, 1, 2.0), (0, 2, 4.0), (1, 2, 3.0)]);
}

#[test]
fn every_dialect_and_compression_reads_alike() {
    let expected = [(2, 0, 0.5), (0, 1, 1.0), (1, 2, 2e3)];
    let texts = [
        "0 1 1\n1 2 2e3\n2 0 .5\n",
        "# SNAP\n#\n0\t1\t1.0\n1\t2\t2000\n2\t0\t0.5",
        "source,target,weight\r\n0,1,1\r\n1,2,2000\r\n2,0,0.5\r\n",
        "% KONECT\n\"src\";\"dst\";\"w\"\n0; 1; 1\n\n  1 ;2 ; 2000\n% between\n2;0;0.5\n\n",
    ];
    let dir = tempfile::tempdir().unwrap();
    for text in texts {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(text.as_bytes()).unwrap();
        let zstd = zstd::encode_all(text.as_bytes(), 1).unwrap();
        for content in [text.as_bytes().to_vec(), gzip.finish().unwrap(), zstd] {
            let source = write(&dir, "graph", &content);
            let dataset = edge_list(&source, EdgeListOptions::default(), &Options::default());
            assert_eq!(edges(&dataset), expected, "{text:?}");
        }
    }
}

#[test]
fn large_ids_are_renumbered_in_their_order() {
    let dir = tempfile::tempdir().unwrap();
    let source = write(&dir, "large", b"18446744073709551615 5\n5 7000000000 3.5 x\n");
    let format = EdgeListOptions { ids: Ids::Compact, ignore_columns: true, ..Default::default() };
    let dataset = edge_list(&source, format, &Options::default());
    assert_eq!(&dataset.node_ids.as_ref().unwrap()[..], [5, 7_000_000_000, u64::MAX]);
    assert_eq!(edges(&dataset), [(2, 0, 1.0), (0, 1, 1.0)]);
}

const NEIGHBORS: &str = "correct the line; if each line lists a node and its neighbours, write one edge per line: \
    `python3 -c \"import re; print('src dst'); [print(u, v) for u, *vs in (re.findall(r'[^\\s,;:]+', s) for s in open('e.txt') \
    if s.strip() and s[0] not in '#%') for v in vs]\" > edges.txt`";

#[track_caller]
fn check_edge_list(content: &str, expected: &str) {
    let import = |s: &Path, t: &Path| edge_list::import(s, t, &Default::default(), &Options::default(), &Silent);
    assert_eq!(refusal("e.txt", content.as_bytes(), import), expected);
}

#[test]
fn malformed_edge_lists_are_refused_with_their_line() {
    let fix = "correct the line, or read ids that are text with --ids strings";
    check_edge_list("# c\n0 1\n1 x\n", &format!("e.txt, line 3: expected two node ids, found \"1 x\"; {fix}"));
    check_edge_list("0 1\n\n1\n", &format!("e.txt, line 3: expected two node ids, found \"1\"; {NEIGHBORS}"));
    check_edge_list("0,1\n1,,2\n", "e.txt, line 2: expected two node ids, found \"1,,2\"; correct the line");
    check_edge_list("0 1\n-1 2\n", &format!("e.txt, line 2: expected two node ids, found \"-1 2\"; {fix}"));
    check_edge_list("0 1\n1.5 2\n", &format!("e.txt, line 2: expected two node ids, found \"1.5 2\"; {fix}"));
    check_edge_list(
        "0 1 1\n1 2\n",
        &format!("e.txt, line 2: expected two node ids and a weight, found \"1 2\"; {NEIGHBORS}"),
    );
    check_edge_list(
        "0 1\n1 2 3\n",
        &format!("e.txt, line 2: expected 2 columns as on the first line, found \"1 2 3\"; {NEIGHBORS}"),
    );
    check_edge_list(
        "0 1 1\n1 2 -3\n",
        "e.txt, line 2: the weight -3 is not a finite number of at least 0; correct it, or import with --drop-weights",
    );
    check_edge_list(
        "0 4294967295\n",
        "e.txt, line 1: the node id 4294967295 does not fit 32 bits; import with --ids compact",
    );
    check_edge_list(
        "0 99999999999999999999999\n",
        &format!("e.txt, line 1: expected two node ids, found \"0 99999999999999999999999\"; {fix}"),
    );
    check_edge_list(
        "0 4000000000\n",
        "e.txt: the ids reach 4000000000 with only 1 edges; import with --ids compact, or give the number of nodes by --num-nodes",
    );
    check_edge_list("# nothing\n\n", "e.txt: there is no edge; check that this is the right file and format");
    check_edge_list("", "e.txt: there is no edge; check that this is the right file and format");
}

#[test]
fn lines_are_counted_over_chunks_and_pieces() {
    let mut text = "0 1\n".repeat(400_000);
    text.push_str("0 q\n");
    text.push_str(&"0 1\n".repeat(1000));
    for memory in [1 << 10, 2 << 30] {
        let options = Options { memory, ..Options::default() };
        let import = |s: &Path, t: &Path| edge_list::import(s, t, &Default::default(), &options, &Silent);
        let message = refusal("e.txt", text.as_bytes(), import);
        assert_eq!(
            message,
            "e.txt, line 400001: expected two node ids, found \"0 q\"; correct the line, or read ids that are text with --ids strings"
        );
    }
}

/// Several faults in one chunk, which several threads parse: the first one is named, in every form of the edge list.
#[test]
fn of_many_bad_lines_the_first_is_named() {
    let lines = 600_000;
    let bad = |i: u64| i == 123_456 || (i > 123_456 && i % 1000 == 7);
    let line = |i: u64| if bad(i) { "12345,6789x\n".into() } else { format!("{},{}\n", i % 99_991, i % 99_989) };
    let text: String = (1..=lines).map(line).collect();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(text.as_bytes()).unwrap();
    let zipped = gzip.finish().unwrap();
    let expected = "line 123456: expected two node ids, found \"12345,6789x\"; correct the line, or read ids that are text with --ids strings";
    for ids in [Ids::Keep, Ids::Compact] {
        let format = EdgeListOptions { ids, ..Default::default() };
        let import = |s: &Path, t: &Path| edge_list::import(s, t, &format, &Options::default(), &Silent);
        assert_eq!(refusal("e.csv", text.as_bytes(), import), format!("e.csv, {expected}"));
        assert_eq!(refusal("e.csv.gz", &zipped, import), format!("e.csv.gz, {expected}"));
    }
}

#[test]
fn damaged_compression_and_other_limits_are_refused() {
    let import = |s: &Path, t: &Path| edge_list::import(s, t, &Default::default(), &Options::default(), &Silent);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all("0 1\n2 3\n".repeat(9000).as_bytes()).unwrap();
    let mut bytes = gzip.finish().unwrap();
    bytes.truncate(bytes.len() / 2);
    let message = refusal("e.gz", &bytes, import);
    assert!(message.starts_with("e.gz, line "), "{message}");
    assert!(message.ends_with("; copy or download the file again"), "{message}");
    let format = EdgeListOptions { num_nodes: Some(4), first_id: Some(1), ..Default::default() };
    let import = |s: &Path, t: &Path| edge_list::import(s, t, &format, &Options::default(), &Silent);
    let message = refusal("e.txt", b"1 4\n1 5\n", import);
    assert_eq!(
        message,
        "e.txt, line 2: node 5 does not exist, there are 4 nodes; correct the line or the number of nodes"
    );
    let message = refusal("e.txt", b"1 4\n0 1\n", import);
    assert_eq!(
        message,
        "e.txt, line 2: the node id 0 is below the first id 1; correct the line, or count ids from 0 by --first-id 0"
    );
    let small = Options { memory: 1, ..Options::default() };
    let import = |s: &Path, t: &Path| edge_list::import(s, t, &Default::default(), &small, &Silent);
    let message = refusal("e.bin", &[b'7'; 100_000], import);
    let cure = "check that this is a text file, or raise the memory limit";
    assert_eq!(message, format!("e.bin, line 1: a line of more than 65536 bytes; {cure}"));
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing.txt");
    let error = edge_list::import(&missing, &dir.path().join("d"), &Default::default(), &small, &Silent).unwrap_err();
    assert_eq!(error.to_string(), format!("{}: no such file or directory; check the path", missing.display()));
}

#[test]
fn matrix_market_files_have_their_published_counts() {
    for (file, num_nodes, entries, loops, symmetric) in
        [("GD01_b", 18, 37, 0, false), ("Hamrle1", 32, 98, 0, false), ("chesapeake", 39, 170, 0, true)]
    {
        let source = morphgl_testdata::path(&format!("edge-lists/{file}.mtx"));
        let options = Options { drop_weights: true, ..Options::default() };
        let dataset = open(|target| mtx::import(&source, target, &options, &Silent));
        check_counts(&dataset, num_nodes, if symmetric { 2 * entries - loops } else { entries });
        if symmetric {
            check_symmetric(&dataset);
        }
    }
    let source = morphgl_testdata::path("edge-lists/Hamrle1.mtx");
    let dir = tempfile::tempdir().unwrap();
    let error = mtx::import(&source, &dir.path().join("d"), &Options::default(), &Silent).unwrap_err().to_string();
    assert!(error.contains("Hamrle1.mtx, line 9: the weight -0.2039"), "{error}");
}

#[test]
fn matrix_market_entries_are_edges_from_row_to_column() {
    let text = "%%MatrixMarket Matrix Coordinate Real Symmetric\n% c\n\n3 3 3\n1 1 5\n2 1 0.5\n3 2 2\n";
    let dir = tempfile::tempdir().unwrap();
    let source = write(&dir, "a.mtx", text.as_bytes());
    let dataset = open(|target| mtx::import(&source, target, &Options::default(), &Silent));
    assert_eq!(edges(&dataset), [(0, 0, 5.0), (1, 0, 0.5), (0, 1, 0.5), (2, 1, 2.0), (1, 2, 2.0)]);
    let source = write(&dir, "b.mtx", b"%%MatrixMarket matrix coordinate pattern general\n3 3 2\n1 2\n3 1\n");
    let dataset = open(|target| mtx::import(&source, target, &Options::default(), &Silent));
    assert_eq!(edges(&dataset), [(2, 0, 1.0), (0, 1, 1.0)]);
}

/// Rows and columns of two kinds of nodes.
#[test]
fn rectangular_matrices_keep_rows_and_columns_apart() {
    let options = Options { bipartite: Some(true), ..Options::default() };
    let dir = tempfile::tempdir().unwrap();
    let banner = "%%MatrixMarket matrix coordinate integer general\n";
    let source = write(&dir, "a.mtx", format!("{banner}2 3 3\n1 1 5\n2 1 7\n2 3 2\n").as_bytes());
    let dataset = open(|target| mtx::import(&source, target, &options, &Silent));
    assert_eq!((dataset.num_nodes(), edges(&dataset)), (5, vec![(0, 2, 5.0), (1, 2, 7.0), (1, 4, 2.0)]));
    let import = |s: &Path, t: &Path| mtx::import(s, t, &options, &Silent);
    let message = refusal("a.mtx", format!("{banner}2 3 1\n3 1 5\n").as_bytes(), import);
    assert!(message.starts_with("a.mtx, line 3: node 3 does not exist, there are 2 nodes in its column"), "{message}");
    let banner = "%%MatrixMarket matrix coordinate pattern symmetric\n";
    let message = refusal("a.mtx", format!("{banner}2 2 1\n2 1\n").as_bytes(), import);
    assert!(message.ends_with("the same nodes; leave out --bipartite"), "{message}");
}

/// Network Repository's banner has one `%`.
#[test]
fn banners_with_one_percent_sign_are_read() {
    let text = "%MatrixMarket matrix coordinate pattern symmetric\n4 4 3\n2 1\n3 2\n4 3\n";
    let dir = tempfile::tempdir().unwrap();
    let source = write(&dir, "a.mtx", text.as_bytes());
    let dataset = open(|target| mtx::import(&source, target, &Options::default(), &Silent));
    let both = [(1, 0, 1.0), (0, 1, 1.0), (2, 1, 1.0), (1, 2, 1.0), (3, 2, 1.0), (2, 3, 1.0)];
    assert_eq!((dataset.num_nodes(), edges(&dataset)), (4, both.to_vec()));
}

#[test]
fn malformed_matrices_are_refused() {
    let check = |content: &str, expected: &str| {
        let import = |s: &Path, t: &Path| mtx::import(s, t, &Options::default(), &Silent);
        assert_eq!(refusal("a.mtx", content.as_bytes(), import), expected);
    };
    let banner = "%%MatrixMarket matrix coordinate pattern general\n";
    check("0 1\n", "a.mtx: this is a list of edges; read it with `morphgl import edges a.mtx`");
    check(
        "0 x 1\n",
        "a.mtx, line 1: expected \"%%MatrixMarket matrix …\", found \"0 x 1\"; check that this is a MatrixMarket file",
    );
    check(
        "%%MatrixMarket matrix array real general\n",
        "a.mtx, line 1: a matrix of kind \"array real general\"; \
         write it as coordinate, pattern or real or integer, general or symmetric",
    );
    check(
        &format!("{banner}3 4 1\n1 1\n"),
        "a.mtx, line 2: a matrix of 3 rows and 4 columns relates two kinds of nodes; keep them apart by --bipartite",
    );
    check(
        &format!("{banner}3 3 1\n1 4\n"),
        "a.mtx, line 3: node 4 does not exist, there are 3 nodes; correct the line or the number of nodes",
    );
    check(
        &format!("{banner}3 3 2\n1 3\n"),
        "a.mtx: 1 entries, but the header promises 2; the file was cut short or altered: download it again",
    );
    check(banner, "a.mtx, line 1: the line of sizes is missing; the file was cut short: download it again");
}

#[test]
fn metis_graphs_have_their_published_counts() {
    let own = |file: &str| Some(morphgl_testdata::path(&format!("edge-lists/{file}.graph")));
    let larger = |file: &str| extra(&format!("edge-lists/{file}.graph"));
    for (source, num_nodes, num_edges, weighted) in [
        (own("karate"), 34, 78, false),
        (own("tiny_01"), 7, 11, false),
        (own("tiny_03"), 7, 11, true),
        (larger("wing"), 62_032, 121_544, false),
        (larger("astro-ph"), 16_706, 121_251, false),
    ] {
        let Some(source) = source else { continue };
        let dataset = open(|target| metis::import(&source, target, &Options::default(), &Silent));
        check_counts(&dataset, num_nodes, 2 * num_edges);
        assert_eq!(dataset.topology.weights().is_some(), weighted, "{}", source.display());
        check_symmetric(&dataset);
    }
}

#[test]
fn metis_takes_sizes_weights_and_several_constraints() {
    // Vertex size, two vertex weights, then neighbours with weights; the third node has none.
    let text = "% c\n3 1 111 2\n9 1 2 2 5\n% between\n9 3 4 1 5\n9 1 1\n";
    let dir = tempfile::tempdir().unwrap();
    let source = write(&dir, "a.graph", text.as_bytes());
    let dataset = open(|target| metis::import(&source, target, &Options::default(), &Silent));
    assert_eq!((dataset.num_nodes(), edges(&dataset)), (3, vec![(1, 0, 5.0), (0, 1, 5.0)]));
}

#[test]
fn malformed_metis_graphs_are_refused() {
    let check = |content: &str, expected: &str| {
        let import = |s: &Path, t: &Path| metis::import(s, t, &Options::default(), &Silent);
        assert_eq!(refusal("a.graph", content.as_bytes(), import), expected);
    };
    let edges = "a list of edges is read with `morphgl import edges`";
    let again = format!("correct the first line or download the file again; {edges}");
    check("", &format!("a.graph: the file is empty; check that this is a METIS graph; {edges}"));
    check(
        "3 x\n",
        &format!(
            "a.graph, line 1: expected nodes, edges and perhaps fmt and ncon, found \"3 x\"; check that this is a METIS graph; {edges}"
        ),
    );
    check("3 1\n2\n1\n", &format!("a.graph: 2 nodes, but the first line promises 3; {again}"));
    check("2 1\n2\n1\n1\n", &format!("a.graph: more than the 2 nodes that the first line promises; {again}"));
    check(
        "2 2\n2\n1\n",
        &format!("a.graph: 2 neighbours, but the first line promises 2 edges, each listed twice; {again}"),
    );
    check("2 1\n3\n1\n", "a.graph, line 2: node 3 does not exist, there are 2, from 1; correct the line");
    check("2 1\n2 a\n1\n", "a.graph, line 2: expected node ids, found \"2 a\"; correct the line");
    check(
        "2 1 1\n2 1\n1\n",
        "a.graph, line 3: expected a weight of at least 0 after every id, found \"1\"; correct the line",
    );
    check(
        "3 1\n2 3\n\n\n",
        "a.graph: an edge is listed on one end's line only; \
         list every edge on the lines of both its ends, or import the graph as an edge list",
    );
}
