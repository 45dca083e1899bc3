//! Kinds of sampling: the text of their settings, and those that operators declare.

use morphgl_registry::{
    At, Build, CustomSettings, Description, Error, Hardware, Key, Machine, NeighborSettings, OptionSpec, OptionType,
    Phase, Registry, SamplerSettings, Sampling, SamplingSpec, ShadowSettings, WalkSettings,
};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

const SETTINGS: [OptionSpec; 2] = [
    OptionSpec::new("shared", OptionType::Bool, "true", "share"),
    OptionSpec::new("rounds", OptionType::Count, "3", "rounds"),
];
const OURS: SamplingSpec = SamplingSpec::new("ours", "our kind").by_fanouts().with_settings(&SETTINGS);
const BARE: SamplingSpec = SamplingSpec::new("bare", "a kind without fanouts");

fn custom(kind: &str, layers: usize, fanouts: Option<&str>, settings: Value) -> CustomSettings {
    let hops = fanouts.map(|text| NeighborSettings::from(text.parse::<morphgl_registry::Fanouts>().expect("fanouts")));
    CustomSettings { kind: kind.into(), layers, hops, settings: settings.as_object().expect("a table").clone() }
}

fn read(value: Value) -> Result<SamplerSettings, String> {
    serde_json::from_value(value).map_err(|e| e.to_string())
}

/// Documents of an earlier version are read, and written as they were.
#[test]
fn the_kinds_of_this_crate_keep_their_text() {
    let hops = NeighborSettings::from("5,3".parse::<morphgl_registry::Fanouts>().expect("fanouts"));
    let written = |sampling: Sampling, fields: Value| {
        let settings = SamplerSettings::from(sampling);
        let mut all = json!({ "batch_size": 1024, "seed": 0, "shuffle": true });
        all.as_object_mut().expect("a table").extend(fields.as_object().expect("a table").clone());
        assert_eq!(serde_json::to_value(&settings).expect("JSON"), all);
        assert_eq!(read(all), Ok(settings));
    };
    let by_hops = json!({ "sampler": "neighbor", "fanouts": "5,3", "expansion": "all", "pick": "uniform" });
    written(Sampling::Neighbor(hops.clone()), by_hops);
    let shadow = json!({ "sampler": "shadow", "fanouts": "5,3", "expansion": "all", "pick": "uniform", "layers": 4 });
    written(Sampling::Shadow(ShadowSettings { hops, layers: 4 }), shadow);
    let walk = json!({ "sampler": "walk", "layers": 2, "walks": 10, "length": 3, "restart": 0.5, "neighbors": 10 });
    written(Sampling::Walk(WalkSettings::of_layers(2)), walk);
    let named = json!({ "sampler": "neighbor", "fanouts": "5,3", "batch_size": 1024, "seed": 0, "shuffle": true });
    assert_eq!(read(named).expect("defaults").sampling.kind(), "neighbor");
}

#[test]
fn malformed_settings_are_refused_and_no_other_kind() {
    let with = |fields: Value| {
        let mut all = json!({ "batch_size": 1024, "seed": 0, "shuffle": true });
        all.as_object_mut().expect("a table").extend(fields.as_object().expect("a table").clone());
        read(all).expect_err("it is malformed")
    };
    for (fields, words) in [
        (json!({ "fanouts": "5,3" }), "missing field `sampler`"),
        (json!({ "sampler": "neighbor" }), "missing field `fanouts`"),
        (json!({ "sampler": "walk", "layers": 2 }), "missing field `walks`"),
        (json!({ "sampler": "ours" }), "missing field `layers`"),
        (json!({ "sampler": "ours", "layers": 2, "fanouts": "many" }), "not a fanout"),
        (json!({ "sampler": "ours", "layers": 2, "pick": "weighted" }), "missing field `fanouts`"),
    ] {
        let error = with(fields);
        assert!(error.contains(words), "{error}");
    }
}

