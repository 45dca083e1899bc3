//! The configuration: round trips through text and JSON, durations, errors with their cure.

use std::time::Duration;

use morphgl_registry::BatchId;
use morphgl_sim::{Config, Fault, FaultKind, Slow, Work};
use proptest::prelude::*;

fn id(epoch: u32, index: u32) -> BatchId {
    BatchId { epoch, index }
}

fn parse(text: &str) -> Config {
    text.parse().expect("a configuration")
}

prop_compose! {
    fn batch()(epoch in 0u32..9, index: u32) -> BatchId { BatchId { epoch, index } }
}

fn work() -> impl Strategy<Value = Work> {
    prop::sample::select(Work::ALL.to_vec())
}

fn kind() -> impl Strategy<Value = FaultKind> {
    prop::sample::select(vec![FaultKind::Error, FaultKind::Panic, FaultKind::Hang, FaultKind::Memory])
}

prop_compose! {
    fn any_config()(
        nanos in prop::array::uniform6(prop_oneof![0u64..10_000_000_000, (0u64..5000).prop_map(|ms| ms * 1_000_000)]),
        memory in 1usize..1000,
        devices in 1u32..=64,
        noise in 0.0f64..2.0,
        slow in prop::collection::vec((work(), 0.0f64..9.0, batch()), 0..3),
        faults in prop::collection::vec((work(), kind(), batch()), 0..3),
        name in "[a-zA-Z0-9_-]{0,5}",
    ) -> Config {
        let slow = slow.into_iter().map(|(work, factor, from)| Slow { work, factor, from }).collect();
        let faults = faults.into_iter().map(|(work, kind, at)| Fault { work, kind, at }).collect();
        Config { memory, devices, noise, slow, faults, name, durations: nanos.map(Duration::from_nanos) }
    }
}

proptest! {
    #[test]
    fn text_and_json_round_trip(config in any_config()) {
        prop_assert_eq!(&parse(&config.to_string()), &config);
        let json = serde_json::to_string(&config).expect("JSON");
        prop_assert_eq!(serde_json::from_str::<Config>(&json).expect("valid JSON"), config);
    }

    #[test]
    fn no_text_panics(text in "[a-z0-9=,.*@: -]{0,40}") {
        if let Err(error) = text.parse::<Config>() {
            prop_assert!(!error.to_string().contains('\n'));
        }
    }
}

#[test]
fn parts_are_optional_and_units_are_read() {
    assert_eq!(parse(""), Config::default());
    let config =
        parse(" batching-cpu=20ms, transferring-pcie=2.5ms,training=300us,memory=3,noise=0.1,batching-device=1s ");
    assert_eq!(config.durations[Work::TransferringPcie as usize], Duration::from_micros(2500));
    assert_eq!(config.durations[Work::Training as usize], Duration::from_micros(300));
    assert_eq!((config.memory, config.noise), (3, 0.1));
    assert_eq!(config.durations[3], Config::default().durations[3]);
    assert_eq!(
        config.to_string(),
        "batching-cpu=20ms,transferring-pcie=2500us,batching-device=1s,transferring-device=4ms,training=300us,\
         transferring-peer=4ms,memory=3,devices=1,noise=0.1"
    );
}

#[track_caller]
fn refused(text: &str, cure: &str) {
    let error = text.parse::<Config>().expect_err("refused").to_string();
    assert!(error.starts_with("simulated accelerator, ") && error.contains(cure), "{error}");
}

#[test]
fn invalid_parts_are_named_with_their_cure() {
    refused("training", "a part reads name=value");
    refused("training=5", "give a number with a unit");
    refused("training=-5ms", "give a number with a unit");
    refused("training=99999999999999s", "give a number with a unit");
    refused(
        "trainig=5ms",
        "there are batching-cpu, transferring-pcie, batching-device, transferring-device, training, \
         transferring-peer, memory, devices",
    );
    refused("memory=0", "give at least 1");
    refused("devices=0", "give 1 to 64, for example devices=2");
    refused("devices=65", "give 1 to 64");
    refused("noise=nan", "give a number from 0 to 1000");
    refused("slow=training*2", "slow=training*2@0:500");
    refused("fault=training:explode@0:1", "error, panic, hang or memory");
    refused("fault=training:panic@17", "epoch:index");
    refused("training=5ms,training=6ms", "given twice");
    refused("name=a b", "ASCII letters");
}

#[test]
fn speed_changes_from_a_mini_batch_on() {
    let config = parse("training=4ms,slow=training*2@0:500,slow=training*0.5@1:0,batching-device=8ms");
    let training = |epoch, index| config.duration(Work::Training, id(epoch, index)).as_millis();
    assert_eq!([training(0, 499), training(0, 500), training(0, 9999), training(1, 0)], [4, 8, 8, 4]);
    assert_eq!(config.duration(Work::BatchingDevice, id(0, 700)), Duration::from_millis(8));
}

#[test]
fn noise_is_a_function_with_the_stated_mean_and_deviation() {
    let config = parse("training=10ms,noise=0.2");
    let n = 20_000u32;
    let draw = |i: u32| config.duration(Work::Training, id(i % 50, i / 50)).as_secs_f64() / 0.01;
    let draws: Vec<f64> = (0..n).map(draw).collect();
    assert_eq!(draws, (0..n).map(draw).collect::<Vec<_>>(), "the same in every run");
    let mean = draws.iter().sum::<f64>() / f64::from(n);
    let deviation = (draws.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / f64::from(n)).sqrt();
    // The standard error of the mean is 0.2 / sqrt(20000) = 0.0014; of the deviation about 0.0011.
    assert!((mean - 1.0).abs() < 0.006 && (deviation - 0.2).abs() < 0.006, "mean {mean}, deviation {deviation}");
    let other =
        config.duration(Work::BatchingCpu, id(3, 4)).div_duration_f64(config.durations[Work::BatchingCpu as usize]);
    assert_ne!(other, draws[203], "another work has other draws");
    assert_eq!(parse("noise=0").duration(Work::Training, id(7, 7)), Duration::from_millis(5));
}

#[test]
fn a_fault_affects_one_mini_batch() {
    let config = parse("fault=training:panic@0:17,fault=batching-cpu:memory@2:1");
    assert_eq!(config.fault(Work::Training, id(0, 17)), Some(FaultKind::Panic));
    assert_eq!(config.fault(Work::BatchingCpu, id(2, 1)), Some(FaultKind::Memory));
    assert_eq!(config.fault(Work::Training, id(1, 17)), None);
    assert_eq!(config.fault(Work::BatchingDevice, id(0, 17)), None);
}
