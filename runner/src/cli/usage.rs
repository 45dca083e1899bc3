//! Errors about options' values.

use std::fmt::Display;

use super::show;
pub(crate) use crate::usage::Usage;

/// Turns an error about an option's value into wrong usage.
pub(crate) trait OrUsage<T> {
    /// Prefixes the error with the option.
    fn or_usage(self, option: impl Display) -> anyhow::Result<T>;
}

impl<T, E: Into<anyhow::Error>> OrUsage<T> for Result<T, E> {
    fn or_usage(self, option: impl Display) -> anyhow::Result<T> {
        self.map_err(|e| Usage::error(show::one_line(&e.into().context(option.to_string()))))
    }
}
