//! Models as safetensors files, with PyG's parameter names and the spec in the metadata.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use morphgl_graph_store::Schema;
use morphgl_platform::replace_file;
use morphgl_registry::{Error, NamedTensor, Result};
use safetensors::tensor::Metadata;
use safetensors::{Dtype, SafeTensorError, SafeTensors, View};
use serde::Serialize;

pub use read::ModelFile;

use crate::{ModelKind, ModelSpec, check_tensors};

mod read;

/// Key of the metadata entry that holds the spec.
const SPEC: &str = "morphgl_model_spec";
/// Key of the metadata entry with the names of features and classes, and the features' normalisation.
const SCHEMA: &str = "morphgl_schema";

/// A tensor as `safetensors` writes it.
#[derive(Debug)]
pub struct F32View<'a>(pub &'a NamedTensor);

impl View for F32View<'_> {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }
    fn shape(&self) -> &[usize] {
        &self.0.shape
    }
    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(bytemuck::cast_slice(&self.0.values))
    }
    fn data_len(&self) -> usize {
        4 * self.0.values.len()
    }
}

/// Writes a model, and the schema of the dataset it was trained on, to a temporary file beside `path`, which is then renamed:
/// `path` is never half-written.
///
/// # Errors
///
/// Parameters that are not the spec's, or a file that cannot be written.
pub fn save_model(path: &Path, spec: &ModelSpec, schema: &Schema, parameters: &[NamedTensor]) -> Result<()> {
    let parameters = match spec.kind {
        ModelKind::Custom => parameters.iter().collect(),
        _ => check_tensors(&path.display().to_string(), &spec.parameters(), parameters)?,
    };
    let json = serde_json::to_string(spec).expect("a spec of numbers and words is JSON");
    let schema = serde_json::to_string(schema).expect("names are JSON");
    let metadata = BTreeMap::from([(SPEC, json.as_str()), (SCHEMA, schema.as_str()), ("format", "pt")]);
    let bytes = serialize(&parameters, metadata).map_err(|e| Error::failed(path.display(), e))?;
    replace_file(path, |out| out.write_all(&bytes))
        .map_err(|e| Error::failed(path.display(), format!("{e}; check that the directory exists and has room")))
}

/// The header of a safetensors file, with sorted metadata: `safetensors` writes them in the random order of a `HashMap`.
#[derive(Serialize)]
struct Header<'a> {
    #[serde(rename = "__metadata__")]
    metadata: BTreeMap<&'a str, &'a str>,
    #[serde(flatten)]
    tensors: &'a Metadata,
}

/// A safetensors file of `parameters` and `metadata`: the same bytes for the same values.
fn serialize(
    parameters: &[&NamedTensor],
    metadata: BTreeMap<&str, &str>,
) -> std::result::Result<Vec<u8>, SafeTensorError> {
    let mut bytes = safetensors::serialize(parameters.iter().map(|&t| (t.name.as_str(), F32View(t))), None)?;
    let (length, tensors) = SafeTensors::read_metadata(&bytes)?;
    let mut header = serde_json::to_vec(&Header { metadata, tensors: &tensors })?;
    // The format aligns tensors to 8 bytes.
    header.resize(header.len().next_multiple_of(8), b' ');
    let prefix = (header.len() as u64).to_le_bytes();
    bytes.splice(..prefix.len() + length, prefix.into_iter().chain(header));
    Ok(bytes)
}

/// Reads a model that [`save_model`] wrote.
///
/// # Errors
///
/// As of [`ModelFile`]: a file that is missing, truncated or not safetensors; no spec; parameters that are not the spec's, or
/// that are NaN or infinite.
pub fn load_model(path: &Path) -> Result<(ModelSpec, Vec<NamedTensor>)> {
    let mut file = ModelFile::open(path)?;
    let spec = file.spec()?;
    let parameters = file.parameters(&spec)?;
    Ok((spec, parameters))
}

/// Reads the tensors of a safetensors file, for example a PyG `state_dict`, widened or narrowed to f32, by name.
/// Entries named `num_batches_tracked` are skipped; no model here reads them. Memory is that of the file:
/// [`ModelFile::parameters`] reads no more than a model has.
///
/// # Errors
///
/// As of [`ModelFile`], and a tensor that is not of floats.
pub fn load_parameters(path: &Path) -> Result<Vec<NamedTensor>> {
    ModelFile::open(path)?.all()
}
