use morphgl_hotness::CachePolicy;
use serde_json::json;

use super::{Cache, at_least_one, cache, feature_dtype, finite, fractions, seconds, setting, threads};

#[test]
fn valid_values_are_read_and_others_refused() {
    let read = [finite::<f64>("0.5").is_ok(), at_least_one("1").is_ok(), threads("512").is_ok()];
    assert_eq!(read, [true; 3]);
    for wrong in ["0", "-1", "", "nan", "x", "1e300", "99999999999999999999"] {
        assert!(at_least_one(wrong).is_err() && threads(wrong).is_err() && seconds(wrong).is_err(), "{wrong}");
    }
    assert_eq!(seconds("0.25").map(|s| s.as_millis()), Ok(250));
    assert_eq!(fractions("0.6, 0.2,0.2"), Ok([0.6, 0.2, 0.2]));
    for wrong in ["", "0.5,0.5", "0.5,0.5,0.5", "-0.1,0.5,0.5", "nan,0,0", "a,b,c"] {
        assert!(fractions(wrong).is_err(), "{wrong}");
    }
    let key = "Transferring_NPU+PCIe_Fake";
    for (text, value) in
        [("0.5", json!(0.5)), ("true", json!(true)), ("all", json!("all")), ("[\"cuda:1\"]", json!(["cuda:1"]))]
    {
        let read = setting(&format!("{key}.peers={text}")).expect("an option");
        assert_eq!((read.0.to_string().as_str(), read.1.as_str(), read.2), (key, "peers", value));
    }
    for wrong in ["", "x", "peers=1", "Training_NPU_Fake=1", "Training_NPU_Fake.=1", "Nobody.x=1"] {
        assert!(setting(wrong).is_err(), "{wrong}");
    }
    assert!(feature_dtype("bf16").is_ok() && feature_dtype("i64").is_err());
}

#[test]
fn caches_have_a_policy_and_perhaps_a_size() {
    let read = |text: &str, policy: &str, bytes| {
        let policy: CachePolicy = policy.parse().expect("a policy");
        assert_eq!(cache(text), Ok(Cache { policy, bytes }), "{text}");
    };
    for policy in ["auto", "none", "lru", "sieve", "in-degree", "inclusion", "presample:3"] {
        read(policy, policy, None);
    }
    read("auto:2GiB", "auto", Some(2 << 30));
    read("inclusion:4096", "inclusion", Some(4096));
    read("presample", "presample:1", None);
    read("presample:2", "presample:2", None);
    read("presample:2MB", "presample:1", Some(2_000_000));
    read("presample:2:512M", "presample:2", Some(512 << 20));
    let refused = |text: &str, expected: &str| {
        let error = cache(text).expect_err("refused");
        assert!(error.contains(expected), "{text}: {error}");
    };
    refused("degree", "give auto, none, lru, sieve, in-degree");
    refused("degree:2GiB", "\"degree\": no cache policy");
    refused("hindsight", "counts the epochs that are trained");
    refused("none:2GiB", "leave the size out");
    refused("auto:", "not an amount of memory; give for example 8GiB");
    refused("inclusion:10%", "not an amount of memory");
    refused("inclusion:0", "not an amount of memory");
    refused("presample:0", "neither a number of epochs nor a size");
    refused("presample:x:2GiB", "no number of epochs");
}
