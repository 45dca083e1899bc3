//! Edges and nodes in Parquet and Arrow IPC (Feather) files: the graph of the same table as text.
#![cfg(feature = "arrow")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, BooleanArray, DictionaryArray, FixedSizeListArray, Float32Array, Float64Array, Int32Array, Int64Array,
    RecordBatch, StringArray, UInt64Array,
};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use morphgl_formats::edge_list::{self, Column, EdgeListOptions, Ids};
use morphgl_formats::{NodeFiles, Options, Silent};
use morphgl_graph_store::{Dataset, FeatureView, NodeNames, TargetMatrix};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true))).unwrap()
}

/// Writes the table in both formats, in several compressions.
fn files(dir: &Path, name: &str, batches: &[RecordBatch]) -> Vec<PathBuf> {
    let (schema, mut paths) = (batches[0].schema(), Vec::new());
    for (i, compression) in
        [Compression::SNAPPY, Compression::UNCOMPRESSED, Compression::ZSTD(Default::default())].into_iter().enumerate()
    {
        let path = dir.join(format!("{name}-{i}.parquet"));
        let properties =
            WriterProperties::builder().set_compression(compression).set_max_row_group_row_count(Some(70_000));
        let mut writer =
            ArrowWriter::try_new(File::create(&path).unwrap(), Arc::clone(&schema), Some(properties.build())).unwrap();
        batches.iter().for_each(|batch| writer.write(batch).unwrap());
        writer.close().unwrap();
        paths.push(path);
    }
    for compression in [None, Some(CompressionType::LZ4_FRAME), Some(CompressionType::ZSTD)] {
        let path = dir.join(format!("{name}-{compression:?}.feather"));
        let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
        let mut writer = FileWriter::try_new_with_options(File::create(&path).unwrap(), &schema, options).unwrap();
        batches.iter().for_each(|batch| writer.write(batch).unwrap());
        writer.finish().unwrap();
        paths.push(path);
    }
    paths
}

fn import(source: &Path, format: &EdgeListOptions, options: &Options) -> Result<Dataset, String> {
    let target = source.with_extension("dataset");
    let options = Options { replace: true, ..options.clone() };
    let path = edge_list::import(source, &target, format, &options, &Silent).map_err(|e| e.to_string())?;
    Ok(Dataset::open(path, Default::default()).expect("a dataset"))
}

#[test]
fn edges_are_those_of_the_table() {
    let dir = tempfile::tempdir().unwrap();
    let edge = |i: i64| (i * 7919 % 5000, i * 104_729 % 5000, (i % 17) as f32 / 4.0);
    let batches: Vec<RecordBatch> = [0..100_000, 100_000..150_000]
        .map(|rows: std::ops::Range<i64>| {
            let src = Int64Array::from_iter_values(rows.clone().map(|i| edge(i).0));
            let dst = Int32Array::from_iter_values(rows.clone().map(|i| edge(i).1 as i32));
            let weight = Float32Array::from_iter_values(rows.map(|i| edge(i).2));
            batch(vec![("weight", Arc::new(weight)), ("dst", Arc::new(dst)), ("src", Arc::new(src))])
        })
        .into();
    let text: String = (0..150_000).map(edge).map(|(u, v, w)| format!("{u} {v} {w}\n")).collect();
    for ids in [Ids::Keep, Ids::Compact] {
        let format = EdgeListOptions { ids, ..Default::default() };
        let plain = dir.path().join("e.txt");
        std::fs::write(&plain, &text).unwrap();
        let expected = import(&plain, &format, &Options::default()).unwrap();
        for path in files(dir.path(), "e", &batches) {
            let found = import(&path, &format, &Options::default()).unwrap();
            assert!(crate::support::edges(&found) == crate::support::edges(&expected), "{}, {ids:?}", path.display());
            assert_eq!(found.node_ids.as_deref(), expected.node_ids.as_deref());
        }
    }
}

