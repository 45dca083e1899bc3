//! What files hold before and after a command.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// Content of a file (under the name ""), or of all files of a directory; `None` where there is nothing.
pub(crate) type Content = Option<BTreeMap<String, Vec<u8>>>;

pub(crate) fn content(path: &Path) -> Content {
    fn add(path: &Path, name: &str, files: &mut BTreeMap<String, Vec<u8>>) {
        if path.is_dir() {
            // Of an empty directory as well.
            files.insert(format!("{name}/"), Vec::new());
            for entry in fs::read_dir(path).expect("readable") {
                let entry = entry.expect("readable");
                add(&entry.path(), &format!("{name}/{}", entry.file_name().to_string_lossy()), files);
            }
        } else {
            files.insert(name.to_string(), fs::read(path).expect("readable"));
        }
    }
    path.exists().then(|| {
        let mut files = BTreeMap::new();
        add(path, "", &mut files);
        files
    })
}

/// Copies a directory, links as links.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).expect("room");
    for entry in fs::read_dir(from).expect("readable") {
        let entry = entry.expect("readable");
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().expect("readable");
        if kind.is_symlink() {
            symlink(fs::read_link(&path).expect("a link"), &target).expect("room");
        } else if kind.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).expect("room");
        }
    }
}

/// Names of the entries of a directory that are temporary, at any depth.
pub(crate) fn temporaries(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).expect("readable") {
        let entry = entry.expect("readable");
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.contains(".partial-") || name.ends_with(".old") {
            found.push(name);
        } else if entry.file_type().expect("readable").is_dir() {
            found.extend(temporaries(&entry.path()));
        }
    }
    found
}

/// How a new content is known to be whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whole {
    /// It has the same bytes at every run.
    Same,
    /// JSON with measured durations.
    Json,
    /// TOML with a path of its own at every run.
    Toml,
    /// A JSON document per line; a killed process may have left the last one incomplete.
    Lines,
    /// safetensors: of a training that is interrupted it has other numbers.
    Tensors,
    /// safetensors of a training that is interrupted, and of one that is resumed to its end: that has the same bytes.
    Resumed,
    /// A page or a picture with measured durations, and its end.
    Ends(&'static str),
}

impl Whole {
    /// How the content is whole once the command has run to its end.
    pub(crate) fn at_the_end(self) -> Self {
        if self == Self::Resumed { Self::Same } else { self }
    }

    pub(crate) fn holds(self, found: &Content, expected: &Content, killed: bool) -> bool {
        let Some(text) = found.as_ref().and_then(|files| files.get("")).map(|bytes| String::from_utf8_lossy(bytes))
        else {
            return self == Self::Same && found == expected;
        };
        let bytes = found.as_ref().map_or(&[][..], |files| &files[""]);
        let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).is_ok();
        match self {
            Self::Same => found == expected,
            Self::Tensors | Self::Resumed => found == expected || tensors(bytes),
            Self::Json => json(&text),
            Self::Toml => !text.is_empty() && toml::from_str::<toml::Table>(&text).is_ok(),
            Self::Lines => {
                let (lines, rest) = text.rsplit_once('\n').unwrap_or(("", &text));
                lines.lines().all(json) && (killed || rest.is_empty())
            }
            Self::Ends(end) => text.trim_end().ends_with(end),
        }
    }
}

/// Whether a safetensors file ends where its last tensor does.
fn tensors(bytes: &[u8]) -> bool {
    let Some((length, rest)) = bytes.split_first_chunk() else { return false };
    let Some((header, data)) = rest.split_at_checked(u64::from_le_bytes(*length) as usize) else { return false };
    let Ok(serde_json::Value::Object(header)) = serde_json::from_slice(header) else { return false };
    header.values().filter_map(|tensor| tensor["data_offsets"][1].as_u64()).max() == Some(data.len() as u64)
}
