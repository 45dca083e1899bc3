use serde_json::json;

use super::*;
use crate::Key;

const SPECS: [OptionSpec; 4] = [
    OptionSpec::new("cache_bytes", OptionType::Count, "1024", "size of the cache").of_budget(OptionRole::HostBudget),
    OptionSpec::new("hotness", OptionType::Choice(&["degree", "none"]), "degree", "how rows are ranked"),
    OptionSpec::new("peers", OptionType::Places, "none", "other devices"),
    OptionSpec::new("cache", OptionType::Text, "auto", "what is cached").of_cache_policy(),
];

#[test]
fn unknown_names_are_refused_with_the_nearest_one_and_wrong_types_with_the_right_one() {
    let key: Key = "Batching_CPU_Fake".parse().expect("a key");
    let check = |given: Value| check_options(&key, &SPECS, &given).map_err(|e| e.to_string());
    assert_eq!(check(Value::Null), Ok(()));
    assert_eq!(check(json!({"cache_bytes": 7, "hotness": "none", "peers": ["cuda:1"]})), Ok(()));
    let refused = |given: Value, part: &str| {
        let error = check(given).expect_err("wrong options");
        assert!(error.starts_with("Batching_CPU_Fake: ") && error.contains(part), "{error}");
    };
    refused(json!({"cache_byte": 7}), "did you mean \"cache_bytes\"");
    refused(json!({"zzz": 7}), "there are cache_bytes, hotness, peers, cache");
    refused(json!({"cache_bytes": -1}), "give whole number of bytes");
    refused(json!({"cache_bytes": 1.5}), "whole number");
    refused(json!({"hotness": "pagerank"}), "give degree, none");
    refused(json!({"cache": 1}), "option cache is 1; give text");
    refused(json!([1]), "an object by name");
    assert_eq!(check(json!({"cache": "presample:2"})), Ok(()));
    assert_eq!(
        (SPECS[0].unit, SPECS[0].role, SPECS[3].role),
        ("bytes", OptionRole::HostBudget, OptionRole::CachePolicy)
    );
}
