use proptest::prelude::*;

use super::*;

/// Rows that devices have room for, each for `each` rows.
fn room(each: u64, num_devices: u64) -> impl Fn(u32) -> Rows {
    move |replicated| {
        let replicated = u64::from(replicated).min(each);
        Rows { cached: replicated + num_devices * (each - replicated), replicated: replicated as u32 }
    }
}

/// Seconds of all reads of all devices, row by row.
fn swept(heat: &[f32], rows: Rows, num_devices: u64, seconds: RowSeconds) -> f64 {
    let of = |(rank, heat): (u64, &f32)| {
        let read = |device: u64| match rank {
            _ if rank >= rows.cached => seconds.host,
            _ if rank < u64::from(rows.replicated) => seconds.own,
            _ if (rank - u64::from(rows.replicated)) % num_devices == device => seconds.own,
            _ => seconds.peer,
        };
        f64::from(*heat) * (0..num_devices).map(read).sum::<f64>()
    };
    (0..).zip(heat).map(of).sum::<f64>() / num_devices as f64
}

#[test]
fn as_many_rows_are_replicated_as_their_copies_are_worth() {
    // Room for three rows on each of two devices.
    let heat = [9.0, 8.0, 4.0, 1.0, 1.0, 1.0, 0.0];
    let of = |own, peer, host| fastest(heat.into_iter(), room(3, 2), 2, RowSeconds { own, peer, host });
    // Peers as fast as the device itself: all rows once.
    assert_eq!(of(1.0, 1.0, 10.0), 0);
    // A copy of the hottest row saves 9 · (3 - 1) / 2, and the row that it displaces costs 1 · (10 - 2); one of the second saves no more
    // than that.
    assert_eq!(of(1.0, 3.0, 10.0), 1);
    assert_eq!(of(1.0, 9.0, 10.0), 3);
    // As slow as the host, and slower.
    assert_eq!(of(1.0, 10.0, 10.0), 3);
    assert_eq!(of(1.0, 20.0, 10.0), 3);
    // Rows that are never read are not worth a row that is.
    assert_eq!(fastest([0.0; 5].into_iter(), room(3, 2), 2, RowSeconds { own: 1.0, peer: 3.0, host: 9.0 }), 0);
    // All rows fit: those for which there is room twice are.
    assert_eq!(fastest([1.0; 5].into_iter(), room(3, 2), 2, RowSeconds { own: 1.0, peer: 2.0, host: 9.0 }), 1);
    assert_eq!(fastest([].into_iter(), room(3, 2), 2, RowSeconds { own: 1.0, peer: 2.0, host: 9.0 }), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    /// No other number has fewer seconds, summed row by row, whatever the accesses of ranks are and whichever memory is fastest.
    #[test]
    fn no_number_of_a_sweep_is_faster(
        heat in prop::collection::vec(prop_oneof![Just(0.0f32), Just(1.0), 0.0f32..50.0], 0..60),
        (sorted, each, num_devices) in (any::<bool>(), 0u64..70, 1u64..6),
        [own, peer, host] in prop::array::uniform3(0.0f64..5.0),
    ) {
        let mut heat = heat;
        if sorted {
            heat.sort_by(|a, b| b.total_cmp(a));
        }
        let (room, seconds) = (room(each, num_devices), RowSeconds { own, peer, host });
        let chosen = fastest(heat.iter().copied(), &room, num_devices, seconds);
        let least = swept(&heat, room(chosen), num_devices, seconds);
        for replicated in 0..=each as u32 {
            let other = swept(&heat, room(replicated), num_devices, seconds);
            prop_assert!(least <= other + 1e-9 * other.abs(), "{} {}, {} {}", chosen, least, replicated, other);
        }
    }
}
