//! Wrong usage: errors that the command line ends with status 2, as clap's own.

use std::fmt::{self, Display};

use crate::words::one_line;

/// An option that must be changed or left out: one line that names it and the cure.
#[derive(Debug)]
pub(crate) struct Usage(String);

impl Usage {
    pub(crate) fn error(text: impl Into<String>) -> anyhow::Error {
        Self(text.into()).into()
    }
}

impl Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Turns an error about an option's value into wrong usage.
pub(crate) trait OrUsage<T> {
    /// Prefixes the error with the option.
    fn or_usage(self, option: impl Display) -> anyhow::Result<T>;
}

impl<T, E: Into<anyhow::Error>> OrUsage<T> for Result<T, E> {
    fn or_usage(self, option: impl Display) -> anyhow::Result<T> {
        self.map_err(|e| Usage::error(one_line(&e.into().context(option.to_string()))))
    }
}
