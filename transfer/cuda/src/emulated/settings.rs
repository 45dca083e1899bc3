//! Settings of the emulated device.

/// Settings from `MORPHGL_EMULATION`: comma-separated words. Without the variable the probe finds no device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    /// `late`: streams run nothing until a wait.
    pub(crate) late: bool,
    /// `memory=BYTES`: device memory, and as much pinned memory.
    pub(crate) memory: u64,
    /// `locked=BYTES`: host memory that may be pinned in place.
    pub(crate) locked: u64,
    /// `devices=N`: devices reported by the probe; more can be opened.
    pub(crate) devices: u32,
    /// `apart=I-J`, repeatable: pairs of devices without peer access.
    pub(crate) apart: Vec<[u32; 2]>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { late: false, memory: 2 << 30, locked: u64::MAX, devices: 1, apart: Vec::new() }
    }
}

impl Settings {
    pub(crate) fn from_env() -> Result<Self, String> {
        match std::env::var("MORPHGL_EMULATION") {
            Ok(text) => Self::parse(&text),
            Err(_) => Ok(Self { devices: 0, ..Self::default() }),
        }
    }

    /// Whether device `i` has peer access to device `j`.
    pub(crate) fn reaches(&self, i: u32, j: u32) -> bool {
        !self.apart.iter().any(|pair| *pair == [i, j] || *pair == [j, i])
    }

    fn parse(text: &str) -> Result<Self, String> {
        const WORDS: &str = "give late, memory=BYTES, locked=BYTES, devices=N or apart=I-J";
        let wrong = |word: &str| format!("MORPHGL_EMULATION has {word}; {WORDS}");
        let mut settings = Self::default();
        for word in text.split(',').filter(|word| !word.is_empty()) {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let bytes = || value.parse().map_err(|_| wrong(word));
            match (name, value) {
                ("late", "") => settings.late = true,
                ("memory", _) => settings.memory = bytes()?,
                ("locked", _) => settings.locked = bytes()?,
                ("devices", _) => settings.devices = value.parse().map_err(|_| wrong(word))?,
                ("apart", _) => {
                    let pair = value.split_once('-').and_then(|(i, j)| Some([i.parse().ok()?, j.parse().ok()?]));
                    settings.apart.push(pair.ok_or_else(|| wrong(word))?);
                }
                _ => return Err(wrong(word)),
            }
        }
        Ok(settings)
    }
}

#[cfg(test)]
mod tests;
