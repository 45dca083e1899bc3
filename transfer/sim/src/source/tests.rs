use serde_json::json;

use super::*;

fn key() -> Key {
    "Training_SIM_Ledger".parse().expect("a key")
}

#[track_caller]
fn check(options: Value, environment: Option<&str>, expected: std::result::Result<&str, &str>) {
    let actual = config(&key(), &options, environment.map(OsString::from)).map_err(|e| e.to_string());
    let expected = expected.map(|text| text.parse::<Config>().expect("a configuration")).map_err(String::from);
    assert_eq!(actual, expected);
}

#[test]
fn options_take_precedence_over_the_environment() {
    check(json!(null), Some("training=7ms"), Ok("training=7ms"));
    check(json!({}), Some("training=7ms"), Ok("training=7ms"));
    check(json!({"sim": "training=8ms"}), Some("training=7ms"), Ok("training=8ms"));
    check(json!({"sim": {"training": "8ms", "memory": 3}}), None, Ok("training=8ms,memory=3"));
    check(
        json!({"sim": {"fault": ["training:hang@1:2"], "noise": 0.5}}),
        None,
        Ok("noise=0.5,fault=training:hang@1:2"),
    );
}

#[test]
fn without_either_the_operator_is_unavailable() {
    let absent = "Training_SIM_Ledger: not available on this machine: no simulated accelerator; \
                  set MORPHGL_SIM, for example MORPHGL_SIM=training=5ms";
    check(json!(null), None, Err(absent));
    check(json!(null), Some(""), Err(absent));
}

#[test]
fn invalid_configurations_are_refused_with_cures() {
    check(
        json!(null),
        Some("training=5"),
        Err("MORPHGL_SIM: simulated accelerator, \"training=5\": not a duration; give a number with a unit of s, ms, \
             us or ns, for example 5ms or 2.5ms"),
    );
    check(
        json!({"sim": 5}),
        None,
        Err("simulated accelerator: 5 is not a configuration; give a text or an object, for example \"training=5ms\""),
    );
    check(
        json!({"simulated": 5}),
        None,
        Err(
            "Training_SIM_Ledger: \"simulated\" is none of its options; it has \"sim\" and \"machine\", leave \"simulated\" out",
        ),
    );
}
