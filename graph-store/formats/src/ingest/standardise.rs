//! Columns of features to mean 0 and deviation 1 over the training nodes.

use std::path::Path;

use half::{bf16, f16};
use morphgl_graph_store::{Dtype, Error, FeatureMatrix, Load, Meta, Result, read_npy};
use rayon::prelude::*;
use serde_json::{Value, json};

use super::features::{FEATURES, FeatureSink};
use crate::encode::Encode;
use crate::files::invalid;
use crate::{Ingest, Standardise};

const OPTION: &str = "--standardise";
/// Training nodes summed by one thread at a time: sums are the same on any number of threads.
const NODES: usize = 1 << 12;

/// Mean and deviation of each column; a column is standardised to (value - mean) / deviation, and only centred where the deviation
/// is 0.
struct Columns {
    means: Vec<f32>,
    deviations: Vec<f32>,
}

impl Ingest<'_> {
    /// Standardises the features, where the options say so, once splits are known.
    pub(super) fn standardise(&mut self) -> Result<()> {
        let options = self.options();
        let Some(how) = &options.standardise else { return Ok(()) };
        let Some((source, dtype)) =
            self.rows.iter().find(|(name, ..)| *name == "features").map(|row| row.1.clone()).zip(self.feature_dtype)
        else {
            return invalid(OPTION, "the graph has no features", "leave it out, or give features by --features FILE");
        };
        let Some(file) = self.writer.take_back("features")? else { unreachable!("the features are written") };
        self.rows.retain(|(name, ..)| *name != "features");
        let num_nodes = self.num_nodes.unwrap_or(0) as usize;
        let matrix = read(&file, dtype, num_nodes)?;
        let dim = matrix.dim();
        let columns = match how {
            Standardise::ByTraining => {
                let mut nodes = self.array_of_split()?;
                nodes.sort_unstable();
                nodes.dedup();
                if nodes.is_empty() {
                    let cure =
                        "give them by --train FILE or --split, or take those of a dataset by --standardise=DATASET";
                    return invalid(OPTION, "there are no training nodes", cure);
                }
                of_nodes(&matrix, &nodes)
            }
            Standardise::As(dataset) => of_dataset(dataset, dim)?,
        };
        // Fractions do not fit into u8.
        let dtype = options.feature_dtype.unwrap_or(if dtype == Dtype::U8 { Dtype::F32 } else { dtype });
        let mut sink = FeatureSink::create(FEATURES, &source, self, Encode { dim, dtype, normalize: None })?;
        sink.push_rows(num_nodes, |node, row| {
            matrix.rows(node..node + 1).to_f32(row);
            let columns = columns.means.iter().zip(&columns.deviations);
            for (value, (&mean, &deviation)) in row.iter_mut().zip(columns) {
                let divisor = if deviation > 0.0 { f64::from(deviation) } else { 1.0 };
                *value = ((f64::from(*value) - f64::from(mean)) / divisor) as f32;
            }
        })?;
        sink.finish()?;
        drop(matrix);
        std::fs::remove_file(&file).map_err(|e| Error::io(&file, e))?;
        let constant = columns.deviations.iter().filter(|&&deviation| deviation == 0.0).count();
        if constant > 0 {
            self.note(format!(
                "{constant} of {dim} features are the same at every training node: they are centred alone"
            ));
        }
        self.provenance("features_standardised", columns.json());
        Ok(())
    }

    /// The training nodes.
    fn array_of_split(&self) -> Result<Vec<u32>> {
        if self.dir().join("train.npy").exists() { Ok(self.array::<u32>("train")?.to_vec()) } else { Ok(Vec::new()) }
    }
}

impl Columns {
    /// As `graph.json` keeps them; the id tells them from others.
    fn json(&self) -> Value {
        let values = self.means.iter().chain(&self.deviations);
        // FNV-1a.
        let id = values
            .flat_map(|value| value.to_bits().to_le_bytes())
            .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
        json!({ "id": format!("{id:016x}"), "mean": self.means, "deviation": self.deviations })
    }
}

/// The features of a temporary file.
fn read(file: &Path, dtype: Dtype, num_nodes: usize) -> Result<FeatureMatrix> {
    let dim = |len: usize| len.checked_div(num_nodes).unwrap_or(1);
    Ok(match dtype {
        Dtype::F16 => {
            read_npy::<f16>(file, Load::Mmap).map(|(data, _)| FeatureMatrix::F16 { dim: dim(data.len()), data })?
        }
        Dtype::Bf16 => {
            read_npy::<bf16>(file, Load::Mmap).map(|(data, _)| FeatureMatrix::Bf16 { dim: dim(data.len()), data })?
        }
        Dtype::U8 => {
            read_npy::<u8>(file, Load::Mmap).map(|(data, _)| FeatureMatrix::U8 { dim: dim(data.len()), data })?
        }
        _ => read_npy::<f32>(file, Load::Mmap).map(|(data, _)| FeatureMatrix::F32 { dim: dim(data.len()), data })?,
    })
}

/// Mean and deviation over `nodes`, of which there is one at least: in two passes, in f64.
fn of_nodes(matrix: &FeatureMatrix, nodes: &[u32]) -> Columns {
    let dim = matrix.dim();
    let sums = |term: &(dyn Fn(usize, f64) -> f64 + Sync)| -> Vec<f64> {
        let of_chunk = |nodes: &[u32]| {
            let (mut sums, mut row) = (vec![0f64; dim], vec![0f32; dim]);
            for &node in nodes {
                matrix.rows(node as usize..node as usize + 1).to_f32(&mut row);
                sums.iter_mut().zip(&row).enumerate().for_each(|(c, (sum, &value))| *sum += term(c, value.into()));
            }
            sums
        };
        let chunks: Vec<Vec<f64>> = nodes.par_chunks(NODES).map(of_chunk).collect();
        (0..dim).map(|column| chunks.iter().map(|sums| sums[column]).sum::<f64>() / nodes.len() as f64).collect()
    };
    let means = sums(&|_, value| value);
    let variances = sums(&|column, value| (value - means[column]).powi(2));
    Columns {
        means: means.iter().map(|&mean| mean as f32).collect(),
        deviations: variances.iter().map(|variance| variance.sqrt() as f32).collect(),
    }
}

/// Those by which the features of another dataset were standardised.
fn of_dataset(path: &Path, dim: usize) -> Result<Columns> {
    let meta = Meta::read(path)?;
    let list = |key: &str| -> Option<Vec<f32>> {
        let values = meta.provenance.get("features_standardised")?.get(key)?.as_array()?;
        values.iter().map(|value| value.as_f64().map(|value| value as f32).filter(|value| value.is_finite())).collect()
    };
    let Some((means, deviations)) = list("mean").zip(list("deviation")) else {
        return invalid(path, "its features are not standardised", "import it with --standardise first");
    };
    if means.len() != dim || deviations.len() != dim {
        let what = format!("it has {} features, and this graph {dim}", means.len());
        return invalid(path, what, "give the same features, in the same order");
    }
    Ok(Columns { means, deviations })
}
