//! Keys, places and settings: printing and reading are inverses, wrong text is refused with an example.

use morphgl_registry::{Fanouts, Hardware, Key, Place, Resource};
use proptest::prelude::*;

proptest! {
    #[test]
    fn display_and_from_str_of_keys_are_inverses(
        phase in prop::sample::select(vec!["Batching", "Transferring", "Training"]),
        mut hardware in prop::collection::vec("[A-Za-z0-9-]{1,6}", 1..4),
        operator in "[A-Za-z0-9-]{1,12}",
    ) {
        hardware.sort();
        hardware.dedup();
        let text = format!("{phase}_{}_{operator}", hardware.join("+"));
        let key: Key = text.parse().expect("a well-formed key");
        prop_assert_eq!(&key.to_string(), &text);
        let json = serde_json::to_string(&key).expect("keys are strings");
        prop_assert_eq!(serde_json::from_str::<Key>(&json).expect("what was written"), key);
    }

    #[test]
    fn any_text_reads_as_itself_or_not_at_all(text in "\\PC{0,40}") {
        // Hardware is a set, so only sorted text without repetition prints back as it was.
        if let Ok(key) = text.parse::<Key>() {
            let again: Key = key.to_string().parse().expect("what was printed");
            prop_assert_eq!(again, key);
        }
        if let Ok(place) = text.parse::<Place>() {
            let again: Place = place.to_string().parse().expect("what was printed");
            prop_assert_eq!(again, place);
        }
    }

    #[test]
    fn fanouts_are_read_as_printed(counts in prop::collection::vec(prop_oneof![Just(-1i64), 1i64..5000], 1..6)) {
        let text = counts.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
        let fanouts: Fanouts = text.parse().expect("positive numbers and -1");
        prop_assert_eq!(fanouts.to_string(), text);
    }
}

#[track_caller]
fn refused<T: std::str::FromStr<Err = morphgl_registry::Error> + std::fmt::Debug>(text: &str, cure: &str) {
    let error = text.parse::<T>().expect_err("wrong text").to_string();
    assert!(error.contains(cure) && !error.contains('\n'), "{error:?} does not say {cure:?} on one line");
}

#[test]
fn wrong_text_is_refused_with_the_cure() {
    refused::<Key>("Batching_CPU", "for example Batching_CPU_Neighbor");
    refused::<Key>("Sampling_CPU_Neighbor", "none of Batching, Transferring and Training");
    refused::<Key>("Batching__Neighbor", "joined with '+'");
    refused::<Key>("Batching_CPU_", "for example Batching_CPU_Neighbor");
    refused::<Key>("Batching_CPU_A_B", "for example Batching_CPU_Neighbor");
    refused::<Place>("cuda", "for example cuda:0");
    refused::<Place>("cuda:-1", "for example cuda:0");
    refused::<Fanouts>("15,0,5", "-1 for all");
    refused::<Fanouts>("", "positive number");
}

#[test]
fn hardware_is_a_set() {
    let hardware: Hardware = "PCIe+CUDA+PCIe".parse().expect("resources joined with '+'");
    assert_eq!(hardware.to_string(), "CUDA+PCIe");
    const CONSTANT: Hardware = Hardware::new(&[Resource::new("CUDA"), Resource::PCIE]);
    assert_eq!(hardware, CONSTANT);
}
