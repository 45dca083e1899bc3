use super::{Load, machine_seconds, process_seconds};

#[test]
fn counters_are_read_from_their_columns() {
    let machine = "cpu  100 20 300 4000 50 6 7 800 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n";
    assert_eq!(machine_seconds(machine), Some((100.0 + 20.0 + 300.0 + 6.0 + 7.0 + 800.0) / 100.0));
    assert_eq!(machine_seconds("cpu 1 2"), None);
    let process = "7 (a b) c) R 1 7 7 0 -1 4194304 90 0 0 0 250 150 11 12 20 0 1 0 5 6 7";
    assert_eq!(process_seconds(process), Some(4.0));
    assert_eq!(process_seconds("nothing"), None);
}

#[cfg(target_os = "linux")]
#[test]
fn work_of_this_process_is_its_own() {
    let load = Load::now();
    let mut x = 1u64;
    while load.at.elapsed().as_millis() < 300 {
        x = std::hint::black_box(x.wrapping_mul(6364136223846793005).wrapping_add(1));
    }
    let cores = load.busy_cores();
    assert!(cores.own.is_some_and(|own| own > 0.0), "{cores:?} {x}");
}
