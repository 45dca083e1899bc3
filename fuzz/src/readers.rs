//! The readers of outside data as functions of bytes: for the test that replays seeds and mutations, and for fuzzers.
//!
//! The first byte of an input selects the file that the rest is, or the options it is read with; a reader's other files are its
//! seeds. What is accepted has to pass the check of what it became; what is refused has to say so on one short line and to leave
//! nothing behind. Anything else is a panic.

use std::fmt;
use std::io::Cursor;
use std::path::Path;

use crate::imports;
use crate::sandbox::{Outcome, Sandbox, parts, refused, seed};

/// A reader of outside data.
pub struct Reader {
    /// Its name, and that of its folder of seeds.
    pub name: &'static str,
    /// Its files, in its folder; the first byte of an input is the number of one of them.
    pub files: &'static [&'static str],
    /// Tokens of its format, which mutations insert.
    pub tokens: &'static [&'static str],
    /// Reads an input in a directory that has the files; the numbers of all files, and above, select them.
    pub run: fn(&Sandbox, usize, &[u8]) -> Outcome,
}

const JSON: &[&str] = &["{", "}", "[", "]", "\"", ",", ":", "null", "true", "1e999", "-1", "\\ud800", "\u{feff}"];
const NPY: &[&str] = &["{", "[", "(", ")", "'", "True", "'shape': ", "'descr': ", "<f8", ">i4", "|O", "|S9", "L", ", "];
const TEXT: &[&str] =
    &["\n", "\r\n", ",", ";", "\t", " ", "\"", "#", "%", "{", "-", "nan", "1e39", "\u{feff}", "\u{fffd}"];
const PICKLE: &[&str] =
    &["(", ".", "]", "}", "t", "R", "b", "\u{81}", "cnumpy\ndtype\n", "I1\n", "S''\n", "p0\n", "g0\n", "(lp1\n"];

const MANIFEST: &[&str] = &[
    "[nodes.person]\n",
    "[[edges]]\n",
    "file = ",
    "count = 3\n",
    "id = 1\n",
    "split = { train = \"towns.txt\" }\n",
    "label = { file = \"year.csv\", column = 1 }\n",
    "features = [\"*\"]\n",
    "reverse = true\n",
    "[task]\nfile = \"people.csv\"\nnode = \"person\"\ntime = \"at\"\n",
    "label = \"kind\"\n",
    "split = { valid = 1, test = 6 }\n",
    "\"like.npy\"\n",
    "\"people.csv\"\n",
    "-1",
    "\n",
    ",",
];
const TASK: &[&str] = &[
    "file = \"rows.csv\"\n",
    "file = { train = \"train.csv\", valid = \"valid.csv\", test = \"test.csv\" }\n",
    "split = \"fold\"\n",
    "split = { valid = 4, test = 6 }\n",
    "node = \"person\"\n",
    "node = { type = \"item\", column = 1 }\n",
    "time = \"day\"\n",
    "label = \"leaves\"\n",
    "targets = [\"spends\", \"*\"]\n",
    "header = false\n",
    "[task]\n",
    "\"rows.csv\"",
    "NaN",
    "-1",
    "\n",
    ",",
];
const HEADER: &[&str] =
    &[":ID", ":ID(Person)", ":START_ID", ":END_ID(Movie)", ":LABEL", ":TYPE", "x:int", ":IGNORE", ",", "\n", ";", "\""];

