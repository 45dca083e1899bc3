//! Impossible arguments: a message of one line with the argument and the cure, and no file.

use morphgl_generate::{
    DEFAULT_MEMORY, RelationalConfig, RmatConfig, SbmConfig, TypedConfig, relational, relational_to_disk, rmat_to_disk,
    sbm, sbm_to_disk, typed, typed_to_disk,
};
use morphgl_graph_store::Dtype;

#[track_caller]
fn check_message(message: &str, argument: &str) {
    assert!(message.starts_with(&format!("{argument}: ")), "{message}");
    assert!(message.contains("; pass "), "no cure: {message}");
    assert!(!message.contains('\n') && !message.ends_with('.'), "{message}");
}

#[track_caller]
fn check(argument: &str, change: impl FnOnce(&mut SbmConfig)) {
    let mut config = SbmConfig { nodes: 1000, dim: 4, ..SbmConfig::default() };
    change(&mut config);
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("graph");
    let error = sbm_to_disk(&config, &target, DEFAULT_MEMORY, false, &|_, _, _| {}).unwrap_err();
    check_message(&error.to_string(), argument);
    assert_eq!(sbm(&config).unwrap_err().to_string(), error.to_string());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "something was written");
}

#[test]
fn impossible_block_models_are_refused() {
    check("nodes", |c| c.nodes = 0);
    check("nodes", |c| c.nodes = 1 << 32);
    check("classes", |c| c.classes = 0);
    check("classes", |c| c.classes = 1001);
    check("dim", |c| c.dim = 0);
    check("dim", |c| c.dim = usize::MAX);
    check("dtype", |c| c.dtype = Dtype::F64);
    check("degree", |c| c.degree = 0.0);
    check("degree", |c| c.degree = 1000.0);
    check("degree", |c| c.degree = f64::NAN);
    // 0.6 of 150 neighbours cannot lie in a class of 62 nodes.
    check("degree", |c| c.degree = 150.0);
    check("homophily", |c| c.homophily = 1.5);
    check("homophily", |c| c.homophily = f64::NAN);
    check("homophily", |c| c.classes = 1);
    check("exponent", |c| c.exponent = 1.0);
    check("signal", |c| c.signal = -1.0);
    check("label_noise", |c| c.label_noise = 2.0);
    check("train", |c| c.train = 0.7);
    check("valid", |c| c.valid = -0.1);
    check("test", |c| c.test = f64::INFINITY);
}

#[test]
fn impossible_kronecker_graphs_are_refused() {
    let base = RmatConfig { nodes: 1000, dim: 4, ..RmatConfig::default() };
    for (argument, config) in [
        ("nodes", RmatConfig { nodes: 0, ..base.clone() }),
        ("edge_factor", RmatConfig { edge_factor: 0.0, ..base.clone() }),
        ("edge_factor", RmatConfig { edge_factor: 1e9, ..base.clone() }),
        ("quadrants", RmatConfig { quadrants: [0.5, 0.5, 0.5, 0.5], ..base.clone() }),
        ("quadrants", RmatConfig { quadrants: [1.5, -0.5, 0.0, 0.0], ..base.clone() }),
        ("quadrants", RmatConfig { quadrants: [0.0, 0.0, 0.0, 1.0], ..base.clone() }),
        ("dim", RmatConfig { dim: 0, ..base.clone() }),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("graph");
        let error = rmat_to_disk(&config, &target, DEFAULT_MEMORY, false, &|_, _, _| {}).unwrap_err();
        check_message(&error.to_string(), argument);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "something was written");
    }
}

#[test]
fn impossible_typed_graphs_are_refused() {
    macro_rules! check {
        ($argument:expr, $field:ident: $value:expr, $Config:ident, $in_memory:ident, $to_disk:ident) => {{
            let config =
                $Config { $field: $value, ..$Config { nodes: 1000, dim: 4, classes: 2, ..$Config::default() } };
            let dir = tempfile::tempdir().unwrap();
            let target = dir.path().join("graph");
            let error = $to_disk(&config, &target, DEFAULT_MEMORY, false, &|_, _, _| {}).unwrap_err();
            check_message(&error.to_string(), $argument);
            assert_eq!($in_memory(&config).unwrap_err().to_string(), error.to_string());
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "something was written");
        }};
    }
    macro_rules! both {
        ($($field:ident: $value:expr),*) => {
            $(check!(stringify!($field), $field: $value, TypedConfig, typed, typed_to_disk);
            check!(stringify!($field), $field: $value, RelationalConfig, relational, relational_to_disk);)*
        };
    }
    both!(nodes: 0, nodes: 1 << 32, classes: 0, classes: 1001, dim: 0, dim: usize::MAX, dtype: Dtype::F64);
    both!(degree: 0.0, degree: 1000.0, degree: f64::NAN, exponent: 1.0, homophily: -0.1, homophily: f64::NAN);
    both!(signal: -1.0, train: 0.7, valid: -0.1, test: f64::INFINITY);
    // Of 1000 nodes 5 are institutions, and 15 products.
    both!(classes: 20);
    check!("homophily", classes: 1, TypedConfig, typed, typed_to_disk);
}

#[test]
fn too_little_memory_is_refused_with_the_minimum() {
    let dir = tempfile::tempdir().unwrap();
    let config = SbmConfig { nodes: 1000, ..SbmConfig::default() };
    let error = sbm_to_disk(&config, &dir.path().join("graph"), 1 << 20, false, &|_, _, _| {}).unwrap_err();
    check_message(&error.to_string(), "memory");
}

#[test]
fn an_existing_dataset_is_replaced_only_by_option() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("graph");
    let config = SbmConfig { nodes: 1000, dim: 4, ..SbmConfig::default() };
    let write = |replace| sbm_to_disk(&config, &target, DEFAULT_MEMORY, replace, &|_, _, _| {});
    write(false).unwrap();
    assert!(write(false).unwrap_err().to_string().contains("the output exists"));
    write(true).unwrap();
}

#[test]
fn progress_reaches_the_end_of_every_stage() {
    let dir = tempfile::tempdir().unwrap();
    let config = SbmConfig { nodes: 5000, dim: 4, ..SbmConfig::default() };
    let calls = std::sync::Mutex::new(Vec::new());
    let progress = |stage: &str, done, total| calls.lock().unwrap().push((stage.to_string(), done, total));
    sbm_to_disk(&config, &dir.path().join("graph"), DEFAULT_MEMORY, false, &progress).unwrap();
    let calls = calls.into_inner().unwrap();
    for stage in ["edges", "features", "labels"] {
        let last = calls.iter().rfind(|call| call.0 == stage);
        assert_eq!(last, Some(&(stage.to_string(), 5000, 5000)));
    }
}
