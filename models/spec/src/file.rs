//! Models as safetensors files, with PyG's parameter names and the spec in the metadata.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;

use half::{bf16, f16};
use morphgl_platform::replace_file;
use morphgl_registry::{Error, NamedTensor, Result};
use safetensors::tensor::{Metadata, TensorView};
use safetensors::{Dtype, SafeTensorError, SafeTensors, View};
use serde::Serialize;

use crate::{ModelSpec, check_tensors};

/// Key of the metadata entry that holds the spec.
const SPEC: &str = "morphgl_model_spec";

/// A tensor as `safetensors` reads it.
struct F32View<'a>(&'a NamedTensor);

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

/// Writes a model to a temporary file beside `path`, which is then renamed: `path` is never half-written.
///
/// # Errors
///
/// Parameters that are not the spec's, or a file that cannot be written.
pub fn save_model(path: &Path, spec: &ModelSpec, parameters: &[NamedTensor]) -> Result<()> {
    let parameters = check_tensors(&path.display().to_string(), &spec.parameters(), parameters)?;
    let json = serde_json::to_string(spec).expect("a spec of numbers and words is JSON");
    let metadata = BTreeMap::from([(SPEC, json.as_str()), ("format", "pt")]);
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
/// A file that is missing, truncated or not safetensors; no spec; or parameters that are not the spec's.
pub fn load_model(path: &Path) -> Result<(ModelSpec, Vec<NamedTensor>)> {
    let bytes = read(path)?;
    let (_, metadata) = SafeTensors::read_metadata(&bytes).map_err(|e| broken(path, &e))?;
    let json = metadata.metadata().as_ref().and_then(|entries| entries.get(SPEC)).ok_or_else(|| {
        let cure = "it contains no model spec; read its tensors alone and give the model's options again";
        Error::setting(path.display(), cure)
    })?;
    let spec: ModelSpec = serde_json::from_str(json)
        .map_err(|e| Error::setting(path.display(), format!("its model spec cannot be read ({e}); save it again")))?;
    spec.validate()?;
    let tensors = tensors(path, &bytes)?;
    let ordered = check_tensors(&path.display().to_string(), &spec.parameters(), &tensors)?;
    Ok((spec, ordered.into_iter().cloned().collect()))
}

/// Reads the tensors of a safetensors file, for example a PyG `state_dict`, widened or narrowed to f32.
/// Entries named `num_batches_tracked` are skipped; no model here reads them.
///
/// # Errors
///
/// A file that is missing, truncated or not safetensors, or a tensor that is not of floats.
pub fn load_parameters(path: &Path) -> Result<Vec<NamedTensor>> {
    tensors(path, &read(path)?)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|e| Error::failed(path.display(), format!("{e}; check the path")))
}

fn broken(path: &Path, error: &dyn std::error::Error) -> Error {
    let what = format!("not a whole safetensors file ({error}); copy or export it again");
    Error::failed(path.display(), what)
}

fn tensors(path: &Path, bytes: &[u8]) -> Result<Vec<NamedTensor>> {
    let file = SafeTensors::deserialize(bytes).map_err(|e| broken(path, &e))?;
    let read = file.iter().filter(|(name, _)| !name.ends_with("num_batches_tracked"));
    let mut tensors = read
        .map(|(name, view)| {
            let values = floats(&view).ok_or_else(|| {
                let what = format!("{name} is of type {:?}; export floats (f32, f64, f16 or bf16)", view.dtype());
                Error::setting(path.display(), what)
            })?;
            Ok(NamedTensor { name: name.to_string(), shape: view.shape().to_vec(), values })
        })
        .collect::<Result<Vec<_>>>()?;
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(tensors)
}

fn floats(view: &TensorView<'_>) -> Option<Vec<f32>> {
    fn each<const N: usize>(bytes: &[u8], read: impl Fn([u8; N]) -> f32) -> Vec<f32> {
        bytes.as_chunks::<N>().0.iter().map(|&b| read(b)).collect()
    }
    let bytes = view.data();
    Some(match view.dtype() {
        Dtype::F32 => each(bytes, f32::from_le_bytes),
        Dtype::F64 => each(bytes, |b| f64::from_le_bytes(b) as f32),
        Dtype::F16 => each(bytes, |b| f16::from_le_bytes(b).to_f32()),
        Dtype::BF16 => each(bytes, |b| bf16::from_le_bytes(b).to_f32()),
        _ => return None,
    })
}
