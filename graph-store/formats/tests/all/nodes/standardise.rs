//! Columns of features of mean 0 and deviation 1.

use morphgl_formats::Standardise;
use morphgl_formats::edge_list::Ids;
use morphgl_graph_store::{Dataset, Dtype, Meta};
use proptest::prelude::*;

use super::{Case, notes};

/// The features of a dataset as f32, row after row.
fn features(path: &std::path::Path) -> Vec<f32> {
    let matrix = Dataset::open(path, Default::default()).unwrap().features.expect("features");
    let mut values = vec![0.0; matrix.view().len()];
    matrix.view().to_f32(&mut values);
    values
}

fn normalization(path: &std::path::Path) -> String {
    Meta::read(path).unwrap().schema().normalization.expect("known")
}

#[test]
fn columns_are_standardised_over_the_training_nodes() {
    let mut case = Case::new(Ids::Keep);
    // The third column is the same at the training nodes alone; one of them is listed twice, and counts once.
    case.options.nodes.features = case.array("x.npy", &[1f32, 10., 7., 3., 30., 7., 9., 0., 1.], Some(3));
    case.options.nodes.splits[0] = case.file("train.csv", "id\n0\n1\n0\n");
    case.options.standardise = Some(Standardise::ByTraining);
    let path = case.import("0 1\n1 2\n").unwrap();
    assert_eq!(features(&path), [-1.0, -1.0, 0.0, 1.0, 1.0, 0.0, 7.0, -2.0, -6.0]);
    assert!(notes(&path).contains("1 of 3 features are the same at every training node"), "{}", notes(&path));
    let kept = Meta::read(&path).unwrap().provenance["features_standardised"].clone();
    assert_eq!(
        (&kept["mean"], &kept["deviation"]),
        (&serde_json::json!([2.0, 20.0, 7.0]), &serde_json::json!([1.0, 10.0, 0.0]))
    );
    assert_eq!(std::fs::read_dir(&path).unwrap().count(), 7, "nothing else is left in the dataset");
    // New data by the same means and deviations.
    let first = case.dir.path().join("first");
    std::fs::rename(&path, &first).unwrap();
    case.options.nodes.splits[0] = None;
    case.options.nodes.features = case.array("x.npy", &[2u8, 20, 7, 4, 0, 8], Some(3));
    case.options.standardise = Some(Standardise::As(first.clone()));
    let path = case.import("0 1\n").unwrap();
    assert_eq!(features(&path), [0.0, 0.0, 0.0, 2.0, -2.0, 1.0]);
    assert_eq!(normalization(&path), normalization(&first));
    case.options.standardise = None;
    assert_eq!(normalization(&case.import("0 1\n").unwrap()), "none");
    case.options.standardise = Some(Standardise::ByTraining);
    case.options.nodes.splits[0] = case.file("train.csv", "id\n0\n1\n");
    assert_ne!(normalization(&case.import("0 1\n").unwrap()), normalization(&first));
}

#[test]
fn what_cannot_be_standardised_is_refused() {
    let mut case = Case::new(Ids::Keep);
    case.options.standardise = Some(Standardise::ByTraining);
    let refused = |case: &Case, expected: &str| {
        let error = case.import("0 1\n").unwrap_err();
        assert!(error.contains(expected) && !error.contains('\n'), "{error}");
    };
    refused(&case, "--standardise: the graph has no features; leave it out, or");
    case.options.nodes.features = case.array("x.npy", &[1f32, 2.], Some(1));
    refused(&case, "--standardise: there are no training nodes; give them by --train FILE");
    case.options.nodes.splits[0] = case.file("train.csv", "id\n0\n1\n");
    case.options.feature_dtype = Some(Dtype::U8);
    refused(&case, "--dtype: standardised features are fractions, which u8 cannot hold");
    case.options.feature_dtype = None;
    let path = case.import("0 1\n").unwrap();
    let first = case.dir.path().join("first");
    std::fs::rename(path, &first).unwrap();
    case.options.standardise = Some(Standardise::As(first));
    case.options.nodes.features = case.array("x.npy", &[1f32, 2., 3., 4.], Some(2));
    refused(&case, "first: it has 1 features, and this graph 2; give the same features");
    case.options.standardise = None;
    let plain = case.dir.path().join("plain");
    std::fs::rename(case.import("0 1\n").unwrap(), &plain).unwrap();
    case.options.standardise = Some(Standardise::As(plain));
    refused(&case, "plain: its features are not standardised; import it with --standardise first");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn means_are_0_and_deviations_1(values in prop::collection::vec(-100f32..100.0, 4..60), shift in -1e3f32..1e3) {
        let rows = values.len() / 2;
        let values: Vec<f32> = values[..2 * rows].iter().map(|value| value + shift).collect();
        let mut case = Case::new(Ids::Keep);
        case.format.num_nodes = Some(rows as u64);
        case.options.nodes.features = case.array("x.npy", &values, Some(2));
        let train: String = (0..rows).map(|v| format!("{v}\n")).collect();
        case.options.nodes.splits[0] = case.file("train.csv", &format!("id\n{train}"));
        case.options.standardise = Some(Standardise::ByTraining);
        let found = features(&case.import("0 0\n").unwrap());
        for column in 0..2 {
            let of = |values: &[f32]| values.iter().skip(column).step_by(2).map(|&x| f64::from(x)).collect::<Vec<_>>();
            let (before, column) = (of(&values), of(&found));
            let mean = column.iter().sum::<f64>() / rows as f64;
            let variance = column.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / rows as f64;
            let spread = before.iter().cloned().fold(f64::MIN, f64::max) - before.iter().cloned().fold(f64::MAX, f64::min);
            // The mean is rounded to f32 before it is subtracted.
            if spread > 1.0 {
                prop_assert!(mean.abs() < 1e-2 && (variance - 1.0).abs() < 1e-3, "{mean}, {variance}");
            }
        }
    }
}
