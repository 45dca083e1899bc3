//! Profiles as files.

use crate::common::{Fakes, File, QUICK, unlimited};
use morphgl_plan::Limits;
use morphgl_profile::{ErrorKind, Profile};
use serde_json::{Value, json};

#[test]
fn a_profile_is_saved_and_loaded() {
    let p = Fakes::with_device(60, QUICK).profile(&unlimited(2)).expect("nothing fails");
    let file = File::new("saved.json");
    p.save(&file.0).expect("the directory is writable");
    let again = Profile::load(&file.0).expect("what was saved can be loaded");
    assert_eq!((&again.machine, &again.settings.pools, &again.skipped), (&p.machine, &p.settings.pools, &p.skipped));
    assert_eq!(again.routes.len(), 3);
    for (a, b) in p.routes.iter().zip(&again.routes) {
        assert_eq!((&a.route, a.largest, a.interference.len()), (&b.route, b.largest, b.interference.len()));
        for (a, b) in a.batching.iter().zip(&b.batching) {
            assert_eq!((a.workers, a.threads, &a.seconds.outliers), (b.workers, b.threads, &b.seconds.outliers));
            assert!((a.seconds.mean - b.seconds.mean).abs() < 1e-12);
        }
    }
    assert_eq!(again.routes[0].keys().to_string(), "Batching_CPU_Fake → Transferring_CPU_Fake → Training_CPU_Fake");
    let epoch = |p: &Profile| {
        let plans = morphgl_plan::plan(&p.problem(2, Limits::default())).expect("it fits");
        plans.best().prediction.epoch_seconds
    };
    assert!((epoch(&p) / epoch(&again) - 1.0).abs() < 1e-6, "the same plan comes out");
}

/// Profiles that say `together` for interference.
#[test]
fn earlier_names_are_read() {
    let p = Fakes::with_device(60, QUICK).profile(&unlimited(2)).expect("nothing fails");
    let mut earlier = serde_json::to_value(&p).expect("plain data");
    for route in earlier["routes"].as_array_mut().expect("a list") {
        let samples = route.as_object_mut().expect("a map").remove("interference").expect("it is there");
        route["together"] = samples;
    }
    let file = File::new("earlier.json");
    std::fs::write(&file.0, earlier.to_string()).expect("the directory is writable");
    let again = Profile::load(&file.0).expect("an earlier file");
    let counts = |p: &Profile| p.routes.iter().map(|route| route.interference.len()).collect::<Vec<_>>();
    assert_eq!(counts(&again), counts(&p));
}

#[track_caller]
fn refuse(name: &str, text: &str) -> String {
    let file = File::new(name);
    std::fs::write(&file.0, text).expect("the directory is writable");
    let error = Profile::load(&file.0).expect_err("no profile").to_string();
    assert!(error.starts_with(&file.0.display().to_string()), "{error}");
    assert!(error.ends_with("; profile again"), "{error}");
    error
}

#[test]
fn other_files_are_refused() {
    assert!(refuse("text", "hello").contains("not a profile: expected value at line 1 column 1"));
    assert!(refuse("no-version", "{}").contains("not a profile: it has no version"));
    for version in [1, 99] {
        let error = refuse("other", &json!({ "version": version }).to_string());
        assert!(error.contains(&format!("it is of version {version}, this program reads 2; profile again")), "{error}");
    }
    assert!(refuse("short", r#"{"version": 2}"#).contains("missing field"));
    let missing = File::new("missing");
    assert!(Profile::load(&missing.0).expect_err("no file").to_string().contains("check the path of the profile"));
    let p = Fakes::new(3, QUICK).profile(&unlimited(1)).expect("nothing fails");
    let nowhere = missing.0.join("nowhere.json");
    assert!(matches!(p.save(&nowhere).expect_err("no directory").kind, ErrorKind::Io(_)));
}

#[test]
fn profiles_without_a_possible_plan_are_refused() {
    let p = Fakes::with_device(60, QUICK).profile(&unlimited(2)).expect("nothing fails");
    let good = serde_json::to_value(&p).expect("plain data");
    let cases: [(&str, Value, &str); 19] = [
        ("/num_batches", json!(u32::MAX), "more than 10000000 mini-batches"),
        ("/settings/cores", json!(u64::MAX), "more cores than the 1024"),
        ("/machine/cores", json!(1u64 << 40), "more cores than the 1024"),
        ("/held_bytes", json!(u64::MAX), "bytes are more than any machine has"),
        ("/routes/0/batching/1/workers", json!(u64::MAX), "at most 1024 are planned with"),
        ("/routes/1/largest/worker_bytes", json!(u64::MAX), "bytes are more than"),
        ("/routes/2/transferring/samples/0", json!(1e300), "more than 10^9 s"),
        ("/num_batches", json!(0), "there are no mini-batches"),
        ("/settings/cores", json!(0), "no cores"),
        ("/seconds", json!(-1.0), "no finite time"),
        ("/routes", json!([]), "no route"),
        ("/routes/0/batching", json!([]), "one worker of one thread is missing"),
        ("/routes/1/training", json!([]), "no point"),
        ("/routes/0/batching/1/workers", json!(0), "counts start at 1"),
        ("/routes/2/transferring/samples", json!([]), "a duration without samples"),
        ("/routes/2/transferring/samples/0", json!(-0.5), "no finite number of seconds"),
        ("/routes/0/training/0/seconds/outliers", json!([77]), "outliers are not some of its samples"),
        ("/routes/0/route/batching", json!("Training_CPU_Fake"), "is named as the operator of phase Batching"),
        ("/routes/1", good["routes"][0].clone(), "the route is there twice"),
    ];
    for (i, (at, value, says)) in cases.into_iter().enumerate() {
        let mut bad = good.clone();
        *bad.pointer_mut(at).unwrap_or_else(|| panic!("{at} is there")) = value;
        let error = refuse(&format!("bad-{i}"), &bad.to_string());
        assert!(error.contains(says), "{at}: {error}");
    }
    let mut bad = good.clone();
    let sample = json!({
        "workers": 1, "threads": 1, "training_threads": 1,
        "batching": good["routes"][0]["transferring"], "training": good["routes"][0]["transferring"],
    });
    bad["routes"][1]["interference"] = json!([sample.clone()]);
    assert!(refuse("interference", &bad.to_string()).contains("where not both run on them"));
    for count in ["workers", "threads", "training_threads"] {
        for value in [0u64, 1 << 40] {
            let mut bad = good.clone();
            let mut odd = sample.clone();
            odd[count] = json!(value);
            bad["routes"][0]["interference"] = json!([odd]);
            let says = format!("batching beside training with a count of {value}");
            assert!(refuse("count", &bad.to_string()).contains(&says), "{count}");
        }
    }
    let mut long = good.clone();
    long["num_batches"] = json!("9".repeat(1 << 20));
    assert!(refuse("long", &long.to_string()).len() < 1000);
}
