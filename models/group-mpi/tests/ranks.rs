//! Ranks of an MPI run: the test starts itself by `mpirun`, and each rank checks what it gets.
#![allow(clippy::print_stderr, reason = "a test of several processes")]

use std::io::Write;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use morphgl_graph_store::FeatureMatrix;
use morphgl_group::{Exchange, GroupError, HostExchange, Layout, Shards};
use morphgl_group_mpi::MpiExchange;

/// Set in ranks: what they do.
const CASE: &str = "MORPHGL_TEST_CASE";

/// Time limit of an exchange in which a rank hangs.
const LIMIT: Duration = Duration::from_secs(4);

fn main() {
    if let Ok(case) = std::env::var(CASE) {
        return rank(&case);
    }
    if Command::new("mpirun").arg("--version").output().is_err() {
        eprintln!("skipped: there is no mpirun");
        return;
    }
    for ranks in [1, 2, 4] {
        let output = mpirun(ranks, "sums");
        assert!(output.status.success(), "{ranks} ranks: {output:?}");
        assert_eq!(text(&output).matches("sums are the same").count(), ranks, "{output:?}");
    }
    for (ranks, transport) in [(1, "self"), (2, "self,tcp"), (4, "self,vader"), (4, "self,tcp")] {
        let output = mpirun_by(Some(transport), ranks, "rows");
        assert!(output.status.success(), "{ranks} ranks by {transport}: {output:?}");
        assert_eq!(text(&output).matches("rows are the dataset's").count(), ranks, "{output:?}");
    }
    // In shared memory rows are read whatever their owner does.
    let output = mpirun_by(Some("self,tcp"), 3, "rows late");
    assert_eq!(text(&output).matches("no answer from trainer 2 for 4 s").count(), 2, "{output:?}");
    let output = mpirun(3, "leaves");
    assert_eq!(text(&output).matches("trainer 1 has left the group: its disk is full").count(), 2, "{output:?}");
    let output = mpirun(3, "late");
    assert_eq!(text(&output).matches("no answer from trainer 2 for 4 s").count(), 2, "{output:?}");
    assert!(!output.status.success(), "{output:?}");
    let output = mpirun(2, "differs");
    assert_eq!(text(&output).matches("it adds 5 values, trainer 0 4").count(), 2, "{output:?}");
}

fn mpirun(ranks: usize, case: &str) -> Output {
    mpirun_by(None, ranks, case)
}

/// Ranks whose messages take one of these ways: Open MPI's names of them.
fn mpirun_by(transport: Option<&str>, ranks: usize, case: &str) -> Output {
    let mut command = Command::new("mpirun");
    command.args(["--oversubscribe", "--bind-to", "none", "-n", &ranks.to_string()]);
    command.args(transport.iter().flat_map(|way| ["--mca", "btl", way]));
    command.arg(std::env::current_exe().expect("a program")).env(CASE, case);
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.output().expect("mpirun starts")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Writes a line at once, so that lines of ranks do not mix.
fn say(line: &str) {
    std::io::stderr().write_all(line.as_bytes()).expect("stderr is open");
}

/// Values of a rank whose sums depend on the order in which they are added.
fn values(rank: usize, len: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 31 + rank * 17) % 101) as f32 * 1e-3 + [1e4, 3e-5, -1e4, 7e-2][rank % 4]).collect()
}

fn rank(case: &str) {
    let mut exchange = MpiExchange::start(Duration::from_secs(60)).expect("MPI starts");
    let rank = exchange.rank();
    if case.ends_with("late") {
        // All ranks have started: even on a machine under load only the one that hangs exceeds the limit.
        exchange.all_gather(&[]).expect("all come");
        exchange.set_limit(LIMIT);
    }
    let failed = match case {
        "sums" => {
            sums(&mut exchange);
            None
        }
        "rows" => {
            rows(&mut exchange);
            None
        }
        "rows late" => rows_late(&mut exchange),
        "leaves" if rank == 1 => {
            exchange.leave("its disk is full");
            assert!(exchange.all_reduce(&mut [0.0]).is_err());
            None
        }
        // Its process neither comes to the exchange nor ends by itself.
        "late" if rank == 2 => loop {
            std::thread::park();
        },
        "differs" => exchange.all_reduce(&mut vec![1.0; 4 + rank]).err(),
        _ => exchange.all_reduce(&mut [1.0; 5]).err(),
    };
    if let Some(error) = &failed {
        say(&format!("rank {rank}: {error}\n"));
        // A failure is that of all further exchanges.
        assert_eq!(exchange.all_gather(b"more").as_ref(), Err(error));
        assert!(!matches!(error, GroupError::Engine(_)), "{error}");
    }
    exchange.end(u8::from(failed.is_some()));
}

