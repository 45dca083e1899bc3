//! A safetensors file: its header first, then the tensors that are asked for.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use morphgl_graph_store::Schema;
use morphgl_platform::{excerpt, open_regular};
use morphgl_registry::{Error, NamedTensor, Result};
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

use super::{SCHEMA, SPEC};
use crate::{ModelKind, ModelSpec, check_tensors};

/// Maximum bytes of a header: 100,000 tensors have a shorter one.
const MAX_HEADER: u64 = 16 << 20;
/// Characters of a message about the header, which quotes it.
const EXCERPT: usize = 300;

/// A safetensors file whose header is read and checked against the file's length, and whose tensors are not read yet.
///
/// Memory is the header's, at most 16 MiB in the file, until tensors are read.
pub struct ModelFile<R> {
    path: PathBuf,
    reader: R,
    // Invariant: tensors lie one behind the other from `data` on, in as many bytes as their shapes need, up to the end of the file.
    metadata: Metadata,
    /// Offset of the first tensor.
    data: u64,
}

impl ModelFile<BufReader<File>> {
    /// Opens a file and reads its header.
    ///
    /// # Errors
    ///
    /// A file that is missing or not a regular one, and those of [`ModelFile::new`].
    pub fn open(path: &Path) -> Result<Self> {
        let unreadable = |e| Error::failed(path.display(), format!("{e}; check the path"));
        let file = open_regular(path).map_err(|e| match e.kind() {
            io::ErrorKind::NotSeekable | io::ErrorKind::IsADirectory => {
                Error::setting(path.display(), "this is not a regular file; name a safetensors file")
            }
            _ => unreadable(e),
        })?;
        let metadata = file.metadata().map_err(unreadable)?;
        Self::new(path, BufReader::new(file), metadata.len())
    }
}

impl<R: Read + Seek> ModelFile<R> {
    /// Reads the header of `reader`, which has `len` bytes; errors name `path`.
    ///
    /// # Errors
    ///
    /// Not a whole safetensors file: a header that is no JSON, is longer than 16 MiB or the file, or names a tensor twice; tensors
    /// that overlap, leave gaps, or need other than all bytes behind the header.
    pub fn new(path: &Path, mut reader: R, len: u64) -> Result<Self> {
        let broken = |what: &dyn fmt::Display| broken(path, what);
        let mut prefix = [0; 8];
        reader.read_exact(&mut prefix).map_err(|e| broken(&e))?;
        let header_len = u64::from_le_bytes(prefix);
        let data = header_len.saturating_add(prefix.len() as u64);
        if data > len {
            return Err(broken(&format_args!("a header of {header_len} bytes in a file of {len}")));
        }
        if header_len > MAX_HEADER {
            return Err(broken(&format_args!("a header of {header_len} bytes, at most {MAX_HEADER} are read")));
        }
        let mut header = vec![0; header_len as usize];
        reader.read_exact(&mut header).map_err(|e| broken(&e))?;
        if let Some(name) = repeated_key(&header).map_err(|e| broken(&e))? {
            return Err(broken(&format_args!("the tensor {:?} is there twice", excerpt(&name, EXCERPT))));
        }
        let metadata: Metadata = serde_json::from_slice(&header).map_err(|e| broken(&e))?;
        let promised = metadata.data_len() as u64;
        if len - data != promised {
            let behind = len - data;
            return Err(broken(&format_args!("the header promises {promised} bytes of tensors, there are {behind}")));
        }
        Ok(Self { path: path.into(), reader, metadata, data })
    }

    /// The spec that [`save_model`](crate::save_model) wrote.
    ///
    /// # Errors
    ///
    /// There is none, or it is invalid.
    pub fn spec(&self) -> Result<ModelSpec> {
        let json = self.metadata.metadata().as_ref().and_then(|entries| entries.get(SPEC)).ok_or_else(|| {
            self.setting("it contains no model spec; read its tensors alone and give the model's options again")
        })?;
        let spec: ModelSpec = serde_json::from_str(json).map_err(|e| {
            let what = excerpt(&e.to_string(), EXCERPT).into_owned();
            self.setting(format!("its model spec cannot be read ({what}); save it again"))
        })?;
        spec.validate().map_err(|e| self.setting(format!("its model spec is invalid: {e}")))?;
        Ok(spec)
    }

    /// The schema of the dataset that the model of `spec` was trained on; an empty one in files that have none.
    ///
    /// # Errors
    ///
    /// It is not readable, or names twice, or other than as many features and classes as the model has.
    pub fn schema(&self, spec: &ModelSpec) -> Result<Schema> {
        let entry = self.metadata.metadata().as_ref().and_then(|entries| entries.get(SCHEMA));
        let Some(json) = entry else { return Ok(Schema::default()) };
        let schema: Schema = serde_json::from_str(json).map_err(|e| {
            let what = excerpt(&e.to_string(), EXCERPT).into_owned();
            self.setting(format!("its names of features and classes cannot be read ({what}); save it again"))
        })?;
        for (what, names, count) in [
            ("features", &schema.features, spec.in_dim),
            ("classes", &schema.classes, spec.target_width()),
            ("targets", &schema.targets, spec.target_width()),
        ] {
            let Some(names) = names else { continue };
            let distinct = names.iter().collect::<BTreeSet<_>>().len();
            if distinct != count || names.len() != count {
                let found = names.len();
                return Err(self.setting(format!(
                    "it names {found} {what}, {distinct} of them different, of a model of {count}; save it again"
                )));
            }
        }
        Ok(schema)
    }

