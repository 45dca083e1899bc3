//! The exchange by a libnccl of our own, on emulated devices.

#[path = "libnccl/library.rs"]
mod library;

use std::ffi::{CStr, c_char};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use libloading::{Library, Symbol};
use morphgl_group::{Exchange, GroupError, HostExchange};
use morphgl_group_nccl::NcclExchange;
use morphgl_registry::{Key, Place};

/// A longer time than any exchange of these tests takes.
const LIMIT: Duration = Duration::from_secs(120);

/// The library's controls. Its count of calls is of all tests: one of them uses it at a time.
struct Nccl(&'static Library, #[allow(dead_code, reason = "held")] MutexGuard<'static, ()>);

impl Nccl {
    fn new() -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        static LIBRARY: OnceLock<(Library, tempfile::TempDir)> = OnceLock::new();
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let (library, _) = LIBRARY.get_or_init(|| {
            let folder = tempfile::tempdir().expect("a directory");
            let path = library::build(folder.path());
            // SAFETY: all tests of this program are here, in turns; none has begun to use devices.
            unsafe { std::env::set_var("MORPHGL_NCCL", &path) };
            // SAFETY: it has no initialisers of its own.
            (unsafe { Library::new(path) }.expect("the library that was just built"), folder)
        });
        let nccl = Self(library, turn);
        nccl.fail(0);
        nccl
    }

    fn call<T>(&self, name: &str) -> Symbol<'_, T> {
        // SAFETY: the types below are those of the library.
        unsafe { self.0.get(name) }.expect("a function of the library")
    }

    /// Makes a call fail, counted from now on; 0 for none.
    fn fail(&self, call: u64) {
        // SAFETY: its type.
        unsafe { self.call::<unsafe extern "C" fn(u64)>("morphgl_nccl_fail")(call) }
    }

    fn number(&self, name: &str) -> u64 {
        // SAFETY: its type.
        unsafe { self.call::<unsafe extern "C" fn() -> u64>(name)() }
    }

    fn calls(&self) -> u64 {
        self.number("morphgl_nccl_calls")
    }

    fn alive(&self) -> u64 {
        self.number("morphgl_nccl_alive")
    }

    /// Name of the call that was made to fail.
    fn failed(&self) -> String {
        // SAFETY: its type; the string is valid until another call fails.
        let name =
            unsafe { CStr::from_ptr(self.call::<unsafe extern "C" fn() -> *const c_char>("morphgl_nccl_failed")()) };
        name.to_str().expect("a name").to_string()
    }
}

fn trainers(size: usize) -> Vec<(Key, Place)> {
    let key: Key = "Training_CUDA_Native".parse().expect("a key");
    (0..size).map(|i| (key.clone(), format!("cuda:{i}").parse().expect("a place"))).collect()
}

fn group(size: usize) -> morphgl_registry::Result<Vec<NcclExchange>> {
    NcclExchange::group(HostExchange::group(size, LIMIT), &trainers(size), LIMIT)
}

/// What each trainer of a group returns, by rank.
fn together<E: Exchange, T: Send>(ends: Vec<E>, each: impl Fn(&mut E) -> T + Sync) -> Vec<T> {
    let each = &each;
    thread::scope(|scope| {
        let running: Vec<_> = ends.into_iter().map(|mut end| scope.spawn(move || each(&mut end))).collect();
        running.into_iter().map(|t| t.join().expect("the trainer ends well")).collect()
    })
}

/// Values of all magnitudes, whose sums depend on the order in which they are added.
fn value(rank: usize, round: usize, i: usize) -> f32 {
    let x = ((rank * 7919 + round * 104_729 + i * 31) % 1009) as f32 - 504.0;
    x * 10f32.powi((i % 13) as i32 - 6)
}

/// Sums of an all-reduce, and the result of an all-gather.
type Added = (Vec<Vec<f32>>, Vec<Vec<u8>>);

/// Sums of all-reduces of so many values, and the result of an all-gather of numbers.
fn rounds(end: &mut dyn Exchange, lengths: &[usize]) -> morphgl_group::Result<Added> {
    let add = |(round, len): (usize, usize), end: &mut dyn Exchange| {
        let mut values: Vec<f32> = (0..len).map(|i| value(end.rank(), round, i)).collect();
        end.all_reduce(&mut values).map(|()| values)
    };
    let sums = lengths.iter().copied().enumerate().map(|round| add(round, end)).collect::<Result<_, _>>()?;
    Ok((sums, end.all_gather(&[end.rank() as u8])?))
}

