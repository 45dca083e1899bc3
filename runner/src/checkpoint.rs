//! Checkpoints: files from which training continues as if it had not been interrupted.
//!
//! A checkpoint is a safetensors file, whose metadata is a JSON document, followed by the XXH3-64 of its bytes in 8 bytes,
//! low byte first. It is written beside its path and renamed.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use morphgl_execute::TrainingState;
use morphgl_model_core::{Confusion, F32View, Plateau};
use morphgl_platform::open_regular;
use morphgl_registry::NamedTensor;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

use crate::Evaluated;
use crate::position::Position;
use crate::train::{Best, Progress, StopReason, TrainReport};

/// Key of the metadata entry with the JSON document.
const HEADER: &str = "morphgl_checkpoint";

/// The newest version of the format this build reads, and the one it writes.
const VERSION: u32 = 1;

/// Bytes of the checksum at the end.
const CHECKSUM: usize = 8;

/// All that a run continues from.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    /// How far training is. The rows of the epochs done are not in the file.
    pub progress: Progress,
    /// Of the executor.
    pub position: Position,
    /// Parameters and optimizer.
    pub training: TrainingState,
    /// What its writer has added about the run.
    pub run: Value,
}

#[derive(Serialize, Deserialize)]
struct Header<'a> {
    version: u32,
    epoch: u32,
    predicted_seconds: f64,
    replanned: u32,
    stop_reason: StopReason,
    #[serde(default)]
    plateau: Plateau,
    best: Option<BestScores>,
    test: Option<Evaluated>,
    position: Cow<'a, Position>,
    run: Cow<'a, Value>,
    /// Names of the tensors of each group, in order.
    parameters: Vec<Cow<'a, str>>,
    optimizer: Vec<Cow<'a, str>>,
    best_parameters: Vec<Cow<'a, str>>,
}

/// [`Best`] without its parameters.
#[derive(Serialize, Deserialize)]
struct BestScores {
    epoch: u32,
    valid: Evaluated,
    test: Option<Evaluated>,
    #[serde(default)]
    confusion: Option<Confusion>,
}

/// Groups of tensors: prefixes of their names in the file.
const GROUPS: [&str; 3] = ["parameters", "optimizer", "best"];

fn names(tensors: &[NamedTensor]) -> Vec<Cow<'_, str>> {
    tensors.iter().map(|t| Cow::Borrowed(&t.name[..])).collect()
}

impl Checkpoint {
    /// Writes the `bytes` of a checkpoint, and their checksum.
    pub(crate) fn write(bytes: &[u8], out: &mut impl Write) -> io::Result<()> {
        out.write_all(bytes)?;
        out.write_all(&xxh3_64(bytes).to_le_bytes())
    }

    /// The bytes of a checkpoint, without their checksum.
    pub(crate) fn encode(
        progress: &Progress,
        position: &Position,
        training: &TrainingState,
        run: &Value,
    ) -> Result<Vec<u8>> {
        let Progress { epoch, predicted_seconds, replanned, plateau, report } = progress;
        let best = report.best.as_ref();
        let groups = [&training.parameters[..], &training.optimizer, best.map_or(&[], |best| &best.parameters)];
        let [parameters, optimizer, best_parameters] = groups.map(names);
        let header = Header {
            version: VERSION,
            epoch: *epoch,
            predicted_seconds: *predicted_seconds,
            replanned: *replanned,
            stop_reason: report.stop_reason,
            plateau: *plateau,
            best: best.map(|best| BestScores {
                epoch: best.epoch,
                valid: best.valid,
                test: best.test,
                confusion: best.confusion.clone(),
            }),
            test: report.test,
            position: Cow::Borrowed(position),
            run: Cow::Borrowed(run),
            parameters,
            optimizer,
            best_parameters,
        };
        let metadata = HashMap::from([(HEADER.to_string(), serde_json::to_string(&header)?)]);
        let tensors = GROUPS.iter().zip(groups).flat_map(|(group, tensors)| {
            tensors.iter().map(move |tensor| (format!("{group}/{}", tensor.name), F32View(tensor)))
        });
        Ok(safetensors::serialize(tensors, Some(metadata))?)
    }

    /// Reads what `write` wrote.
    ///
    /// # Errors
    ///
    /// A file that cannot be read, whose checksum does not hold, or of a newer version.
    pub fn read(path: &Path) -> Result<Self> {
        let what = || format!("{}: no whole checkpoint", path.display());
        let mut bytes = Vec::new();
        open_regular(path).and_then(|mut file| file.read_to_end(&mut bytes)).with_context(what)?;
        let Some(length) = bytes.len().checked_sub(CHECKSUM) else { bail!("{}: it is cut short", what()) };
        let checksum = bytes.split_off(length);
        ensure!(checksum == xxh3_64(&bytes).to_le_bytes(), "{}: its checksum does not hold", what());
        Self::parse(&bytes).with_context(what)
    }

    /// Reads what [`Checkpoint::encode`] made.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self> {
        let (_, metadata) = SafeTensors::read_metadata(bytes)?;
        let header = metadata.metadata().as_ref().and_then(|entries| entries.get(HEADER));
        let header: Value = serde_json::from_str(header.context("it has no header")?)?;
        let version = header["version"].as_u64().unwrap_or(0);
        ensure!(version <= u64::from(VERSION), "it is of version {version}, and this program reads {VERSION}");
        let header: Header<'_> = serde_json::from_value(header)?;
        let file = SafeTensors::deserialize(bytes)?;
        let group = |group: &str, names: &[Cow<'_, str>]| {
            names.iter().map(|name| tensor(name, &file.tensor(&format!("{group}/{name}"))?)).collect::<Result<Vec<_>>>()
        };
        let parameters = group(GROUPS[0], &header.parameters)?;
        let optimizer = group(GROUPS[1], &header.optimizer)?;
        let best_parameters = group(GROUPS[2], &header.best_parameters)?;
        let best = header.best.map(|BestScores { epoch, valid, test, confusion }| Best {
            epoch,
            valid,
            test,
            confusion,
            parameters: best_parameters,
        });
        Ok(Self {
            progress: Progress {
                epoch: header.epoch,
                predicted_seconds: header.predicted_seconds,
                replanned: header.replanned,
                plateau: header.plateau,
                report: TrainReport { epochs: Vec::new(), best, test: header.test, stop_reason: header.stop_reason },
            },
            position: header.position.into_owned(),
            training: TrainingState { parameters, optimizer },
            run: header.run.into_owned(),
        })
    }
}

fn tensor(name: &str, view: &TensorView<'_>) -> Result<NamedTensor> {
    ensure!(view.dtype() == Dtype::F32, "{name} is of type {:?}", view.dtype());
    let values = view.data().as_chunks::<4>().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
    Ok(NamedTensor { name: name.to_string(), shape: view.shape().to_vec(), values })
}