/// All readers.
pub const READERS: &[Reader] = &[
    Reader { name: "planetoid", files: imports::PLANETOID, tokens: PICKLE, run: imports::planetoid },
    Reader { name: "npz", files: &["plain.npz", "objects.npz"], tokens: PICKLE, run: imports::npz },
    Reader { name: "numpy", files: &["graph.npz", "rows.npz", "scipy.npz"], tokens: NPY, run: imports::numpy },
    Reader { name: "arrays", files: imports::ARRAYS, tokens: NPY, run: imports::arrays },
    Reader { name: "ogb", files: imports::OGB, tokens: TEXT, run: imports::ogb },
    Reader { name: "ogb-links", files: imports::OGB_LINKS, tokens: PICKLE, run: imports::ogb },
    Reader {
        name: "ogb-binary",
        files: &["raw/data.npz", "raw/node-label.npz"],
        tokens: NPY,
        run: imports::ogb_binary,
    },
    Reader {
        name: "edges",
        files: &["plain.txt", "header.csv", "quoted.csv", "networkx.txt", "bom.tsv", "text.csv.gz"],
        tokens: TEXT,
        run: imports::edges,
    },
    Reader { name: "edge-features", files: &["header.csv", "plain.txt"], tokens: TEXT, run: imports::edge_features },
    Reader {
        name: "bipartite",
        files: &["ratings.csv", "konect.txt", "plain.txt"],
        tokens: TEXT,
        run: imports::bipartite,
    },
    Reader { name: "nodes", files: imports::NODES, tokens: TEXT, run: imports::nodes },
    Reader { name: "manifest", files: imports::MANIFEST, tokens: MANIFEST, run: imports::manifest },
    Reader { name: "task", files: imports::TASK, tokens: TASK, run: imports::manifest },
    Reader { name: "neo4j", files: imports::NEO4J, tokens: HEADER, run: imports::neo4j },
    Reader { name: "triples", files: &["tabs.txt", "rdf.nt"], tokens: TEXT, run: imports::triples },
    Reader { name: "ogb-typed", files: imports::OGB_TYPED, tokens: TEXT, run: imports::ogb },
    Reader { name: "mag240m", files: imports::MAG240M, tokens: PICKLE, run: imports::mag240m },
    Reader { name: "igb", files: imports::IGB, tokens: NPY, run: imports::igb },
    Reader { name: "mtx", files: &["pattern.mtx", "real.mtx"], tokens: TEXT, run: imports::mtx },
    Reader { name: "metis", files: &["plain.graph", "weighted.graph"], tokens: TEXT, run: imports::metis },
    #[cfg(feature = "bv")]
    Reader {
        name: "bv",
        files: &["tiny.graph", "tiny.properties", "little.graph", "little.properties"],
        tokens: TEXT,
        run: imports::bv,
    },
    Reader { name: "dataset", files: imports::DATASET, tokens: JSON, run: imports::dataset },
    Reader { name: "graph-json", files: &["graph.json"], tokens: JSON, run: graph_json },
    Reader { name: "npy-header", files: &["header.npy"], tokens: NPY, run: npy_header },
    Reader { name: "model", files: &["sage.safetensors", "gat.safetensors"], tokens: JSON, run: model },
    Reader { name: "plan", files: &["cpu.json", "device.json"], tokens: JSON, run: plan },
    Reader { name: "profile", files: &["cpu.json"], tokens: JSON, run: profile },
    Reader { name: "config", files: &["sage.toml"], tokens: TEXT, run: config },
    Reader { name: "machine", files: &["eight-v100.toml"], tokens: TEXT, run: machine },
];

impl Reader {
    /// The inputs that the seeds are: each file, and each part of a compressed one by itself.
    pub fn seeds(&self) -> Vec<Vec<u8>> {
        let read = |(role, name): (usize, &&str)| {
            let bytes = seed(self.name, name);
            let parts = parts(&bytes).into_iter().enumerate();
            let whole = [vec![role as u8], bytes.clone()].concat();
            // Numbers above those of files are those of parts, as `Sandbox::replaced` counts them.
            let parts = parts.map(move |(i, part)| [vec![(role + self.files.len() * (1 + i)) as u8], part].concat());
            [whole].into_iter().chain(parts).collect::<Vec<_>>()
        };
        self.files.iter().enumerate().flat_map(read).collect()
    }
}

impl Reader {
    /// A directory with its files.
    pub fn sandbox(&self) -> Sandbox {
        Sandbox::new(self.name, self.files)
    }