#[test]
fn sums_have_the_bits_of_the_exchange_over_host_memory() {
    let (nccl, lengths) = (Nccl::new(), [37, 0, 1, 1000, 1000]);
    for size in [1, 2, 3, 8] {
        let expected = together(HostExchange::group(size, LIMIT), |end| rounds(end, &lengths).expect("no failure"));
        let found = together(group(size).expect("the library is found"), |end| {
            let rounds = rounds(end, &lengths).expect("no failure");
            // Two messages of a part to each other rank per all-reduce.
            let parts: usize = lengths.iter().map(|len| len.div_ceil(size)).sum();
            assert_eq!(end.bytes_sent(), (parts * 4 * 2 * (size - 1)) as u64);
            assert_eq!(end.version(), "2.21.5");
            rounds
        });
        for (rank, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let bits = |sums: &[Vec<f32>]| sums.iter().flatten().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert!(bits(&found.0) == bits(&expected.0) && found.1 == expected.1, "rank {rank} of {size}");
        }
        assert_eq!(nccl.alive(), 0, "every communicator is released");
    }
}

#[test]
fn each_call_fails_in_turn() {
    let nccl = Nccl::new();
    let mut seen = std::collections::BTreeSet::new();
    let run = || -> Result<(), Vec<Option<GroupError>>> {
        let ends = group(2).map_err(|e| vec![Some(GroupError::Engine(e.to_string()))])?;
        let errors = together(ends, |end| rounds(end, &[3]).err());
        if errors.iter().all(Option::is_none) { Ok(()) } else { Err(errors) }
    };
    run().expect("nothing fails");
    let total = nccl.calls();
    assert!(total >= 40, "{total} calls");
    for call in 1..=total {
        nccl.fail(call);
        let outcome = run();
        let name = nccl.failed();
        seen.insert(name.clone());
        match outcome {
            // Handles are released after the last all-reduce. How often a trainer polls an all-reduce depends on time.
            Ok(()) => assert!(["ncclCommDestroy", ""].contains(&&*name), "{name} fails, and nobody says so"),
            Err(errors) => {
                let expected = format!("{name}: unhandled cuda error ({name} is made to fail)");
                let texts: Vec<String> = errors.iter().flatten().map(ToString::to_string).collect();
                assert_eq!(texts.len(), errors.len(), "call {call}, {name}: all trainers fail: {texts:?}");
                for text in &texts {
                    assert!(text.contains(&expected) && text.contains("Training_CUDA_Native"), "call {call}: {text}");
                    assert!(!text.contains('\n'), "{text}");
                }
            }
        }
        assert_eq!(nccl.alive(), 0, "call {call}, {name}: every communicator is released");
    }
    let all = [
        "ncclAllGather",
        "ncclCommDestroy",
        "ncclCommGetAsyncError",
        "ncclCommInitAll",
        "ncclGetVersion",
        "ncclGroupEnd",
        "ncclGroupStart",
        "ncclRecv",
        "ncclSend",
    ];
    seen.remove("");
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), all);
}

#[test]
fn who_leaves_is_named() {
    let _nccl = Nccl::new();
    let errors = together(group(3).expect("the library is found"), |end| {
        end.all_reduce(&mut [1.0]).expect("all are there");
        if end.rank() == 1 {
            end.leave("its disk is full");
        }
        end.all_reduce(&mut [1.0]).expect_err("one has left").to_string()
    });
    assert!(errors.iter().all(|e| e == "trainer 1 has left the group: its disk is full"), "{errors:?}");
}

#[test]
fn models_of_other_sizes_are_named() {
    let _nccl = Nccl::new();
    let errors = together(group(2).expect("the library is found"), |end| {
        end.all_reduce(&mut vec![0.0; 3 + end.rank()]).expect_err("they differ").to_string()
    });
    let expected = "trainer 1 is not where trainer 0 is: it adds 4 values, trainer 0 3; give all the same model";
    assert_eq!(errors, [expected, expected]);
}

#[test]
fn devices_are_given_once() {
    let _nccl = Nccl::new();
    let mut two = trainers(2);
    two[1].1 = two[0].1.clone();
    let error = NcclExchange::group(HostExchange::group(2, LIMIT), &two, LIMIT).expect_err("one device twice");
    assert_eq!(error.to_string(), "Training_CUDA_Native: NCCL: cuda:0 is given twice; give each device once");
    two[1].1 = Place::Host;
    let error = NcclExchange::group(HostExchange::group(2, LIMIT), &two, LIMIT).expect_err("no device");
    assert!(error.to_string().contains("it runs on CUDA devices, not at host"), "{error}");
}