#[test]
fn targets_are_those_of_columns_and_lists() {
    let dir = tempfile::tempdir().unwrap();
    let edges =
        batch(vec![("src", Arc::new(Int64Array::from(vec![0, 1]))), ("dst", Arc::new(Int64Array::from(vec![1, 2])))]);
    let lists = (0..3).map(|i| Some([Some(i as f32), (i > 0).then_some(0.5)]));
    let targets = batch(vec![
        ("price", Arc::new(Float64Array::from(vec![Some(1.5), None, Some(-2.0)]))),
        ("id", Arc::new(Int32Array::from(vec![2, 0, 1]))),
        ("sold", Arc::new(BooleanArray::from(vec![Some(true), Some(false), None]))),
        ("all", Arc::new(FixedSizeListArray::from_iter_primitive::<arrow_array::types::Float32Type, _, _>(lists, 2))),
    ]);
    let nan = f32::NAN;
    let expected = TargetMatrix::new(vec![nan, 0.0, 1.0, 0.5, -2.0, nan, 2.0, 0.5, 1.5, 1.0, 0.0, nan], 4).unwrap();
    for (edges, targets) in files(dir.path(), "e", &[edges]).into_iter().zip(files(dir.path(), "t", &[targets])) {
        let nodes = NodeFiles { targets: Some(targets.clone()), ..NodeFiles::default() };
        let found = import(&edges, &EdgeListOptions::default(), &Options { nodes, ..Options::default() }).unwrap();
        assert_eq!(found.targets, Some(expected.clone()), "{}", targets.display());
    }
}

#[test]
fn features_of_edges_are_columns_and_lists() {
    let dir = tempfile::tempdir().unwrap();
    let lists = (0..3).map(|i| Some([Some(i as f32), Some(0.5)]));
    let edges = batch(vec![
        ("src", Arc::new(Int64Array::from(vec![2, 0, 1]))),
        ("x", Arc::new(Float64Array::from(vec![1.5, -2.0, 8.0]))),
        ("dst", Arc::new(Int64Array::from(vec![0, 1, 2]))),
        ("all", Arc::new(FixedSizeListArray::from_iter_primitive::<arrow_array::types::Float32Type, _, _>(lists, 2))),
    ]);
    let columns = |names: &[&str]| edge_list::Columns {
        features: names.iter().map(|name| Column::Name(name.to_string())).collect(),
        ..Default::default()
    };
    let format = EdgeListOptions { columns: columns(&["all", "x"]), ..Default::default() };
    for path in files(dir.path(), "e", &[edges]) {
        let found = import(&path, &format, &Options::default()).unwrap();
        let matrix = found.edge_features[0].as_ref().expect("features of edges");
        let FeatureView::F32(rows) = matrix.view() else { panic!("f32") };
        assert_eq!((rows, matrix.dim()), (&[0.0, 0.5, 1.5, 1.0, 0.5, -2.0, 2.0, 0.5, 8.0][..], 3));
        assert_eq!(found.topology.edge_ids().map(|ids| &ids[..]), Some(&[0u32, 1, 2][..]), "{}", path.display());
    }
}

