//! Wrong usage, told apart from what fails: exit status 2, as where clap finds it.

use std::fmt::{self, Display};

use super::show;

/// An option that must be changed or left out; one line that names it and the cure.
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

/// Turns what others say of an option's value into wrong usage.
pub(crate) trait OrUsage<T> {
    /// Names the option before what is wrong with it.
    fn or_usage(self, option: impl Display) -> anyhow::Result<T>;
}

impl<T, E: Into<anyhow::Error>> OrUsage<T> for Result<T, E> {
    fn or_usage(self, option: impl Display) -> anyhow::Result<T> {
        self.map_err(|e| Usage::error(show::one_line(&e.into().context(option.to_string()))))
    }
}