    /// Reads the parameters of `spec`, in its order, widened or narrowed to f32. Names and shapes are checked before anything is
    /// read, so that memory is the model's whatever the file has. Of a custom model all tensors are read, by name.
    ///
    /// # Errors
    ///
    /// Parameters that are missing, unknown, of other shapes, not of floats, or with values that are NaN or infinite.
    pub fn parameters(&mut self, spec: &ModelSpec) -> Result<Vec<NamedTensor>> {
        if spec.kind == ModelKind::Custom {
            return self.all();
        }
        let expected = spec.parameters();
        let infos = self.tensors();
        let wrong = |text: String| self.setting(format!("{text}; use tensors of a model with the same spec"));
        if let Some((unknown, _)) = infos.iter().find(|(name, _)| expected.iter().all(|p| p.name != *name)) {
            return Err(wrong(format!("{} is none of the model's", excerpt(unknown, EXCERPT))));
        }
        for parameter in &expected {
            let Some((name, info)) = infos.iter().find(|(name, _)| parameter.name == *name) else {
                return Err(wrong(format!("{} is missing", parameter.name)));
            };
            if info.shape != parameter.shape {
                let shape = excerpt(&format!("{:?}", info.shape), EXCERPT).into_owned();
                return Err(wrong(format!("{name} has shape {shape}, expected {:?}", parameter.shape)));
            }
        }
        let tensors = infos.into_iter().map(|(name, info)| self.tensor(name, info)).collect::<Result<Vec<_>>>()?;
        let ordered = check_tensors(&self.path.display().to_string(), &expected, &tensors)?;
        Ok(ordered.into_iter().cloned().collect())
    }

    /// Reads all tensors, by name.
    pub(super) fn all(&mut self) -> Result<Vec<NamedTensor>> {
        self.tensors().into_iter().map(|(name, info)| self.tensor(name, info)).collect()
    }

    /// Names and descriptions of the tensors that models read, by name.
    fn tensors(&self) -> Vec<(String, TensorInfo)> {
        let all = self.metadata.tensors().into_iter().filter(|(name, _)| !name.ends_with("num_batches_tracked"));
        let mut tensors: Vec<_> = all.map(|(name, info)| (name, info.clone())).collect();
        tensors.sort_by(|a, b| a.0.cmp(&b.0));
        tensors
    }

    fn tensor(&mut self, name: String, info: TensorInfo) -> Result<NamedTensor> {
        let TensorInfo { dtype, shape, data_offsets: (start, end) } = info;
        let Some(decode) = floats(dtype) else {
            let name = excerpt(&name, EXCERPT);
            let what = format!("{name} is of type {dtype:?}; export floats (f32, f64, f16 or bf16)");
            return Err(self.setting(what));
        };
        let mut bytes = vec![0; end - start];
        let read = self.reader.seek(SeekFrom::Start(self.data + start as u64));
        read.and_then(|_| self.reader.read_exact(&mut bytes)).map_err(|e| broken(&self.path, &e))?;
        let values = decode(&bytes);
        if let Some(i) = values.iter().position(|v| !v.is_finite()) {
            let (name, value) = (excerpt(&name, EXCERPT), values[i]);
            let cure =
                "training diverged or the file is damaged: use an earlier model, or train again with a smaller --lr";
            return Err(self.setting(format!("element {i} of {name} is {value}; {cure}")));
        }
        Ok(NamedTensor { name, shape, values })
    }

    fn setting(&self, what: impl Into<String>) -> Error {
        Error::setting(self.path.display(), what)
    }
}

impl<R> fmt::Debug for ModelFile<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ModelFile({}, {} bytes of tensors)", self.path.display(), self.metadata.data_len())
    }
}

fn broken(path: &Path, what: &dyn fmt::Display) -> Error {
    let what = what.to_string();
    let what = format!("not a whole safetensors file ({}); copy or export it again", excerpt(&what, EXCERPT));
    Error::failed(path.display(), what)
}

/// The first key that a JSON object has twice: `safetensors` would silently take the last of its entries.
fn repeated_key(json: &[u8]) -> serde_json::Result<Option<String>> {
    struct Keys;

    impl<'de> Visitor<'de> for Keys {
        type Value = Option<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Self::Value, A::Error> {
            let (mut keys, mut repeated) = (BTreeSet::new(), None);
            while let Some((key, IgnoredAny)) = map.next_entry::<String, IgnoredAny>()? {
                if let Some(key) = keys.replace(key) {
                    repeated.get_or_insert(key);
                }
            }
            Ok(repeated)
        }
    }

    serde_json::Deserializer::from_slice(json).deserialize_map(Keys)
}

/// Decodes elements of one type.
type Decode = fn(&[u8]) -> Vec<f32>;

/// The decoder of a type of floats.
fn floats(dtype: Dtype) -> Option<Decode> {
    fn each<const N: usize>(bytes: &[u8], read: impl Fn([u8; N]) -> f32) -> Vec<f32> {
        bytes.as_chunks::<N>().0.iter().map(|&b| read(b)).collect()
    }
    Some(match dtype {
        Dtype::F32 => |bytes| each(bytes, f32::from_le_bytes),
        Dtype::F64 => |bytes| each(bytes, |b| f64::from_le_bytes(b) as f32),
        Dtype::F16 => |bytes| each(bytes, |b| f16::from_le_bytes(b).to_f32()),
        Dtype::BF16 => |bytes| each(bytes, |b| bf16::from_le_bytes(b).to_f32()),
        _ => return None,
    })
}
