//! Laws of both allocators, whatever savings and sizes are.

use morphgl_dual_cache::{CacheShare, Curve, Kind, Slopes, allocate, allocate_prefixes, savings};
use proptest::prelude::*;

/// Savings as noisy measurements give them, and bytes from none to more than any budget.
fn entries() -> impl Strategy<Value = Vec<(f32, u64)>> {
    let saving = prop_oneof![
        8 => 0f32..100.0,
        1 => prop::sample::select(vec![0.0, -1.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MIN_POSITIVE, 1e-44, f32::MAX]),
    ];
    let bytes = prop_oneof![8 => 0u64..50, 1 => prop::sample::select(vec![1000, 1 << 40, u64::MAX])];
    prop::collection::vec((saving, bytes), 0..150)
}

fn shares(
    entries: &[(f32, u64)],
    lists: &[(f32, u64)],
    tables: [u64; 2],
    budget: u64,
    by: fn(u32, [Kind<'_>; 2], u64) -> [Option<CacheShare>; 2],
) -> [Option<CacheShare>; 2] {
    let len = entries.len().min(lists.len()) as u32;
    let first = Kind { saving: &|v| entries[v as usize].0, bytes: &|v| entries[v as usize].1, tables: tables[0] };
    let second = Kind { saving: &|v| lists[v as usize].0, bytes: &|v| lists[v as usize].1, tables: tables[1] };
    by(len, [first, second], budget)
}

fn valid(saving: f32) -> bool {
    saving > 0.0 && saving.is_finite()
}

fn bytes(shares: &[Option<CacheShare>; 2]) -> u64 {
    shares.iter().flatten().map(|s| s.bytes).sum()
}

/// Each share's bytes are those of its entries and tables.
fn check_bytes(shares: &[Option<CacheShare>; 2], all: [&[(f32, u64)]; 2], tables: [u64; 2]) {
    for ((share, entries), tables) in shares.iter().zip(all).zip(tables) {
        let Some(share) = share else { continue };
        let entries: Vec<(f32, u64)> = share.map.nodes().map(|v| entries[v as usize]).collect();
        assert_eq!(share.bytes, tables + entries.iter().map(|(_, bytes)| bytes).sum::<u64>());
        let saving: f64 = entries.iter().filter(|e| valid(e.0)).map(|(saving, _)| f64::from(*saving)).sum();
        assert!((share.saving - saving).abs() <= 1e-9 * saving && !share.map.is_empty(), "{share:?}, not {saving}");
    }
}

proptest! {
    #[test]
    fn the_budget_holds(
        rows in entries(), lists in entries(), tables in prop::array::uniform2(0u64..300), budget in 0u64..6000,
    ) {
        let found = shares(&rows, &lists, tables, budget, allocate);
        prop_assert!(bytes(&found) <= budget, "{} of {budget} bytes", bytes(&found));
        check_bytes(&found, [&rows, &lists], tables);
        for (share, entries) in found.iter().zip([&rows, &lists]) {
            let cached = share.iter().flat_map(|s| s.map.nodes());
            prop_assert!(cached.into_iter().all(|v| valid(entries[v as usize].0)), "what saves nothing is not cached");
        }
        prop_assert_eq!(&found, &shares(&rows, &lists, tables, budget, allocate), "the same again");
    }

    #[test]
    fn what_is_cached_saves_more_a_byte_than_what_is_not(
        rows in prop::collection::vec(0f32..100.0, 1..200), lists in prop::collection::vec(0f32..100.0, 200), budget in 0u64..3000,
    ) {
        let rows: Vec<(f32, u64)> = rows.into_iter().zip([7].into_iter().cycle()).collect();
        let lists: Vec<(f32, u64)> = lists.into_iter().zip((1u64..9).cycle()).collect();
        let found = shares(&rows, &lists, [0; 2], budget, allocate);
        let cached = |k: usize, v: u32| found[k].as_ref().is_some_and(|s| s.map.get(v).is_some());
        let all = || [&rows, &lists].into_iter().enumerate().flat_map(|(k, entries)| {
            entries[..rows.len()].iter().zip(0u32..).map(move |(&(saving, bytes), v)| (k, v, saving, bytes))
        });
        let rest = budget - bytes(&found);
        for (k, v, saving, bytes) in all().filter(|e| !cached(e.0, e.1) && e.2 > 0.0) {
            prop_assert!(bytes > rest || rest <= budget / 1024, "{bytes} bytes of {v} fit into the {rest} left");
            let density = saving / bytes as f32;
            for other in all().filter(|e| cached(e.0, e.1)) {
                // What is cached is better, or is smaller and fills what was left.
                let (worse, smaller) = (other.2 / (other.3 as f32) < density, other.3 < bytes);
                prop_assert!(!worse || smaller, "{other:?} is cached, and {:?} is not", (k, v, saving, bytes));
            }
        }
    }

    #[test]
    fn savings_of_budgets_never_fall_and_bound_what_is_allocated(
        rows in entries(), lists in entries(), tables in prop::array::uniform2(0u64..300),
        mut budgets in prop::collection::vec(0u64..6000, 1..6),
    ) {
        budgets.sort_unstable();
        let len = rows.len().min(lists.len()) as u32;
        let first = Kind { saving: &|v| rows[v as usize].0, bytes: &|v| rows[v as usize].1, tables: tables[0] };
        let second = Kind { saving: &|v| lists[v as usize].0, bytes: &|v| lists[v as usize].1, tables: tables[1] };
        let found = savings(len, [first, second], &budgets);
        prop_assert!(found.is_sorted(), "{found:?}");
        for (&budget, &most) in budgets.iter().zip(&found) {
            let allocated: f64 = allocate(len, [first, second], budget).iter().flatten().map(|s| s.saving).sum();
            prop_assert!(allocated <= 1.01 * most + 1e-30, "{allocated} allocated in {budget} bytes, at most {most}");
        }
    }

    #[test]
    fn savings_of_small_entries_are_those_allocated(
        rows in prop::collection::vec(0f32..100.0, 1..200), lists in prop::collection::vec(0f32..100.0, 200), budget in 0u64..3000,
    ) {
        let first = Kind { saving: &|v| rows[v as usize], bytes: &|_| 7, tables: 0 };
        let second = Kind { saving: &|v| lists[v as usize], bytes: &|v| u64::from(v % 8 + 1), tables: 0 };
        let kinds = [first, second];
        let allocated: f64 = allocate(rows.len() as u32, kinds, budget).iter().flatten().map(|s| s.saving).sum();
        let found = savings(rows.len() as u32, kinds, &[budget])[0];
        // Greedy leaves the bytes of less than one entry, which save at most what an entry does.
        prop_assert!(found <= allocated + 100.0 && allocated <= 1.01 * found, "{found}, and {allocated} allocated");
        let all: f64 = savings(rows.len() as u32, kinds, &[u64::MAX])[0];
        let sum: f64 = rows.iter().chain(&lists[..rows.len()]).map(|&s| f64::from(s)).sum();
        prop_assert!((all - sum).abs() <= 1e-9 * sum, "{all} of all entries, and {sum}");
    }

    #[test]
    fn prefixes_are_the_best_two(
        rows in entries(), lists in entries(), tables in prop::array::uniform2(0u64..100), budget in 0u64..3000,
    ) {
        let found = shares(&rows, &lists, tables, budget, allocate_prefixes);
        prop_assert!(bytes(&found) <= budget && found.iter().flatten().all(|s| s.map.is_prefix()));
        check_bytes(&found, [&rows, &lists], tables);
        // Bytes and savings of all prefixes of a kind.
        let all = |entries: &[(f32, u64)], tables: u64| {
            let mut sums = vec![(0u64, 0f64)];
            let (mut bytes, mut saving) = (tables, 0.0);
            for entry in &entries[..rows.len().min(lists.len())] {
                bytes = bytes.saturating_add(entry.1);
                saving += if valid(entry.0) { f64::from(entry.0) } else { 0.0 };
                sums.push((bytes, saving));
            }
            sums
        };
        let (a, b) = (all(&rows, tables[0]), all(&lists, tables[1]));
        let pairs = a.iter().flat_map(|x| b.iter().map(move |y| (x.0.saturating_add(y.0), x.1 + y.1)));
        let best = pairs.filter(|p| p.0 <= budget).fold(0f64, |best, p| best.max(p.1));
        let saving: f64 = found.iter().flatten().map(|s| s.saving).sum();
        prop_assert!((saving - best).abs() <= 1e-6 * best, "{saving}, and {best} is possible");
    }

    #[test]
    fn a_curve_stays_between_its_points(
        points in prop::collection::vec((0f64..1e4, 0f64..10.0), 1..9), length in 0f64..2e4,
    ) {
        let curve = Curve::new(points.iter().copied().chain([(f64::NAN, 1e9), (3.0, f64::INFINITY)]));
        let (low, high) = points.iter().fold((f64::MAX, f64::MIN), |(l, h), p| (l.min(p.1), h.max(p.1)));
        let value = curve.at(length);
        prop_assert!((low - 1e-9..=high + 1e-9).contains(&value), "{value} at {length} of {curve:?}");
    }
}

#[test]
fn an_entry_larger_than_what_is_left_does_not_end_the_selection() {
    // The best entry per byte takes more than the budget, the next best more than half of it, and the rest is small.
    let savings = [1000.0, 60.0, 50.0, 5.0, 5.0, 5.0];
    let sizes = [101, 50, 55, 10, 10, 10];
    let kind = Kind { saving: &|v| savings[v as usize], bytes: &|v| sizes[v as usize], tables: 0 };
    let [share] = allocate(6, [kind], 100);
    assert_eq!(share.map(|s| (s.map.nodes().collect(), s.bytes)), Some((vec![1, 3, 4, 5], 80)));
}

#[test]
fn a_kind_that_saves_nothing_is_not_charged() {
    let slopes = |row: f64| Slopes { row: Curve::new([(1.0, row)]), list: Curve::new([(1.0, 2.0)]) };
    for noise in [0.0, -1e-6, f64::NAN] {
        let slopes = slopes(noise);
        let rows = Kind { saving: &|_| slopes.row.at(1.0) as f32, bytes: &|_| 1, tables: 10 };
        let lists = Kind { saving: &|_| slopes.list.at(5.0) as f32, bytes: &|_| 10, tables: 20 };
        let [rows, lists] = allocate(8, [rows, lists], 100);
        let lists = lists.expect("lists save time");
        assert!(rows.is_none() && lists.bytes == 100 && lists.map.len() == 8, "{noise}: {lists:?}");
    }
}

#[test]
fn tables_are_charged_only_where_they_pay() {
    // Ten entries of one byte each: the second kind saves a little, and its table takes the room of five better entries.
    let first = Kind { saving: &|_| 10.0, bytes: &|_| 1, tables: 0 };
    let second = Kind { saving: &|_| 1.0, bytes: &|_| 1, tables: 5 };
    let [rows, lists] = allocate(10, [first, second], 12);
    assert_eq!((rows.map(|s| s.bytes), lists.map(|s| s.bytes)), (Some(10), None));
    let [rows, lists] = allocate(10, [first, second], 18);
    assert_eq!((rows.map(|s| s.bytes), lists.map(|s| s.bytes)), (Some(10), Some(8)));
}

#[test]
fn slopes_are_summarised_in_microseconds() {
    let row = Curve::new([(256.0, 3.14e-6)]);
    let slopes = Slopes { row, list: Curve::new([(2000.0, 9e-6), (4.0, 2.9e-6)]) };
    assert_eq!(slopes.to_string(), "3.1 µs per feature row; a list 2.9 µs with 4 neighbours, 9.0 µs with 2000");
    let list = Curve::new((1..=13).map(|n| (f64::from(n), 1e-6 * f64::from(n))));
    let row = Curve::new([(4096.0, 3e-6), (256.0, 1.2e-6)]);
    let long = Slopes { row, list };
    let shown = "1.2 µs per feature row of 256 bytes, 3.0 µs of 4096; a list 1.0 µs with 1 neighbours, 13.0 µs with 13";
    assert_eq!(long.to_string(), shown);
    assert_eq!(Slopes::default().to_string(), "0.0 µs per feature row");
}

/// The greatest saving of any selection within the budget, by trying all.
fn brute_force(entries: &[(f32, u64)], budget: u64) -> f64 {
    let selections = 0u32..1 << entries.len();
    let of = |selection: u32| {
        let chosen =
            || entries.iter().enumerate().filter(move |(i, _)| selection >> i & 1 == 1).map(|(_, entry)| entry);
        let bytes: u64 = chosen().map(|(_, bytes)| bytes).sum();
        if bytes <= budget { chosen().map(|(saving, _)| f64::from(*saving)).sum() } else { 0.0 }
    };
    selections.map(of).fold(0.0, f64::max)
}

proptest! {
    /// Rows of node types, whose lengths differ: where each row saves the bytes that reading it costs, times its accesses, what is cached
    /// is the optimum of all selections but for less than one row; and with one length for all types it is what one length gives.
    #[test]
    fn rows_of_types_are_ranked_by_saved_bytes_per_byte(
        accesses in prop::collection::vec(1u32..50, 4..13), widths in prop::array::uniform3(1u64..9), uniform: bool, percent in 10u64..100,
    ) {
        let widths = if uniform { [widths[0]; 3] } else { widths };
        let num_nodes = accesses.len() as u32;
        // Three node types, ranges of ids.
        let width = |v: u32| widths[(3 * v / num_nodes) as usize];
        let saving = |v: u32| accesses[v as usize] as f32 * width(v) as f32;
        let entries: Vec<(f32, u64)> = (0..num_nodes).map(|v| (saving(v), width(v))).collect();
        let budget = entries.iter().map(|(_, bytes)| bytes).sum::<u64>() * percent / 100;
        let [share] = allocate(num_nodes, [Kind { saving: &saving, bytes: &width, tables: 0 }], budget);
        let found = share.as_ref().map_or(0.0, |share| share.saving);
        let optimum = brute_force(&entries, budget);
        let row = entries.iter().map(|(saving, _)| f64::from(*saving)).fold(0.0, f64::max);
        prop_assert!(found <= optimum && found > optimum - row, "{found} of {optimum}, a row saves up to {row}");
        if uniform {
            prop_assert_eq!(found, optimum, "rows of one length are the hottest ones");
            let [same] = allocate(num_nodes, [Kind { saving: &saving, bytes: &|_| widths[0], tables: 0 }], budget);
            prop_assert_eq!(same, share);
        }
    }
}