    /// Reads an input.
    pub fn read(&self, sandbox: &Sandbox, input: &[u8]) -> Outcome {
        let Some((&number, bytes)) = input.split_first() else { return Outcome::Refused };
        (self.run)(sandbox, number.into(), bytes)
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

fn checked<T, E: fmt::Display>(read: Result<T, E>, check: impl FnOnce(T)) -> Outcome {
    match read {
        Ok(value) => {
            check(value);
            Outcome::Accepted
        }
        Err(e) => refused(&e),
    }
}

fn graph_json(sandbox: &Sandbox, _: usize, bytes: &[u8]) -> Outcome {
    let Ok(text) = morphgl_platform::text(bytes.to_vec()) else { return Outcome::Refused };
    checked(morphgl_graph_store::Meta::parse(&sandbox.dir, &text), |meta| {
        let bytes = meta.arrays.values().map(|a| a.shape.iter().product::<u64>() * a.dtype.size() as u64);
        let _: u64 = bytes.sum();
        let _ = meta.schema();
    })
}

fn npy_header(_: &Sandbox, _: usize, bytes: &[u8]) -> Outcome {
    match morphgl_graph_store::NpyFields::parse(&String::from_utf8_lossy(bytes)) {
        Some(_) => Outcome::Accepted,
        None => Outcome::Refused,
    }
}

fn model(_: &Sandbox, _: usize, bytes: &[u8]) -> Outcome {
    let file = morphgl_model_core::ModelFile::new(Path::new("model"), Cursor::new(bytes), bytes.len() as u64);
    let read = file.and_then(|mut file| {
        let spec = file.spec()?;
        file.schema(&spec)?;
        let parameters = file.parameters(&spec)?;
        Ok((spec, parameters))
    });
    checked(read, |(spec, parameters)| {
        assert_eq!(parameters.len(), spec.parameters().len());
        assert!(parameters.iter().all(|p| p.values.iter().all(|v| v.is_finite())), "a parameter is no number");
    })
}

fn plan(_: &Sandbox, _: usize, bytes: &[u8]) -> Outcome {
    let Ok(text) = morphgl_platform::text(bytes.to_vec()) else { return Outcome::Refused };
    let Ok(plan) = serde_json::from_str::<morphgl_plan::Plan>(&text) else { return Outcome::Refused };
    checked(plan.check(), |()| {
        let _ = plan.to_string();
        // A run refuses a plan of another number of mini-batches than its epoch has.
        if plan.num_batches() <= 1000 {
            let simulation = morphgl_plan::simulate(&plan.schedule);
            assert!(simulation.seconds.is_finite(), "{plan}");
        }
    })
}

fn profile(sandbox: &Sandbox, _: usize, bytes: &[u8]) -> Outcome {
    let Ok(text) = morphgl_platform::text(bytes.to_vec()) else { return Outcome::Refused };
    checked(morphgl_profile::Profile::parse(&sandbox.dir, &text), |profile| {
        // Planning takes longer for more.
        if profile.num_batches <= 100 && profile.machine.cores <= 4 {
            let problem = profile.problem(profile.machine.cores, Default::default());
            let _ = morphgl_plan::plan(&problem).map(|plans| plans.best().check().expect("the planner's own"));
        }
    })
}

fn machine(_: &Sandbox, _: usize, bytes: &[u8]) -> Outcome {
    let Ok(text) = morphgl_platform::text(bytes.to_vec()) else { return Outcome::Refused };
    checked(morphgl_sim::MachineDescription::parse("machine", &text), |machine| {
        let places: Vec<_> = machine.machine().accelerators.into_iter().map(|device| device.place).collect();
        let seconds = machine.in_use_by_all().all_reduce(&places, 1e6);
        assert!(seconds.is_finite() && seconds >= 0.0, "{seconds} s");
        assert!(places.iter().all(|place| machine.device(place).is_some()));
    })
}

fn config(_: &Sandbox, _: usize, bytes: &[u8]) -> Outcome {
    #[derive(serde::Deserialize)]
    struct Configured {
        job: morphgl::JobConfig,
    }
    let Ok(text) = morphgl_platform::text(bytes.to_vec()) else { return Outcome::Refused };
    match toml::from_str::<Configured>(&text) {
        Ok(configured) => {
            let job = configured.job;
            let valid = job.spec.model.validate().and_then(|()| job.spec.optimizer.validate());
            checked(valid, |()| drop(job.spec.model.parameters()))
        }
        Err(_) => Outcome::Refused,
    }
}