proptest! {
    /// Settings of another crate's kind come back from their text.
    #[test]
    fn settings_of_other_kinds_come_back(
        kind in "[a-z0-9-]{1,8}", layers in 1usize..9, fanouts in proptest::option::of("[1-9][0-9]{0,3}(,[1-9]){0,3}"),
        settings in proptest::collection::btree_map("[a-z_]{1,8}", prop_oneof![
            any::<bool>().prop_map(Value::from), any::<u64>().prop_map(Value::from), "[ -~]{0,9}".prop_map(Value::from),
            any::<f64>().prop_filter("JSON", |x| x.is_finite()).prop_map(Value::from),
        ], 0..4),
    ) {
        prop_assume!(SamplingSpec::BUILT_IN.iter().all(|spec| spec.name != kind));
        let settings: Map<String, Value> = settings.into_iter().collect();
        let sampling = Sampling::Custom(custom(&kind, layers, fanouts.as_deref(), Value::Object(settings)));
        let settings = SamplerSettings::from(sampling);
        let text = serde_json::to_string(&settings).expect("JSON");
        prop_assert_eq!(serde_json::from_str::<SamplerSettings>(&text).expect("JSON"), settings);
    }
}

#[test]
fn settings_are_checked_against_the_declaration() {
    let check = |spec: &SamplingSpec, custom: CustomSettings| {
        SamplerSettings::from(Sampling::Custom(custom)).custom(spec).map(drop).map_err(|e| e.to_string())
    };
    assert_eq!(check(&OURS, custom("ours", 2, Some("5,3"), json!({ "rounds": 1 }))), Ok(()));
    assert_eq!(check(&BARE, custom("bare", 2, None, json!({}))), Ok(()));
    for (spec, wrong, words) in [
        (&OURS, custom("bare", 2, Some("5,3"), json!({})), "samples by ours, the settings are of bare"),
        (&OURS, custom("ours", 2, Some("5,3"), json!({ "round": 1 })), "did you mean \"rounds\""),
        (&OURS, custom("ours", 2, Some("5,3"), json!({ "rounds": -1 })), "option rounds is -1; give whole number"),
        (&OURS, custom("ours", 2, None, json!({})), "it samples by fanouts"),
        (&OURS, custom("ours", 3, Some("5,3"), json!({})), "2 fanouts for 3 layers"),
        (&BARE, custom("bare", 2, Some("5,3"), json!({})), "it does not read fanouts"),
    ] {
        let error = check(spec, wrong).expect_err("it is refused");
        assert!(error.contains(words) && !error.contains('\n'), "{error}");
    }
    let given = custom("ours", 2, Some("5,3"), json!({ "rounds": 7 }));
    assert_eq!((given.value(&SETTINGS[0]), given.value(&SETTINGS[1])), (true.into(), 7.into()));
    assert_eq!(Value::Object(OURS.defaults()), json!({ "shared": true, "rounds": 3 }));
}

fn operator(name: &'static str, samplers: &'static [SamplingSpec]) -> Description {
    let key: Key = format!("Batching_CPU_{name}").parse().expect("a key");
    assert_eq!(key.hardware, Hardware::CPU);
    assert_eq!(key.phase, Phase::Batching);
    let build = Build::Batching(|_| Err(Error::setting("test", "is never built")));
    Description::new(key, "samples", At::Host, At::Host, build).sampling(samplers)
}

/// A name is one kind: operators that declare it otherwise cannot be linked together.
#[test]
fn kinds_are_found_by_their_names() {
    const OTHER: SamplingSpec = SamplingSpec::new("ours", "our kind").by_fanouts();
    const FALSE: SamplingSpec = SamplingSpec::new("walk", "a walk of our own");
    let machine =
        || Machine { cpu: "test".into(), cores: 2, memory_bytes: 1, available_bytes: 1, accelerators: Vec::new() };
    let new = |descriptions: Vec<Description>| Registry::new(descriptions, machine());
    let linked = new(vec![
        operator("A", &[OURS]),
        operator("B", &[SamplingSpec::WALK, BARE]),
        operator("C", &[OURS, SamplingSpec::NEIGHBOR]),
    ]);
    let linked = linked.expect("each kind once");
    let names: Vec<&str> = linked.samplings().iter().map(|spec| spec.name).collect();
    assert_eq!(names, ["neighbor", "walk", "bare", "ours"]);
    assert_eq!(linked.sampling("ours").expect("it is linked"), OURS);
    let error = linked.sampling("shadow").expect_err("it is not linked").to_string();
    assert!(error.ends_with("\"shadow\"; there are neighbor, walk, bare, ours"), "{error}");
    for wrong in [vec![operator("A", &[OURS]), operator("B", &[OTHER])], vec![operator("A", &[FALSE])]] {
        let error = new(wrong).expect_err("two kinds of a name").to_string();
        assert!(error.contains("with other settings; unlink one of them"), "{error}");
    }
}
