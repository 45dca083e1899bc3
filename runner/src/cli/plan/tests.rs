use clap::CommandFactory;

use super::{Args, PLANNING, measured};

/// A new option must be listed here, so that none is ignored silently with a profile or durations.
#[test]
fn every_option_is_of_measuring_or_of_planning() {
    let own = ["profile", "durations", "what_if", "timeline", "report", "output"];
    let measured = measured();
    let command = Args::command();
    let mut options: Vec<&str> = command.get_arguments().map(|a| a.get_id().as_str()).collect();
    let mut known = [&PLANNING[..], &own].concat();
    known.extend(measured.iter().map(|id| id.as_str()));
    options.sort_unstable();
    known.sort_unstable();
    assert_eq!(options, known);
    let expected = ["dataset", "no_verify", "model", "lr", "fanouts", "seed", "set", "training", "profile_seconds"];
    assert!(expected.iter().all(|id| measured.iter().any(|m| m == id)), "{measured:?}");
}
