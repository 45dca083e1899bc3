use clap::CommandFactory;

use super::{Args, MEASURED};

/// So that an option to come is not left unread without a word.
#[test]
fn every_option_is_of_what_is_measured_or_of_planning() {
    let planning = ["threads", "memory", "device_memory", "buffer", "profile", "durations", "what_if"];
    let written = ["timeline", "report", "output"];
    let command = Args::command();
    let mut options: Vec<&str> = command.get_arguments().map(|a| a.get_id().as_str()).collect();
    let mut known = [&MEASURED[..], &planning, &written].concat();
    options.sort_unstable();
    known.sort_unstable();
    assert_eq!(options, known);
}
