//! How the emulated device is to behave.

/// Settings, as `MORPHGL_EMULATION` gives them: words with commas between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    /// `late`: streams do nothing before somebody waits for it.
    pub(crate) late: bool,
    /// `memory=BYTES` of the device and of pinned memory.
    pub(crate) memory: u64,
    /// `locked=BYTES` of host memory that may be pinned in place.
    pub(crate) locked: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { late: false, memory: 2 << 30, locked: u64::MAX }
    }
}

impl Settings {
    /// Those of the environment.
    pub(crate) fn from_env() -> Result<Self, String> {
        match std::env::var("MORPHGL_EMULATION") {
            Ok(text) => Self::parse(&text),
            Err(_) => Ok(Self::default()),
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        let wrong = |word: &str| format!("MORPHGL_EMULATION has {word}; give late, memory=BYTES or locked=BYTES");
        let mut settings = Self::default();
        for word in text.split(',').filter(|word| !word.is_empty()) {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let bytes = || value.parse().map_err(|_| wrong(word));
            match (name, value) {
                ("late", "") => settings.late = true,
                ("memory", _) => settings.memory = bytes()?,
                ("locked", _) => settings.locked = bytes()?,
                _ => return Err(wrong(word)),
            }
        }
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::Settings;

    #[test]
    fn settings_are_words() {
        let expected = Settings { late: true, memory: 1000, locked: u64::MAX };
        assert_eq!(Settings::parse("late,memory=1000"), Ok(expected));
        assert_eq!(Settings::parse(""), Ok(Settings::default()));
        for wrong in ["early", "late=1", "memory", "locked=many"] {
            let error = Settings::parse(wrong).expect_err("it is none");
            assert!(error.contains(wrong) && error.contains("give late"), "{error}");
        }
    }
}