/// Bytes of all ranks, and sums with the same bits as those of threads in one process.
fn sums(exchange: &mut MpiExchange) {
    let (rank, size) = (exchange.rank(), exchange.size());
    let bytes = |rank: usize| vec![rank as u8; 3 * rank];
    for _ in 0..3 {
        assert_eq!(exchange.all_gather(&bytes(rank)).expect("all come"), (0..size).map(bytes).collect::<Vec<_>>());
    }
    // Fewer values than ranks, and more than a message that is sent at once.
    for len in [0, 1, 3, 1000, 300_001] {
        let ends = HostExchange::group(size, Duration::from_secs(60));
        let expected = std::thread::scope(|scope| {
            let added = |mut end: HostExchange| {
                let mut values = values(end.rank(), len);
                end.all_reduce(&mut values).map(|()| values)
            };
            let threads: Vec<_> = ends.into_iter().map(|end| scope.spawn(move || added(end))).collect();
            let mut all = threads.into_iter().map(|thread| thread.join().expect("no panic").expect("all come"));
            all.next_back().expect("a trainer at least")
        });
        let sent = exchange.bytes_sent();
        let mut own = values(rank, len);
        exchange.all_reduce(&mut own).expect("all come");
        let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&own), bits(&expected), "{len} values");
        let (parts, headers) = (len - len * (rank + 1) / size + len * rank / size, 8 * (size - 1));
        let own_part = (len - parts) * (size - 1);
        assert_eq!(exchange.bytes_sent() - sent, (4 * (parts + own_part) + headers) as u64, "{len} values");
    }
    say(&format!("rank {rank}: sums are the same\n"));
}

const DIM: usize = 25;
const ROWS: usize = 4003;

/// Rows whose values say where they are.
fn matrix() -> FeatureMatrix {
    FeatureMatrix::F32 { data: (0..ROWS * DIM).map(|i| i as f32).collect::<Vec<_>>().into(), dim: DIM }
}

/// This rank's view of the rows, of which it has a part and copies of `replicated`.
fn shards(exchange: &mut MpiExchange, replicated: &[u32]) -> Shards {
    let (matrix, at) = (matrix(), (exchange.rank(), exchange.size()));
    let own = Layout { num_rows: ROWS, size: at.1 }.copy(&matrix, at.0);
    let owners = exchange.expose(Arc::clone(&own), matrix.row_bytes()).expect("all ranks come");
    Shards::new(&matrix, at, own, replicated, owners)
}

/// Gathers by two threads at once, while exchanges go on and while this rank makes no call of the library, are of the right rows.
fn rows(exchange: &mut MpiExchange) {
    let (rank, replicated) = (exchange.rank(), [0, 1, 4000]);
    let shards = shards(exchange, &replicated);
    let matrix = matrix();
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (shards, matrix) = (&shards, &matrix);
            scope.spawn(move || {
                for round in 0..20 {
                    let nodes: Vec<u32> =
                        (0..700).map(|i| ((i * 37 + round * 101 + thread * 7 + rank * 13) % ROWS) as u32).collect();
                    let (mut own, mut expected) =
                        (vec![0; nodes.len() * matrix.row_bytes()], vec![1; nodes.len() * matrix.row_bytes()]);
                    shards.gather(&nodes, &mut own).expect("owners answer");
                    matrix.gather_rows(&nodes, &mut expected);
                    assert_eq!(own, expected);
                }
            });
        }
        for _ in 0..10 {
            exchange.all_reduce(&mut [1.0; 100]).expect("all come");
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    // All have read what they need before anybody ends.
    exchange.all_gather(&[]).expect("all come");
    say(&format!("rank {rank}: rows are the dataset's\n"));
}

/// Rank 2 hangs as a whole, so nothing answers for it.
fn rows_late(exchange: &mut MpiExchange) -> Option<GroupError> {
    let shards = shards(exchange, &[]);
    if exchange.rank() == 2 {
        let own = std::process::id().to_string();
        Command::new("kill").args(["-STOP", &own]).status().expect("kill runs");
    }
    let of_rank_2 = [2 * 64];
    // Rank 2 answers reads until the signal has stopped it.
    let failed = loop {
        if let Err(failed) = shards.gather(&of_rank_2, &mut vec![0; matrix().row_bytes()]) {
            break failed;
        }
    };
    // Others would wait for this rank otherwise.
    exchange.leave(&failed.to_string());
    say(&format!("rank {}: {failed}\n", exchange.rank()));
    exchange.end(1);
    None
}
