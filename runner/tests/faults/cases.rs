//! The commands that write, each with what it writes.

use std::fs;
use std::path::Path;

use morphgl_graph_store::NpyWriter;

use super::files::{Whole, copy};

/// A command, run in a copy of one directory.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) args: Vec<&'static str>,
    /// What is run after a fault, where it is not the same.
    pub(crate) again: Option<Vec<&'static str>>,
    pub(crate) outputs: Vec<(&'static str, Whole)>,
    /// Files that may fail to be written: the command goes on, and ends with 0.
    pub(crate) spared: &'static [&'static str],
    /// Whether the file system exchanges two directories.
    pub(crate) exchanges: bool,
    /// Trials in the gate.
    pub(crate) sample: usize,
}

fn case(name: &'static str, line: &'static str, outputs: &[(&'static str, Whole)]) -> Case {
    let args = line.split_whitespace().collect();
    let outputs = outputs.to_vec();
    Case { name, args, again: None, outputs, spared: &[], exchanges: true, sample: 24 }
}

/// The commands; `fixture` has made what they read.
pub(crate) fn all() -> Vec<Case> {
    use Whole::{Ends, Json, Lines, Resumed, Same, Tensors, Toml};
    let page = Ends("</html>");
    let picture = Ends("</svg>");
    let run = [
        ("run/config.toml", Toml),
        ("run/plan.json", Json),
        ("run/status.json", Json),
        ("run/metrics.jsonl", Lines),
        ("run/trace.json", Json),
        ("run/report.html", page),
        ("run/model.safetensors", Tensors),
        ("model.out.safetensors", Tensors),
    ];
    let resumed = [
        ("done/config.toml", Toml),
        ("done/status.json", Json),
        ("done/metrics.jsonl", Lines),
        ("done/trace.json", Json),
        ("done/report.html", page),
        ("done/model.safetensors", Resumed),
    ];
    vec![
        case("generate sbm", "generate sbm -o drawn --nodes 60 --classes 3 --dim 4 --degree 6", &[("drawn", Same)]),
        case("generate rmat --force", "generate rmat -o older --nodes 64 --dim 4 --force", &[("older", Same)]),
        case(
            "import edges",
            "import edges edges.csv -o imported --nodes nodes.csv --ids strings",
            &[("imported", Same)],
        ),
        Case {
            exchanges: false,
            ..case(
                "import edges --force, no exchange",
                "import edges edges.csv -o older --nodes nodes.csv --ids strings --force",
                &[("older", Same)],
            )
        },
        case(
            "import mtx --force, by a link",
            "import mtx graph.mtx -o link --symmetrise --random-features 4 --force",
            &[("disk/linked", Same)],
        ),
        case("import numpy", "import numpy arrays -o imported --split 0.5,0.2,0.3", &[("imported", Same)]),
        import("import planetoid", "import planetoid planetoid/ind.tiny -o imported"),
        import("import npz", "import npz npz/plain.npz -o imported --split 0.5,0.2,0.3"),
        import("import ogb", "import ogb ogb -o imported --symmetrise"),
        import("import metis", "import metis metis/weighted.graph -o imported"),
        #[cfg(feature = "bv")]
        import("import bv", "import bv bv/tiny -o imported"),
        case("reorder", "reorder small -o hot", &[("hot", Same)]),
        case("reorder --force", "reorder small -o older --by random --force", &[("older", Same)]),
        Case {
            sample: 12,
            ..case(
                "profile --save",
                "profile small --hidden 8 --layers 2 --profile-seconds 0.05 --save old.json",
                &[("old.json", Json)],
            )
        },
        case(
            "plan",
            "plan --durations batching-cpu=80ms,workers=2,transferring-pcie=4ms,training=10ms,batches=20 \
             --timeline old.svg --report old.html -o old.json",
            &[("old.svg", picture), ("old.html", page), ("old.json", Json)],
        ),
        Case {
            again: Some(train("second")),
            spared: &["metrics.jsonl", "checkpoint"],
            sample: 20,
            ..Case { args: train("run"), ..case("train", "", &run) }
        },
        Case {
            spared: &["metrics.jsonl", "checkpoint"],
            sample: 12,
            ..case("train --resume", "train --resume done --epochs 3 --checkpoint-every 1b", &resumed)
        },
        case("predict csv", "predict model.safetensors small -o old.csv", &[("old.csv", Same)]),
        case("predict npy", "predict model.safetensors small -o classes.npy", &[("classes.npy", Same)]),
        case(
            "cache",
            "cache small --policies inclusion --fanouts 5,5 --save old.npy --plot old.svg",
            &[("old.npy", Same), ("old.svg", picture)],
        ),
        case(
            "cache --run",
            "cache --run done --policies inclusion",
            &[("done/cache.json", Json), ("done/report.html", page)],
        ),
        Case { sample: 12, ..case("bench ingest", "bench ingest edges.csv --repeats 1 -- --ids strings", &[]) },
    ]
}

/// An import of one of the seeds of fuzzing: they write by the same functions, in fewer trials therefore.
fn import(name: &'static str, line: &'static str) -> Case {
    Case { sample: 8, ..case(name, line, &[("imported", Whole::Same)]) }
}

fn train(run: &'static str) -> Vec<&'static str> {
    let line = "train small --layers 2 --hidden 8 --fanouts 5,5 --batch-size 16 --epochs 2 --plan sequential --threads 1 \
                --training Training_CPU_Native --profile-seconds 0.05 --save model.out.safetensors --run";
    line.split_whitespace().chain([run]).collect()
}

/// Commands that make what the others read.
pub(crate) const FIXTURE: [&str; 4] = [
    "generate sbm -o small --nodes 60 --classes 3 --dim 4 --degree 6 --seed 1",
    "generate sbm -o older --nodes 30 --classes 2 --dim 2 --degree 3",
    "generate sbm -o disk/linked --nodes 30 --classes 2 --dim 2 --degree 3",
    "train small --layers 2 --hidden 8 --fanouts 5,5 --batch-size 16 --epochs 1 --threads 1 \
     --training Training_CPU_Native --profile-seconds 0.05 --run done --save model.safetensors",
];

/// Commands that write nothing.
pub(crate) const READERS: [&str; 6] = [
    "ops",
    "info small --check",
    "evaluate model.safetensors small",
    "predict model.safetensors small",
    "plan --durations batching-cpu=80ms,workers=2,transferring-pcie=4ms,training=10ms,batches=20",
    "bench sample small --repeats 1 --fanouts 5,5",
];

/// Sources of imports, and old files.
pub(crate) fn write_sources(dir: &Path) {
    let write = |name: &str, text: String| fs::write(dir.join(name), text).expect("room");
    let edges: String = (0..200).map(|i| format!("n{},n{}\n", i % 50, (i * 7 + 3) % 50)).collect();
    write("edges.csv", format!("src,dst\n{edges}"));
    let nodes: String = (0..50).map(|i| format!("n{i},{},{}.5,1\n", ["a", "b"][i % 2], i)).collect();
    write("nodes.csv", format!("id,label,f0,f1\n{nodes}"));
    let entries: String = (0..60).map(|i| format!("{} {}\n", i % 30 + 1, (i * 11 + 5) % 30 + 1)).collect();
    write("graph.mtx", format!("%%MatrixMarket matrix coordinate pattern general\n30 30 60\n{entries}"));
    for name in ["old.csv", "old.svg", "old.html", "old.json", "old.npy"] {
        write(name, "what was there before\n".to_string());
    }
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds");
    let formats = ["planetoid", "npz", "ogb", "metis", "bv"];
    formats.iter().for_each(|format| copy(&seeds.join(format), &dir.join(format)));
    let arrays = dir.join("arrays");
    fs::create_dir(&arrays).expect("room");
    let array = |name: &str, values: &[u32]| {
        let mut writer = NpyWriter::create(arrays.join(name)).expect("room");
        writer.write(values).expect("room");
        writer.finish(None).expect("room");
    };
    array("src.npy", &(0..40).map(|i| i % 20).collect::<Vec<_>>());
    array("dst.npy", &(0..40).map(|i| (i * 3 + 1) % 20).collect::<Vec<_>>());
    std::os::unix::fs::symlink("disk/linked", dir.join("link")).expect("room");
}
