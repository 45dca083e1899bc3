//! Paths in JSON and in config.toml, which hold text alone, where a path may be any bytes.

use std::path::Path;

/// A path in a result: bytes that are no UTF-8 are replaced by U+FFFD.
pub(crate) fn lossy(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// A path in a file that leads back to it: text, or, where it is no UTF-8, the list of its bytes.
pub(crate) mod exact {
    use std::path::PathBuf;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Exact {
        Text(PathBuf),
        #[cfg(unix)]
        Bytes(Vec<u8>),
    }

    pub(crate) fn serialize<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
        let exact = |path: &PathBuf| match path.to_str() {
            #[cfg(unix)]
            None => Exact::Bytes(std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()).to_vec()),
            _ => Exact::Text(path.clone()),
        };
        path.as_ref().map(exact).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
        Ok(Option::deserialize(deserializer)?.map(|exact| match exact {
            Exact::Text(path) => path,
            #[cfg(unix)]
            Exact::Bytes(bytes) => {
                PathBuf::from(<std::ffi::OsString as std::os::unix::ffi::OsStringExt>::from_vec(bytes))
            }
        }))
    }
}
