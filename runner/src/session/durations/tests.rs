use morphgl_plan::Limits;

use super::{ManualDurations, seconds};
use crate::values::bytes;

#[test]
fn units() {
    assert_eq!([seconds("1.5s").ok(), seconds("20ms").ok(), seconds("4").ok()], [Some(1.5), Some(0.02), None]);
    assert_eq!(bytes("1.5KiB").ok(), Some(1536));
    assert_eq!([bytes("2GB").ok(), bytes("7").ok(), bytes("x").ok()], [Some(2_000_000_000), Some(7), None]);
    assert_eq!([bytes("2g").ok(), bytes("2gib").ok(), bytes("nan").ok()], [Some(2 << 30), Some(2 << 30), None]);
}

#[test]
fn routes_with_all_durations_are_planned() {
    let routes = |text: &str| {
        text.parse::<ManualDurations>().and_then(|h| h.problem(Limits::default())).map(|p| p.routes().len())
    };
    assert_eq!(routes("batching-cpu=1ms,transferring-pcie=1ms,training=1ms").ok(), Some(1));
    assert_eq!(routes(super::EXAMPLE).ok(), Some(2));
    for wrong in ["training=1ms", "batching-cpu=1ms,training=1ms", "x=1ms", "workers=0", "training=1", "a"] {
        assert!(routes(wrong).is_err(), "{wrong}");
    }
    for (wrong, cure) in [("training=1", "has a unit"), ("training=-1ms", "0 or more")] {
        let error = wrong.parse::<ManualDurations>().expect_err(wrong).to_string();
        assert!(error.contains(wrong) && error.contains(cure) && error.contains("20ms"), "{error}");
    }
}