#[test]
fn text_categories_lists_and_missing_values_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let edges = batch(vec![
        ("source", Arc::new(StringArray::from(vec!["b", "c", "a"]))),
        ("target", Arc::new(["c", "a", "b"].into_iter().collect::<DictionaryArray<Int32Type>>())),
    ]);
    let vectors = (0..4).map(|i| Some([i as f32, 0.5].map(Some)));
    let nodes = batch(vec![
        ("name", Arc::new(StringArray::from(vec!["d", "c", "b", "a"]))),
        ("label", Arc::new(Float64Array::from(vec![Some(1.0), None, Some(0.0), Some(1.0)]))),
        ("train", Arc::new(BooleanArray::from(vec![true, false, false, true]))),
        ("val", Arc::new(BooleanArray::from(vec![None, Some(true), Some(false), Some(false)]))),
        ("x", Arc::new(FixedSizeListArray::from_iter_primitive::<arrow_array::types::Float32Type, _, _>(vectors, 2))),
    ]);
    let format = EdgeListOptions { ids: Ids::Strings, ..Default::default() };
    for (edges, nodes) in files(dir.path(), "e", &[edges]).into_iter().zip(files(dir.path(), "n", &[nodes])) {
        let mut files = NodeFiles { table: Some(nodes.clone()), ..NodeFiles::default() };
        let error = import(&edges, &format, &Options { nodes: files.clone(), ..Options::default() }).unwrap_err();
        assert!(error.contains("x, of which not all are known: x;"), "{error}");
        files.columns.features = Some(vec![Column::Name("x".into())]);
        let found = import(&edges, &format, &Options { nodes: files, ..Options::default() }).unwrap();
        let names = NodeNames::read(&found.path).unwrap().expect("they are text");
        assert_eq!((0..4).map(|v| names.get(v)).collect::<Vec<_>>(), [b"a", b"b", b"c", b"d"]);
        assert_eq!(
            crate::support::edges(&found).iter().map(|e| (e.0, e.1)).collect::<Vec<_>>(),
            [(2, 0), (0, 1), (1, 2)]
        );
        assert_eq!(found.labels.as_deref(), Some(&[1, 0, -1, 1][..]));
        assert_eq!((&found.splits.train[..], &found.splits.valid[..]), (&[0, 3][..], &[2][..]));
        assert_eq!(found.feature_dim(), 2);
    }
}

#[test]
fn columns_of_other_types_and_ids_that_do_not_fit_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let of = |src: ArrayRef| batch(vec![("src", src), ("dst", Arc::new(Int64Array::from(vec![1, 2])))]);
    for (table, expected) in [
        (of(Arc::new(Int64Array::from(vec![0, -4]))), "element 1: the node id -4 is below the first one, 0"),
        (of(Arc::new(Int64Array::from(vec![Some(0), None]))), "element 1: a node id is missing"),
        (of(Arc::new(Int64Array::from(vec![0, 1 << 40]))), "element 1: the node id 1099511627776 does not fit"),
        (of(Arc::new(UInt64Array::from(vec![0, u64::MAX]))), "the column \"src\" has the value 18446744073709551615"),
        (of(Arc::new(Float64Array::from(vec![0.0, 0.5]))), "element 1: \"0.5\" is no node id"),
        (of(Arc::new(StringArray::from(vec!["a", "b"]))), "element 0: \"a\" is no node id; import ids that are names"),
    ] {
        for path in files(dir.path(), "e", &[table]) {
            let error = import(&path, &EdgeListOptions::default(), &Options::default()).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
    let damaged = dir.path().join("e.parquet");
    std::fs::write(&damaged, b"PAR1 and then no table").unwrap();
    let error = import(&damaged, &EdgeListOptions::default(), &Options::default()).unwrap_err();
    assert!(
        error.contains("the table cannot be read") && error.ends_with("write it again without that, or as csv"),
        "{error}"
    );
}

/// Parquet: the same damage each time, throughout the file; Feather, whose reader trusts the lengths in it: cut short.
#[test]
fn damaged_files_give_a_message_of_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let src = Int64Array::from_iter_values((0..50).map(|i| i * 7 % 40));
    let dst = StringArray::from_iter_values((0..50).map(|i| (i * 11 % 40).to_string()));
    for path in files(dir.path(), "e", &[batch(vec![("src", Arc::new(src)), ("dst", Arc::new(dst))])]) {
        let whole = std::fs::read(&path).unwrap();
        let check = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            let imported =
                import(&path, &EdgeListOptions::default(), &Options { memory: 1 << 20, ..Options::default() });
            assert!(imported.as_ref().is_err_and(|e| !e.contains('\n')) || imported.is_ok(), "{imported:?}");
            imported.is_err()
        };
        assert!(!check(&whole));
        for at in (6..whole.len()).step_by(13) {
            assert!(check(&whole[..at]), "{}, cut to {at} bytes", path.display());
            if path.extension().is_some_and(|e| e == "parquet") {
                let mut bytes = whole.clone();
                bytes[at] ^= 0x55;
                check(&bytes);
            }
        }
    }
}
